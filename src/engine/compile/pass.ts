// Passes: what the executor runs over and over, a training step, an evaluation, a token of generation. A pass is a list
// of operations and, beside it, their trace: one operation is one moment. Worked out on paper, with no GPU; the
// executor then does exactly this, and warm-up checks that it did.
//
// Activations are placed once, and of each moment it is known how many chunks have room beside them (fit.ts).

import type { MicroBatches, OneProgram } from '../../graph/layer-major.ts';
import type { Phase, Program, Tensor } from '../../graph/program.ts';
import type { InBackward } from '../../graph/update-in-backward.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { indicesIn, type Kind } from '../../memory/layout/kinds.ts';
import type { State } from '../../memory/layout/states.ts';
import type { ExtraSlots } from '../../memory/plan/extra-slots.ts';
import { mostHeld, type Trace } from '../../memory/plan/trace.ts';
import { assert } from '../../util/errors.ts';
import { type ShardedStep, withCollectives } from '../ranks/collectives.ts';
import { withGathers } from '../ranks/gathers.ts';
import { onlyOwnerOf, type Sharding } from '../ranks/sharding.ts';
import { lower } from './lower.ts';
import type { Moves } from './moves.ts';
import { isOnHost, type Operation } from './operations.ts';
import { withCopiesReleased } from './release-copies.ts';
import { Walk } from './walk.ts';

export interface Pass {
  readonly name: string;
  /** One a moment. */
  readonly operations: readonly Operation[];
  readonly trace: Trace;
  /** Of each micro-batch: the moment before which the caller writes its inputs. */
  readonly starts: readonly number[];
  /** Of each micro-batch: its tensors in place of those of its inputs. Absent: all of them are written in the same ones. */
  readonly inputs?: readonly ReadonlyMap<Tensor, Tensor>[];
  /** What the moments are for, in order: each section ends where the next one starts. */
  readonly phases: readonly PhaseStart[];
  /** Of each moment and each of its accesses, in their order: the state of the chunk once the operator has run. */
  readonly states: readonly (readonly State[])[];
  /** Slots beside those that there always are, once it is fitted into a budget. @default none */
  readonly extra?: ExtraSlots | undefined;
  /** By moment: activations that move, once it is fitted into a budget. @default each at the moment of its operation */
  readonly moves?: readonly Moves[] | undefined;
  /** Absent: this pass changes no model data that lives on. */
  readonly update?: UpdateMoments;
}

/** By the names that their workload gives them, in its order. */
export type Passes = Readonly<Record<string, Pass>>;

/** What every workload that trains has among its passes. */
export type StepPasses = { readonly step: Pass };

export interface PhaseStart {
  readonly name: Phase;
  readonly first: number;
}

/** Where in a step the state of the model changes. */
export interface UpdateMoments {
  /** The first moment behind the decision to clip or to skip. */
  readonly decided: number;
  /** The moment from which on the step's numbers are known: the norm may be, only when all is updated. */
  readonly known: number;
  /** From then on: the first moment of an update on the host. @default there is none */
  readonly onHost?: number;
  /** In the order of their moments. */
  readonly completions: readonly Completion[];
}

/** Chunks that have their values of this step once a moment's operation has run, of one index or of several together. */
export interface Completion {
  /** The moment of the first operation that completes a part of them; of an update, the others follow it at once. */
  readonly first: number;
  readonly moment: number;
  /** The last of the indices. */
  readonly index: number;
  readonly kinds: readonly Kind[];
  /** In the order of the kinds. */
  readonly chunks: readonly number[];
  /** Chunks that hold no value any more. */
  readonly frees: readonly number[];
}

/** What a step completes behind its decision. */
export function updatesOf({ update }: Pass): Completion[] {
  assert(update, 'a step updates');
  return update.completions.filter(({ moment }) => moment >= update.decided);
}

/** What is traced before step 1. Gradient tensors are named like their parameters. */
export interface TracedStep extends MicroBatches {
  /** All of them in its place, where they do not go one after the other. */
  readonly inOne?: OneProgram | undefined;
  /** From the complete gradients to the new parameters. */
  readonly update: Program;
  /** Where it updates in a backward pass: what is decided before that is a part of the micro-batches. @default at its end */
  readonly inBackward?: InBackward | undefined;
  /** Of several ranks: what this one's part of it is. @default it is alone */
  readonly sharded?: ShardedStep | undefined;
}

