// How the report and the page call tiers, states and kinds of model data, one word for one thing; and what a history
// says of one moment or one chunk. Only words and look-ups: nothing is drawn here.

import type { ChunkHistory } from '../engine/observe/chunk-codes.ts';

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
  gradient: 'gradients',
  moment1: '1st moment',
  moment2: '2nd moment',
  frozen: 'frozen',
  frozenBF16: 'frozen, bf16',
  frozenF16: 'frozen, f16',
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

/** Tensors that are named; the others are counted. */
const MOST_NAMES = 3;

/** "wte.weight, rows 0 to 43; wpe.weight; 2 more": what lies in a chunk, each by the name that `named` gives it. */
export function contentsOf({ tensors }: ChunkHistory, chunk: number, named = (name: string): string => name): string {
  const held = tensors[chunk] ?? [];
  const names = held.slice(0, MOST_NAMES).map(named).join('; ');
  return held.length > MOST_NAMES ? `${names}; ${held.length - MOST_NAMES} more` : names;
}
