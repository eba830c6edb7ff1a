// The placement of activations: each lives from its first to its last instruction, and tensors whose lives do not meet
// share memory. Placed once, before step 1, and never again.
//
// WebGPU tracks usage per buffer: one dispatch may not bind one range of a buffer read-only and write another. What is read is
// declared as writable, too (gpu/shader.ts), and may lie beside what is written. Only what an instruction reads through two
// operands cannot be declared so, since ranges that may be written must not overlap: that shares no arena with what the
// instruction writes.

import { at } from '../util/at.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { bytesOf, type Program, type Tensor, touchedBy } from './program.ts';

/** WebGPU's alignment of storage binding offsets. */
const ALIGNMENT = 256;

/** Bytes that a tensor takes in an arena. */
export const alignedBytes = (tensor: Tensor): number => Math.ceil(bytesOf(tensor) / ALIGNMENT) * ALIGNMENT;

export interface ArenaRange {
  readonly arena: number;
  /** Bytes. */
  readonly offset: number;
}

export interface Placement {
  readonly places: ReadonlyMap<Tensor, ArenaRange>;
  /** Bytes of each arena. */
  readonly arenas: readonly number[];
}

interface Life {
  tensor: Tensor;
  bytes: number;
  first: number;
  last: number;
  /** Tensors that may not share its arena. @default none */
  conflicts?: Set<Tensor>;
}

/** Places the activations of a program. Errors: HoldfastError for a tensor larger than a buffer may be, of those that stay as well. */
export function place(program: Program, maxArenaBytes: number): Placement {
  checkLasting(program, maxArenaBytes);
  const lives = livesOf(program);
  const places = new Map<Tensor, ArenaRange>();
  const arenas: { bytes: number; members: Members }[] = [];
  const { length } = program.instructions;

  // Large tensors first: the small ones fill the gaps between them.
  for (const life of [...lives.values()].sort((a, b) => b.bytes - a.bytes || a.first - b.first)) {
    if (life.bytes > maxArenaBytes) throw tooLarge(`activation "${life.tensor.name}"`, life.bytes, maxArenaBytes);
    let best: { arena: number; offset: number; growth: number } | undefined;
    for (const [arena, { bytes, members }] of arenas.entries()) {
      if (conflictsIn(life, arena, places)) continue;
      const offset = lowestGap(life, members.aliveWith(life));
      if (offset + life.bytes > maxArenaBytes) continue;
      const growth = Math.max(0, offset + life.bytes - bytes);
      if (!best || growth < best.growth) best = { arena, offset, growth };
    }
    if (!best) {
      best = { arena: arenas.length, offset: 0, growth: life.bytes };
      arenas.push({ bytes: 0, members: new Members(length) });
    }
    const target = arenas[best.arena];
    assert(target, 'arena');
    target.members.add({ ...life, offset: best.offset });
    target.bytes = Math.max(target.bytes, best.offset + life.bytes);
    places.set(life.tensor, { arena: best.arena, offset: best.offset });
  }
  return { places, arenas: arenas.map(({ bytes }) => bytes) };
}

/** Checks that tensors that stay are not too large: each has a buffer of its own, of which an operand is bound whole. */
function checkLasting({ instructions }: Program, most: number): void {
  for (const instruction of instructions) {
    if (instruction.op !== 'dispatch') continue;
    for (const tensor of Object.values(instruction.operands)) {
      const bytes = tensor.role === 'persistent' ? bytesOf(tensor) : 0;
      if (bytes > most) throw tooLarge(`"${tensor.name}"`, bytes, most);
    }
  }
}

const tooLarge = (what: string, bytes: number, most: number): HoldfastError =>
  new HoldfastError(
    `${what} needs ${bytes} bytes, this adapter allows ${most} a buffer; use a smaller batch or context`,
  );

