// Slices of rows: a rewrite of a program in which the operators of a block, or of the head, run on some rows after the other, so
// that what one of them makes for the next exists for a few rows at a time. What lives longer stays whole: slices read and
// write their own rows of it. A block whose sequences are independent is cut between them, attention included; where there is
// one sequence, all that lies between two attentions, and attention's backward pass between heads (head-groups.ts).
//
// Invariant: no bit changes. Each row is computed by the kernel and variant that the whole takes; sums over rows go on from
// slice to slice in the order of the rows, and slices end where blocks of partial sums do.
// Sources of the idea: Rajbhandari et al. 2021, "ZeRO-Infinity" (memory-centric tiling); Jia et al. 2018, loop tiling by samples.

import { ByProblem, operandList } from '../kernels/by-problem.ts';
import type { RowCut } from '../kernels/kernel.ts';
import { at } from '../util/at.ts';
import { assert } from '../util/errors.ts';
import { inHeadGroups } from './head-groups.ts';
import { bytesBefore, type Instruction, type Program, type Tensor, type TensorInstruction } from './program.ts';

/** Slices of a block, at most: fewer take more memory and fewer dispatches. The first needs the least memory. */
export const SLICE_COUNTS = [8, 4, 2] as const;
const [MOST_SLICES] = SLICE_COUNTS;
/** Elements that what exists for a large slice has, about at most: slices are of even numbers of rows. */
const LARGE_SLICE_ELEMENTS = 2 ** 23;
/** Large slices at most, where the largest of what exists for one has so many elements in all. */
export const mostLargeSlices = (elements: number): number =>
  Math.min(MOST_SLICES, Math.max(1, Math.ceil(elements / LARGE_SLICE_ELEMENTS)));
/** Rows that a slice has a multiple of: the blocks of a bias's partial sums, and where a binding to one float a row may begin. */
const ROW_UNIT = 64;
/** WebGPU's alignment of storage binding offsets. */
const ALIGNMENT = 256;

/** How many slices there are at most; `large`: they are large enough that what exists for one is no more than some of it all. */
export type Slicing = number | 'large';

/** The program, with the layers for which this says how in slices of rows; itself where there is nothing to gain. */
export function inRowSlices(whole: Program, slicingOf: (layer: string) => Slicing | undefined): Program {
  const program = inHeadGroups(whole, (layer) => {
    const slicing = slicingOf(layer);
    return slicing === 'large' ? undefined : slicing;
  });
  const uses = countUses(program);
  const instructions: Instruction[] = [];
  for (const { instructions: part, rows } of partsOf(program.instructions)) {
    const { layer } = at(part, 0);
    const slicing = layer === undefined ? undefined : slicingOf(layer);
    instructions.push(...(slicing && rows !== undefined ? slicedPart(part, { rows, slicing, uses }) : part));
  }
  return instructions.length === program.instructions.length ? program : { ...program, instructions };
}

/** Neighbours of one phase and layer, and of as many rows where activations have them. */
interface Part {
  readonly instructions: Instruction[];
  rows: number | undefined;
}

function partsOf(instructions: readonly Instruction[]): Part[] {
  const parts: Part[] = [];
  for (const instruction of instructions) {
    const last = parts.at(-1);
    const before = last?.instructions[0];
    const rows = rowsOf(instruction);
    const isNeighbour = before?.phase === instruction.phase && before.layer === instruction.layer;
    if (last && isNeighbour && (rows === undefined || last.rows === undefined || rows === last.rows)) {
      last.instructions.push(instruction);
      last.rows ??= rows;
    } else parts.push({ instructions: [instruction], rows });
  }
  return parts;
}

/** Rows of the activations that it makes, where a layer is cut by them. */
function rowsOf(instruction: Instruction): number | undefined {
  return instruction.op === 'dispatch' ? instruction.kernel.cutsBlocks?.(instruction.problem) : undefined;
}

/** How often operands name each tensor, what a program gives back once more. */
function countUses({ instructions, outputs }: Program): Map<Tensor, number> {
  const uses = new Map<Tensor, number>();
  const count = (tensor: Tensor) => uses.set(tensor, (uses.get(tensor) ?? 0) + 1);
  for (const instruction of instructions) {
    if (instruction.op === 'dispatch') for (const name of namesOf(instruction)) count(operandOf(instruction, name));
    else if ('tensor' in instruction) count(instruction.tensor);
    if ('own' in instruction) count(instruction.own);
  }
  outputs.forEach(count);
  return uses;
}

const namesOf = ({ kernel, problem }: TensorInstruction): string[] =>
  operandList(kernel, problem).map(([name]) => name);

function operandOf({ operands, label }: TensorInstruction, name: string): Tensor {
  const tensor = operands[name];
  assert(tensor, `${label} has no ${name}`);
  return tensor;
}

