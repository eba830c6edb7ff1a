// Attention with grouped heads, flash style: forward keeps the logsumexp of each (row, head), backward
// computes the weights anew from it, so nothing of size seq x seq exists. Rows are (batch, position); heads are
// column blocks of a packed row. Every variant serves every head size; four floats a load where all is aligned.

import backwardKvSpan from '../../shaders/attention/backward_kv_span.wgsl?raw';
import backwardKvTiled from '../../shaders/attention/backward_kv_tiled.wgsl?raw';
import backwardLoad1 from '../../shaders/attention/backward_load_1.wgsl?raw';
import backwardLoad4 from '../../shaders/attention/backward_load_4.wgsl?raw';
import backwardQSpan from '../../shaders/attention/backward_q_span.wgsl?raw';
import backwardQTiled from '../../shaders/attention/backward_q_tiled.wgsl?raw';
import deltaLoad1 from '../../shaders/attention/delta_1.wgsl?raw';
import deltaLoad4 from '../../shaders/attention/delta_4.wgsl?raw';
import deltaStaged from '../../shaders/attention/delta_staged.wgsl?raw';
import load1 from '../../shaders/attention/forward_load_1.wgsl?raw';
import load4 from '../../shaders/attention/forward_load_4.wgsl?raw';
import forwardRows from '../../shaders/attention/forward_rows.wgsl?raw';
import forwardSpan from '../../shaders/attention/forward_span.wgsl?raw';
import forwardTiled from '../../shaders/attention/forward_tiled.wgsl?raw';
import panels from '../../shaders/attention/panels.wgsl?raw';
import spanLane from '../../shaders/attention/span_lane.wgsl?raw';
import spanQuad from '../../shaders/attention/span_quad.wgsl?raw';
import spanTile from '../../shaders/attention/span_tile.wgsl?raw';
import { keysSeen, type MaskArrays, type Masked, maskOperands, maskShader, pairsSeen } from './attention-mask.ts';
import {
  type Arrays,
  ceilDiv,
  type Dispatch,
  hasQuads,
  type Kernel,
  linearGrid,
  type Operands,
  perInvocation,
  read,
  update,
  type Variant,
  WORKGROUP,
  write,
} from './kernel.ts';

/**
 * Query i of a batch (at position `position[0] + i`) sees those keys of its `kvRows` rows, up to that position or, with
 * the mask 'none', up to the last query's, that the mask lets it see.
 * Strides and offsets are in elements: head h of a row of q is at `row * qStride + qOffset + h * headSize`,
 * and reads kv head floor(h / (heads / kvHeads)).
 */
