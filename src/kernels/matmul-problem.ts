// The problem of a matrix product: its dimensions, how operands lie, what finishes and what goes beside it; and how it is cut, where
// an operand lies in tiles of rows, or by the rows of activations. The kernel is matmul.ts.

import { assert } from '../util/errors.ts';
import type { ActivationName } from './activations.ts';
import type { RowCut, Tile } from './kernel.ts';

export type Layout = 'NN' | 'NT' | 'TN';

/**
 * What happens to each element of the product s. With `residual`: bias is added first, then the residual.
 * `residual` and `preactivation` lie as C does: same offset, same stride.
 */
export type Epilogue =
  | 'none' // c = s
  | 'scale' // c = scale * s
  | 'softcap' // c = scale * tanh(s / scale)
  | 'bias' // c = s + bias
  | 'residual' // c = residual + s
  | 'biasResidual' // c = residual + (s + bias)
  | 'crossEntropy' // c = the gradient of the cross-entropy of logits s
  | 'biasCrossEntropy' // and of logits s + bias
  | `bias${Capitalize<ActivationName>}` // preactivation = s + bias, c = activation(preactivation)
  | `${ActivationName}Gradient`; // c = s * activation'(preactivation)

/** The epilogues that have an activation in them. */
export const epiloguesOf = (name: ActivationName) => ({
  /** `biasGelu`, ... */
  forward: `bias${name[0]!.toUpperCase()}${name.slice(1)}` as `bias${Capitalize<ActivationName>}`,
  gradient: `${name}Gradient` as const,
});

/** NN: A (M, K), B (K, N). NT: A (M, K), B (N, K). TN: A (K, M), B (K, N). C (M, N). */
export interface MatmulProblem {
  layout: Layout;
  M: number;
  N: number;
  K: number;
  /** Elements between rows of A, B and C as they are stored. @default the row's length */
  aStride?: number;
  bStride?: number;
  cStride?: number;
  /** Elements before the first of A, B and C. @default 0 */
  aOffset?: number;
  bOffset?: number;
  cOffset?: number;
  /** Elements of bias before the first. @default 0 */
  biasOffset?: number;
  /** Adds the product to C. @default false */
  accumulate?: boolean;
  /** C is a part of a larger tensor whose other elements stay. @default false */
  partial?: boolean;
  /** @default 'none' */
  epilogue?: Epilogue;
  /** For the epilogues 'scale' and 'softcap'. @default 1 */
  scale?: number;
  /** For those of the cross-entropy: the row of the targets that is the first of C, and the label that is the first column. @default 0 */
  firstRow?: number;
  firstLabel?: number;
  /** The label that takes no part in the loss. @default none is */
  ignoreIndex?: number;
  /**
   * Beside C, the sum over k of each row of A (M), or of each column of B (N), in the order of `columnSum`: blocks of so many steps
   * of k, then the blocks. Where `makesTotals`. @default none is made
   */
  totalsOf?: 'a' | 'b';
  stepsPerBlock?: number;
  /** Adds them to what is there. @default false */
  accumulateTotals?: boolean;
  /** Elements of them before the first, where these are some of more, which stay. @default they are all */
  totalsOffset?: number;
}

/** Whether C is the gradient of a cross-entropy. */
const isOfLoss = ({ epilogue }: MatmulProblem): boolean =>
  epilogue === 'crossEntropy' || epilogue === 'biasCrossEntropy';

/** Rows and columns of A and B as stored, with strides and offsets filled in. */
export function geometry(p: MatmulProblem) {
  const [aRows, aColumns] = p.layout === 'TN' ? [p.K, p.M] : [p.M, p.K];
  const [bRows, bColumns] = p.layout === 'NT' ? [p.N, p.K] : [p.K, p.N];
  const aStride = p.aStride ?? aColumns;
  const bStride = p.bStride ?? bColumns;
  const cStride = p.cStride ?? p.N;
  return {
    a: { size: (p.aOffset ?? 0) + (aRows - 1) * aStride + aColumns, stride: aStride },
    b: { size: (p.bOffset ?? 0) + (bRows - 1) * bStride + bColumns, stride: bStride },
    c: { size: (p.cOffset ?? 0) + (p.M - 1) * cStride + p.N, stride: cStride },
  };
}

/** The rows of a stored matrix (`offset` elements into its tensor) that a tile holds: from, count, new offset. */
function rowsIn(tile: Tile, rows: number, stride: number, offset: number) {
  assert(tile.first % stride === 0 && tile.size % stride === 0, 'a tile of a matmul operand is whole rows');
  const before = tile.first / stride - Math.floor(offset / stride);
  const from = Math.max(0, before);
  const count = Math.min(rows, before + tile.size / stride) - from;
  return { from, count, offset: offset + from * stride - tile.first };
}

