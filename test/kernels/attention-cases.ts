// Problems of attention, as in training and over a cache, with what their masks and gradients read, and the error of
// a dot product.

import { type AttentionProblem, attention } from '../../src/kernels/attention.ts';
import type { AttentionBackwardProblem } from '../../src/kernels/attention-backward.ts';
import { documentStarts } from '../../src/kernels/attention-mask.ts';
import type { Arrays } from '../../src/kernels/kernel.ts';
import { fields } from '../entry.ts';
import { type Draws, type Inputs, toArrays } from './inputs.ts';
import { ULP } from './rounding.ts';

/** Attention over a packed projection, as in training. */
export function packed(p: AttentionBackwardProblem): AttentionProblem {
  const stride = (p.heads + 2 * p.kvHeads) * p.headSize;
  const kOffset = p.heads * p.headSize;
  const vOffset = (p.heads + p.kvHeads) * p.headSize;
  return { ...p, kvRows: p.seq, qStride: stride, qOffset: 0, kStride: stride, kOffset, vStride: stride, vOffset };
}

export const attentions: AttentionBackwardProblem[] = [
  // The one that variants run which take long to compile.
  { batch: 1, seq: 37, heads: 8, kvHeads: 2, headSize: 8 },
  { batch: 2, seq: 3, heads: 2, kvHeads: 2, headSize: 5 },
  { batch: 1, seq: 1, heads: 1, kvHeads: 1, headSize: 4 },
  { batch: 3, seq: 16, heads: 1, kvHeads: 1, headSize: 10 },
  { batch: 2, seq: 65, heads: 4, kvHeads: 4, headSize: 16 },
  { batch: 1, seq: 37, heads: 5, kvHeads: 1, headSize: 24 },
  { batch: 1, seq: 33, heads: 3, kvHeads: 3, headSize: 32 },
  { batch: 1, seq: 65, heads: 1, kvHeads: 1, headSize: 64 },
  // Tiles are of 4, 16 or 32 rows: windows of one token, up to a tile's border, past it, past the row.
  { batch: 1, seq: 37, heads: 2, kvHeads: 2, headSize: 8, mask: { window: 1 } },
  { batch: 2, seq: 67, heads: 3, kvHeads: 1, headSize: 5, mask: { window: 32 } },
  { batch: 1, seq: 37, heads: 3, kvHeads: 3, headSize: 12, mask: { window: 100 } },
  { batch: 1, seq: 70, heads: 2, kvHeads: 1, headSize: 32, mask: { window: 33 } },
  { batch: 2, seq: 101, heads: 4, kvHeads: 2, headSize: 16, mask: { window: 7 } },
  // A scale of its own.
  { batch: 1, seq: 37, heads: 4, kvHeads: 1, headSize: 12, mask: { window: 6 }, scale: 20 ** -0.5 },
  { batch: 2, seq: 33, heads: 2, kvHeads: 1, headSize: 5, scale: 1 },
  { batch: 1, seq: 1, heads: 2, kvHeads: 1, headSize: 8, mask: 'none' },
  { batch: 3, seq: 37, heads: 4, kvHeads: 2, headSize: 5, mask: 'none' },
  { batch: 1, seq: 65, heads: 3, kvHeads: 3, headSize: 16, mask: 'none' },
  // In the first row one document, in the second those of one token, in the others of any length. With one head, the
  // lanes of a workgroup work on different rows.
  { batch: 1, seq: 37, heads: 2, kvHeads: 2, headSize: 8, mask: 'documents' },
  { batch: 5, seq: 37, heads: 1, kvHeads: 1, headSize: 12, mask: 'documents' },
  { batch: 3, seq: 101, heads: 4, kvHeads: 2, headSize: 16, mask: 'documents' },
  { batch: 4, seq: 67, heads: 3, kvHeads: 1, headSize: 5, mask: 'documents' },
  // The same within windows: of one token, up to a tile's border and past it.
  { batch: 2, seq: 37, heads: 2, kvHeads: 2, headSize: 8, mask: { window: 1, documents: true } },
  { batch: 5, seq: 37, heads: 1, kvHeads: 1, headSize: 12, mask: { window: 6, documents: true } },
  { batch: 3, seq: 101, heads: 4, kvHeads: 2, headSize: 16, mask: { window: 33, documents: true } },
  { batch: 4, seq: 67, heads: 3, kvHeads: 1, headSize: 5, mask: { window: 32, documents: true } },
  // In the first row no padding, in the second one token alone, in the third holes, in the others any length.
  { batch: 3, seq: 1, heads: 2, kvHeads: 1, headSize: 8, mask: 'padding' },
  { batch: 5, seq: 37, heads: 1, kvHeads: 1, headSize: 12, mask: 'padding' },
  { batch: 3, seq: 101, heads: 4, kvHeads: 2, headSize: 16, mask: 'padding' },
  { batch: 4, seq: 67, heads: 3, kvHeads: 3, headSize: 5, mask: 'padding' },
];

