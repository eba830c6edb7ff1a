// The trace of a step: what it does to chunks, moment by moment, and nothing about why: no tensor, no model, no
// operator. A trace comes from a dry run or from warm-up; policies, plans and bounds see only this.
//
// A trace is cyclic: its last moment is followed by its first, step after step. Invariant: a chunk is overwritten when
// it was freed before, and only then.

import type { Kind } from '../layout/kinds.ts';

/**
 * `read`: the chunk stays as it is. `write`: parts of it change, so its old value must be there.
 * `overwrite`: it held no value; it needs a slot and no load.
 */
export type AccessMode = 'read' | 'write' | 'overwrite';

/** Where an operation needs the value: in a slot on the GPU, or below it, in host memory. */
export type AccessTier = 'gpu' | 'host';

export interface ChunkAccess {
  /** Counted over all lists, in their order. */
  readonly chunk: number;
  readonly mode: AccessMode;
  readonly tier: AccessTier;
}

/** The boundary before an operator, and what the operator needs. */
export interface Moment {
  readonly label: string;
  /** On the GPU. Each chunk once. All of them are pinned while the operator runs. */
  readonly accesses: readonly ChunkAccess[];
  /**
   * Below the GPU, by an operation on the host: these claim no slot. The newest value must lie there; where it changes, a
   * copy on the GPU is of no use any more. @default none
   */
  readonly onHost?: readonly ChunkAccess[];
  /** Chunks that hold no value any more once the operator has run: their slots are given back at once. */
  readonly frees: readonly number[];
  /** What comes back from below the GPU beside chunks, by its numbers there: activations. @default none */
  readonly fetches?: readonly number[];
  /** GPU memory that is not chunks, until the next moment. */
  readonly nonModelBytes: number;
  /** What it takes beside the other moments, in any unit: seconds, of a pass that is fitted. @default as much as each of them */
  readonly work?: number;
}

/** What copies of chunks take, in the unit of `work`. */
export interface CopyTimes {
  /** Of one after the other, through the staging that there is. */
  readonly up: number;
  readonly down: number;
  /** Whether copies and work take turns, or each way is beside the other and beside work. */
  readonly takesTurns: boolean;
}

/** Chunks whose values change on the GPU at a moment, or are of no use there behind it. */
export const changedIn = ({ accesses, frees }: Moment): number[] => [
  ...accesses.flatMap(({ chunk, mode }) => (mode === 'read' ? [] : [chunk])),
  ...frees,
];

/** Chunks of one kind: ids `first` to `first + chunks - 1`. */
export interface ChunkList {
  readonly kind: Kind;
  readonly first: number;
  readonly chunks: number;
}

export interface Trace {
  readonly chunkBytes: number;
  readonly lists: readonly ChunkList[];
  readonly moments: readonly Moment[];
  /** Known of a pass that is fitted. @default copies take no time */
  readonly copies?: CopyTimes;
}

export const chunkCount = ({ lists }: Pick<Trace, 'lists'>): number =>
  lists.reduce((sum, { chunks }) => sum + chunks, 0);

/** Bytes of all chunks, padding included. */
export const modelDataBytes = (trace: Trace): number => chunkCount(trace) * trace.chunkBytes;

/** `parameter 3`: the kind of a chunk and its number in that list; `activations 2`: the third piece of those that lie below. */
export function chunkName({ lists }: Trace, chunk: number): string {
  const list = lists.find(({ first, chunks }) => chunk >= first && chunk < first + chunks);
  return list ? `${list.kind} ${chunk - list.first}` : `activations ${chunk - chunkCount({ lists })}`;
}

/** Slots for chunks at each moment under a budget; may be too few, or negative: see `peakDemand`. */
export function slotsUnder(trace: Trace, budgetBytes: number): number[] {
  return trace.moments.map(({ nonModelBytes }) => Math.floor((budgetBytes - nonModelBytes) / trace.chunkBytes));
}

/** The most bytes that one operator needs on the GPU at once: its chunks, and what is there that is not chunks. */
export function peakDemand({ moments, chunkBytes }: Trace): number {
  return moments.reduce(
    (most, { accesses, nonModelBytes }) => Math.max(most, nonModelBytes + accesses.length * chunkBytes),
    0,
  );
}

/** The most chunks that have a value at once, those included that last from step to step. */
export const mostHeld = (trace: Pick<Trace, 'moments'>): number => heldAt(trace).reduce((a, b) => Math.max(a, b), 0);

/** As `mostHeld`, of chunks that have a value on the GPU or below it. */
export const mostHeldAnywhere = ({ moments }: Pick<Trace, 'moments'>): number =>
  mostHeld({
    moments: moments.map(({ accesses, onHost = [], ...rest }) => ({ ...rest, accesses: [...accesses, ...onHost] })),
  });

/** Chunks that have a value while each operator runs, its own included: with so many slots nothing moves. */
export function heldAt({ moments }: Pick<Trace, 'moments'>): number[] {
  const held = new Set<number>();
  const seen = new Set<number>();
  for (const { accesses } of moments) {
    for (const { chunk, mode } of accesses) {
      if (!seen.has(chunk) && mode !== 'overwrite') held.add(chunk);
      seen.add(chunk);
    }
  }
  return moments.map(({ accesses, frees }) => {
    for (const { chunk } of accesses) held.add(chunk);
    const { size } = held;
    for (const chunk of frees) held.delete(chunk);
    return size;
  });
}

const SIGN: Record<AccessMode, string> = { read: '', write: '+', overwrite: '!' };

/** One moment a line: `12 first micro-batch matmul h.0.mlp: parameter 1, gradient 1+ (non-model 1000 B)`. */
export function printTrace(trace: Trace): string {
  const lines = trace.moments.map(({ label, accesses, onHost = [], frees, nonModelBytes }, m) => {
    const shown = ({ chunk, mode, tier }: ChunkAccess) =>
      `${chunkName(trace, chunk)}${SIGN[mode]}${tier === 'host' ? ' (host)' : ''}`;
    const list = [...accesses, ...onHost].map(shown).join(', ');
    const freed = frees.length > 0 ? `, frees ${frees.map((chunk) => chunkName(trace, chunk)).join(', ')}` : '';
    return `${String(m).padStart(5)} ${label}: ${list || 'nothing'}${freed} (non-model ${nonModelBytes} B)`;
  });
  const lists = trace.lists.map(({ kind, chunks }) => `${chunks} ${kind}`).join(', ');
  return [`chunks of ${trace.chunkBytes} bytes: ${lists}; + write, ! overwrite`, ...lines].join('\n');
}