/** The steps of k that go with these rows of B. The last part finishes the sums, the others leave them in C. */
export function partOfK(p: MatmulProblem, tile: Tile): MatmulProblem | undefined {
  const { a, b } = geometry(p);
  const { from, count, offset } = rowsIn(tile, p.K, b.stride, p.bOffset ?? 0);
  if (count <= 0) return undefined;
  const part: MatmulProblem = {
    ...p,
    K: count,
    aStride: a.stride,
    aOffset: (p.aOffset ?? 0) + from * (p.layout === 'TN' ? a.stride : 1),
    bOffset: offset,
    accumulate: from > 0 || (p.accumulate ?? false),
  };
  return from + count < p.K ? { ...part, epilogue: 'none' } : part;
}

/** The columns of C that go with these rows of a B stored transposed. */
export function partOfN(p: MatmulProblem, tile: Tile): MatmulProblem | undefined {
  const { b, c } = geometry(p);
  const { from, count, offset } = rowsIn(tile, p.N, b.stride, p.bOffset ?? 0);
  if (count <= 0) return undefined;
  return {
    ...p,
    N: count,
    bOffset: offset,
    cStride: c.stride,
    cOffset: (p.cOffset ?? 0) + from,
    biasOffset: (p.biasOffset ?? 0) + from,
    ...(isOfLoss(p) && { firstLabel: (p.firstLabel ?? 0) + from }),
    partial: count < p.N || (p.partial ?? false),
  };
}

/** These rows of C, and those of A that go with them. */
export function partOfM(p: MatmulProblem, tile: Tile): MatmulProblem | undefined {
  const { epilogue = 'none' } = p;
  assert(epilogue === 'none' || epilogue === 'scale' || epilogue === 'bias', `${epilogue} finishes no tile of C`);
  const { a, c } = geometry(p);
  const { from, count, offset } = rowsIn(tile, p.M, c.stride, p.cOffset ?? 0);
  if (count <= 0) return undefined;
  const aOffset = (p.aOffset ?? 0) + from * (p.layout === 'TN' ? 1 : a.stride);
  const part = { ...p, M: count, aStride: a.stride, aOffset, cOffset: offset };
  if (p.totalsOf === 'a') return { ...part, totalsOffset: (p.totalsOffset ?? 0) + from };
  // Those of B are made once, with the last rows.
  return p.totalsOf === 'b' && from + count < p.M ? withoutTotals(part) : part;
}

function withoutTotals({
  totalsOf,
  stepsPerBlock,
  accumulateTotals,
  totalsOffset,
  ...p
}: MatmulProblem): MatmulProblem {
  return p;
}

/** Whether a product can make totals beside C, over blocks of so many steps of k: loads are of four, panels of at most 64. */
export const makesTotals = ({ layout, K, epilogue = 'none' }: MatmulProblem, stepsPerBlock: number): boolean =>
  layout === 'TN' && epilogue === 'none' && K % 4 === 0 && stepsPerBlock % 64 === 0;

/** Where a problem's rows lie in an operand: from one of its own rows on. */
interface RowPlace {
  readonly firstRow: number;
  readonly stride: number;
}

/** Where a row's part of so many elements lies in an operand; undefined where it lies across two rows. */
function rowPlace(offset: number, elements: number, stride: number): RowPlace | undefined {
  const firstRow = Math.floor(offset / stride);
  return (offset % stride) + elements <= stride ? { firstRow, stride } : undefined;
}

/** By the rows of C, or of the sum over them that a product with A stored transposed is. */
export function cutByRows(p: MatmulProblem, rows: number): RowCut<MatmulProblem> | undefined {
  const { a, b, c } = geometry(p);
  const { aOffset = 0, bOffset = 0, cOffset = 0, epilogue = 'none' } = p;
  const isSum = p.layout === 'TN';
  if ((isSum ? p.K : p.M) !== rows || (isSum && (epilogue !== 'none' || p.totalsOf))) return undefined;
  const ofA = rowPlace(aOffset, isSum ? p.M : p.K, a.stride);
  const other = isSum ? rowPlace(bOffset, p.N, b.stride) : rowPlace(cOffset, p.N, c.stride);
  if (!ofA || !other) return undefined;
  // What has rows before these stays whole.
  const beside = isSum ? ['b'] : ['c', 'residual', 'preactivation'];
  const strides = {
    ...(ofA.firstRow === 0 && { a: a.stride }),
    ...(other.firstRow === 0 && Object.fromEntries(beside.map((name) => [name, other.stride]))),
  };
  const part = (first: number, count: number): MatmulProblem => {
    const aRow = ofA.firstRow > 0 && first > 0 && { aOffset: aOffset + first * a.stride };
    const row = other.firstRow > 0 && first > 0 && first * other.stride;
    const targetRow = isOfLoss(p) && first > 0 && { firstRow: (p.firstRow ?? 0) + first };
    if (!isSum) return { ...p, M: count, ...aRow, ...(row && { cOffset: cOffset + row }), ...targetRow };
    return { ...p, K: count, ...aRow, ...(row && { bOffset: bOffset + row }), ...(first > 0 && { accumulate: true }) };
  };
  return { unit: 1, strides, firstRow: Math.max(ofA.firstRow, other.firstRow, p.firstRow ?? 0), part };
}
