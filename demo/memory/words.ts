// What the view says of a moment, of a chunk and of a step. Pure text from a film.

import type { StepPicture } from '../../src/browser/protocol.ts';
import type { PolicyName } from '../../src/engine/compile/schedule.ts';
import { WORDS } from '../../src/train/report/memory-words.ts';
import { formatBytes } from '../../src/util/bytes.ts';
import { type Film, stateOf, tierOf } from './film.ts';

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
  const phase = history.phases.findLast(({ first }) => first <= moment)?.name;
  const label = operatorWords(history.labels[history.operators[moment] as number] ?? '');
  return `moment ${moment + 1} of ${moments}: ${phase ? `${phase}, ` : ''}${label}`;
}

/** "parameters 3 of 12". */
export function chunkWords({ history }: Film, chunk: number): string {
  const list = history.lists.find(({ first, chunks }) => chunk >= first && chunk < first + chunks);
  return list ? `${WORDS[list.kind]}, chunk ${chunk - list.first + 1} of ${list.chunks}` : '';
}

/** Where a chunk is, what it is doing, and when it is used next. */
export function whereabouts(film: Film, chunk: number): string {
  const code = film.codes[chunk] as number;
  const tier = tierOf(code);
  const state = stateOf(code);
  const place = film.places[chunk] as number;
  const where = tier === 'gpu' ? `on the GPU, slot ${place + 1}` : WORDS[tier];
  // Zeros are stored nowhere, and yet they are a value.
  const what = tier === 'none' && state !== 'FREE' ? 'all zeros' : WORDS[state];
  return `${where}; ${what}`;
}

/** Tensors that are named; the others are counted. */
const MOST_NAMES = 3;

/** "Holds layer 1 attn.c_attn.weight, rows 0 to 31; layer 1 ln_2.weight." */
export function contentWords({ history }: Film, chunk: number): string {
  const tensors = history.tensors[chunk] ?? [];
  const named = tensors.slice(0, MOST_NAMES).map(operatorWords);
  const more = tensors.length - named.length;
  return `Holds ${named.join('; ')}${more > 0 ? `; ${more} more` : ''}.`;
}

/** The next moment that uses a chunk, in this step or else the first in the next one. */
export function nextUse({ history, at }: Film, chunk: number): string {
  const uses: number[] = [];
  const runs = history.chunks[chunk] ?? [];
  for (let i = 0, m = 0; i < runs.length; i += 2) {
    const length = runs[i + 1] as number;
    if (stateOf(runs[i] as number) === 'COMPUTE') {
      for (let n = 0; n < length; n++) uses.push(m + n);
    }
    m += length;
  }
  if (uses.length === 0) return 'Not used in this step.';
  const next = uses.find((moment) => moment > at);
  const often = `Used in ${uses.length} of ${history.operators.length} moments`;
  if (next === undefined) return `${often}, again in the next step.`;
  return `${often}, next at ${next + 1}: ${operatorWords(history.labels[history.operators[next] as number] ?? '')}.`;
}

/** The picture for who does not see it. */
export function summary({ step, milliseconds, budget, history, bytes, policy }: StepPicture, film: Film): string {
  const up = film.risen.reduce((sum, count) => sum + count, 0);
  const kinds = history.lists.map(({ kind, chunks }) => `${WORDS[kind]} ${chunks}`).join(', ');
  const within = budget === undefined ? 'without a budget' : `within ${formatBytes(budget)}`;
  const moved =
    up === 0
      ? 'Everything fits on the GPU and nothing moves.'
      : `Chunks came to the GPU ${up} times; ${formatBytes(bytes.h2d)} went up and ${formatBytes(bytes.d2h)} down.`;
  return (
    `Step ${step + 1} took ${Math.round(milliseconds)} ms and ${film.moments} moments, ${within}, policy ${policy}. ` +
    `${history.chunks.length} chunks of ${formatBytes(history.chunkBytes)} (${kinds}); ${history.slots} slots on the GPU, ` +
    `at most ${Math.max(...film.used)} in use. ${moved}`
  );
}
