// The placement of activations: each lives from its first to its last instruction, and tensors whose lives do not meet
// share memory. Placed once, before step 1, and never again.
//
// WebGPU tracks usage per buffer: one dispatch may not read one range of a buffer and write another. So there
// are several arenas, and what an instruction reads never shares an arena with what it writes.

import { assert, HoldfastError } from '../util/errors.ts';
import { bytesOf, onTensors, type Program, type Tensor } from './graph.ts';

/** WebGPU's alignment of storage binding offsets. */
const ALIGNMENT = 256;

export interface Place {
  readonly arena: number;
  /** Bytes. */
  readonly offset: number;
}

export interface Placement {
  readonly places: ReadonlyMap<Tensor, Place>;
  /** Bytes of each arena. */
  readonly arenas: readonly number[];
}

interface Life {
  tensor: Tensor;
  bytes: number;
  first: number;
  last: number;
  /** Tensors that may not share its arena. */
  readonly conflicts: Set<Tensor>;
}

/** Places the activations of a program. Errors: HoldfastError for a tensor larger than a buffer may be. */
export function place(program: Program, maxArenaBytes: number): Placement {
  const lives = livesOf(program);
  const places = new Map<Tensor, Place>();
  const arenas: { bytes: number; members: (Life & { offset: number })[] }[] = [];

  // Large tensors first: the small ones fill the gaps between them.
  for (const life of [...lives.values()].sort((a, b) => b.bytes - a.bytes || a.first - b.first)) {
    if (life.bytes > maxArenaBytes) {
      throw new HoldfastError(
        `activation "${life.tensor.name}" needs ${life.bytes} bytes, this adapter allows ${maxArenaBytes} a buffer; use a smaller batch or context`,
      );
    }
    let best: { arena: number; offset: number; growth: number } | undefined;
    for (const [arena, { bytes, members }] of arenas.entries()) {
      if (members.some(({ tensor }) => life.conflicts.has(tensor))) continue;
      const offset = lowestGap(life, members);
      if (offset + life.bytes > maxArenaBytes) continue;
      const growth = Math.max(0, offset + life.bytes - bytes);
      if (!best || growth < best.growth) best = { arena, offset, growth };
    }
    if (!best) {
      best = { arena: arenas.length, offset: 0, growth: life.bytes };
      arenas.push({ bytes: 0, members: [] });
    }
    const target = arenas[best.arena];
    assert(target, 'arena');
    target.members.push({ ...life, offset: best.offset });
    target.bytes = Math.max(target.bytes, best.offset + life.bytes);
    places.set(life.tensor, { arena: best.arena, offset: best.offset });
  }
  return { places, arenas: arenas.map(({ bytes }) => bytes) };
}

function livesOf(program: Program): Map<Tensor, Life> {
  const lives = new Map<Tensor, Life>();
  // Those on chunks have no activations.
  const instructions = onTensors(program);
  instructions.forEach(({ kernel, problem, operands, label }, i) => {
    const reads: Tensor[] = [];
    const writes: Tensor[] = [];
    for (const [name, { access }] of Object.entries(kernel.operands(problem))) {
      const tensor = operands[name];
      assert(tensor, `${label}: ${kernel.name} got no ${name}`);
      if (tensor.role !== 'activation') continue;
      (access === 'read' ? reads : writes).push(tensor);
      const life = lives.get(tensor);
      if (life) life.last = i;
      else {
        assert(access !== 'read', `${label} reads ${tensor.name} before anything wrote it`);
        const bytes = Math.ceil(bytesOf(tensor) / ALIGNMENT) * ALIGNMENT;
        lives.set(tensor, { tensor, bytes, first: i, last: i, conflicts: new Set() });
      }
    }
    for (const read of reads) {
      for (const written of writes) {
        assert(read !== written, `${label} reads and writes ${read.name} through two operands`);
        lives.get(read)?.conflicts.add(written);
        lives.get(written)?.conflicts.add(read);
      }
    }
  });
  for (const output of program.outputs) {
    const life = lives.get(output);
    if (life) life.last = instructions.length;
  }
  return lives;
}

/** The lowest offset at which nothing that is alive at the same time lies. */
function lowestGap(life: Life, members: readonly (Life & { offset: number })[]): number {
  const rivals = members
    .filter((other) => other.first <= life.last && life.first <= other.last)
    .sort((a, b) => a.offset - b.offset);
  let offset = 0;
  for (const rival of rivals) {
    if (offset + life.bytes <= rival.offset) break;
    offset = Math.max(offset, rival.offset + rival.bytes);
  }
  return offset;
}

/** The least memory that any placement needs: the most bytes alive at one instruction. */
export function liveBytes(program: Program): number {
  const lives = [...livesOf(program).values()];
  return Math.max(
    0,
    ...onTensors(program).map((_, i) =>
      lives.filter(({ first, last }) => first <= i && i <= last).reduce((sum, { bytes }) => sum + bytes, 0),
    ),
  );
}
