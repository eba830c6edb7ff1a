// Gradients of biases made by the products that make those of their weights, as a rewrite of a training program: both read the
// gradient of the layer's output, whose columns the product sums on its way. One dispatch for three, and one reading for two. Sums
// of one pass or of three stay as they are, and what goes in slices of rows: each slice's partial sums are there for the last one.
//
// Invariant: no bit changes: the product adds up in the order of the passes that it replaces.
// Source of the idea: the epilogues of cuBLASLt that give a bias's gradient (CUBLASLT_EPILOGUE_BGRADA, BGRADB).

import { type ColumnSumProblem, columnSum } from '../kernels/column-sum.ts';
import { matmul } from '../kernels/matmul.ts';
import { type MatmulProblem, makesTotals } from '../kernels/matmul-problem.ts';
import type { Instruction, Program, Tensor, TensorInstruction } from './program.ts';

/** The program, with what sums the columns of a product's operand right behind it made a part of it; itself where nothing does. */
export function withFusedTotals(program: Program): Program {
  const instructions: Instruction[] = [];
  const { instructions: all } = program;
  for (let i = 0; i < all.length; ) {
    const [product, first, last] = all.slice(i, i + 3);
    const fused = product && first && last && fusedOf(product, first, last);
    instructions.push(...(fused ? [fused] : product ? [product] : []));
    i += fused ? 3 : 1;
  }
  return instructions.length === all.length ? program : { ...program, instructions };
}

/** Programs that differ in their activations share most instructions. */
const known = new WeakMap<TensorInstruction, readonly TensorInstruction[]>();

function fusedOf(product: Instruction, first: Instruction, last: Instruction): TensorInstruction | undefined {
  if (product.op !== 'dispatch' || first.op !== 'dispatch' || last.op !== 'dispatch') return undefined;
  const [before, behind, made] = known.get(product) ?? [];
  if (before === first && behind === last) return made;
  const fused = fuse(product, first, last);
  if (fused) known.set(product, [first, last, fused]);
  return fused;
}

function fuse(product: TensorInstruction, first: TensorInstruction, last: TensorInstruction) {
  if (product.kernel !== matmul || first.kernel !== columnSum || last.kernel !== columnSum) return undefined;
  if ([product, first, last].some(({ whole, copyOf }) => whole || copyOf)) return undefined;
  const problem = product.problem as MatmulProblem;
  const [blocks, sum] = [first.problem as ColumnSumProblem, last.problem as ColumnSumProblem];
  const { y: partial, x } = first.operands;
  const { y: totals } = last.operands;
  if (!x || !totals || last.operands['x'] !== partial || problem.totalsOf) return undefined;
  const totalsOf = sideOf(problem, product, x, blocks);
  const { rowsPerBlock } = blocks;
  const isTwoLevels =
    blocks.rows === problem.K &&
    // A part of more would go with its product where that goes, and the other parts would not.
    totals.size === blocks.width &&
    !blocks.accumulate &&
    !blocks.into &&
    sum.rows === Math.ceil(blocks.rows / rowsPerBlock) &&
    sum.rowsPerBlock === sum.rows &&
    sum.width === blocks.width &&
    sum.stride === blocks.width &&
    sum.offset === 0 &&
    !sum.into;
  if (!totalsOf || !isTwoLevels || !makesTotals(problem, rowsPerBlock)) return undefined;
  const sums = { totalsOf, stepsPerBlock: rowsPerBlock, ...(sum.accumulate && { accumulateTotals: true }) };
  return { ...product, problem: { ...problem, ...sums }, operands: { ...product.operands, totals } };
}

/** The operand of a product whose rows or columns these sums are of. */
function sideOf(
  { M, N, aStride = M, bStride = N, aOffset = 0, bOffset = 0 }: MatmulProblem,
  { operands }: TensorInstruction,
  x: Tensor,
  { width, stride, offset }: ColumnSumProblem,
): 'a' | 'b' | undefined {
  if (operands['b'] === x && width === N && stride === bStride && offset === bOffset) return 'b';
  if (operands['a'] === x && width === M && stride === aStride && offset === aOffset) return 'a';
  return undefined;
}
