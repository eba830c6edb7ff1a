// The words of the memory view for a moment, a chunk and a step. Pure text from a film.

import { drawing, formatBytes, type PolicyName, type StepPicture } from '../../src/browser/index.ts';
import { at } from '../at.ts';
import { decoded, decodedState, type Film } from './film.ts';

/** Policies as people know them. */
export const POLICY_WORDS: Readonly<Record<PolicyName, string>> = {
  planned: 'Holdfast’s planner',
  OPT: 'OPT (Belady)',
  LRU: 'LRU',
  FIFO: 'FIFO',
  'PatrickStar order': 'PatrickStar',
  'Gemini order': 'Gemini',
  'ZeRO-Offload split': 'ZeRO-Offload',
};

/** An operator or a tensor by its label, with layers counted as people count them: "layer 2 mlp.c_fc.weight, rows 0 to 43". */
export const operatorWords = (label: string): string =>
  label.replace(/(?<![\w.])(?:[a-z_]+\.)+(\d+)\./, (_, index) => `layer ${Number(index) + 1} `);

/** "moment 41 of 186: backward, layer 2 attn.c_proj.bias". */
export function momentWords({ history, moments }: Film, moment: number): string {
  const phase = drawing.phaseAt(history, moment);
  return `moment ${moment + 1} of ${moments}: ${phase ? `${phase}, ` : ''}${operatorWords(drawing.operatorAt(history, moment))}`;
}

/** "parameters, chunk 3 of 12"; "layer 1 attn.c_attn, output". */
export function chunkWords({ history }: Film, chunk: number): string {
  const tensor = history.activations.tensors[chunk - history.chunks.length];
  if (tensor) return drawing.activationName(tensor.name, operatorWords);
  const found = drawing.kindOf(history, chunk);
  return found ? `${drawing.WORDS[found.kind]}, chunk ${found.index + 1} of ${found.of}` : '';
}

/** Where a chunk is, what it is doing, and when it is used next. */
export function whereabouts(film: Film, chunk: number): string {
  const { tier, state, activation } = decoded(at(film.codes, chunk));
  if (activation) return `${drawing.WORDS[activation]}${state === 'COMPUTE' ? '; in use' : ''}`;
  const place = at(film.places, chunk);
  const where = tier === 'gpu' ? `on the GPU, slot ${place + 1}` : drawing.WORDS[tier];
  // Zeros are stored nowhere, and yet they are a value.
  const what = tier === 'none' && state !== 'FREE' ? 'all zeros' : drawing.WORDS[state];
  return `${where}; ${what}`;
}

/** "Holds layer 1 attn.c_attn.weight, rows 0 to 31; layer 1 ln_2.weight." */
export function contentWords({ history }: Film, chunk: number): string {
  const tensor = history.activations.tensors[chunk - history.chunks.length];
  if (tensor) return `An activation of ${formatBytes(tensor.bytes)}.`;
  return `Holds ${drawing.contentsOf(history, chunk, operatorWords)}.`;
}

/** The next moment that uses a chunk or an activation, in this step or else the first in the next one. */
export function nextUse({ history, rows, at: now }: Film, chunk: number): string {
  const uses: number[] = [];
  const runs = rows[chunk] ?? [];
  for (let i = 0, m = 0; i < runs.length; i += 2) {
    const length = at(runs, i + 1);
    if (decodedState(at(runs, i)) === 'COMPUTE') {
      for (let n = 0; n < length; n++) uses.push(m + n);
    }
    m += length;
  }
  if (uses.length === 0) return 'Not used in this step.';
  const next = uses.find((moment) => moment > now);
  const often = `Used in ${uses.length} of ${history.operators.length} moments`;
  if (next === undefined) return `${often}, again in the next step.`;
  return `${often}, next at ${next + 1}: ${operatorWords(drawing.operatorAt(history, next))}.`;
}

/** The picture in words, for screen readers. */
export function summary(
  { step, milliseconds, budget, history, bytes, offloaded, fetched, policy }: StepPicture,
  film: Film,
): string {
  const up = film.risen.reduce((sum, count) => sum + count, 0);
  const kinds = history.lists.map(({ kind, chunks }) => `${drawing.WORDS[kind]} ${chunks}`).join(', ');
  const within = budget === undefined ? 'without a budget' : `within ${formatBytes(budget)}`;
  const { kept, moved: away, again } = drawing.activationShares(history);
  const activations =
    history.activations.tensors.length === 0
      ? ''
      : ` Of ${history.activations.tensors.length} activations ${kept.count} are kept for the backward pass, ` +
        `${again.count} are given up and made again, ${away.count} are moved below the GPU and back${offloaded > 0 ? `, ${drawing.movedWords({ down: offloaded, up: fetched }, '')}` : ''}.`;
  const moved =
    up === 0
      ? 'Everything fits on the GPU and nothing moves.'
      : `Chunks came to the GPU ${up} times; ${formatBytes(bytes.h2d)} went up and ${formatBytes(bytes.d2h)} down.`;
  return (
    `Step ${step + 1} took ${Math.round(milliseconds)} ms and ${film.moments} moments, ${within}, policy ${policy}. ` +
    `${history.chunks.length} chunks of ${formatBytes(history.chunkBytes)} (${kinds}); ${drawing.slotsText(history)} on the GPU, ` +
    `at most ${film.used.reduce((a, b) => Math.max(a, b), 0)} in use. ${moved}${activations}`
  );
}
