// History of a step's activations, moment by moment: which are kept from the forward pass for the backward pass, which
// are given up and made again, which lie below the GPU and where. When they live is what the pass says, and the
// executor follows it; where those below lie is what was recorded. Pure.
//
// Of micro-batches, each has its turn on the same activations. Invariant: activations and what is alive beside them are all
// that is alive at a moment, and lie within the memory that was placed for them.

import type { Tensor } from '../../graph/program.ts';
import { bytesOf, holderOf } from '../../graph/program.ts';
import { chunkCount } from '../../memory/plan/trace.ts';
import type { Operation } from '../compile/lower.ts';
import { isChunkRange } from '../compile/operand-places.ts';
import type { StashPiece } from '../compile/stash-ids.ts';
import { type ActivationHistory, type ActivationState, activationCode } from './chunk-codes.ts';
import type { CopyPlace, Recording } from './recording.ts';
import { runsOf } from './run-writer.ts';

/** Smaller ones, as a share of the largest, are not told apart: statistics of norms. */
const LEAST_SHARE = 1 / 64;

/** From its first to its last moment. */
interface Life {
  readonly first: number;
  last: number;
}

/** An activation within one micro-batch. */
interface Kept {
  readonly tensor: Tensor;
  readonly life: Life;
  /** What stands for it in the backward pass, where it does not stay. */
  readonly later?: { readonly life: Life; readonly state: 'again' | 'back' };
  /** Where it lies below, between the two. */
  readonly pieces: readonly StashPiece[];
  /** Moments at which operators use it. */
  readonly uses: ReadonlySet<number>;
}

/** Of a run that was not cut short. */
export function activationHistory(recording: Recording): ActivationHistory {
  const { operations, starts } = recording.pass;
  const whereAt = placesBelow(recording);
  const alive = new Float64Array(operations.length);
  const parts = starts.map((start, i) => {
    const end = starts[i + 1] ?? operations.length;
    return keptIn(operations, start, end, alive);
  });
  const largest = parts.flat().reduce((most, { tensor }) => Math.max(most, bytesOf(tensor)), 0);
  const found = new Map<string, { readonly bytes: number; readonly codes: Uint8Array }>();
  for (const part of parts) {
    for (const kept of part) {
      const { name } = kept.tensor;
      const bytes = bytesOf(kept.tensor);
      if (bytes < LEAST_SHARE * largest) continue;
      const absent = () => new Uint8Array(operations.length).fill(activationCode('absent', false));
      const activation = found.get(name) ?? { bytes, codes: absent() };
      found.set(name, activation);
      tell(kept, activation.codes, whereAt, (m) => {
        alive[m] = (alive[m] ?? 0) - bytes;
      });
    }
  }
  return {
    tensors: [...found].map(([name, { bytes }]) => ({ name, bytes })),
    codes: [...found.values()].map(({ codes }) => runsOf(codes)),
    working: runsOf(alive),
  };
}

/** Writes what becomes of an activation. `here` is called with the moments at which it is on the GPU. */
function tell(
  { life, later, pieces, uses }: Kept,
  codes: Uint8Array,
  whereAt: (id: number, m: number) => CopyPlace,
  here: (m: number) => void,
): void {
  const put = (m: number, state: ActivationState) => {
    codes[m] = activationCode(state, uses.has(m));
  };
  for (let m = life.first; m <= life.last; m++) {
    put(m, 'kept');
    here(m);
  }
  if (!later) return;
  for (let m = life.last + 1; m < later.life.first; m++) {
    put(m, later.state === 'again' ? 'given up' : belowOf(pieces.map(({ id }) => whereAt(id, m))));
  }
  for (let m = later.life.first; m <= later.life.last; m++) {
    put(m, later.state);
    here(m);
  }
}

/** Of the pieces, the one that is farthest from having arrived, or else the farthest one. */
function belowOf(places: readonly CopyPlace[]): ActivationState {
  if (places.some((place) => place === 'staging' || place === 'nothing')) return 'leaving';
  return places.includes('disk') ? 'disk' : 'host';
}

/**
 * The activations that the forward pass of a micro-batch makes and its backward pass uses, in the order in which they are
 * made. `alive`: to the bytes that are alive at each moment comes what is alive here.
 */
function keptIn(operations: readonly Operation[], start: number, end: number, alive: Float64Array): Kept[] {
  const lives = new Map<Tensor, Life>();
  const uses = new Map<Tensor, Set<number>>();
  const madeForward = new Set<Tensor>();
  const usedBackward = new Set<Tensor>();
  const later = new Map<Tensor, { life: Life; state: 'again' | 'back' }>();
  const pieces = new Map<Tensor, readonly StashPiece[]>();
  for (let m = start; m < end; m++) {
    const operation = operations[m];
    if (!operation) continue;
    for (const tensor of activationsOf(operation)) {
      const life = lives.get(tensor) ?? { first: m, last: m };
      life.last = m;
      lives.set(tensor, life);
      const root = tensor.standsFor ?? tensor;
      uses.set(root, (uses.get(root) ?? new Set()).add(m));
      if (operation.phase === 'forward') madeForward.add(root);
      else usedBackward.add(root);
      if (tensor !== root) later.set(root, { life, state: later.get(root)?.state ?? 'again' });
      if (operation.op === 'offload') pieces.set(root, operation.pieces);
      if (operation.op === 'fetch') later.set(root, { life, state: 'back' });
    }
  }
  for (const [tensor, { first, last }] of lives) {
    for (let m = first; m <= last; m++) alive[m] = (alive[m] ?? 0) + bytesOf(tensor);
  }
  return [...lives].flatMap(([tensor, life]) => {
    if (tensor.standsFor || !madeForward.has(tensor) || !usedBackward.has(tensor)) return [];
    const found = later.get(tensor);
    const common = { tensor, life, pieces: pieces.get(tensor) ?? [], uses: uses.get(tensor) ?? new Set<number>() };
    return [{ ...common, ...(found && { later: found }) }];
  });
}

function activationsOf(operation: Operation): Tensor[] {
  if (operation.op === 'host' || operation.op === 'collective') return [];
  const operands = operation.op === 'dispatch' ? Object.values(operation.operands) : [operation.tensor];
  return operands.flatMap((operand) =>
    !isChunkRange(operand) && operand.role === 'activation' ? [holderOf(operand)] : [],
  );
}

/** Where a piece below was seen at a moment; to be asked moment after moment, or from the first on again. */
function placesBelow({ pass, below, moved }: Recording): (id: number, m: number) => CopyPlace {
  const count = chunkCount(pass.trace);
  const seen = new Map<number, { m: number; where: CopyPlace }[]>();
  for (const [id, where] of below.entries()) if (id >= count) seen.set(id, [{ m: 0, where }]);
  for (const { moment, chunk, where } of moved) seen.get(chunk)?.push({ m: moment, where });
  return (id, m) => seen.get(id)?.findLast((place) => place.m <= m)?.where ?? 'nothing';
}
