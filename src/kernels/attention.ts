// Attention with grouped heads, flash style: the logsumexp of each (row, head) is kept, from which the backward pass
// (attention-backward.ts) computes the weights anew, so nothing of size seq x seq exists. Rows are (batch, position); heads are
// column blocks of a packed row.

import load1 from '../../shaders/attention/forward_load_1.wgsl?raw';
import load4 from '../../shaders/attention/forward_load_4.wgsl?raw';
import forwardRows from '../../shaders/attention/forward_rows.wgsl?raw';
import forwardSpan from '../../shaders/attention/forward_span.wgsl?raw';
import forwardTiled from '../../shaders/attention/forward_tiled.wgsl?raw';
import { keysSeen, type MaskArrays, type Masked, maskOperands, pairsSeen } from './attention-mask.ts';
import { type Given, type Scaled, scaleOf, type Texts, tileDispatch, tileVariants } from './attention-tiles.ts';
import { type Arrays, type Kernel, perInvocation, read, WORKGROUP, write } from './kernel.ts';

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
  rows(p, rows) {
    const { batch, seq, heads, headSize } = p;
    if (batch * seq !== rows || p.kvRows !== seq) return undefined;
    const own = { q: p.qStride, k: p.kStride, v: p.vStride, y: heads * headSize, lse: 2 * heads };
    return {
      unit: seq,
      strides: { ...own, documentStarts: 1, keyMask: 1 },
      part: (_, count) => ({ ...p, batch: count / seq }),
    };
  },
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
