// Attention over a packed projection: each row of qkv holds q (heads), k (kvHeads), v (kvHeads).
// Rope turns q and k in place. In generation, keys and values are appended to a cache and read from there.

import { attention as attentionKernel } from '../../kernels/attention.ts';
import { attentionBackwardKV, attentionBackwardQ, attentionDelta } from '../../kernels/attention-backward.ts';
import type { AttentionMask } from '../../kernels/attention-mask.ts';
import { cacheAppend } from '../../kernels/cache-append.ts';
import { rope as ropeKernel } from '../../kernels/rope.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';
import type { Tokens } from './embedding.ts';

export interface Heads {
  heads: number;
  kvHeads: number;
  headSize: number;
}

/** B sequences of T rows; (1) the position of the first column, 0 in training. */
export type Rows = Pick<Tokens, 'batch' | 'seq' | 'position'>;

/** Keys and values of the positions so far, (B, capacity, kvHeads * headSize) each. */
export interface Cache {
  capacity: number;
  keys: Tensor;
  values: Tensor;
}

/**
 * Which tokens a query sees. 'causal': its own and every one before; 'none': every token of its row (BERT, ViT);
 * `window`: its own and the `window - 1` before (Mistral); `documentStarts`: its own and those before in the same
 * document, where (B, T) u32 holds for each token the position at which its document begins; `keyMask`: every token of its
 * row that is no padding, where (B, T) i32 holds 0 for those that are.
 */
export type Mask =
  | 'causal'
  | 'none'
  | { readonly window: number }
  | { readonly documentStarts: Tensor }
  | { readonly keyMask: Tensor };

export interface AttentionOptions {
  /** Keys and values of earlier positions: what is new is appended, and queries see the whole. No backward pass. */
  cache?: Cache | undefined;
  /** @default 'causal' */
  mask?: Mask;
  /** What scores are multiplied by. @default 1 / sqrt(headSize) */
  scale?: number | undefined;
}

const packedWidth = ({ heads, kvHeads, headSize }: Heads) => (heads + 2 * kvHeads) * headSize;

/** The field of a kernel's problem; none for the causal rule, so that its recorded choices of variants are found. */
function ruleOf(mask: Mask): { mask?: AttentionMask } {
  if (mask === 'causal') return {};
  if (typeof mask === 'string' || 'window' in mask) return { mask };
  return { mask: 'keyMask' in mask ? 'padding' : 'documents' };
}

/** Rotates q and k of qkv (B, T, packed) in place, by the table (positions, headSize) of cosines and sines. */
export function rope(g: Graph, qkv: Tensor, tokens: Tokens, table: Tensor, shape: Heads): void {
  const { heads, kvHeads, headSize } = shape;
  const problem = {
    rows: tokens.batch * tokens.seq,
    seq: tokens.seq,
    heads: heads + kvHeads,
    headSize,
    stride: packedWidth(shape),
    offset: 0,
    positions: at(table.shape, 0),
  };
  const turn = (x: Tensor, inverse: boolean) =>
    g.emit(ropeKernel, { ...problem, inverse }, { table, position: tokens.position, x }, 'rope');
  turn(qkv, false);
  // Recorded after the projection and before attention: run on dqkv between their two rules.
  g.onBackward(qkv, (dqkv) => turn(dqkv, true));
}

/** qkv (B, T, packed) -> (B, T, heads * headSize): softmax(scale q k') v, over the keys the mask allows. */
export function attention(
  g: Graph,
  qkv: Tensor,
  tokens: Rows,
  shape: Heads,
  label: string,
  { cache, mask = 'causal', scale }: AttentionOptions = {},
): Tensor {
  const { batch, seq, position } = tokens;
  const { heads, kvHeads, headSize } = shape;
  const stride = packedWidth(shape);
  const rows = batch * seq;
  const y = g.activation(label, [batch, seq, heads * headSize], [qkv]);
  const lse = g.activation(`${label} lse`, [rows, heads, 2]);
  const rule = { ...ruleOf(mask), ...(scale !== undefined && { scale }) };
  const masks = typeof mask === 'string' || 'window' in mask ? {} : mask;
  const q = { batch, seq, heads, kvHeads, headSize, qStride: stride, qOffset: 0, ...rule };
  const kOffset = heads * headSize;
  const vOffset = (heads + kvHeads) * headSize;

  if (cache) {
    assert(!('keyMask' in masks), 'a cache holds no padding');
    assert(!y.wantsGradient, 'attention over a cache has no backward pass');
    const width = kvHeads * headSize;
    const append = { batch, seq, width, stride, capacity: cache.capacity };
    g.emit(cacheAppend, { ...append, offset: kOffset }, { x: qkv, position, cache: cache.keys }, label);
    g.emit(cacheAppend, { ...append, offset: vOffset }, { x: qkv, position, cache: cache.values }, label);
    const kv = { kvRows: cache.capacity, kStride: width, kOffset: 0, vStride: width, vOffset: 0 };
    const from = { q: qkv, k: cache.keys, v: cache.values, position, ...masks };
    g.emit(attentionKernel, { ...q, ...kv }, { ...from, y, lse }, label);
    return y;
  }

  const kv = { kvRows: seq, kStride: stride, kOffset, vStride: stride, vOffset };
  g.emit(attentionKernel, { ...q, ...kv }, { q: qkv, k: qkv, v: qkv, position, ...masks, y, lse }, label);
  g.onBackward(y, (dy) => {
    const delta = g.activation(`${label} delta`, [rows, heads]);
    g.emit(attentionDelta, { rows, heads, headSize }, { dy, y, delta }, label);
    const { gradient: dqkv, accumulate } = g.gradientTarget(qkv);
    assert(!accumulate, 'attention must be the only reader of its projection');
    const problem = { batch, seq, heads, kvHeads, headSize, ...rule };
    const from = { qkv, dy, lse, delta, ...masks };
    g.emit(attentionBackwardQ, problem, { ...from, dqkv }, label);
    g.emit(attentionBackwardKV, problem, { ...from, dqkv }, label);
  });
  return y;
}
