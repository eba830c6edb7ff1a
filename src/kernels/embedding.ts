// Token and position embedding, forward and backward. The backward pass needs to know which rows hold which
// token: `tokenIndex` groups them on the CPU, where the ids come from, so that the kernel needs no atomics
// and touches only the rows of the vocabulary that occur. A table may be stored in tiles of rows; each kernel has
// one table, and a problem on a tile touches only what belongs to the tile's rows.

import positionShader from '../../shaders/embedding/position.wgsl?raw';
import positionBackwardShader from '../../shaders/embedding/position_backward.wgsl?raw';
import tokenShader from '../../shaders/embedding/token.wgsl?raw';
import backwardShader from '../../shaders/embedding/token_backward.wgsl?raw';
import { assert } from '../util/errors.ts';
import { type Arrays, type Kernel, type Operand, read, startingAt, type Tile, update, write } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

/** The rows of a table that a problem works on: all of them, or those of a part of one, or of one tile of a table stored in tiles. */
interface TableTile {
  /** The table's row that its operand begins with. @default 0 */
  firstRow?: number;
  /** Rows of the table in its operand. @default all of them */
  rowCount?: number;
}

/** Adds the rows of a tile to a problem on a table of rows of `width`, or on a part of one. */
function onTile<P extends TableTile & { width: number }>(problem: P, { first, size }: Tile): P {
  const firstRow = (problem.firstRow ?? 0) + first / problem.width;
  const rowCount = size / problem.width;
  assert(Number.isInteger(firstRow) && Number.isInteger(rowCount), 'a tile of a table is whole rows');
  return { ...problem, firstRow, rowCount };
}

/** Ids and positions out of range read the nearest row. */
const clamp = (index: number, size: number) => Math.max(0, Math.min(index, size - 1));

export interface EmbeddingProblem extends TableTile {
  rows: number;
  width: number;
  /** Rows of the whole table. */
  vocabulary: number;
  /** What its rows are multiplied by. @default 1 */
  scale?: number;
}

/** ids (rows), weight (vocabulary, width) -> y (rows, width); a row whose id lies in another tile stays. */
export const embedding: Kernel<EmbeddingProblem> = {
  name: 'embedding',
  operands: ({ rows, width, vocabulary, rowCount = vocabulary }) => ({
    ids: read(rows, 'i32'),
    weight: read(rowCount * width),
    y: rowCount < vocabulary ? update(rows * width) : write(rows * width),
  }),
  affectsSpeed: { rows: true, width: true, vocabulary: true, firstRow: false, rowCount: true, scale: false },
  variants: perElem(
    tokenShader,
    ({ width }) => lanesOf(width),
    ({ rows, width }, lanes) => (rows * width) / lanes,
    ({ rows, width, vocabulary, firstRow = 0, rowCount = vocabulary, scale = 1 }, lanes) => ({
      rows,
      width: width / lanes,
      vocabulary,
      first: firstRow,
      count: rowCount,
      scale,
    }),
  ),
  isOnTable: true,
  tile(problem, operand, tile) {
    assert(operand === 'weight', `embedding takes no tiled ${operand}`);
    return onTile(problem, tile);
  },
  flops: () => 0,
  reference(
    { rows, width, vocabulary, firstRow = 0, rowCount = vocabulary, scale = 1 },
    { ids, weight, y }: Arrays<'ids' | 'weight' | 'y'>,
  ) {
    for (let r = 0; r < rows; r++) {
      const row = clamp(ids[r]!, vocabulary) - firstRow;
      if (row < 0 || row >= rowCount) continue;
      for (let c = 0; c < width; c++) y[r * width + c] = scale * weight[row * width + c]!;
    }
  },
};

export interface PositionEmbeddingProblem extends TableTile {
  rows: number;
  /** Rows of one sequence: row r has position position[0] + r % seq. */
  seq: number;
  width: number;
  /** Rows of the whole table. */
  positions: number;
}

