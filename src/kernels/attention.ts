// Causal attention with grouped heads, flash style: forward keeps one logsumexp per (row, head), backward
// computes the weights anew from it. Rows are (batch, position); heads are column blocks of a packed row.

import backwardKvQuads from '../../shaders/attention_backward_kv_quads.wgsl?raw';
import backwardKvRows from '../../shaders/attention_backward_kv_rows.wgsl?raw';
import backwardQQuads from '../../shaders/attention_backward_q_quads.wgsl?raw';
import backwardQRows from '../../shaders/attention_backward_q_rows.wgsl?raw';
import deltaRows from '../../shaders/attention_delta.wgsl?raw';
import deltaVec4 from '../../shaders/attention_delta_vec4.wgsl?raw';
import quadTile from '../../shaders/attention_quad_tile.wgsl?raw';
import forwardQuads from '../../shaders/attention_quads.wgsl?raw';
import forwardRows from '../../shaders/attention_rows.wgsl?raw';
import {
  ceilDiv,
  type Dispatch,
  type Kernel,
  linearGrid,
  perInvocation,
  read,
  type Traits,
  update,
  WORKGROUP,
  write,
} from './kernel.ts';

/**
 * Query i of a batch (at position `position[0] + i`) sees keys 0..position[0] + i of its `kvRows` rows.
 * Strides and offsets are in elements: head h of a row of q is at `row * qStride + qOffset + h * headSize`,
 * and reads kv head floor(h / (heads / kvHeads)). Scores are scaled by 1 / sqrt(headSize).
 */
export interface AttentionProblem {
  batch: number;
  seq: number;
  heads: number;
  kvHeads: number;
  headSize: number;
  /** Key and value rows per batch: `seq` in training, the cache's capacity in generation. */
  kvRows: number;
  qStride: number;
  qOffset: number;
  kStride: number;
  kOffset: number;
  vStride: number;
  vOffset: number;
}

/** Quads of lanes in a workgroup of the quad kernels, and the rows of a quad's tile. */
const QUADS = 2;
const QUAD_ROWS = 16;

const isVec4 = (...sizes: number[]) => sizes.every((size) => size % 4 === 0);

/**
 * A dispatch of a quad kernel: `pairs` (batch, head) for each tile of a sequence. `strided` are the parameters
 * that count elements; the shader counts vec4f.
 */
function quadDispatch(
  shader: string,
  pairs: number,
  p: { seq: number; headSize: number },
  params: Record<string, number>,
): Dispatch {
  const inVec4 = Object.entries(params).map(([name, value]) => [name, /stride|offset/.test(name) ? value / 4 : value]);
  return {
    shader: shader + quadTile,
    constants: { QUADS, DIMS: p.headSize / 4 },
    params: { ...Object.fromEntries(inVec4), pairs, dims: p.headSize / 4 },
    workgroups: linearGrid(ceilDiv(p.seq, QUAD_ROWS) * ceilDiv(pairs, QUADS)),
  };
}

const hasQuads = ({ subgroupSize }: Traits) => subgroupSize >= 4;

const forwardParams = (p: AttentionProblem) => ({
  rows: p.batch * p.seq,
  seq: p.seq,
  heads: p.heads,
  group: p.heads / p.kvHeads,
  kv_rows: p.kvRows,
  q_stride: p.qStride,
  q_offset: p.qOffset,
  k_stride: p.kStride,
  k_offset: p.kOffset,
  v_stride: p.vStride,
  v_offset: p.vOffset,
  scale: 1 / Math.sqrt(p.headSize),
});

