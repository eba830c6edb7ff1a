// The codes of a chunk history: for every chunk, codes of its tier and state, run by run over the moments of a step.
// Plain data and how to read it; chunk-history.ts makes it. A page reads it too: no kernel comes along with this file.

import { STATES, type State } from '../../memory/layout/states.ts';
import type { ChunkList } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { PhaseStart } from '../compile/pass.ts';

/**
 * The fastest tier that holds the value of a chunk. `staging`: it left its slot and has not arrived below. `none`: it
 * is FREE, or all zeros, which no tier stores. A FREE chunk may lie in a lower tier for a while: its last value is
 * kept there until the step that used it is safe.
 */
export const TIERS = ['none', 'gpu', 'staging', 'host', 'disk'] as const;
/** One of TIERS. */
export type Tier = (typeof TIERS)[number];

/** Values and how often they follow on themselves: value, length, value, length, ... */
export type RunLengths = readonly number[];

/** One step, as plain data that survives JSON. */
export interface ChunkHistory {
  /** Of one chunk. */
  readonly chunkBytes: number;
  /** Which chunks hold which kind of model data. */
  readonly lists: readonly ChunkList[];
  /** What lies in each chunk, from its start on: parameters by name, "wte.weight, rows 0 to 43" where it is a part. */
  readonly tensors: readonly (readonly string[])[];
  /** In order: each begins where the one before ends. */
  readonly phases: readonly PhaseStart[];
  /** The operator of each moment, as an index of `labels`. */
  readonly operators: readonly number[];
  /** Operators by name. */
  readonly labels: readonly string[];
  /** Of each chunk: its codes over the moments; see `decode`. */
  readonly chunks: readonly RunLengths[];
  /** Chunks that staging held at each moment, both ways. */
  readonly staged: RunLengths;
  /** Chunks that have a place on the GPU at once. */
  readonly slots: number;
  /** Chunks that staging holds in all. */
  readonly staging: number;
  /** GPU memory that is no chunk and no staging, in bytes: it is placed once. */
  readonly activationBytes: number;
  /** As `activationBytes`, of what is neither. */
  readonly otherBytes: number;
}

/** The code of `chunks` for a tier and a state. */
export const encodeState = (tier: Tier, state: State): number =>
  TIERS.indexOf(tier) * STATES.length + STATES.indexOf(state);

/** What a code of `chunks` stands for. */
export function decode(code: number): { readonly tier: Tier; readonly state: State } {
  const tier = TIERS[Math.floor(code / STATES.length)];
  const state = STATES[code % STATES.length];
  assert(tier && state, `no chunk has the code ${code}`);
  return { tier, state };
}

/** The value at each moment. */
export function expand(runs: RunLengths): number[] {
  const values: number[] = [];
  for (let i = 0; i < runs.length; i += 2) {
    values.push(...Array<number>(at(runs, i + 1)).fill(at(runs, i)));
  }
  return values;
}

/** Slots in use at each moment, by the codes of all chunks. */
export function slotsInUse(chunks: readonly RunLengths[]): number[] {
  const counts: number[] = [];
  for (const runs of chunks) {
    for (let i = 0, m = 0; i < runs.length; i += 2) {
      const end = m + at(runs, i + 1);
      const one = decode(at(runs, i)).tier === 'gpu' ? 1 : 0;
      for (let at = m; at < end; at++) counts[at] = (counts[at] ?? 0) + one;
      m = end;
    }
  }
  return counts;
}
