// Tallies: what the programs of a workload take on a layout of chunks, counted instruction by instruction, without making them
// into operations. Most candidates for a fit are only counted. Lowered, they come to the same (test/plan/tally.test.ts).

import {
  bytesOf,
  type ChunkInstruction,
  holderOf,
  type Instruction,
  type Program,
  type Tensor,
  type TensorInstruction,
} from '../../graph/program.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { indicesIn, type Kind } from '../../memory/layout/kinds.ts';
import {
  completedTogether,
  indicesFor,
  isChunkRange,
  modelOperands,
  partOn,
  placesOf,
  problemAt,
} from './operand-places.ts';
import { chunksAtOnce, type Passes } from './pass.ts';
import { completeAtOnce, dispatchesOf, exchangedTensors, stashesIn } from './pass-figures.ts';
import { StashIds } from './stash-ids.ts';
import { uniformBlocks, uniformKey } from './uniform-blocks.ts';

/** What programs take beside their activations. */
export interface Tally {
  /** Chunks that one operation uses on the GPU, at most. */
  readonly atOnce: number;
  /** Chunks that an update on the GPU completes together, at most. */
  readonly completed: number;
  /** Uniform blocks. */
  readonly uniforms: number;
  /** Tensors that live on. */
  readonly lasting: ReadonlySet<Tensor>;
  /** Bytes of each piece of an activation that lies below the GPU, by its number behind those of chunks. */
  readonly stashes: readonly number[];
}

/** The tally of programs of one rank alone. */
export function tally(programs: readonly Program[], map: ChunkMap): Tally {
  const counts = countsOn.get(map) ?? new Counts(map);
  countsOn.set(map, counts);
  const blocks = new Set<Blocks>();
  const lasting = new Set<Tensor>();
  const stashes: number[] = [];
  let [atOnce, completed] = [0, 1];
  for (const program of programs) {
    const counted = counts.of(program);
    atOnce = Math.max(atOnce, counted.atOnce);
    completed = Math.max(completed, counted.completed);
    for (const each of counted.blocks) blocks.add(each);
    for (const tensor of counted.lasting) lasting.add(tensor);
    counted.stashes.forEach((bytes, i) => {
      stashes[i] = Math.max(stashes[i] ?? 0, bytes);
    });
  }
  const keys = new Set<string>();
  for (const each of blocks) for (const key of each) keys.add(key);
  // A number that one program leaves out, another has.
  return { atOnce, completed, uniforms: Math.max(1, keys.size), lasting, stashes: Array.from(stashes, (b) => b ?? 0) };
}

/** The tally of passes, as they are compiled. */
export function tallyOf(passes: Passes, map: ChunkMap): Tally {
  const dispatches = new Set(dispatchesOf(passes));
  const lasting = new Set<Tensor>(exchangedTensors(passes));
  for (const { operands } of dispatches) {
    for (const name in operands) {
      const operand = operands[name];
      if (operand && !isChunkRange(operand) && operand.role === 'persistent') lasting.add(holderOf(operand));
    }
  }
  return {
    atOnce: chunksAtOnce(passes),
    completed: completeAtOnce(passes),
    uniforms: uniformBlocks(dispatches).count,
    lasting,
    stashes: stashesIn(passes, map.count),
  };
}

const countsOn = new WeakMap<ChunkMap, Counts>();

/** Keys of uniform blocks: one list for all instructions that are alike in these. */
type Blocks = readonly string[];

/** What one instruction takes, whatever its tensors are that lie in no chunk. */
interface Taken {
  readonly atOnce: number;
  readonly completed: number;
  readonly blocks: Blocks;
}

interface Counted extends Omit<Tally, 'uniforms'> {
  readonly blocks: ReadonlySet<Blocks>;
}

/** On one layout, each program and each instruction once. */
class Counts {
  readonly #map: ChunkMap;
  readonly #programs = new WeakMap<Program, Counted>();
  readonly #instructions = new WeakMap<Instruction, Taken>();
  /** By problem and by tiles. */
  readonly #blocks = new Map<string, Blocks>();

  constructor(map: ChunkMap) {
    this.#map = map;
  }

  of(program: Program): Counted {
    const known = this.#programs.get(program) ?? this.#count(program);
    this.#programs.set(program, known);
    return known;
  }