/** q, k, v, position (1) -> y (batch * seq, heads * headSize), lse (batch * seq, heads). */
export const attention: Kernel<AttentionProblem> = {
  name: 'attention',
  operands: (p) => ({
    q: read((p.batch * p.seq - 1) * p.qStride + p.qOffset + p.heads * p.headSize),
    k: read((p.batch * p.kvRows - 1) * p.kStride + p.kOffset + p.kvHeads * p.headSize),
    v: read((p.batch * p.kvRows - 1) * p.vStride + p.vOffset + p.kvHeads * p.headSize),
    position: read(1, 'u32'),
    y: write(p.batch * p.seq * p.heads * p.headSize),
    lse: write(p.batch * p.seq * p.heads),
  }),
  variants: [
    {
      name: 'quads',
      supports: (p, traits) => 
        hasQuads(traits) && isVec4(p.headSize, p.qStride, p.qOffset, p.kStride, p.kOffset, p.vStride, p.vOffset),
      dispatch: (p) => quadDispatch(forwardQuads, p.batch * p.heads, p, forwardParams(p)),
    },
    {
      name: 'rows',
      dispatch: (p) => ({
        shader: forwardRows,
        constants: { WORKGROUP, HEAD_SIZE: p.headSize },
        params: forwardParams(p),
        workgroups: perInvocation(p.batch * p.seq * p.heads),
      }),
    },
  ],
  // Half of the (seq x seq) scores, two products of headSize each.
  flops: (p) => p.batch * p.heads * p.seq * (p.seq + 1) * p.headSize * 2,
  reference(p, { q, k, v, position, y, lse }) {
    const { heads, headSize: size } = p;
    for (let row = 0; row < p.batch * p.seq; row++) {
      const kvRow = Math.floor(row / p.seq) * p.kvRows;
      const keys = Math.min(position[0] + (row % p.seq) + 1, p.kvRows);
      for (let h = 0; h < heads; h++) {
        const column = Math.floor(h / (heads / p.kvHeads)) * size;
        const scores = new Float64Array(keys);
        for (let j = 0; j < keys; j++) {
          for (let d = 0; d < size; d++) {
            scores[j] +=
              q[row * p.qStride + p.qOffset + h * size + d] * k[(kvRow + j) * p.kStride + p.kOffset + column + d];
          }
          scores[j] /= Math.sqrt(size);
        }
        const top = Math.max(...scores);
        const sum = scores.reduce((a, s) => a + Math.exp(s - top), 0);
        lse[row * heads + h] = top + Math.log(sum);
        for (let d = 0; d < size; d++) {
          let value = 0;
          for (let j = 0; j < keys; j++) {
            value += Math.exp(scores[j] - top) * v[(kvRow + j) * p.vStride + p.vOffset + column + d];
          }
          y[(row * heads + h) * size + d] = value / sum;
        }
      }
    }
  },
};

export interface AttentionDeltaProblem {
  rows: number;
  heads: number;
  headSize: number;
}

/** dy, y (rows, heads * headSize) -> delta (rows, heads) = sum over the head of dy * y. */
export const attentionDelta: Kernel<AttentionDeltaProblem> = {
  name: 'attentionDelta',
  operands: ({ rows, heads, headSize }) => ({
    dy: read(rows * heads * headSize),
    y: read(rows * heads * headSize),
    delta: write(rows * heads),
  }),
  variants: [
    {
      name: 'vec4',
      supports: ({ headSize }) => isVec4(headSize),
      dispatch: ({ rows, heads, headSize }) => ({
        shader: deltaVec4,
        constants: { WORKGROUP },
        params: { count: rows * heads, dims: headSize / 4 },
        workgroups: perInvocation(rows * heads),
      }),
    },
    {
      name: 'rows',
      dispatch: ({ rows, heads, headSize }) => ({
        shader: deltaRows,
        constants: { WORKGROUP, HEAD_SIZE: headSize },
        params: { count: rows * heads },
        workgroups: perInvocation(rows * heads),
      }),
    },
  ],
  flops: ({ rows, heads, headSize }) => rows * heads * headSize * 2,
  reference({ rows, heads, headSize }, { dy, y, delta }) {
    for (let i = 0; i < rows * heads; i++) {
      delta[i] = 0;
      for (let d = 0; d < headSize; d++) delta[i] += dy[i * headSize + d] * y[i * headSize + d];
    }
  },
};

/** Training: q, k and v are column blocks of one packed tensor, and every sequence starts at position 0. */
export interface AttentionBackwardProblem {
  batch: number;
  seq: number;
  heads: number;
  kvHeads: number;
  headSize: number;
}

const packedStride = (p: AttentionBackwardProblem) => (p.heads + 2 * p.kvHeads) * p.headSize;

function backwardParams(p: AttentionBackwardProblem): Record<string, number> {
  return {
    rows: p.batch * p.seq,
    seq: p.seq,
    heads: p.heads,
    group: p.heads / p.kvHeads,
    stride: packedStride(p),
    q_offset: 0,
    k_offset: p.heads * p.headSize,
    v_offset: (p.heads + p.kvHeads) * p.headSize,
    scale: 1 / Math.sqrt(p.headSize),
  };
}

