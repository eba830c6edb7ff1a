// Token and position embedding, forward and backward. The backward pass needs to know which rows hold which
// token: `tokenIndex` groups them on the CPU, where the ids come from, so that the kernel needs no atomics
// and touches only the rows of the vocabulary that occur.

import tokenShader from '../../shaders/embedding.wgsl?raw';
import backwardShader from '../../shaders/embedding_backward.wgsl?raw';
import positionShader from '../../shaders/embedding_position.wgsl?raw';
import positionBackwardShader from '../../shaders/position_backward.wgsl?raw';
import { type Kernel, read, update, write } from './kernel.ts';
import { lanesOf, perElem } from './variants.ts';

export interface EmbeddingProblem {
  rows: number;
  /** Rows of one sequence: row r has position position[0] + r % seq. */
  seq: number;
  width: number;
  vocabulary: number;
  /** Rows of positionWeight; 0: no position embedding, and operands `position`, `positionWeight` are absent. */
  positions: number;
}

/** Ids and positions out of range read the nearest row. */
const clamp = (index: number, size: number) => Math.max(0, Math.min(index, size - 1));

/** ids (rows), weight (vocabulary, width), positionWeight (positions, width) -> y (rows, width). */
export const embedding: Kernel<EmbeddingProblem> = {
  name: 'embedding',
  operands: ({ rows, width, vocabulary, positions }) =>
    positions > 0
      ? {
          ids: read(rows, 'i32'),
          position: read(1, 'u32'),
          weight: read(vocabulary * width),
          positionWeight: read(positions * width),
          y: write(rows * width),
        }
      : { ids: read(rows, 'i32'), weight: read(vocabulary * width), y: write(rows * width) },
  variants: perElem(
    ({ positions }) => (positions > 0 ? positionShader : tokenShader),
    ({ width }) => lanesOf(width),
    ({ rows, width }, lanes) => (rows * width) / lanes,
    ({ rows, seq, width, vocabulary, positions }, lanes) => ({
      rows,
      seq,
      width: width / lanes,
      vocabulary,
      positions,
    }),
  ),
  flops: ({ rows, width, positions }) => (positions > 0 ? rows * width : 0),
  reference({ rows, seq, width, vocabulary, positions }, { ids, position, weight, positionWeight, y }) {
    for (let r = 0; r < rows; r++) {
      const id = clamp(ids[r], vocabulary);
      for (let c = 0; c < width; c++) {
        y[r * width + c] = weight[id * width + c];
        if (positions > 0) {
          const t = clamp(position[0] + (r % seq), positions);
          y[r * width + c] += positionWeight[t * width + c];
        }
      }
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
  const order = Uint32Array.from(ids.keys()).sort((a, b) => ids[a] - ids[b] || a - b);
  const tokens = new Uint32Array(rows).fill(NO_TOKEN);
  const starts = new Uint32Array(rows + 1).fill(rows);
  let slots = 0;
  for (let j = 0; j < rows; j++) {
    if (j > 0 && ids[order[j]] === ids[order[j - 1]]) continue;
    tokens[slots] = ids[order[j]];
    starts[slots] = j;
    slots++;
  }
  return { tokens, starts, order };
}

export interface EmbeddingBackwardProblem {
  rows: number;
  width: number;
  vocabulary: number;
}

/** tokens, starts, order (see TokenIndex), dy (rows, width) -> dweight (vocabulary, width), added to. */
export const embeddingBackward: Kernel<EmbeddingBackwardProblem> = {
  name: 'embeddingBackward',
  operands: ({ rows, width, vocabulary }) => ({
    tokens: read(rows, 'u32'),
    starts: read(rows + 1, 'u32'),
    order: read(rows, 'u32'),
    dy: read(rows * width),
    dweight: update(vocabulary * width),
  }),
  variants: perElem(
    backwardShader,
    ({ width }) => lanesOf(width),
    ({ rows, width }, lanes) => (rows * width) / lanes,
    ({ rows, width, vocabulary }, lanes) => ({ rows, width: width / lanes, vocabulary }),
  ),
  flops: ({ rows, width }) => rows * width,
  reference({ rows, width, vocabulary }, { tokens, starts, order, dy, dweight }) {
    for (let s = 0; s < rows; s++) {
      if (tokens[s] >= vocabulary) continue;
      for (let c = 0; c < width; c++) {
        let sum = 0;
        for (let j = starts[s]; j < starts[s + 1]; j++) sum += dy[order[j] * width + c];
        dweight[tokens[s] * width + c] += sum;
      }
    }
  },
};

export interface PositionBackwardProblem {
  batch: number;
  seq: number;
  width: number;
  positions: number;
  accumulate: boolean;
}

/** dy (batch, seq, width) -> dweight (positions, width); rows past seq become 0, or stay when accumulating. */
export const positionBackward: Kernel<PositionBackwardProblem> = {
  name: 'positionBackward',
  operands: ({ batch, seq, width, positions, accumulate }) => ({
    dy: read(batch * seq * width),
    dweight: accumulate ? update(positions * width) : write(positions * width),
  }),
  variants: perElem(
    positionBackwardShader,
    ({ width }) => lanesOf(width),
    ({ positions, width }, lanes) => (positions * width) / lanes,
    ({ batch, seq, width, positions, accumulate }, lanes) => ({
      batch,
      seq,
      width: width / lanes,
      positions,
      accumulate: Number(accumulate),
    }),
  ),
  flops: ({ batch, seq, width }) => batch * seq * width,
  reference({ batch, seq, width, accumulate }, { dy, dweight }) {
    if (!accumulate) dweight.fill(0);
    for (let b = 0; b < batch; b++) {
      for (let i = 0; i < seq * width; i++) dweight[i] += dy[b * seq * width + i];
    }
  },
};