/** position (1), positionWeight (positions, width), added to y (rows, width). */
export const positionEmbedding: Kernel<PositionEmbeddingProblem> = {
  name: 'positionEmbedding',
  operands: ({ rows, width, positions, rowCount = positions }) => ({
    position: read(1, 'u32'),
    positionWeight: read(rowCount * width),
    y: update(rows * width),
  }),
  affectsSpeed: { rows: true, seq: true, width: true, positions: true, firstRow: false, rowCount: true },
  variants: perElem(
    positionShader,
    ({ width }) => lanesOf(width),
    ({ rows, width }, lanes) => (rows * width) / lanes,
    ({ rows, seq, width, positions, firstRow = 0, rowCount = positions }, lanes) => ({
      rows,
      seq,
      width: width / lanes,
      positions,
      first: firstRow,
      count: rowCount,
    }),
  ),
  isOnTable: true,
  tile(problem, operand, tile) {
    assert(operand === 'positionWeight', `positionEmbedding takes no tiled ${operand}`);
    return onTile(problem, tile);
  },
  flops: ({ rows, width }) => rows * width,
  reference(
    { rows, seq, width, positions, firstRow = 0, rowCount = positions },
    { position, positionWeight, y }: Arrays<'position' | 'positionWeight' | 'y'>,
  ) {
    for (let r = 0; r < rows; r++) {
      const row = clamp(position[0]! + (r % seq), positions) - firstRow;
      if (row < 0 || row >= rowCount) continue;
      for (let c = 0; c < width; c++) y[r * width + c]! += positionWeight[row * width + c]!;
    }
  },
};

/** Marks a slot without a token. */
const NO_TOKEN = 0xffffffff;

export interface TokenIndex {
  /** (rows): the distinct ids, ascending; NO_TOKEN in the slots left over. */
  tokens: Uint32Array<ArrayBuffer>;
  /** (rows + 1): slot s owns order[starts[s]] to order[starts[s + 1] - 1]; empty in the slots left over. */
  starts: Uint32Array<ArrayBuffer>;
  /** (rows): row numbers grouped by token, ascending in each group. */
  order: Uint32Array<ArrayBuffer>;
}

/** Groups the rows of a batch by token in O(rows log rows). Ids must lie in the vocabulary: others get no gradient. */
export function tokenIndex(ids: Int32Array): TokenIndex {
  const rows = ids.length;
  const order = Uint32Array.from(ids.keys()).sort((a, b) => ids[a]! - ids[b]! || a - b);
  const tokens = new Uint32Array(rows).fill(NO_TOKEN);
  const starts = new Uint32Array(rows + 1).fill(rows);
  let slots = 0;
  for (let j = 0; j < rows; j++) {
    if (j > 0 && ids[order[j]!] === ids[order[j - 1]!]) continue;
    tokens[slots] = ids[order[j]!]!;
    starts[slots] = j;
    slots++;
  }
  return { tokens, starts, order };
}

export interface EmbeddingBackwardProblem extends EmbeddingProblem {
  /** Rows of the whole table that are added to, from this one on. @default 0 */
  fromRow?: number;
  /** Those before this one. @default all of them */
  toRow?: number;
}

/** Rows of the operand that are added to. */
const rowsAddedTo = (problem: EmbeddingBackwardProblem): { begin: number; end: number } => {
  const { vocabulary, firstRow = 0, rowCount = vocabulary, fromRow = 0, toRow = vocabulary } = problem;
  return { begin: Math.max(0, fromRow - firstRow), end: Math.min(rowCount, toRow - firstRow) };
};

function addedTo(problem: EmbeddingBackwardProblem): Operand {
  const { begin, end } = rowsAddedTo(problem);
  return startingAt(begin * problem.width, update(end * problem.width));
}