/** How a part is cut. */
interface Cutting {
  readonly rows: number;
  readonly slicing: Slicing;
  /** Of the whole program. */
  readonly uses: ReadonlyMap<Tensor, number>;
}

/** A part that was cut before. */
interface KnownPart {
  readonly part: readonly Instruction[];
  readonly slicing: Slicing;
  /** How often a program uses the operands of the part. */
  readonly counts: readonly number[];
  readonly made: readonly Instruction[];
}

/** By their first instruction: programs that differ in their activations share most parts, and what is worked out of them. */
const knownParts = new WeakMap<Instruction, KnownPart[]>();

function slicedPart(part: readonly Instruction[], cutting: Cutting): readonly Instruction[] {
  const { slicing, uses } = cutting;
  const counts = part.flatMap((instruction) =>
    instruction.op === 'dispatch' ? Object.values(instruction.operands).map((tensor) => uses.get(tensor) ?? 0) : [],
  );
  const all = knownParts.get(at(part, 0)) ?? [];
  const known = all.find((each) => each.slicing === slicing && isSame(each.part, part) && isSame(each.counts, counts));
  if (known) return known.made;
  const made = cutPart(part, cutting);
  knownParts.set(at(part, 0), [...all, { part, slicing, counts, made }]);
  return made;
}

const isSame = <T>(a: readonly T[], b: readonly T[]): boolean =>
  a.length === b.length && a.every((value, i) => value === b[i]);

function cutPart(part: readonly Instruction[], cutting: Cutting): Instruction[] {
  const out: Instruction[] = [];
  let run = new Run(cutting);
  for (const instruction of part) {
    if (run.take(instruction)) continue;
    out.push(...run.end());
    run = new Run(cutting);
    if (!run.take(instruction)) out.push(instruction);
  }
  return [...out, ...run.end()];
}

/** An instruction that is cut, and how. */
interface Cut {
  readonly instruction: TensorInstruction;
  readonly cut: RowCut<object>;
}

/** What instructions do to a tensor. */
interface Uses {
  count: number;
  isWritten: boolean;
  /** Each uses its own rows, and all rows are this many elements. */
  stride: number | 'whole' | 'several';
}

/** Instructions that a slice passes before the next one begins, and those that wait until all slices have. */
class Run {
  readonly #rows: number;
  readonly #slicing: Slicing;
  readonly #uses: ReadonlyMap<Tensor, number>;
  readonly #all: TensorInstruction[] = [];
  readonly #cuts: Cut[] = [];
  readonly #later: TensorInstruction[] = [];
  readonly #inSlices = new Map<Tensor, Uses>();
  /** Whether what waits writes it. */
  readonly #waiting = new Map<Tensor, boolean>();
  #unit = ROW_UNIT;
  /** Rows before those that are cut, in what stays whole. */
  #firstRow: number | undefined;

  constructor({ rows, slicing, uses }: Cutting) {
    this.#rows = rows;
    this.#slicing = slicing;
    this.#uses = uses;
  }

