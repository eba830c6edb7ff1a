// Words of the report and the page for tiers, states, kinds of model data and activations, one word for one thing; and
// what a history says of one moment, one chunk or all activations. Only words and look-ups: nothing is drawn here.

import { type ActivationState, type ChunkHistory, decode } from '../engine/observe/chunk-codes.ts';
import { counted } from '../util/counted.ts';

/** By tier, state or kind. */
export const WORDS: Record<string, string> = {
  gpu: 'on the GPU',
  staging: 'on its way down',
  host: 'in host memory',
  disk: 'on disk',
  none: 'nowhere',
  FREE: 'free',
  COMPUTE: 'in use',
  HOLD: 'held',
  HOLD_AFTER_FWD: 'held, forward has used it',
  HOLD_AFTER_BWD: 'held, backward has used it',
  parameter: 'parameters',
  parameterBF16: 'parameters, bf16',
  parameterLow: 'parameters, the rest of f32',
  parameterF16: 'parameters, f16',
  master: 'parameters, f32',
  gradient: 'gradients',
  gradientBF16: 'gradients, bf16',
  gradientF16: 'gradients, f16',
  moment1: '1st moment',
  moment2: '2nd moment',
  moment1BF16: '1st moment, bf16',
  moment2BF16: '2nd moment, bf16',
  frozen: 'frozen',
  frozenBF16: 'frozen, bf16',
  frozenF16: 'frozen, f16',
  frozenQ8: 'frozen, Q8_0',
  frozenQ4: 'frozen, Q4_0',
  frozenNF4: 'frozen, NF4',
  frozenQ5: 'frozen, Q5_0',
  frozenQ4K: 'frozen, Q4_K',
  frozenQ5K: 'frozen, Q5_K',
  frozenQ6K: 'frozen, Q6_K',
  activation: 'activations',
  absent: 'not made yet, or used up',
  kept: 'kept on the GPU',
  leaving: 'on its way down',
  'given up': 'given up, to be made again',
  again: 'made again',
  back: 'back on the GPU',
};

/** The phase that a moment is in. */
export const phaseAt = ({ phases }: ChunkHistory, moment: number): string =>
  phases.findLast(({ first }) => first <= moment)?.name ?? '';

/** The operator of a moment. */
export const operatorAt = ({ labels, operators }: ChunkHistory, moment: number): string =>
  labels[operators[moment] ?? 0] ?? '';

/** Of a chunk: its kind of model data, its number among those of this kind from 0, and how many they are. */
export function kindOf(
  { lists }: ChunkHistory,
  chunk: number,
): { kind: string; index: number; of: number } | undefined {
  const list = lists.find(({ first, chunks }) => chunk >= first && chunk < first + chunks);
  return list && { kind: list.kind, index: chunk - list.first, of: list.chunks };
}

/**
 * What an activation is, by the name of what makes it: "h.0.attn.c_attn.weight" is "h.0.attn.c_attn, output". `named`: as in
 * `contentsOf`.
 */
export function activationName(name: string, named = (name: string): string => name): string {
  const found = /^(.*?)(?:\.weight)?(?: (before \w+|lse|mean|rstd))?$/.exec(name) ?? [];
  const [, operator = name, part = 'output'] = found;
  return `${named(operator)}, ${PARTS[part] ?? part}`;
}

const PARTS: Readonly<Record<string, string>> = {
  'before gelu': 'before GELU',
  'before geluErf': 'before GELU',
  lse: 'log-sum-exp',
  mean: 'means',
  rstd: 'deviations',
};

/** How many activations stay on the GPU, are moved below it, and are made again; and the bytes of each. */
export function activationShares({
  activations: { tensors, codes },
}: ChunkHistory): Readonly<Record<'kept' | 'moved' | 'again', { readonly count: number; readonly bytes: number }>> {
  const shares = { kept: { count: 0, bytes: 0 }, moved: { count: 0, bytes: 0 }, again: { count: 0, bytes: 0 } };
  tensors.forEach(({ bytes }, i) => {
    const states = new Set<ActivationState | undefined>();
    codes[i]?.forEach((code, r) => {
      if (r % 2 === 0) states.add(decode(code).activation);
    });
    const share = shares[states.has('back') ? 'moved' : states.has('again') ? 'again' : 'kept'];
    share.count++;
    share.bytes += bytes;
  });
  return shares;
}

/** Tensors that are named; the others are counted. */
const MOST_NAMES = 3;

/** "wte.weight, rows 0 to 43; wpe.weight; 2 more": what lies in a chunk, each by the name that `named` gives it. */
export function contentsOf({ tensors }: ChunkHistory, chunk: number, named = (name: string): string => name): string {
  const held = tensors[chunk] ?? [];
  const names = held.slice(0, MOST_NAMES).map(named).join('; ');
  return held.length > MOST_NAMES ? `${names}; ${held.length - MOST_NAMES} more` : names;
}

/** `8 slots, 5 of them among the activations at times`. */
export const slotsText = ({ slots, among }: Pick<ChunkHistory, 'slots' | 'among'>): string =>
  among ? `${counted(slots, 'slot')}, ${among.slots} of them among the activations at times,` : counted(slots, 'slot');