/** The state of what an operation of each phase of a step used. */
const STATE_AFTER = { forward: 'HOLD_AFTER_FWD', backward: 'HOLD_AFTER_BWD', update: 'HOLD' } as const;

/** What is updated inside the backward pass is of no use to it any more. */
const stateAfter = ({ phase, each }: Operation): State =>
  each?.eager === 'unused' ? STATE_AFTER.update : STATE_AFTER[phase];

/** A pass that only reads parameters. */
export function readingPass(program: Program, map: ChunkMap, sharding?: Sharding): Pass {
  const alone = { operations: lower(program, map), starts: [0] };
  const ordered = sharding ? withGathers(alone, map, sharding) : alone;
  return withTrace({ name: program.name, ...ordered }, map, () => 'HOLD', sharding);
}

/** One step of `accumulate` micro-batches. */
export function stepPass(step: TracedStep, map: ChunkMap, accumulate: number): Pass {
  const { inOne } = step;
  const micro = inOne ? [lower(inOne.program, map)] : oneByOne(step, map, accumulate);
  const updating = lower(step.update, map);
  const shared = step.sharded ? withCollectives(updating, map, step.sharded) : updating;
  const alone = withEagerMoved([...micro, shared]);
  const { operations: all, starts } = step.sharded ? withGathers(alone, map, step.sharded) : alone;
  const operations = withCopiesReleased(all, map);
  const completions = completionsOf(operations, map);
  const found = operations.findIndex(({ each }) => each?.completes.includes(map.readKind));
  assert(found >= 0 || step.sharded, 'a step updates parameters');
  // A rank that owns nothing may have nothing to update.
  const decided = found >= 0 ? found : operations.length;
  const inputs = inOne
    ? { starts: inOne.inputs.map(() => 0), inputs: inOne.inputs }
    : { starts: starts.slice(0, accumulate) };
  // Of one backward pass, the norm is the last.
  const known = step.inBackward?.passes === 1 ? operations.length : decided;
  const onHost = operations.findIndex((operation, moment) => moment >= known && isOnHost(operation));
  const update = { decided, known, completions, ...(onHost >= 0 && { onHost }) };
  const parts = { name: 'step', operations, ...inputs, update };
  return withTrace(parts, map, stateAfter, step.sharded);
}

function completionsOf(operations: readonly Operation[], map: ChunkMap): Completion[] {
  const left = new Map<string, { first: number; indices: number[] }>();
  const freed = new Map<number, number>();
  const indicesFrom = (first: number, together: number) =>
    map.trainable.used.slice(first, first + together).filter((used) => used > 0).length;
  /** The chunks of an index of which no other index needs a value any more, among these kinds. */
  const freesOf = (kinds: readonly Kind[], index: number) =>
    kinds.flatMap((kind) => {
      const { chunk } = map.placeOf(kind, index);
      const count = (freed.get(chunk) ?? 0) + 1;
      freed.set(chunk, count);
      const each = indicesIn(kind);
      return count === indicesFrom(index - (index % each), each) ? [chunk] : [];
    });
  return operations.flatMap(({ each }, moment): Completion[] => {
    if (!each || each.completes.length === 0) return [];
    const { index, together, completes: kinds, frees } = each;
    const from = index - (index % together);
    const key = `${kinds.join()} ${from}`;
    const { first, indices } = left.get(key) ?? { first: moment, indices: [] };
    indices.push(index);
    left.set(key, { first, indices });
    if (indices.length < indicesFrom(from, together)) return [];
    left.delete(key);
    const chunks = [...new Set(kinds.flatMap((kind) => indices.map((at) => map.placeOf(kind, at).chunk)))];
    const given = indices.flatMap((at) => freesOf(frees, at));
    return [{ first, moment, index: Math.max(...indices), kinds, chunks, frees: given }];
  });
}

function oneByOne(step: MicroBatches, map: ChunkMap, accumulate: number): Operation[][] {
  const first = lower(step.first, map);
  const next = accumulate > 1 ? lower(step.next, map) : [];
  return Array.from({ length: accumulate }, (_, i) => (i === 0 ? first : next));
}

