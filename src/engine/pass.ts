// What the executor runs over and over: a training step, an evaluation, a token of generation. A pass is a list of
// dispatches and, beside it, their trace: one dispatch is one moment. Worked out on paper, with no GPU; the
// executor then does exactly this, and warm-up checks that it did.
//
// A step sums each gradient chunk's squares right behind its last write, while it is on the GPU; the optimizer
// walks the chunks of all kinds side by side. Non-model bytes are one constant: activations are placed once.

import type { Program, Tensor } from '../graph/graph.ts';
import type { StepScalars } from '../graph/operators/optimizer.ts';
import { adamw } from '../kernels/adamw.ts';
import type { Kernel } from '../kernels/kernel.ts';
import { sumSquares } from '../kernels/sum-squares.ts';
import { type ChunkMap, TRAINED_KINDS } from '../memory/chunk-map.ts';
import type { Piece } from '../memory/layout.ts';
import { type State, strongest, TensorStates } from '../memory/states.ts';
import type { AccessMode, ChunkList, Kind, Moment, Trace } from '../memory/trace.ts';
import { assert } from '../util/errors.ts';
import { type ChunkRange, type Lowered, lower, type Use } from './lower.ts';

export interface Pass {
  readonly name: string;
  /** One a moment. */
  readonly dispatches: readonly Lowered[];
  readonly trace: Trace;
  /** Moments before which the caller writes its inputs: where each program begins. */
  readonly starts: readonly number[];
  /** What the moments are for, in order: each phase ends where the next one starts. */
  readonly phases: readonly Phase[];
  /** Of each moment and each of its accesses, in their order: the state of the chunk once the operator has run. */
  readonly states: readonly (readonly State[])[];
  /** Absent: this pass changes no model data that lives on. */
  readonly update?: UpdateMoments;
}

export interface Phase {
  readonly name: 'forward' | 'backward' | 'update';
  readonly first: number;
}

/** What a chunk is before the first moment of a pass; what its last moment frees is FREE again. */
export const stateBefore = (kind: Kind): State => (kind === 'gradient' ? 'FREE' : 'HOLD');

/** Where in a step the state of the model changes. */
export interface UpdateMoments {
  /** The first moment behind the decision to clip or to skip. */
  readonly decided: number;
  /** Of each index of chunks: the moment at which its gradient is complete, and that of its update. */
  readonly gradient: readonly number[];
  readonly adamw: readonly number[];
}

/** What is traced before step 1. Gradient tensors are named like their parameters. */
export interface TracedStep {
  /** The micro-batch that overwrites the gradients, and those that add to them. */
  readonly first: Program;
  readonly next: Program;
  /** From the sums of squares to the decision to clip or to skip. */
  readonly control: Program;
  readonly scalars: StepScalars;
  /** (blocks of all trainable parameters): sums of squares. */
  readonly squares: Tensor;
  /** (blocks / 32): which of them decay. */
  readonly decayMask: Tensor;
}

/** Multiplications and additions of a pass. */
export const flopsOf = ({ dispatches }: Pass): number =>
  dispatches.reduce((sum, { kernel, problem }) => sum + kernel.flops(problem), 0);

/** A pass that only reads parameters. */
export function readingPass(program: Program, map: ChunkMap): Pass {
  const walk = new Walk(map);
  for (const dispatch of lower(program, map)) walk.moment(dispatch, 'HOLD');
  return walk.finish(program.name, [0], [{ name: 'forward', first: 0 }]);
}

/** One step of `accumulate` micro-batches. */
export function stepPass(step: TracedStep, map: ChunkMap, accumulate: number): Pass {
  const walk = new Walk(map);
  const first = lower(step.first, map);
  const next = accumulate > 1 ? lower(step.next, map) : [];
  const forward = (dispatches: readonly Lowered[]) =>
    dispatches.findLastIndex(({ operands }) => Object.values(operands).includes(step.scalars.lossSum));
  const ends = [forward(first), forward(next)];
  const behind = squaresBehind(accumulate > 1 ? next : first, step, map);
  const starts: number[] = [];
  const phases: Phase[] = [];
  const gradient: number[] = [];
  for (let micro = 0; micro < accumulate; micro++) {
    const [dispatches, end] = micro === 0 ? [first, ends[0]] : [next, ends[1]];
    starts.push(walk.length);
    phases.push({ name: 'forward', first: walk.length });
    dispatches.forEach((dispatch, i) => {
      if (i === (end as number) + 1) phases.push({ name: 'backward', first: walk.length });
      walk.moment(dispatch, i <= (end as number) ? 'HOLD_AFTER_FWD' : 'HOLD_AFTER_BWD');
      if (micro < accumulate - 1) return;
      for (const [index, squares] of behind.get(i) ?? []) {
        gradient[index] = walk.length;
        walk.moment(squares, 'HOLD_AFTER_BWD');
      }
    });
  }
  phases.push({ name: 'update', first: walk.length });
  for (const dispatch of lower(step.control, map)) walk.moment(dispatch, 'HOLD');
  const decided = walk.length;
  const update = optimizerDispatches(step, map).map((dispatch, index) => {
    walk.moment(dispatch, 'HOLD');
    walk.free('gradient', index);
    return walk.length - 1;
  });
  return { ...walk.finish('step', starts, phases), update: { decided, gradient, adamw: update } };
}