export interface AttentionProblem extends Masked, Scaled {
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

/** What scores are multiplied by. */
interface Scaled {
  /** @default 1 / sqrt(headSize) */
  scale?: number;
}

export const scaleOf = ({ scale, headSize }: Scaled & { headSize: number }): number => scale ?? 1 / Math.sqrt(headSize);

interface Tileable extends Masked {
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

/** What a shader is given. `strides` and offsets count elements here, and in the shader what it loads at once. */
interface Given {
  counts: Record<string, number>;
  strides: Record<string, number>;
}

/** A dispatch over (tile of rows, head) pairs, of which there are `pairs` for each tile. */
function tileDispatch<P extends Tileable>(
  problem: P,
  texts: Pick<Texts, 'load1' | 'load4'>,
  main: string,
  { counts, strides }: Given,
  pairs: number,
  constants: Dispatch['constants'],
  workgroups: [number, number, number],
): Dispatch {
  const { headSize } = problem;
  const mask = maskShader(problem);
  const unit = [headSize, ...Object.values(strides)].every((count) => count % 4 === 0) ? 4 : 1;
  const inUnits = Object.entries(strides).map(([name, count]) => [name, count / unit]);
  return {
    shader: (unit === 4 ? texts.load4 : texts.load1) + main + mask.shader,
    constants: { ...constants, ...mask.constants, DIMS: ceilDiv(headSize, 4), HEAD: headSize / unit },
    params: { ...counts, ...Object.fromEntries(inUnits), pairs, dims: ceilDiv(headSize, 4) },
    workgroups,
  };
}

/**
 * `quads` and `lanes`: register tiles, no workgroup memory, for software adapters; those with quads try both. `tiled`: for
 * GPUs; a workgroup of it has `dimsOfTile` of a head's dims. `heads` is the number of heads whose tiles are apart: all of them, or the kv heads.
 */
function tileVariants<P extends Tileable>(
  texts: Texts,
  heads: (problem: P) => number,
  given: (problem: P) => Given,
  dimsOfTile = Number.POSITIVE_INFINITY,
): Variant<P>[] {
  const span = (name: string, text: string, lanes: number): Pick<Variant<P>, 'name' | 'dispatch'> => ({
    name,
    dispatch(p) {
      const pairs = p.batch * heads(p);
      const grid = linearGrid(ceilDiv(p.seq, 4 * lanes) * ceilDiv(pairs, LANES / lanes));
      return tileDispatch(p, texts, texts.span + spanTile + text, given(p), pairs, { LANES }, grid);
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
        const slices = Math.max(1, ceilDiv(p.headSize, dimsOfTile));
        const grid = linearGrid(ceilDiv(p.seq, TILE) * pairs * slices);
        return tileDispatch(p, texts, texts.tiled + panels, given(p), pairs, {}, grid);
      },
    },
    // A GPU's compiler keeps hundreds of its registers in memory.
    { ...span('lanes', spanLane, 1), supports: (_, { software }) => software },
  ];
}

const forwardTexts: Texts = { load1, load4, span: forwardSpan, tiled: forwardTiled };

const forwardGiven = (p: AttentionProblem): Given => ({
  counts: {
    seq: p.seq,
    heads: p.heads,
    group: p.heads / p.kvHeads,
    kv_rows: p.kvRows,
    scale: scaleOf(p),
  },
  strides: {
    q_stride: p.qStride,
    q_offset: p.qOffset,
    k_stride: p.kStride,
    k_offset: p.kOffset,
    v_stride: p.vStride,
    v_offset: p.vOffset,
  },
});

/** A GPU's compiler keeps a query and a sum of larger heads in memory. */
const MOST_IN_REGISTERS = 64;
/** Up to so many queries the kernel without tiles is tried too: generation has one. */
const FEW = 8;

/** q, k, v, position (1), documentStarts or keyMask if the mask is so -> y (batch * seq, heads * headSize), lse (batch * seq, heads, 2). */
export const attention: Kernel<AttentionProblem> = {
  name: 'attention',
  operands: (p) => ({
    q: read((p.batch * p.seq - 1) * p.qStride + p.qOffset + p.heads * p.headSize),
    k: read((p.batch * p.kvRows - 1) * p.kStride + p.kOffset + p.kvHeads * p.headSize),
    v: read((p.batch * p.kvRows - 1) * p.vStride + p.vOffset + p.kvHeads * p.headSize),
    position: read(1, 'u32'),
    y: write(p.batch * p.seq * p.heads * p.headSize),
    lse: write(2 * p.batch * p.seq * p.heads),
    ...maskOperands(p, p.batch * p.seq),
  }),
  affectsSpeed: {
    batch: true,
    seq: true,
    heads: true,
    kvHeads: true,
    headSize: true,
    kvRows: true,
    qStride: false,
    qOffset: false,
    kStride: false,
    kOffset: false,
    vStride: false,
    vOffset: false,
    mask: true,
    scale: false,
  },
  variants: [
    ...tileVariants(forwardTexts, (p: AttentionProblem) => p.heads, forwardGiven),
    {
      name: 'rows',
      supports: ({ seq, headSize }, { software }) => seq <= FEW && (software || headSize <= MOST_IN_REGISTERS),
      dispatch(p) {
        const pairs = p.batch * p.heads;
        const grid = perInvocation(pairs * p.seq);
        return tileDispatch(p, forwardTexts, forwardRows, forwardGiven(p), pairs, { LANES: WORKGROUP }, grid);
      },
    },
  ],
  // Two products of headSize for each score.
  flops: (p) => p.batch * p.heads * pairsSeen(p.mask, p.seq) * p.headSize * 4,
  reference(
    p,
    { q, k, v, position, y, lse, ...masks }: Arrays<'q' | 'k' | 'v' | 'position' | 'y' | 'lse'> & MaskArrays,
  ) {
    const { heads, headSize: size } = p;
    for (let row = 0; row < p.batch * p.seq; row++) {
      const kvRow = Math.floor(row / p.seq) * p.kvRows;
      const placed = { seq: p.seq, kvRows: p.kvRows, position: position[0]! };
      const keys = keysSeen(p.mask, placed, row, masks);
      for (let h = 0; h < heads; h++) {
        const column = Math.floor(h / (heads / p.kvHeads)) * size;
        const scores = Float64Array.from(keys, (j) => {
          const key = (kvRow + j) * p.kStride + p.kOffset + column;
          let score = 0;
          for (let d = 0; d < size; d++) score += q[row * p.qStride + p.qOffset + h * size + d]! * k[key + d]!;
          return score * scaleOf(p);
        });
        const top = Math.max(...scores);
        const sum = scores.reduce((a, s) => a + Math.exp(s - top), 0);
        lse[2 * (row * heads + h)] = top;
        lse[2 * (row * heads + h) + 1] = Math.log(sum);
        for (let d = 0; d < size; d++) {
          let value = 0;
          for (const [i, j] of keys.entries()) {
            value += Math.exp(scores[i]! - top) * v[(kvRow + j) * p.vStride + p.vOffset + column + d]!;
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

/** `byFours` loads four floats at once, where heads are made of such. */
function deltaDispatch({ rows, heads, headSize }: AttentionDeltaProblem, byFours: string): Dispatch {
  const unit = headSize % 4 === 0 ? 4 : 1;
  return {
    shader: unit === 4 ? byFours : deltaLoad1,
    constants: { WORKGROUP },
    params: { count: rows * heads, head: headSize / unit },
    workgroups: perInvocation(rows * heads),
  };
}

/** dy, y (rows, heads * headSize) -> delta (rows, heads) = sum over the head of dy * y. */
export const attentionDelta: Kernel<AttentionDeltaProblem> = {
  name: 'attentionDelta',
  operands: ({ rows, heads, headSize }) => ({
    dy: read(rows * heads * headSize),
    y: read(rows * heads * headSize),
    delta: write(rows * heads),
  }),
  affectsSpeed: { rows: true, heads: true, headSize: true },
  variants: [
    { name: 'items', supports: (_, { software }) => software, dispatch: (p) => deltaDispatch(p, deltaLoad4) },
    // For GPUs: the same bits, by lanes that read side by side.
    { name: 'staged', supports: (_, { software }) => !software, dispatch: (p) => deltaDispatch(p, deltaStaged) },
  ],
  flops: ({ rows, heads, headSize }) => rows * heads * headSize * 2,
  reference({ rows, heads, headSize }, { dy, y, delta }: Arrays<'dy' | 'y' | 'delta'>) {
    for (let i = 0; i < rows * heads; i++) {
      delta[i] = 0;
      for (let d = 0; d < headSize; d++) delta[i]! += dy[i * headSize + d]! * y[i * headSize + d]!;
    }
  },
};

/** Training: q, k and v are column blocks of one packed tensor, and every sequence starts at position 0. */
export interface AttentionBackwardProblem extends Masked, Scaled {
  batch: number;
  seq: number;
  heads: number;
  kvHeads: number;
  headSize: number;
}

const packedStride = (p: AttentionBackwardProblem) => (p.heads + 2 * p.kvHeads) * p.headSize;

const backwardGiven = (p: AttentionBackwardProblem): Given => ({
  counts: { seq: p.seq, heads: p.heads, group: p.heads / p.kvHeads, scale: scaleOf(p) },
  strides: {
    stride: packedStride(p),
    k_offset: p.heads * p.headSize,
    v_offset: (p.heads + p.kvHeads) * p.headSize,
  },
});

type BackwardArrays = Arrays<'qkv' | 'dy' | 'lse' | 'delta' | 'dqkv'> & MaskArrays;

function backwardOperands(p: AttentionBackwardProblem): Operands {
  const rows = p.batch * p.seq;
  return {
    qkv: read(rows * packedStride(p)),
    dy: read(rows * p.heads * p.headSize),
    lse: read(2 * rows * p.heads),
    delta: read(rows * p.heads),
    dqkv: update(rows * packedStride(p)),
    ...maskOperands(p, rows),
  };
}

/** Calls back with each pair of a query and a key that it sees in a head, its weight w and its score gradient ds. */
function eachPair(
  p: AttentionBackwardProblem,
  { qkv, dy, lse, delta, ...masks }: BackwardArrays,
  visit: (q: number, k: number, v: number, dyBase: number, w: number, ds: number) => void,
): void {
  const size = p.headSize;
  const stride = packedStride(p);
  for (let row = 0; row < p.batch * p.seq; row++) {
    const base = row - (row % p.seq);
    const placed = { seq: p.seq, kvRows: p.seq, position: 0 };
    const keys = keysSeen(p.mask, placed, row, masks);
    for (let h = 0; h < p.heads; h++) {
      const kvHead = Math.floor(h / (p.heads / p.kvHeads));
      const q = row * stride + h * size;
      const i = row * p.heads + h;
      for (const seen of keys) {
        const k = (base + seen) * stride + (p.heads + kvHead) * size;
        const v = k + p.kvHeads * size;
        let score = 0;
        let dw = 0;
        for (let d = 0; d < size; d++) {
          score += qkv[q + d]! * qkv[k + d]!;
          dw += dy[i * size + d]! * qkv[v + d]!;
        }
        const w = Math.exp(score * scaleOf(p) - lse[2 * i]! - lse[2 * i + 1]!);
        visit(q, k, v, i * size, w, w * (dw - delta[i]!) * scaleOf(p));
      }
    }
  }
}

/** qkv, dy, lse, delta, documentStarts or keyMask if the mask is so -> the q columns of dqkv. */
export const attentionBackwardQ: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardQ',
  operands: backwardOperands,
  affectsSpeed: { batch: true, seq: true, heads: true, kvHeads: true, headSize: true, mask: true, scale: false },
  variants: tileVariants(
    { load1: backwardLoad1, load4: backwardLoad4, span: backwardQSpan, tiled: backwardQTiled },
    (p) => p.heads,
    backwardGiven,
  ),
  flops: (p) => p.batch * p.heads * pairsSeen(p.mask, p.seq) * p.headSize * 6,
  reference(p, data: BackwardArrays) {
    const { qkv, dqkv } = data;
    const stride = packedStride(p);
    for (let row = 0; row < p.batch * p.seq; row++) dqkv.fill(0, row * stride, row * stride + p.heads * p.headSize);
    eachPair(p, data, (q, k, _v, _dy, _w, ds) => {
      for (let d = 0; d < p.headSize; d++) dqkv[q + d]! += ds * qkv[k + d]!;
    });
  },
};

/** The same -> the k and v columns of dqkv. */
export const attentionBackwardKV: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardKV',
  operands: backwardOperands,
  affectsSpeed: { batch: true, seq: true, heads: true, kvHeads: true, headSize: true, mask: true, scale: false },
  variants: tileVariants(
    { load1: backwardLoad1, load4: backwardLoad4, span: backwardKvSpan, tiled: backwardKvTiled },
    (p) => p.kvHeads,
    backwardGiven,
    128, // see backward_kv_tiled.wgsl
  ),
  flops: (p) => p.batch * p.heads * pairsSeen(p.mask, p.seq) * p.headSize * 8,
  reference(p, data: BackwardArrays) {
    const { qkv, dy, dqkv } = data;
    const stride = packedStride(p);
    for (let row = 0; row < p.batch * p.seq; row++)
      dqkv.fill(0, row * stride + p.heads * p.headSize, (row + 1) * stride);
    eachPair(p, data, (q, k, v, dyBase, w, ds) => {
      for (let d = 0; d < p.headSize; d++) {
        dqkv[k + d]! += ds * qkv[q + d]!;
        dqkv[v + d]! += w * dy[dyBase + d]!;
      }
    });
  },
};