function backwardInputs(p: AttentionBackwardProblem) {
  const rows = p.batch * p.seq;
  return {
    qkv: read(rows * packedStride(p)),
    dy: read(rows * p.heads * p.headSize),
    lse: read(rows * p.heads),
    delta: read(rows * p.heads),
  };
}

/** Calls back with each (query row, key row, head), its weight w and its score gradient ds. */
function eachPair(
  p: AttentionBackwardProblem,
  { qkv, dy, lse, delta }: Record<string, Float64Array>,
  visit: (q: number, k: number, v: number, dyBase: number, w: number, ds: number) => void,
): void {
  const size = p.headSize;
  const stride = packedStride(p);
  for (let row = 0; row < p.batch * p.seq; row++) {
    for (let h = 0; h < p.heads; h++) {
      const kvHead = Math.floor(h / (p.heads / p.kvHeads));
      const q = row * stride + h * size;
      const i = row * p.heads + h;
      for (let key = Math.floor(row / p.seq) * p.seq; key <= row; key++) {
        const k = key * stride + (p.heads + kvHead) * size;
        const v = k + p.kvHeads * size;
        let score = 0;
        let dw = 0;
        for (let d = 0; d < size; d++) {
          score += qkv[q + d] * qkv[k + d];
          dw += dy[i * size + d] * qkv[v + d];
        }
        const w = Math.exp(score / Math.sqrt(size) - lse[i]);
        visit(q, k, v, i * size, w, (w * (dw - delta[i])) / Math.sqrt(size));
      }
    }
  }
}

/** qkv, dy, lse, delta -> the q columns of dqkv. */
export const attentionBackwardQ: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardQ',
  operands: (p) => ({ ...backwardInputs(p), dqkv: update(p.batch * p.seq * packedStride(p)) }),
  variants: [
    {
      name: 'quads',
      supports: (p, traits) => hasQuads(traits) && isVec4(p.headSize),
      dispatch: (p) => quadDispatch(backwardQQuads, p.batch * p.heads, p, backwardParams(p)),
    },
    {
      name: 'rows',
      dispatch: (p) => ({
        shader: backwardQRows,
        constants: { WORKGROUP, HEAD_SIZE: p.headSize },
        params: backwardParams(p),
        workgroups: perInvocation(p.batch * p.seq * p.heads),
      }),
    },
  ],
  flops: (p) => p.batch * p.heads * p.seq * (p.seq + 1) * p.headSize * 3,
  reference(p, data) {
    const { qkv, dqkv } = data;
    const stride = packedStride(p);
    for (let row = 0; row < p.batch * p.seq; row++) dqkv.fill(0, row * stride, row * stride + p.heads * p.headSize);
    eachPair(p, data, (q, k, _v, _dy, _w, ds) => {
      for (let d = 0; d < p.headSize; d++) dqkv[q + d] += ds * qkv[k + d];
    });
  },
};

/** qkv, dy, lse, delta -> the k and v columns of dqkv. */
export const attentionBackwardKV: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardKV',
  operands: (p) => ({ ...backwardInputs(p), dqkv: update(p.batch * p.seq * packedStride(p)) }),
  variants: [
    {
      name: 'quads',
      supports: (p, traits) => hasQuads(traits) && isVec4(p.headSize),
      dispatch: (p) => quadDispatch(backwardKvQuads, p.batch * p.kvHeads, p, backwardParams(p)),
    },
    {
      name: 'rows',
      dispatch: (p) => ({
        shader: backwardKvRows,
        constants: { WORKGROUP, HEAD_SIZE: p.headSize },
        params: backwardParams(p),
        workgroups: perInvocation(p.batch * p.seq * p.kvHeads),
      }),
    },
  ],
  flops: (p) => p.batch * p.heads * p.seq * (p.seq + 1) * p.headSize * 4,
  reference(p, data) {
    const { qkv, dy, dqkv } = data;
    const stride = packedStride(p);
    for (let row = 0; row < p.batch * p.seq; row++) dqkv.fill(0, row * stride + p.heads * p.headSize, (row + 1) * stride);
    eachPair(p, data, (q, k, v, dyBase, w, ds) => {
      for (let d = 0; d < p.headSize; d++) {
        dqkv[k + d] += ds * qkv[q + d];
        dqkv[v + d] += w * dy[dyBase + d];
      }
    });
  },
};
