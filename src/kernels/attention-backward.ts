// The backward pass of attention (attention.ts), from the logsumexp that the forward pass kept: the queries' gradients in one
// kernel, those of keys and values in another, each in tiles of its own rows, so that no sum is shared between workgroups.

import backwardKvSpan from '../../shaders/attention/backward_kv_span.wgsl?raw';
import backwardKvTiled from '../../shaders/attention/backward_kv_tiled.wgsl?raw';
import backwardLoad1 from '../../shaders/attention/backward_load_1.wgsl?raw';
import backwardLoad4 from '../../shaders/attention/backward_load_4.wgsl?raw';
import backwardQSpan from '../../shaders/attention/backward_q_span.wgsl?raw';
import backwardQTiled from '../../shaders/attention/backward_q_tiled.wgsl?raw';
import deltaGiven from '../../shaders/attention/delta_given.wgsl?raw';
import deltaMade1 from '../../shaders/attention/delta_made_1.wgsl?raw';
import deltaMade4 from '../../shaders/attention/delta_made_4.wgsl?raw';
import { keysSeen, type MaskArrays, type Masked, maskOperands, pairsSeen } from './attention-mask.ts';
import { type Given, type Scaled, scaleOf, tileVariants } from './attention-tiles.ts';
import { type Arrays, type Kernel, type Operand, type Operands, type RowCut, read, update, write } from './kernel.ts';

/** Training: q, k and v are column blocks of one packed tensor, and every sequence starts at position 0. */
export interface AttentionBackwardProblem extends Masked, Scaled {
  batch: number;
  seq: number;
  heads: number;
  kvHeads: number;
  headSize: number;
  /** Where these heads are some of more: kv heads before them, and those that a row has in all. Rows of dqkv have these alone. @default they are all */
  kvHeadsBefore?: number;
  allKvHeads?: number;
}

/** Columns of a packed row of so many heads. */
const packed = ({ heads, kvHeads, headSize }: Pick<AttentionBackwardProblem, 'heads' | 'kvHeads' | 'headSize'>) => ({
  stride: (heads + 2 * kvHeads) * headSize,
  k: heads * headSize,
  v: (heads + kvHeads) * headSize,
});

/** The heads that a row has in all, and how many of them come before these. */
function headsOf(p: AttentionBackwardProblem) {
  const { kvHeadsBefore = 0, allKvHeads = p.kvHeads } = p;
  const group = p.heads / p.kvHeads;
  const all = packed({ heads: group * allKvHeads, kvHeads: allKvHeads, headSize: p.headSize });
  return { group, all, heads: group * allKvHeads, before: group * kvHeadsBefore, kvHeadsBefore };
}

function backwardGiven(p: AttentionBackwardProblem): Given {
  const { group, all, heads, before, kvHeadsBefore } = headsOf(p);
  const own = packed(p);
  const { seq, headSize } = p;
  return {
    counts: { seq, heads: p.heads, group, scale: scaleOf(p), all_heads: heads, first_head: before },
    strides: {
      ...{ stride: all.stride, q_offset: before * headSize },
      ...{ k_offset: all.k + kvHeadsBefore * headSize, v_offset: all.v + kvHeadsBefore * headSize },
      ...{ d_stride: own.stride, dk_offset: own.k, dv_offset: own.v },
    },
  };
}

type BackwardArrays = Arrays<'qkv' | 'dy' | 'lse' | 'delta' | 'dqkv'> & MaskArrays;

/** `delta` (rows, heads): the sum over the head of dy * y, the row term of the softmax gradient. */
const backwardOperands = (p: AttentionBackwardProblem, delta: Operand): Operands => {
  const { rows, deltas, outputs } = rowsOf(p);
  return {
    qkv: read(rows * headsOf(p).all.stride),
    dy: read(outputs),
    lse: read(2 * deltas),
    dqkv: update(rows * packed(p).stride),
    delta,
  };
};

function rowsOf(p: AttentionBackwardProblem) {
  const rows = p.batch * p.seq;
  const { heads } = headsOf(p);
  return { deltas: rows * heads, outputs: rows * heads * p.headSize, rows };
}

function cutBySequences(p: AttentionBackwardProblem, rows: number): RowCut<AttentionBackwardProblem> | undefined {
  const { batch, seq } = p;
  if (batch * seq !== rows) return undefined;
  const { all, heads } = headsOf(p);
  const width = heads * p.headSize;
  const own = { qkv: all.stride, dqkv: packed(p).stride, dy: width, y: width, lse: 2 * heads, delta: heads };
  return {
    unit: seq,
    strides: { ...own, documentStarts: 1, keyMask: 1 },
    part: (_, count) => ({ ...p, batch: count / seq }),
  };
}

/** Where a query and a key are, and their gradients. */
interface PairPlaces {
  readonly q: number;
  readonly k: number;
  readonly dy: number;
  readonly dq: number;
  readonly dk: number;
  readonly dv: number;
}