/** tokens, starts, order (see TokenIndex), dy (rows, width) -> dweight (vocabulary, width), added to. */
export const embeddingBackward: Kernel<EmbeddingBackwardProblem> = {
  name: 'embeddingBackward',
  operands: (problem) => ({
    tokens: read(problem.rows, 'u32'),
    starts: read(problem.rows + 1, 'u32'),
    order: read(problem.rows, 'u32'),
    dy: read(problem.rows * problem.width),
    dweight: addedTo(problem),
  }),
  affectsSpeed: {
    ...{ rows: true, width: true, vocabulary: true, firstRow: false, rowCount: true, scale: false },
    ...{ fromRow: false, toRow: false },
  },
  variants: perElem(
    backwardShader,
    ({ width }) => lanesOf(width),
    ({ rows, width }, lanes) => (rows * width) / lanes,
    (problem, lanes) => {
      const { rows, width, firstRow = 0, scale = 1 } = problem;
      return { rows, width: width / lanes, first: firstRow, ...rowsAddedTo(problem), scale };
    },
  ),
  isOnTable: true,
  tile(problem, operand, tile) {
    assert(operand === 'dweight', `embeddingBackward takes no tiled ${operand}`);
    return onTile(problem, tile);
  },
  flops: ({ rows, width }) => rows * width,
  reference(problem, { tokens, starts, order, dy, dweight }: Arrays<'tokens' | 'starts' | 'order' | 'dy' | 'dweight'>) {
    const { rows, width, firstRow = 0, scale = 1 } = problem;
    const { begin, end } = rowsAddedTo(problem);
    for (let s = 0; s < rows; s++) {
      const row = tokens[s]! - firstRow;
      if (row < begin || row >= end) continue;
      for (let c = 0; c < width; c++) {
        let sum = 0;
        for (let j = starts[s]!; j < starts[s + 1]!; j++) sum += dy[order[j]! * width + c]!;
        dweight[row * width + c]! += scale * sum;
      }
    }
  },
};

export interface PositionBackwardProblem extends TableTile {
  batch: number;
  seq: number;
  width: number;
  /** Rows of the whole table. */
  positions: number;
  accumulate: boolean;
}

/** dy (batch, seq, width) -> dweight (positions, width); rows past seq become 0, or stay when accumulating. */
export const positionBackward: Kernel<PositionBackwardProblem> = {
  name: 'positionBackward',
  operands: ({ batch, seq, width, positions, accumulate, rowCount = positions }) => ({
    dy: read(batch * seq * width),
    dweight: accumulate ? update(rowCount * width) : write(rowCount * width),
  }),
  affectsSpeed: {
    batch: true,
    seq: true,
    width: true,
    positions: true,
    accumulate: false,
    firstRow: false,
    rowCount: true,
  },
  variants: perElem(
    positionBackwardShader,
    ({ width }) => lanesOf(width),
    ({ positions, width, rowCount = positions }, lanes) => (rowCount * width) / lanes,
    ({ batch, seq, width, positions, accumulate, firstRow = 0, rowCount = positions }, lanes) => ({
      batch,
      seq,
      width: width / lanes,
      first: firstRow,
      count: rowCount,
      accumulate: Number(accumulate),
    }),
  ),
  isOnTable: true,
  tile(problem, operand, tile) {
    assert(operand === 'dweight', `positionBackward takes no tiled ${operand}`);
    return onTile(problem, tile);
  },
  flops: ({ batch, seq, width }) => batch * seq * width,
  reference(
    { batch, seq, width, positions, accumulate, firstRow = 0, rowCount = positions },
    { dy, dweight }: Arrays<'dy' | 'dweight'>,
  ) {
    if (!accumulate) dweight.fill(0);
    for (let b = 0; b < batch; b++) {
      for (let t = firstRow; t < Math.min(seq, firstRow + rowCount); t++) {
        for (let c = 0; c < width; c++) dweight[(t - firstRow) * width + c]! += dy[(b * seq + t) * width + c]!;
      }
    }
  },
};
