// The step, run on paper: the traced programs and a layout become the trace that the executor will follow,
// with no GPU. One instruction is one moment; one on a tiled tensor is a moment for each tile. The optimizer
// walks the chunks side by side.
//
// Non-model bytes are one constant: the activation arenas are placed once and stay, and so do inputs, scalars
// and uniforms. Staging buffers belong to the executor, which adds them.

import { UNIFORM_STRIDE } from '../gpu/dispatch.ts';
import { Graph, type Instruction, makeTensor, type Program, type Tensor } from '../graph/graph.ts';
import { liveBytes, place } from '../graph/liveness.ts';
import { optimizerStep, type StepScalars } from '../graph/operators/optimizer.ts';
import type { Access } from '../kernels/kernel.ts';
import type { MatmulProblem } from '../kernels/matmul.ts';
import { STATE } from '../kernels/step-control.ts';
import { BLOCK_ELEMENTS } from '../memory/chunks.ts';
import { ELEMENT_BYTES, type Piece, type TiledLayout } from '../memory/layout.ts';
import { type State, TensorStates } from '../memory/states.ts';
import type { AccessMode, ChunkList, Kind, Trace } from '../memory/trace.ts';
import { assert } from '../util/errors.ts';

/** What is traced before step 1. Gradient tensors are named like their parameters. */
export interface TracedStep {
  /** The micro-batch that overwrites the gradients, and those that add to them. */
  readonly first: Program;
  readonly next: Program;
  /** Shares the arenas; takes no part in the step. */
  readonly evaluate?: Program;
  readonly scalars: StepScalars;
}

export interface Layouts {
  /** Of the parameters that train, and of all that belongs to them. */
  readonly trainable: TiledLayout;
  /** Of the others, in chunks of the same size. */
  readonly frozen?: TiledLayout;
}

export interface DryRunOptions {
  /** Micro-batches in a step. */
  readonly accumulate: number;
  /**
   * `separate`: all gradients are read once more for their norm, before the optimizer reads them. `inBackward`:
   * each tile's squares are summed right after its last write, while it is on the GPU. @default 'inBackward'
   */
  readonly norm?: 'inBackward' | 'separate';
  /** At every moment: see `nonModelMemory`. @default 0 */
  readonly nonModelBytes?: number;
}

/** Where memory goes that is not chunks. */
export interface NonModelMemory {
  /** Bytes of activations, as placed; and the most that are alive at once, which no placement could undercut. */
  readonly arenas: number;
  readonly alive: number;
  /** Bytes of inputs, scalars, tables, masks, uniform blocks, the readback ring. */
  readonly persistent: number;
}

/** Reads of a step's numbers that may be under way at once, as the trainer has it. */
const READBACKS = 4;

const KINDS = ['parameter', 'gradient', 'moment1', 'moment2'] as const satisfies readonly Kind[];

/** The trace of one step. */
export function dryRun(programs: TracedStep, layouts: Layouts, options: DryRunOptions): Trace {
  const { trainable, frozen } = layouts;
  assert(
    !frozen || frozen.chunkElements <= trainable.chunkElements,
    'frozen parameters lie in chunks of the same size',
  );
  const { accumulate, norm = 'inBackward', nonModelBytes = 0 } = options;
  const walk = new Walk(programs, layouts);
  for (let micro = 0; micro < accumulate; micro++) walk.program(micro === 0 ? programs.first : programs.next);
  if (norm === 'inBackward') walk.normAfterLastWrites();
  else walk.normBeforeOptimizer();
  walk.optimizer();
  return {
    chunkBytes: trainable.chunkElements * ELEMENT_BYTES,
    lists: walk.lists,
    moments: walk.moments.map((moment) => ({ ...moment, nonModelBytes })),
  };
}

/** Errors: HoldfastError for an activation larger than `maxArenaBytes`. */
export function nonModelMemory(programs: TracedStep, layout: TiledLayout, maxArenaBytes: number): NonModelMemory {
  const { first, next, evaluate, scalars } = programs;
  const all = [first, next, optimizerProgram(layout, scalars), ...(evaluate ? [evaluate] : [])];
  return {
    arenas: arenaBytes(all, maxArenaBytes),
    alive: Math.max(...all.map(liveBytes)),
    persistent: persistentBytes(all),
  };
}

// ---- What an instruction touches -----------------------------------------------------------------------

interface Touch {
  readonly tensor: Tensor;
  /** Elements of the tensor: from, and up to but without. */
  readonly from: number;
  readonly to: number;
  readonly access: Access;
}