function livesOf(program: Program): Map<Tensor, Life> {
  const lives = new Map<Tensor, Life>();
  const { instructions } = program;
  instructions.forEach((instruction, i) => {
    const { label } = instruction;
    const reads: Tensor[] = [];
    const writes: Tensor[] = [];
    for (const { tensor, access } of touchedBy(instruction)) {
      (access === 'read' ? reads : writes).push(tensor);
      const life = lives.get(tensor);
      if (life) life.last = i;
      else {
        assert(access !== 'read', `${label} reads ${tensor.name} before anything wrote it`);
        lives.set(tensor, { tensor, bytes: alignedBytes(tensor), first: i, last: i });
      }
    }
    for (const read of reads) {
      assert(!writes.includes(read), `${label} reads and writes ${read.name} through two operands`);
      if (reads.indexOf(read) === reads.lastIndexOf(read)) continue;
      for (const written of writes) {
        keepApart(lives.get(read), written);
        keepApart(lives.get(written), read);
      }
    }
  });
  for (const output of program.outputs) {
    const life = lives.get(output);
    if (life) life.last = instructions.length;
  }
  return lives;
}

function keepApart(life: Life | undefined, other: Tensor): void {
  if (!life) return;
  life.conflicts ??= new Set();
  life.conflicts.add(other);
}

function conflictsIn({ conflicts }: Life, arena: number, places: ReadonlyMap<Tensor, ArenaRange>): boolean {
  if (!conflicts) return false;
  for (const tensor of conflicts) if (places.get(tensor)?.arena === arena) return true;
  return false;
}

interface Placed extends Life {
  readonly offset: number;
}

/** Instructions that are looked at together. */
const WINDOW = 64;

/** What an arena holds, found by when it is alive: most of what a long program has is never there at once. */
class Members {
  /** By window of instructions: what is alive as it begins, and what begins to be in it. */
  readonly #windows: readonly { readonly before: Placed[]; readonly from: Placed[] }[];

  constructor(instructions: number) {
    this.#windows = Array.from({ length: windowOf(instructions) + 1 }, () => ({ before: [], from: [] }));
  }

  add(member: Placed): void {
    at(this.#windows, windowOf(member.first)).from.push(member);
    for (let w = windowOf(member.first) + 1; w <= windowOf(member.last); w++) at(this.#windows, w).before.push(member);
  }

  aliveWith({ first, last }: Life): Placed[] {
    const found: Placed[] = [];
    const consider = (members: readonly Placed[]) => {
      for (const member of members) if (member.first <= last && first <= member.last) found.push(member);
    };
    consider(at(this.#windows, windowOf(first)).before);
    for (let w = windowOf(first); w <= windowOf(last); w++) consider(at(this.#windows, w).from);
    return found;
  }
}

const windowOf = (instruction: number): number => Math.floor(instruction / WINDOW);

/** The lowest offset at which nothing that is alive at the same time lies: these, in any order, which they lose. */
function lowestGap(life: Life, alive: Placed[]): number {
  alive.sort((a, b) => a.offset - b.offset);
  let offset = 0;
  for (const rival of alive) {
    if (offset + life.bytes <= rival.offset) break;
    offset = Math.max(offset, rival.offset + rival.bytes);
  }
  return offset;
}

/** Bytes of the activations alive at each instruction of a program, and behind the last. */
export function liveProfile(program: Program): number[] {
  // What begins to live at an instruction, less what ended before it.
  const changes = new Array<number>(program.instructions.length + 2).fill(0);
  const change = (i: number, bytes: number) => {
    changes[i] = (changes[i] ?? 0) + bytes;
  };
  for (const { first, last, bytes } of livesOf(program).values()) {
    change(first, bytes);
    change(last + 1, -bytes);
  }
  let alive = 0;
  return changes.slice(0, -1).map((bytes) => {
    alive += bytes;
    return alive;
  });
}

const most = new WeakMap<Program, number>();

/** The least memory that any placement needs: the most bytes alive at one instruction. */
export function liveBytes(program: Program): number {
  const known = most.get(program) ?? liveProfile(program).reduce((a, b) => Math.max(a, b), 0);
  most.set(program, known);
  return known;
}
