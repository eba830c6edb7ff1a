// Causal attention with grouped heads, flash style: forward keeps the logsumexp of each (row, head), backward
// computes the weights anew from it, so nothing of size seq x seq exists. Rows are (batch, position); heads are
// column blocks of a packed row. Every variant serves every head size; four floats a load where all is aligned.

import backwardKvSpan from '../../shaders/attention_backward_kv_span.wgsl?raw';
import backwardKvTiled from '../../shaders/attention_backward_kv_tiled.wgsl?raw';
import backwardLoad1 from '../../shaders/attention_backward_load1.wgsl?raw';
import backwardLoad4 from '../../shaders/attention_backward_load4.wgsl?raw';
import backwardQSpan from '../../shaders/attention_backward_q_span.wgsl?raw';
import backwardQTiled from '../../shaders/attention_backward_q_tiled.wgsl?raw';
import deltaLoad1 from '../../shaders/attention_delta_load1.wgsl?raw';
import deltaLoad4 from '../../shaders/attention_delta_load4.wgsl?raw';
import load1 from '../../shaders/attention_load1.wgsl?raw';
import load4 from '../../shaders/attention_load4.wgsl?raw';
import panels from '../../shaders/attention_panels.wgsl?raw';
import forwardRows from '../../shaders/attention_rows.wgsl?raw';
import forwardSpan from '../../shaders/attention_span.wgsl?raw';
import spanOne from '../../shaders/attention_span_one.wgsl?raw';
import spanQuad from '../../shaders/attention_span_quad.wgsl?raw';
import spanTile from '../../shaders/attention_span_tile.wgsl?raw';
import forwardTiled from '../../shaders/attention_tiled.wgsl?raw';
import {
  ceilDiv,
  type Dispatch,
  hasQuads,
  type Kernel,
  linearGrid,
  perInvocation,
  read,
  update,
  type Variant,
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

interface Tileable {
  batch: number;
  seq: number;
  headSize: number;
}

/** The parts of a kernel that its variants share. */
interface Texts {
  load1: string;
  load4: string;
  span: string;
  tiled: string;
}

/** Lanes of a workgroup of the span kernels: two quads, or as many lanes as a CPU has at most. */
const LANES = 8;
/** Rows of a workgroup's tile in the tiled kernels. */
const TILE = 32;

/**
 * A dispatch over tiles of `rows` queries or keys, of each of `heads` per batch. The parameters named stride
 * and offset count elements, those of the shader count what it loads at once.
 */
function tileDispatch<P extends Tileable>(
  problem: P,
  texts: Pick<Texts, 'load1' | 'load4'>,
  main: string,
  given: Record<string, number>,
  constants: Dispatch['constants'],
  workgroups: [number, number, number],
): Dispatch {
  const { headSize } = problem;
  const strided = Object.keys(given).filter((name) => /stride|offset/.test(name));
  const unit = [headSize, ...strided.map((name) => given[name] as number)].every((n) => n % 4 === 0) ? 4 : 1;
  const params: Record<string, number> = { ...given, dims: ceilDiv(headSize, 4) };
  for (const name of strided) params[name] = (given[name] as number) / unit;
  return {
    shader: (unit === 4 ? texts.load4 : texts.load1) + main,
    constants: { ...constants, DIMS: ceilDiv(headSize, 4), HEAD: headSize / unit },
    params,
    workgroups,
  };
}

/**
 * `quads` and `lanes`: register tiles, no workgroup memory; `tiled`: for GPUs. On every adapter with quads or a GPU
 * two of them are tried. `heads` is the number of heads whose tiles are apart: all of them, or the kv heads.
 */
function tileVariants<P extends Tileable>(
  texts: Texts,
  heads: (problem: P) => number,
  params: (problem: P) => Record<string, number>,
): Variant<P>[] {
  const span = (name: string, text: string, lanes: number): Pick<Variant<P>, 'name' | 'dispatch'> => ({
    name,
    dispatch(p) {
      const pairs = p.batch * heads(p);
      const grid = linearGrid(ceilDiv(p.seq, 4 * lanes) * ceilDiv(pairs, LANES / lanes));
      return tileDispatch(p, texts, texts.span + spanTile + text, { ...params(p), pairs }, { LANES }, grid);
    },
  });
  return [
    { ...span('quads', spanQuad, 4), supports: (_, traits) => hasQuads(traits) },
    {
      // 64 invocations and at most 13,472 bytes of workgroup memory: within the limits that WebGPU guarantees.
      name: 'tiled',
      supports: (_, { software }) => !software,
      dispatch(p) {
        const pairs = p.batch * heads(p);
        const grid = linearGrid(ceilDiv(p.seq, TILE) * pairs);
        return tileDispatch(p, texts, texts.tiled + panels, { ...params(p), pairs }, {}, grid);
      },
    },
    span('lanes', spanOne, 1),
  ];
}

const forwardTexts: Texts = { load1, load4, span: forwardSpan, tiled: forwardTiled };

const forwardParams = (p: AttentionProblem) => ({
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

/** Up to so many queries the kernel without tiles is tried too: generation has one. */
const FEW = 8;

/** q, k, v, position (1) -> y (batch * seq, heads * headSize), lse (batch * seq, heads, 2). */
export const attention: Kernel<AttentionProblem> = {
  name: 'attention',
  operands: (p) => ({
    q: read((p.batch * p.seq - 1) * p.qStride + p.qOffset + p.heads * p.headSize),
    k: read((p.batch * p.kvRows - 1) * p.kStride + p.kOffset + p.kvHeads * p.headSize),
    v: read((p.batch * p.kvRows - 1) * p.vStride + p.vOffset + p.kvHeads * p.headSize),
    position: read(1, 'u32'),
    y: write(p.batch * p.seq * p.heads * p.headSize),
    lse: write(2 * p.batch * p.seq * p.heads),
  }),
  variants: [
    ...tileVariants(forwardTexts, (p: AttentionProblem) => p.heads, forwardParams),
    {
      name: 'rows',
      supports: ({ seq }) => seq <= FEW,
      dispatch(p) {
        const params = { ...forwardParams(p), pairs: p.batch * p.heads };
        const grid = perInvocation(p.batch * p.seq * p.heads);
        return tileDispatch(p, forwardTexts, forwardRows, params, { LANES: WORKGROUP }, grid);
      },
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
        lse[2 * (row * heads + h)] = top;
        lse[2 * (row * heads + h) + 1] = Math.log(sum);
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
      name: 'items',
      dispatch({ rows, heads, headSize }) {
        const unit = headSize % 4 === 0 ? 4 : 1;
        return {
          shader: unit === 4 ? deltaLoad4 : deltaLoad1,
          constants: { WORKGROUP },
          params: { count: rows * heads, head: headSize / unit },
          workgroups: perInvocation(rows * heads),
        };
      },
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

const backwardParams = (p: AttentionBackwardProblem) => ({
  seq: p.seq,
  heads: p.heads,
  group: p.heads / p.kvHeads,
  stride: packedStride(p),
  k_offset: p.heads * p.headSize,
  v_offset: (p.heads + p.kvHeads) * p.headSize,
  scale: 1 / Math.sqrt(p.headSize),
});

function backwardInputs(p: AttentionBackwardProblem) {
  const rows = p.batch * p.seq;
  return {
    qkv: read(rows * packedStride(p)),
    dy: read(rows * p.heads * p.headSize),
    lse: read(2 * rows * p.heads),
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
        const w = Math.exp(score / Math.sqrt(size) - lse[2 * i] - lse[2 * i + 1]);
        visit(q, k, v, i * size, w, (w * (dw - delta[i])) / Math.sqrt(size));
      }
    }
  }
}

/** qkv, dy, lse, delta -> the q columns of dqkv. */
export const attentionBackwardQ: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardQ',
  operands: (p) => ({ ...backwardInputs(p), dqkv: update(p.batch * p.seq * packedStride(p)) }),
  variants: tileVariants(
    { load1: backwardLoad1, load4: backwardLoad4, span: backwardQSpan, tiled: backwardQTiled },
    (p) => p.heads,
    backwardParams,
  ),
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
  variants: tileVariants(
    { load1: backwardLoad1, load4: backwardLoad4, span: backwardKvSpan, tiled: backwardKvTiled },
    (p) => p.kvHeads,
    backwardParams,
  ),
  flops: (p) => p.batch * p.heads * p.seq * (p.seq + 1) * p.headSize * 4,
  reference(p, data) {
    const { qkv, dy, dqkv } = data;
    const stride = packedStride(p);
    for (let row = 0; row < p.batch * p.seq; row++)
      dqkv.fill(0, row * stride + p.heads * p.headSize, (row + 1) * stride);
    eachPair(p, data, (q, k, v, dyBase, w, ds) => {
      for (let d = 0; d < p.headSize; d++) {
        dqkv[k + d] += ds * qkv[q + d];
        dqkv[v + d] += w * dy[dyBase + d];
      }
    });
  },
};