/** Over a cache of 70 rows a batch: unpacked keys and values, queries at an odd stride or a wide one. */
const overCache: AttentionBackwardProblem[] = [
  { batch: 2, seq: 1, heads: 4, kvHeads: 2, headSize: 16 },
  { batch: 1, seq: 37, heads: 2, kvHeads: 1, headSize: 12 },
  { batch: 2, seq: 3, heads: 3, kvHeads: 3, headSize: 5 },
  { batch: 2, seq: 1, heads: 4, kvHeads: 2, headSize: 16, mask: { window: 5 } },
  { batch: 1, seq: 37, heads: 2, kvHeads: 1, headSize: 12, mask: { window: 9 } },
  { batch: 2, seq: 3, heads: 3, kvHeads: 3, headSize: 5, mask: { window: 2 } },
  { batch: 1, seq: 1, heads: 4, kvHeads: 1, headSize: 16, scale: 0.1 },
  { batch: 2, seq: 3, heads: 4, kvHeads: 2, headSize: 16, mask: 'none' },
  { batch: 2, seq: 3, heads: 3, kvHeads: 3, headSize: 5, mask: 'none' },
  { batch: 3, seq: 1, heads: 4, kvHeads: 2, headSize: 16, mask: 'documents' },
  { batch: 3, seq: 37, heads: 1, kvHeads: 1, headSize: 12, mask: 'documents' },
  { batch: 2, seq: 3, heads: 3, kvHeads: 3, headSize: 5, mask: 'documents' },
];

export const cached: AttentionProblem[] = overCache.map((p) => {
  const width = p.kvHeads * p.headSize;
  const q = { qStride: p.heads * p.headSize + 4, qOffset: 4 };
  return { ...p, ...q, kvRows: 70, kStride: width, kOffset: 0, vStride: width, vOffset: 0 };
});

/** Where the queries of a problem over a cache begin; the last problem's rows end with the cache. */
export const positionOf = (p: AttentionProblem) => (p.kvRows === p.seq ? 0 : p.headSize === 5 ? 68 : 31);

/** What the mask asks for: for each query the first key of its document (over a cache, one begun before the queries), or the keys that are no padding. */
export function maskInputs(p: AttentionProblem, random: Draws): Inputs {
  if (p.mask === 'padding') {
    const lengths = Array.from({ length: p.batch }, () => random.integer(1, p.seq + 1));
    const keyMask = Int32Array.from({ length: p.batch * p.seq }, (_, i) => {
      const [row, key] = [Math.floor(i / p.seq), i % p.seq];
      if (row === 0) return 1;
      if (row === 1) return Number(key === p.seq >> 1);
      return Number(row === 2 ? key === 0 || random.uniform() < 0.6 : key < lengths[row]!);
    });
    return { keyMask };
  }
  const { window = undefined, documents: within = false } = typeof p.mask === 'object' ? p.mask : {};
  if (p.mask !== 'documents' && !within) return {};
  const position = positionOf(p);
  if (position > 0) {
    const begins = Array.from({ length: p.batch }, () => random.integer(0, position + 1));
    return { documentStarts: Uint32Array.from({ length: p.batch * p.seq }, (_, i) => begins[Math.floor(i / p.seq)]!) };
  }
  let document = 0;
  const documents = Int32Array.from({ length: p.batch * p.seq }, (_, i) => {
    const row = Math.floor(i / p.seq);
    if (row === 1 || (row > 1 && random.uniform() < 0.1)) document++;
    return document;
  });
  return { documentStarts: documentStarts(documents, p.seq, window) };
}

/** The packed rows, a gradient, and what the forward pass leaves for the backward one. */
export function attentionGradients(p: AttentionBackwardProblem, random: Draws): Inputs {
  const forward = packed(p);
  const qkv = random.normals(p.batch * p.seq * forward.qStride);
  const dy = random.normals(p.batch * p.seq * p.heads * p.headSize);
  const masks = maskInputs(forward, random);
  const given = { q: qkv, k: qkv, v: qkv, position: new Uint32Array(1), ...masks };
  const arrays = toArrays(attention, forward, given);
  attention.reference(forward, arrays);
  const after = fields(arrays, 'y', 'lse');
  const delta = Float32Array.from({ length: after.lse.length / 2 }, (_, i) => {
    const head = after.y.subarray(i * p.headSize, (i + 1) * p.headSize);
    return head.reduce((sum, value, d) => sum + value * dy[i * p.headSize + d]!, 0);
  });
  return { qkv, dy, y: Float32Array.from(after.y), lse: Float32Array.from(after.lse), delta, ...masks };
}

export type MaskArrays = Partial<Arrays<'documentStarts' | 'keyMask'>>;

/** scale a . b, and what `size` products, their sum and the scale lose. */
export function dotError(size: number, a: Float64Array, aAt: number, b: Float64Array, bAt: number, scale: number) {
  let value = 0;
  let terms = 0;
  for (let d = 0; d < size; d++) {
    value += a[aAt + d]! * b[bAt + d]!;
    terms += Math.abs(a[aAt + d]! * b[bAt + d]!);
  }
  return { value: scale * value, error: (size + 3) * ULP * scale * terms };
}
