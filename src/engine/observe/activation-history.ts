// History of a step's activations, moment by moment: which are kept from the forward pass for the backward pass, which
// are given up and made again, which lie below the GPU and where. When they live is what the pass says, and the
// executor follows it; where those below lie is what was recorded. Pure.
//
// Of micro-batches, each has its turn on the same activations. Invariant: activations and what is alive beside them are all
// that is alive at a moment, and lie within the memory that was placed for them.

import { bytesOf, holderOf, type Tensor } from '../../graph/program.ts';
import { chunkCount } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import { isChunkRange } from '../compile/operand-places.ts';
import type { Operation } from '../compile/operations.ts';
import type { StashPiece } from '../compile/stash-ids.ts';
import { type ActivationHistory, type ActivationState, activationCode, type RunLengths } from './chunk-codes.ts';
import type { CopyPlace, Recording } from './recording.ts';
import { RunWriter, runsOf } from './run-writer.ts';

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
  /** Moments at which operators use it, in their order. */
  readonly uses: ReadonlySet<number>;
}

/**
 * The activations of a recorded run that was not cut short. Time and memory go by the activations and their uses, not
 * by moments times activations.
 */
export function activationHistory(recording: Recording): ActivationHistory {
  const { operations, starts } = recording.pass;
  const whereAt = placesBelow(recording);
  const alive = new ByteSum(operations.length);
  const kept = starts.flatMap((start, i) => keptIn(operations, start, starts[i + 1] ?? operations.length, alive));
  const largest = kept.reduce((most, { tensor }) => Math.max(most, bytesOf(tensor)), 0);
  const found = new Map<string, { readonly bytes: number; readonly codes: CodeWriter }>();
  for (const one of kept) {
    const { name } = one.tensor;
    const bytes = bytesOf(one.tensor);
    if (bytes < LEAST_SHARE * largest) continue;
    const activation = found.get(name) ?? { bytes, codes: new CodeWriter() };
    found.set(name, activation);
    tell(one, activation.codes, whereAt);
    for (const { first, last } of [one.life, ...(one.later ? [one.later.life] : [])]) alive.add(first, last, -bytes);
  }
  return {
    tensors: [...found].map(([name, { bytes }]) => ({ name, bytes })),
    codes: [...found.values()].map(({ codes }) => codes.end(operations.length)),
    working: runsOf(alive.sums()),
  };
}

/** Writes what becomes of an activation, behind what became of it in the micro-batches before. */
function tell(
  { life, later, pieces, uses }: Kept,
  codes: CodeWriter,
  whereAt: (id: number, m: number) => CopyPlace,
): void {
  codes.write(life.first, life.last, 'kept', uses);
  if (!later) return;
  const between = { first: life.last + 1, last: later.life.first - 1 };
  if (later.state === 'again') codes.write(between.first, between.last, 'given up', uses);
  else {
    for (let m = between.first; m <= between.last; m++) {
      codes.write(m, m, belowOf(pieces.map(({ id }) => whereAt(id, m))), uses);
    }
  }
  codes.write(later.life.first, later.life.last, later.state, uses);
}

/** The codes of an activation, moment after moment: absent where nothing was written. */
class CodeWriter {
  readonly #runs = new RunWriter();
  /** The first moment that is not written. */
  #next = 0;

  /** It is in this state from `first` to `last`. `uses`: moments, in their order. */
  write(first: number, last: number, state: ActivationState, uses: Iterable<number>): void {
    assert(first >= this.#next, 'what becomes of an activation is told in order');
    if (last < first) return;
    this.#until(first, 'absent');
    for (const m of uses) {
      if (m < first || m > last) continue;
      this.#until(m, state);
      this.#runs.from(m, activationCode(state, true));
      this.#next = m + 1;
    }
    this.#until(last + 1, state);
  }

  end(moments: number): RunLengths {
    this.#until(moments, 'absent');
    return this.#runs.end(moments);
  }

  #until(m: number, state: ActivationState): void {
    if (this.#next < m) this.#runs.from(this.#next, activationCode(state, false));
    this.#next = m;
  }
}

/** A sum of bytes over the moments, by its changes. */
class ByteSum {
  readonly #changes: Float64Array;

  constructor(moments: number) {
    this.#changes = new Float64Array(moments + 1);
  }

  /** From `first` to `last` there are so many more. */
  add(first: number, last: number, bytes: number): void {
    this.#changes[first] = at(this.#changes, first) + bytes;
    this.#changes[last + 1] = at(this.#changes, last + 1) - bytes;
  }

  /** At each moment. */
  sums(): Float64Array {
    let sum = 0;
    return this.#changes.subarray(0, -1).map((change) => {
      sum += change;
      return sum;
    });
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
function keptIn(operations: readonly Operation[], start: number, end: number, alive: ByteSum): Kept[] {
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
  for (const [tensor, { first, last }] of lives) alive.add(first, last, bytesOf(tensor));
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