/** The model data that an instruction touches. */
function touches({ kernel, problem, operands }: Instruction): Touch[] {
  const found: Touch[] = [];
  for (const [name, { access, size }] of Object.entries(kernel.operands(problem))) {
    const tensor = operands[name];
    if (tensor.role !== 'parameter' && tensor.role !== 'gradient') continue;
    // Operands say where they end; only products also start somewhere else than at 0.
    const product = kernel.name === 'matmul' ? (problem as MatmulProblem) : undefined;
    const from = product?.[`${name}Offset` as 'aOffset' | 'bOffset' | 'cOffset'] ?? 0;
    // A part that is not added to is replaced: `update` speaks of the elements around it.
    const replaced = product && name === 'c' && !product.accumulate;
    found.push({ tensor, from, to: size, access: replaced ? 'write' : access });
  }
  return found;
}

// ---- The walk ------------------------------------------------------------------------------------------

type Draft = { label: string; accesses: { chunk: number; mode: AccessMode }[]; frees: number[] };

/** A piece that an operator uses. */
interface Use {
  readonly list: ChunkList;
  readonly piece: Piece;
  readonly access: Access;
}

class Walk {
  readonly lists: ChunkList[] = [];
  readonly moments: Draft[] = [];
  readonly #programs: TracedStep;
  readonly #layouts: Layouts;
  readonly #states: TensorStates;
  /** Pieces of each chunk that hold a value. */
  readonly #held: number[];
  /** The last moment that wrote each gradient piece. */
  readonly #lastWrite = new Map<Piece, number>();

  constructor(programs: TracedStep, layouts: Layouts) {
    this.#programs = programs;
    this.#layouts = layouts;
    let first = 0;
    const add = (kind: Kind, chunks: number) => {
      this.lists.push({ kind, first, chunks });
      first += chunks;
    };
    for (const kind of KINDS) add(kind, layouts.trainable.chunks);
    if (layouts.frozen) add('frozen', layouts.frozen.chunks);
    this.#held = new Array<number>(first).fill(0);
    const states: [string, State][] = [];
    for (const list of this.lists) {
      for (const piece of this.#pieces(list.kind)) {
        states.push([key(list, piece), list.kind === 'gradient' ? 'FREE' : 'HOLD']);
        if (list.kind !== 'gradient') this.#held[list.first + piece.chunk]++;
      }
    }
    this.#states = new TensorStates(states);
  }