  /** Whether it can be a part of this. */
  take(instruction: Instruction): boolean {
    if (instruction.op !== 'dispatch') return false;
    const cut = this.#cutOf(instruction);
    if (!cut) return this.#cuts.length > 0 && this.#wait(instruction);
    const { firstRow = this.#firstRow } = cut;
    if (this.#firstRow !== undefined && this.#firstRow !== firstRow) return false;
    const operands = operandList(instruction.kernel, instruction.problem).map(([name, { access }]) => ({
      ...{ tensor: operandOf(instruction, name), isWritten: access !== 'read' },
      stride: cut.strides[name] ?? ('whole' as const),
    }));
    for (const { tensor, isWritten, stride } of operands) {
      const waiting = this.#waiting.get(tensor);
      if (waiting !== undefined && (waiting || isWritten)) return false;
      const before = this.#inSlices.get(tensor);
      // A slice may use what the same rows of it were made into, and no other.
      if (before && (before.isWritten || isWritten) && (before.stride !== stride || stride === 'whole')) return false;
    }
    for (const { tensor, isWritten, stride } of operands) {
      const before = this.#inSlices.get(tensor) ?? { count: 0, isWritten: false, stride };
      before.count++;
      before.isWritten ||= isWritten;
      if (before.stride !== stride) before.stride = 'several';
      this.#inSlices.set(tensor, before);
    }
    this.#unit = leastMultiple(this.#unit, cut.unit);
    this.#firstRow = firstRow;
    this.#cuts.push({ instruction, cut });
    this.#all.push(instruction);
    return true;
  }

  #cutOf(instruction: TensorInstruction): RowCut<object> | undefined {
    const { kernel, problem, operands } = instruction;
    const cut = cutProblems.of(kernel, problem).by(this.#rows);
    if (!cut) return undefined;
    const tensors = Object.keys(cut.strides).flatMap((name) => operands[name] ?? []);
    if (tensors.some(({ role, partOf }) => role === 'parameter' || role === 'gradient' || partOf)) return undefined;
    // As many bytes of what has half as many.
    const unit = leastMultiple(cut.unit, tensors.some(({ stored }) => stored) ? 2 * ROW_UNIT : ROW_UNIT);
    return leastMultiple(this.#unit, unit) < this.#rows ? { ...cut, unit } : undefined;
  }

  #wait(instruction: TensorInstruction): boolean {
    for (const [name, { access }] of operandList(instruction.kernel, instruction.problem)) {
      const tensor = operandOf(instruction, name);
      this.#waiting.set(tensor, access !== 'read' || this.#waiting.get(tensor) === true);
    }
    this.#later.push(instruction);
    this.#all.push(instruction);
    return true;
  }

  /** What came, in slices where that makes something smaller. */
  end(): Instruction[] {
    const rows = this.#rows;
    const inner = new Set<Tensor>();
    for (const [tensor, { count, stride }] of this.#inSlices) {
      const isInner = tensor.role === 'activation' && count === this.#uses.get(tensor);
      if (isInner && typeof stride === 'number' && stride * rows === tensor.size) inner.add(tensor);
    }
    const size = this.#unit * Math.ceil(rows / this.#unit / this.#mostSlices(inner));
    if (inner.size === 0 || size >= rows) return this.#all;
    const slices: Instruction[] = [];
    const count = Math.ceil(rows / size);
    for (let i = 0; i < count; i++) {
      const first = i * size;
      const slice = new Slice(
        { first, count: Math.min(size, rows - first), of: rows },
        inner,
        `slice ${i + 1} of ${count}`,
      );
      for (const cut of this.#cuts) slices.push(slice.of(cut));
    }
    return [...slices, ...this.#later];
  }

  #mostSlices(inner: ReadonlySet<Tensor>): number {
    if (this.#slicing !== 'large') return this.#slicing;
    const widest = Math.max(0, ...[...inner].map(({ size }) => size));
    return mostLargeSlices(widest);
  }
}

/** A problem in parts by rows: each of them is one object, whichever instruction it is of. */
class CutProblem {
  readonly #cut: (rows: number) => RowCut<object> | undefined;
  readonly #cuts = new Map<number, RowCut<object> | undefined>();
  readonly #parts = new Map<string, object>();

  constructor(cut: (rows: number) => RowCut<object> | undefined) {
    this.#cut = cut;
  }

  by(rows: number): RowCut<object> | undefined {
    if (!this.#cuts.has(rows)) this.#cuts.set(rows, this.#cut(rows));
    return this.#cuts.get(rows);
  }

  part(cut: RowCut<object>, { first, count, of }: Rows): object {
    const key = `${first} ${count} ${of}`;
    const part = this.#parts.get(key) ?? cut.part(first, count);
    this.#parts.set(key, part);
    return part;
  }
}

const cutProblems = new ByProblem((kernel, problem) => new CutProblem((rows) => kernel.rows?.(problem, rows)));

interface Rows {
  readonly first: number;
  readonly count: number;
  readonly of: number;
}

/** Some of the rows, and what is made for them alone. */
class Slice {
  readonly #rows: Rows;
  readonly #inner: ReadonlySet<Tensor>;
  readonly #name: string;
  readonly #own = new Map<Tensor, Tensor>();

  constructor(rows: Rows, inner: ReadonlySet<Tensor>, name: string) {
    this.#rows = rows;
    this.#inner = inner;
    this.#name = name;
  }

  of({ instruction, cut }: Cut): TensorInstruction {
    const operands = Object.entries(instruction.operands).map(([name, tensor]) => {
      const stride = cut.strides[name];
      return [name, stride === undefined ? tensor : this.#rowsOf(tensor, stride)];
    });
    const { whole = instruction.problem, label } = instruction;
    const problem = cutProblems.of(instruction.kernel, instruction.problem).part(cut, this.#rows);
    return { ...instruction, problem, whole, operands: Object.fromEntries(operands), label: `${label}, ${this.#name}` };
  }

  #rowsOf(tensor: Tensor, stride: number): Tensor {
    const known = this.#own.get(tensor);
    if (known) return known;
    const { first, count, of } = this.#rows;
    const { name, type, role, wantsGradient, stored } = tensor;
    const offset = first * stride;
    const end = first + count === of ? tensor.size : (first + count) * stride;
    const size = end - offset;
    const own = { name: `${name}, ${this.#name}`, shape: [size], size, type, role, wantsGradient, stored };
    const isInner = this.#inner.has(tensor);
    assert(isInner || bytesBefore(tensor, offset) % ALIGNMENT === 0, `${own.name} begins where no binding may`);
    const made: Tensor = isInner ? own : { ...own, partOf: { tensor, offset } };
    this.#own.set(tensor, made);
    return made;
  }
}

/** The least common multiple of two numbers that are not 0. */
function leastMultiple(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y !== 0) [x, y] = [y, x % y];
  return (a / x) * b;
}