/** All parts as one list, each eager operation where it belongs (`Eager`), as a part of its phase; and where each part starts in it. */
function withEagerMoved(parts: readonly (readonly Operation[])[]): { operations: Operation[]; starts: number[] } {
  const lastWrite = new Map<number, number>();
  const lastUse = new Map<number, number>();
  const behind = new Map<number, Operation[]>();
  const rest: Operation[] = [];
  const firsts = new Set<number>();
  const add = (operation: Operation) => {
    const used: number[] = [];
    const written: number[] = [];
    for (const { list, piece, access } of operation.uses) {
      const chunk = list.first + piece.chunk;
      used.push(chunk);
      if (access !== 'read') written.push(chunk);
    }
    const eager = operation.each?.eager;
    if (eager) {
      const last = eager === 'written' ? lastWrite : lastUse;
      const at = Math.max(...used.map((chunk) => last.get(chunk) ?? -1));
      const after = rest[at];
      assert(after, `nothing writes what "${operation.label}" waits for`);
      behind.set(at, [...(behind.get(at) ?? []), { ...operation, phase: after.phase }]);
      for (const chunk of used) lastUse.set(chunk, Math.max(at, lastUse.get(chunk) ?? at));
    } else {
      for (const chunk of written) lastWrite.set(chunk, rest.length);
      for (const chunk of used) lastUse.set(chunk, rest.length);
      rest.push(operation);
    }
  };
  for (const part of parts) {
    firsts.add(rest.length);
    part.forEach(add);
  }
  const operations: Operation[] = [];
  const starts: number[] = [];
  rest.forEach((operation, i) => {
    if (firsts.has(i)) starts.push(operations.length);
    operations.push(operation, ...(behind.get(i) ?? []));
  });
  return { operations, starts };
}

/** With what follows from the operations. Their dry run waits until it is asked for: most layouts are only measured. */
function withTrace(
  parts: Pick<Pass, 'name' | 'operations' | 'starts' | 'inputs' | 'update'>,
  map: ChunkMap,
  after: (operation: Operation) => State,
  sharding: Sharding | undefined,
): Pass {
  const phases: PhaseStart[] = [];
  parts.operations.forEach(({ phase: name }, first) => {
    if (phases.at(-1)?.name !== name) phases.push({ name, first });
  });
  let walk: ReturnType<Walk['end']> | undefined;
  const walked = () => {
    walk ??= dryRun(parts.operations, map, after, sharding);
    return walk;
  };
  return {
    ...parts,
    phases,
    get trace() {
      return walked().trace;
    },
    get states() {
      return walked().states;
    },
  };
}

function dryRun(
  operations: readonly Operation[],
  map: ChunkMap,
  after: (operation: Operation) => State,
  sharding: Sharding | undefined,
) {
  const isElsewhere = (chunk: number) =>
    sharding !== undefined && (onlyOwnerOf(chunk, map, sharding) ?? sharding.rank) !== sharding.rank;
  const walk = new Walk(map, isElsewhere);
  for (const operation of operations) walk.step(operation, after(operation));
  return walk.end();
}

/**
 * Chunks that have values at once, at most: what a step in sixteen bits frees, or one that updates in its backward pass, has one
 * from its first use on.
 */
export function heldAtOnce(passes: readonly Pass[], { count, dtype }: ChunkMap, updatesInBackward: boolean): number {
  const [step] = passes.filter(({ update }) => update);
  if (!step || (dtype === 'f32' && !updatesInBackward)) return count;
  const { moments } = step.trace;
  const passing = new Set(moments.flatMap(({ frees }) => frees));
  const ofPassing = moments.map((moment) => ({
    ...moment,
    accesses: moment.accesses.filter(({ chunk }) => passing.has(chunk)),
  }));
  return count - passing.size + mostHeld({ moments: ofPassing });
}

/** Chunks that one operation uses on the GPU, at most. */
export const chunksAtOnce = (passes: Passes): number =>
  Object.values(passes)
    .flatMap(({ operations }) => operations)
    .reduce((most, operation) => {
      const { uses } = operation;
      if (uses.length <= most || isOnHost(operation)) return most;
      return Math.max(most, new Set(uses.map(({ list, piece }) => list.first + piece.chunk)).size);
    }, 0);