  #count(program: Program): Counted {
    const { instructions } = program;
    const stashIds = new StashIds(this.#map, instructions);
    const stashes: number[] = [];
    const blocks = new Set<Blocks>();
    let [atOnce, completed] = [0, 0];
    for (const instruction of instructions) {
      switch (instruction.op) {
        case 'dispatch':
        case 'dispatch each chunk': {
          const taken = this.#takenBy(instruction);
          atOnce = Math.max(atOnce, taken.atOnce);
          completed = Math.max(completed, taken.completed);
          blocks.add(taken.blocks);
          break;
        }
        case 'offload':
          for (const { id, bytes } of stashIds.take(instruction.stash)) {
            stashes[id - this.#map.count] = Math.max(stashes[id - this.#map.count] ?? 0, bytes);
          }
          break;
        case 'fetch':
          stashIds.piecesOf(instruction.stash, instruction.keeps ?? false);
          break;
        case 'host each chunk':
          completed = Math.max(completed, instruction.completes.length);
          break;
        default: // between ranks
      }
    }
    return { atOnce, completed, blocks, lasting: lastingIn(program), stashes };
  }

  #takenBy(instruction: TensorInstruction | ChunkInstruction): Taken {
    const one = (instruction.op === 'dispatch' && instruction.copyOf) || instruction;
    const known =
      this.#instructions.get(one) ?? (one.op === 'dispatch' ? this.#onTensors(one) : this.#onEachChunk(one));
    this.#instructions.set(one, known);
    return known;
  }

  #onTensors(instruction: TensorInstruction): Taken {
    const { kernel, problem, whole = problem } = instruction;
    const key = uniformKey(instruction);
    if (modelOperands(instruction).length === 0)
      return { atOnce: 0, completed: 0, blocks: this.#blocksOf(key, () => [key]) };
    const { uses, tiled } = placesOf(instruction, this.#map);
    const chunks = new Set(uses.map(({ list, piece }) => list.first + piece.chunk));
    if (!tiled) return { atOnce: chunks.size, completed: 0, blocks: this.#blocksOf(key, () => [key]) };
    const { name, list, pieces } = tiled;
    const isElsewhere = pieces.some(({ chunk }) => !chunks.has(list.first + chunk));
    const blocks = this.#blocksOf(`${key} ${name} ${pieces.map(({ first, size }) => `${first}+${size}`).join()}`, () =>
      pieces.map((piece) => uniformKey({ kernel, problem: partOn(instruction, name, piece), whole })),
    );
    return { atOnce: chunks.size + (isElsewhere ? 1 : 0), completed: 0, blocks };
  }

  #blocksOf(key: string, make: () => Blocks): Blocks {
    const known = this.#blocks.get(key) ?? make();
    this.#blocks.set(key, known);
    return known;
  }

  #onEachChunk(instruction: ChunkInstruction): Taken {
    const { kernel, operands, completes } = instruction;
    const map = this.#map;
    const indices = indicesFor(instruction, map);
    const problems = indices.map((index) => problemAt(instruction, map, index));
    const [problem] = problems;
    if (!problem) return { atOnce: 0, completed: 0, blocks: [] };
    const kinds = Object.keys(kernel.operands(problem)).flatMap((name) => {
      const operand = operands[name];
      return operand && 'kind' in operand && map.trainedKinds.includes(operand.kind) ? [operand.kind] : [];
    });
    const together = completedTogether(instruction);
    // What is complete together stays until then.
    const staying = completes.filter((kind) => indicesIn(kind) < together);
    const chunkOf = (kind: Kind, index: number) => map.placeOf(kind, index).chunk;
    let [atOnce, completed] = [0, 0];
    const chunks = new Set<number>();
    const complete = new Set<number>();
    for (const index of indices) {
      if (index % together === 0) complete.clear();
      chunks.clear();
      for (const kind of kinds) chunks.add(chunkOf(kind, index));
      for (let before = index - (index % together); before < index; before++) {
        for (const kind of staying) chunks.add(chunkOf(kind, before));
      }
      for (const kind of completes) complete.add(chunkOf(kind, index));
      atOnce = Math.max(atOnce, chunks.size);
      completed = Math.max(completed, complete.size);
    }
    return { atOnce, completed, blocks: problems.map((each) => uniformKey({ kernel, problem: each })) };
  }
}

const lastingOf = new WeakMap<Program, ReadonlySet<Tensor>>();

/** Tensors of a program that live on, whatever its layout of chunks. */
function lastingIn(program: Program): ReadonlySet<Tensor> {
  const known = lastingOf.get(program);
  if (known) return known;
  const lasting = new Set<Tensor>();
  for (const instruction of program.instructions) {
    if (instruction.op !== 'dispatch' && instruction.op !== 'dispatch each chunk') continue;
    for (const name in instruction.operands) {
      const operand = instruction.operands[name];
      if (operand && !('kind' in operand) && operand.role === 'persistent') lasting.add(holderOf(operand));
    }
  }
  lastingOf.set(program, lasting);
  return lasting;
}

/** Bytes of all tensors that live on, of programs of one rank alone. */
export function lastingBytes(programs: readonly Program[]): number {
  const lasting = new Set(programs.flatMap((program) => [...lastingIn(program)]));
  return [...lasting].reduce((sum, tensor) => sum + bytesOf(tensor), 0);
}