/** Calls back with each pair of a query and a key that it sees in a head, its weight w and its score gradient ds. */
function eachPair(
  p: AttentionBackwardProblem,
  { qkv, dy, lse, delta, ...masks }: BackwardArrays,
  visit: (at: PairPlaces, w: number, ds: number) => void,
): void {
  const size = p.headSize;
  const { group, all, heads, before, kvHeadsBefore } = headsOf(p);
  const own = packed(p);
  for (let row = 0; row < p.batch * p.seq; row++) {
    const base = row - (row % p.seq);
    const placed = { seq: p.seq, kvRows: p.seq, position: 0 };
    const keys = keysSeen(p.mask, placed, row, masks);
    for (let h = 0; h < p.heads; h++) {
      const kvHead = Math.floor(h / group);
      const q = row * all.stride + (before + h) * size;
      const dq = row * own.stride + h * size;
      const i = row * heads + before + h;
      for (const seen of keys) {
        const kv = (base + seen) * all.stride + (kvHeadsBefore + kvHead) * size;
        const [k, v] = [kv + all.k, kv + all.v];
        const dkv = (base + seen) * own.stride + kvHead * size;
        const at = { q, k, dy: i * size, dq, dk: dkv + own.k, dv: dkv + own.v };
        let score = 0;
        let dw = 0;
        for (let d = 0; d < size; d++) {
          score += qkv[q + d]! * qkv[k + d]!;
          dw += dy[i * size + d]! * qkv[v + d]!;
        }
        const w = Math.exp(score * scaleOf(p) - lse[2 * i]! - lse[2 * i + 1]!);
        visit(at, w, w * (dw - delta[i]!) * scaleOf(p));
      }
    }
  }
}

const affectsSpeed = {
  ...{ batch: true, seq: true, heads: true, kvHeads: true, headSize: true, mask: true, scale: false },
  ...{ kvHeadsBefore: false, allKvHeads: false },
} as const;

/** qkv, dy, lse, y (rows, heads * headSize), documentStarts or keyMask if the mask is so -> the q columns of dqkv, and delta. */
export const attentionBackwardQ: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardQ',
  operands(p) {
    const { rows, deltas, outputs } = rowsOf(p);
    // Of some of the heads, the others' deltas stay.
    const delta: Operand = p.allKvHeads === undefined ? write(deltas) : { ...update(deltas), replaces: true };
    return { ...backwardOperands(p, delta), y: read(outputs), ...maskOperands(p, rows) };
  },
  affectsSpeed,
  variants: tileVariants(
    {
      load1: backwardLoad1 + deltaMade1,
      load4: backwardLoad4 + deltaMade4,
      span: backwardQSpan,
      tiled: backwardQTiled,
    },
    (p) => p.heads,
    backwardGiven,
  ),
  rows: cutBySequences,
  flops: (p) => p.batch * p.heads * (pairsSeen(p.mask, p.seq) * 6 + p.seq * 2) * p.headSize,
  reference(p, data: BackwardArrays & Arrays<'y'>) {
    const { qkv, dy, y, delta, dqkv } = data;
    const { heads, before } = headsOf(p);
    const { stride, k: ofQueries } = packed(p);
    for (let row = 0; row < p.batch * p.seq; row++) {
      for (let i = row * heads + before; i < row * heads + before + p.heads; i++) {
        delta[i] = 0;
        for (let d = i * p.headSize; d < (i + 1) * p.headSize; d++) delta[i]! += dy[d]! * y[d]!;
      }
      dqkv.fill(0, row * stride, row * stride + ofQueries);
    }
    eachPair(p, data, ({ dq, k }, _w, ds) => {
      for (let d = 0; d < p.headSize; d++) dqkv[dq + d]! += ds * qkv[k + d]!;
    });
  },
};

/** qkv, dy, lse, delta, documentStarts or keyMask if the mask is so -> the k and v columns of dqkv. */
export const attentionBackwardKV: Kernel<AttentionBackwardProblem> = {
  name: 'attentionBackwardKV',
  operands(p) {
    const { rows, deltas } = rowsOf(p);
    return { ...backwardOperands(p, read(deltas)), ...maskOperands(p, rows) };
  },
  affectsSpeed,
  variants: tileVariants(
    {
      load1: backwardLoad1 + deltaGiven,
      load4: backwardLoad4 + deltaGiven,
      span: backwardKvSpan,
      tiled: backwardKvTiled,
    },
    (p) => p.kvHeads,
    backwardGiven,
    128, // see backward_kv_tiled.wgsl
  ),
  rows: cutBySequences,
  flops: (p) => p.batch * p.heads * pairsSeen(p.mask, p.seq) * p.headSize * 8,
  reference(p, data: BackwardArrays) {
    const { qkv, dy, dqkv } = data;
    const { stride, k: ofQueries } = packed(p);
    for (let row = 0; row < p.batch * p.seq; row++) dqkv.fill(0, row * stride + ofQueries, (row + 1) * stride);
    eachPair(p, data, ({ q, dy: dyAt, dk, dv }, w, ds) => {
      for (let d = 0; d < p.headSize; d++) {
        dqkv[dk + d]! += ds * qkv[q + d]!;
        dqkv[dv + d]! += w * dy[dyAt + d]!;
      }
    });
  },
};
