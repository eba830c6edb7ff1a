// The codes of a chunk history: for every chunk and every activation, codes of its tier and state, run by run over the
// moments of a step. Plain data and how to read it; chunk-history.ts and activation-history.ts make it. A page reads it too:
// no kernel comes along with this file.

import { STATES, type State } from '../../memory/layout/states.ts';
import type { ChunkList } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { PhaseStart } from '../compile/pass.ts';

/**
 * The fastest tier that holds the value of a chunk. `staging`: it left its slot and has not arrived below. `none`: it
 * is FREE, or all zeros, which no tier stores. A FREE chunk may lie in a lower tier for a while: its last value is
 * kept there until the step that used it is safe.
 */
export const TIERS = ['none', 'gpu', 'staging', 'host', 'disk'] as const;
/** One of TIERS. */
export type Tier = (typeof TIERS)[number];

/**
 * What has become of an activation that the forward pass makes and the backward pass uses. `absent`: it is not made yet, or of
 * no use any more. `kept`: it stays on the GPU. `leaving`: it is on its way down; `host`, `disk`: it lies there; `back`: it is
 * on the GPU again, from there. `given up`: it is nowhere, and will be made again; `again`: it is made again.
 */
export const ACTIVATION_STATES = ['absent', 'kept', 'leaving', 'host', 'disk', 'given up', 'again', 'back'] as const;
/** One of ACTIVATION_STATES. */
export type ActivationState = (typeof ACTIVATION_STATES)[number];

/** Values and how often they follow on themselves: value, length, value, length, ... */
export type RunLengths = readonly number[];

/** The activations of one step, but for the smallest. */
export interface ActivationHistory {
  /** In the order in which they are made: each by the name of what makes it. */
  readonly tensors: readonly { readonly name: string; readonly bytes: number }[];
  /** Of each: its codes over the moments; see `decode`. */
  readonly codes: readonly RunLengths[];
  /** Bytes of all that is alive beside them: what an operator leaves to the next, gradients, statistics. */
  readonly working: RunLengths;
}

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
  /** The places for chunks among the activations, in what these leave free: how many there are, and how many are used at each moment. @default none */
  readonly among?: { readonly slots: number; readonly used: RunLengths };
  /** Chunks that staging holds in all. */
  readonly staging: number;
  /** Bytes that staging holds in all. */
  readonly stagingBytes: number;
  /** What becomes of the activations. */
  readonly activations: ActivationHistory;
  /** GPU memory that is placed for activations, in bytes. */
  readonly activationBytes: number;
  /** Bytes of GPU memory that is neither chunks, staging nor activations. */
  readonly otherBytes: number;
}

/** The code of `chunks` for a tier and a state. */
export const encodeState = (tier: Tier, state: State): number =>
  TIERS.indexOf(tier) * STATES.length + STATES.indexOf(state);

/** Codes of activations follow those of chunks. */
const CHUNK_CODES = TIERS.length * STATES.length;

/** The code of an activation. */
export const activationCode = (state: ActivationState, used: boolean): number =>
  CHUNK_CODES + 2 * ACTIVATION_STATES.indexOf(state) + (used ? 1 : 0);

/** How many codes there are, from 0 on. */
export const CODES = CHUNK_CODES + 2 * ACTIVATION_STATES.length;

const TIER_OF: Readonly<Record<ActivationState, Tier>> = {
  absent: 'none',
  kept: 'gpu',
  leaving: 'staging',
  host: 'host',
  disk: 'disk',
  'given up': 'none',
  again: 'gpu',
  back: 'gpu',
};

/** What a code stands for. */
export interface Decoded {
  /** Where it is. */
  readonly tier: Tier;
  /** What it is doing. */
  readonly state: State;
  /** Of an activation alone. */
  readonly activation?: ActivationState;
}

/** What a code of a chunk or an activation stands for. Errors: HoldfastError for what is none. */
export function decode(code: number): Decoded {
  if (typeof code !== 'number') throw noCode();
  const activation = ACTIVATION_STATES[(code - CHUNK_CODES) >> 1];
  if (code >= CHUNK_CODES && activation) {
    const used = (code - CHUNK_CODES) % 2 === 1;
    const state = used ? 'COMPUTE' : activation === 'absent' ? 'FREE' : 'HOLD';
    return { tier: TIER_OF[activation], state, activation };
  }
  const tier = TIERS[Math.floor(code / STATES.length)];
  const state = STATES[code % STATES.length];
  if (!tier || !state) throw noCode();
  return { tier, state };
}

const noCode = (): HoldfastError =>
  new HoldfastError(`nothing has the code that is given; it must be one from 0 to ${CODES - 1}`);

/** What chunks and activations hold, one row each: lists of model data, and one of activations behind them. */
export const rowLists = ({
  lists,
  chunks,
  activations,
}: Pick<ChunkHistory, 'lists' | 'chunks' | 'activations'>): readonly RowList[] => {
  const { length } = activations.tensors;
  return length === 0 ? lists : [...lists, { kind: 'activation', first: chunks.length, chunks: length }];
};

/** Rows of one kind: ids `first` to `first + chunks - 1`. */
export interface RowList extends Omit<ChunkList, 'kind'> {
  readonly kind: ChunkList['kind'] | 'activation';
}

/** The codes of all rows: of chunks, and behind them of activations. Errors: HoldfastError for what is no history. */
export function rowsOf(history: Pick<ChunkHistory, 'chunks' | 'activations'>): readonly RunLengths[] {
  // Where this is called from a page, anything may be given.
  const { chunks, activations } = (history ?? {}) as Partial<ChunkHistory>;
  const codes = activations?.codes;
  if (!Array.isArray(chunks) || !Array.isArray(codes))
    throw new HoldfastError('the history of chunks has no codes; it must be the `history` of a step’s picture');
  return [...chunks, ...codes];
}

/** Bytes of activations at each moment that are on the GPU, by whether they were made again. */
export function activationBytesOf({ activations, operators }: ChunkHistory): {
  readonly kept: readonly number[];
  readonly again: readonly number[];
  readonly working: readonly number[];
} {
  const kept = operators.map(() => 0);
  const again = operators.map(() => 0);
  activations.codes.forEach((runs, i) => {
    const { bytes } = at(activations.tensors, i);
    for (let r = 0, m = 0; r < runs.length; r += 2) {
      const end = m + at(runs, r + 1);
      const { tier, activation } = decode(at(runs, r));
      const sums = activation === 'again' ? again : kept;
      for (; m < end; m++) if (tier === 'gpu') sums[m] = (sums[m] ?? 0) + bytes;
    }
  });
  return { kept, again, working: expand(activations.working) };
}

/** The value at each moment. Errors: HoldfastError for what are no runs. */
export function expand(runs: RunLengths): number[] {
  if (!Array.isArray(runs) || runs.length % 2 !== 0)
    throw new HoldfastError('the runs of a chunk history are no list of values and lengths; give one of its lists');
  const values: number[] = [];
  for (let i = 0; i < runs.length; i += 2) {
    for (let left = at(runs, i + 1); left > 0; left--) values.push(at(runs, i));
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