// ---- What no program says: the chunks themselves -------------------------------------------------------

const wholeChunk = (map: ChunkMap, kind: Kind, index: number): ChunkRange => {
  const chunk = map.list(kind).first + index;
  return { chunk, first: 0, size: map.used(chunk) };
};

function chunkDispatch<P extends object>(
  kernel: Kernel<P>,
  problem: P,
  operands: Record<string, Tensor | ChunkRange>,
  uses: readonly Use[],
  label: string,
): Lowered {
  return { kernel, problem, whole: problem, operands, uses, label };
}

/** Behind which dispatch the squares of which chunks are summed. */
function squaresBehind(
  dispatches: readonly Lowered[],
  { squares }: TracedStep,
  map: ChunkMap,
): Map<number, [index: number, dispatch: Lowered][]> {
  const last = new Map<number, number>();
  dispatches.forEach(({ uses }, i) => {
    for (const { list, piece, access } of uses) {
      if (list.kind === 'gradient' && access !== 'read') last.set(piece.chunk, i);
    }
  });
  const list = map.list('gradient');
  const behind = new Map<number, [number, Lowered][]>();
  for (let index = 0; index < list.chunks; index++) {
    const at = last.get(index);
    assert(at !== undefined, `nothing writes gradient chunk ${index}`);
    const x = wholeChunk(map, 'gradient', index);
    const uses = piecesIn(map, index).map((piece): Use => ({ list, piece, access: 'read' }));
    const problem = { size: x.size, first: map.firstBlock[index] as number };
    const dispatch = chunkDispatch(
      sumSquares,
      problem,
      { x, partials: squares },
      uses,
      `gradient norm, chunk ${index}`,
    );
    behind.set(at, [...(behind.get(at) ?? []), [index, dispatch]]);
  }
  return behind;
}

/** The four chunks of each index, side by side. */
function optimizerDispatches({ scalars, decayMask }: TracedStep, map: ChunkMap): Lowered[] {
  const { hyper, state } = scalars;
  return Array.from({ length: map.trainable.chunks }, (_, index) => {
    const [parameter, gradient, m, v] = TRAINED_KINDS.map((kind) => wholeChunk(map, kind, index));
    const uses = TRAINED_KINDS.flatMap((kind) =>
      piecesIn(map, index).map(
        (piece): Use => ({ list: map.list(kind), piece, access: kind === 'gradient' ? 'read' : 'update' }),
      ),
    );
    const operands = { gradient, hyper, state, decayMask, parameter, m, v } as Record<string, Tensor | ChunkRange>;
    const problem = { size: (parameter as ChunkRange).size, maskOffset: map.firstBlock[index] as number };
    return chunkDispatch(adamw, problem, operands, uses, `adamw, chunk ${index}`);
  });
}

const inChunks = new WeakMap<ChunkMap, Piece[][]>();

/** The pieces in a trainable chunk. */
function piecesIn(map: ChunkMap, index: number): readonly Piece[] {
  let known = inChunks.get(map);
  if (!known) {
    known = Array.from({ length: map.trainable.chunks }, () => []);
    for (const piece of [...map.trainable.pieces.values()].flat()) known[piece.chunk]?.push(piece);
    inChunks.set(map, known);
  }
  return known[index] as Piece[];
}

// ---- The walk ------------------------------------------------------------------------------------------

type Draft = { label: string; accesses: { chunk: number; mode: AccessMode }[]; frees: number[] };