  /** Forward and backward of one micro-batch. */
  program(program: Program): void {
    const { lossSum } = this.#programs.scalars;
    // The forward pass ends with the loss.
    const end = program.instructions.findLastIndex(({ operands }) => Object.values(operands).includes(lossSum));
    program.instructions.forEach((instruction, i) => {
      const next: State = i <= end ? 'HOLD_AFTER_FWD' : 'HOLD_AFTER_BWD';
      const label = `${program.name}: ${instruction.kernel.name} ${instruction.label}`;
      const uses = touches(instruction).map((touch) => this.#usesOf(touch));
      const single = uses.filter((list) => list.length === 1).flat();
      const tiled = uses.filter((list) => list.length > 1);
      // Tile by tile, one tensor after the other; what lies in one piece stays pinned throughout.
      if (tiled.length === 0) this.#moment(label, single, next);
      for (const pieces of tiled) {
        for (const use of pieces) {
          const { row, rows } = use.piece;
          this.#moment(`${label}, rows ${row} to ${row + rows - 1}`, [...single, use], next);
        }
      }
    });
  }

  /** Adds up each gradient tile's squares right behind the moment that wrote it last. */
  normAfterLastWrites(): void {
    const list = this.#list('gradient');
    const behind = new Map<number, number[]>();
    for (const [{ chunk }, moment] of this.#lastWrite) {
      const chunks = behind.get(moment) ?? [];
      behind.set(moment, chunks.includes(chunk) ? chunks : [...chunks, chunk]);
    }
    const walked = this.moments.splice(0);
    walked.forEach((moment, i) => {
      this.moments.push(moment);
      const chunks = behind.get(i);
      if (!chunks) return;
      const accesses = chunks.map((chunk) => ({ chunk: list.first + chunk, mode: 'read' as const }));
      const label = `gradient norm: sumSquares of ${chunks.map((chunk) => `chunk ${chunk}`).join(', ')}`;
      this.moments.push({ label, accesses, frees: [] });
    });
  }

  /** Walks all gradients once more. */
  normBeforeOptimizer(): void {
    const list = this.#list('gradient');
    for (let chunk = 0; chunk < list.chunks; chunk++) {
      const accesses = [{ chunk: list.first + chunk, mode: 'read' as const }];
      this.moments.push({ label: `gradient norm: sumSquares of chunk ${chunk}`, accesses, frees: [] });
    }
  }

  /** The four chunks of each index, side by side; then the gradients are free. */
  optimizer(): void {
    const inChunk: Piece[][] = Array.from({ length: this.#layouts.trainable.chunks }, () => []);
    for (const piece of this.#pieces('parameter')) inChunk[piece.chunk].push(piece);
    for (let chunk = 0; chunk < this.#layouts.trainable.chunks; chunk++) {
      const uses = KINDS.flatMap((kind) =>
        inChunk[chunk].map(
          (piece): Use => ({ list: this.#list(kind), piece, access: kind === 'gradient' ? 'read' : 'update' }),
        ),
      );
      this.#moment(`optimizer: adamw chunk ${chunk}`, uses, 'HOLD');
      const gradients = uses.filter(({ list }) => list.kind === 'gradient');
      const where = { operator: 'adamw', moment: this.moments.length - 1 };
      for (const { list, piece } of gradients) this.#states.move(key(list, piece), 'FREE', where);
      const freed = this.#list('gradient').first + chunk;
      this.#held[freed] = 0;
      (this.moments.at(-1) as Draft).frees.push(freed);
    }
  }

  #moment(label: string, uses: readonly Use[], next: State): void {
    const where = { operator: label, moment: this.moments.length };
    const accesses = new Map<number, AccessMode>();
    const held = new Map<number, boolean>();
    for (const { list, piece, access } of uses) {
      const chunk = list.first + piece.chunk;
      if (!held.has(chunk)) held.set(chunk, this.#held[chunk] > 0);
      const name = key(list, piece);
      if (this.#states.of(name) === 'FREE') this.#held[chunk]++;
      this.#states.pin(name, access !== 'write', where);
      if (access === 'read') {
        if (!accesses.has(chunk)) accesses.set(chunk, 'read');
      } else {
        accesses.set(chunk, held.get(chunk) ? 'write' : 'overwrite');
        if (list.kind === 'gradient') this.#lastWrite.set(piece, this.moments.length);
      }
    }
    for (const { list, piece } of uses) this.#states.unpin(key(list, piece), next, where);
    this.moments.push({ label, accesses: [...accesses].map(([chunk, mode]) => ({ chunk, mode })), frees: [] });
  }

  #usesOf({ tensor, from, to, access }: Touch): Use[] {
    const { trainable, frozen } = this.#layouts;
    const trains = trainable.pieces.has(tensor.name);
    const list = this.#list(tensor.role === 'gradient' ? 'gradient' : trains ? 'parameter' : 'frozen');
    const pieces = (trains ? trainable : frozen)?.pieces.get(tensor.name);
    assert(pieces, `${tensor.role} ${tensor.name} lies in no chunk`);
    return pieces
      .filter(({ first, size }) => first < to && from < first + size)
      .map((piece) => ({ list, piece, access }));
  }

  #list(kind: Kind): ChunkList {
    const list = this.lists.find((candidate) => candidate.kind === kind);
    assert(list, `there are no ${kind} chunks`);
    return list;
  }

  #pieces(kind: Kind): Piece[] {
    const { trainable, frozen } = this.#layouts;
    return [...((kind === 'frozen' ? frozen : trainable)?.pieces.values() ?? [])].flat();
  }
}

const key = ({ kind }: ChunkList, { tensor, row }: Piece) => `${kind} ${tensor}${row > 0 ? ` from row ${row}` : ''}`;

// ---- Memory that is not chunks -------------------------------------------------------------------------

/** The optimizer's program on this layout: as the trainer traces it. */
function optimizerProgram({ used, chunkElements }: TiledLayout, scalars: StepScalars): Program {
  const g = new Graph('optimizer');
  const maskBlocks = chunkElements / BLOCK_ELEMENTS;
  const decayMask = makeTensor(
    'decay mask',
    [Math.max(1, Math.ceil((used.length * maskBlocks) / 32))],
    'persistent',
    'u32',
  );
  const chunks = used.map((size) => {
    const tensor = (role: 'parameter' | 'gradient') => makeTensor('chunk', [size], role);
    const tensors = {
      parameter: tensor('parameter'),
      gradient: tensor('gradient'),
      moment1: tensor('parameter'),
      moment2: tensor('parameter'),
    };
    return { used: size, tensors };
  });
  optimizerStep(g, chunks, scalars, decayMask, maskBlocks);
  return g.program();
}

/** Programs share arenas: each is as large as the largest program needs. */
function arenaBytes(programs: readonly Program[], maxArenaBytes: number): number {
  const sizes: number[] = [];
  for (const program of programs) {
    place(program, maxArenaBytes).arenas.forEach((bytes, i) => {
      sizes[i] = Math.max(sizes[i] ?? 0, bytes);
    });
  }
  return sizes.reduce((a, b) => a + b, 0);
}

function persistentBytes(programs: readonly Program[]): number {
  const tensors = new Set<Tensor>();
  let uniforms = 0;
  for (const { instructions } of programs) {
    uniforms += instructions.length * UNIFORM_STRIDE;
    for (const { operands } of instructions) {
      for (const tensor of Object.values(operands)) if (tensor.role === 'persistent') tensors.add(tensor);
    }
  }
  const readback = READBACKS * STATE.size * 4;
  return [...tensors].reduce((sum, { size }) => sum + size * 4, uniforms + readback);
}