/** Follows the states of all pieces through the moments: an access that makes no sense is an error here. */
class Walk {
  readonly #map: ChunkMap;
  readonly #moments: Draft[] = [];
  readonly #dispatches: Lowered[] = [];
  readonly #states: TensorStates;
  /** Of each chunk: how many of its pieces are in each state. */
  readonly #pieces: Record<State, number>[];
  readonly #after: State[][] = [];

  constructor(map: ChunkMap) {
    this.#map = map;
    const none = { FREE: 0, COMPUTE: 0, HOLD: 0, HOLD_AFTER_FWD: 0, HOLD_AFTER_BWD: 0 };
    this.#pieces = Array.from({ length: map.count }, () => ({ ...none }));
    const states: [string, State][] = [];
    for (const list of map.lists) {
      const layout = list.kind === 'frozen' ? map.frozen : map.trainable;
      const state = stateBefore(list.kind);
      for (const piece of [...layout.pieces.values()].flat()) {
        states.push([key(list, piece), state]);
        this.#piecesOf(list.first + piece.chunk)[state]++;
      }
    }
    this.#states = new TensorStates(states);
  }

  get length(): number {
    return this.#moments.length;
  }

  moment(dispatch: Lowered, next: State): void {
    const { label, uses } = dispatch;
    const where = { operator: label, moment: this.#moments.length };
    const accesses = new Map<number, AccessMode>();
    const held = new Map<number, boolean>();
    for (const { list, piece, access } of uses) {
      const chunk = list.first + piece.chunk;
      if (!held.has(chunk)) held.set(chunk, this.#stateOf(chunk) !== 'FREE');
      this.#change(list, piece, (name) => this.#states.pin(name, access !== 'write', where));
      if (access === 'read') {
        if (!accesses.has(chunk)) accesses.set(chunk, 'read');
      } else accesses.set(chunk, held.get(chunk) ? 'write' : 'overwrite');
    }
    for (const { list, piece } of uses) {
      this.#change(list, piece, (name) => this.#states.unpin(name, next, where));
    }
    this.#after.push([...accesses.keys()].map((chunk) => this.#stateOf(chunk)));
    this.#dispatches.push(dispatch);
    this.#moments.push({ label, accesses: [...accesses].map(([chunk, mode]) => ({ chunk, mode })), frees: [] });
  }

  /** The value of a chunk is dead behind the last moment. */
  free(kind: Kind, index: number): void {
    const list = this.#map.list(kind);
    const last = this.#moments.at(-1) as Draft;
    const where = { operator: last.label, moment: this.#moments.length - 1 };
    for (const piece of piecesIn(this.#map, index)) {
      this.#change(list, piece, (name) => this.#states.move(name, 'FREE', where));
    }
    last.frees.push(list.first + index);
  }

  #change(list: ChunkList, piece: Piece, change: (name: string) => void): void {
    const name = key(list, piece);
    const pieces = this.#piecesOf(list.first + piece.chunk);
    pieces[this.#states.of(name)]--;
    change(name);
    pieces[this.#states.of(name)]++;
  }

  #piecesOf(chunk: number): Record<State, number> {
    return this.#pieces[chunk] as Record<State, number>;
  }

  #stateOf(chunk: number): State {
    const pieces = this.#piecesOf(chunk);
    return strongest((Object.keys(pieces) as State[]).filter((state) => pieces[state] > 0));
  }

  finish(name: string, starts: readonly number[], phases: readonly Phase[]): Pass {
    const { chunkBytes, lists } = this.#map;
    const moments = this.#moments.map((moment): Moment => ({ ...moment, nonModelBytes: 0 }));
    const trace: Trace = { chunkBytes, lists, moments };
    return { name, dispatches: this.#dispatches, trace, starts, phases, states: this.#after };
  }
}

const key = ({ kind }: ChunkList, { tensor, row }: Piece) => `${kind} ${tensor}${row > 0 ? ` from row ${row}` : ''}`;

interface Completion {
  readonly moment: number;
  readonly index: number;
  /** Its update, or its gradient. */
  readonly updated: boolean;
}

const completionsOf = new WeakMap<Pass, readonly Completion[]>();

/** The moments at which something is complete, in order. */
export function completions(pass: Pass): readonly Completion[] {
  const known = completionsOf.get(pass);
  if (known) return known;
  const { gradient = [], adamw = [] } = pass.update ?? {};
  const found = [
    ...gradient.map((moment, index) => ({ moment, index, updated: false })),
    ...adamw.map((moment, index) => ({ moment, index, updated: true })),
  ].sort((a, b) => a.moment - b.moment);
  completionsOf.set(pass, found);
  return found;
}
