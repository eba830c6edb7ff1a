// Attention over a packed projection: each row of qkv holds q (heads), k (kvHeads), v (kvHeads).
// Rope turns q and k in place. In generation, keys and values are appended to a cache and read from there.

import { attention as attentionKernel } from '../../kernels/attention.ts';
import { attentionBackwardKV, attentionBackwardQ } from '../../kernels/attention-backward.ts';
import type { AttentionMask } from '../../kernels/attention-mask.ts';
import { cacheAppend } from '../../kernels/cache-append.ts';
import { copyRows } from '../../kernels/copy-rows.ts';
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

/** B sequences of T rows; (1) the position of the first column, 0 in training, or of the first of each sequence. */
export type Rows = Pick<Tokens, 'batch' | 'seq' | 'position' | 'positions'>;

/** Keys and values of a sequence's positions so far, (1, capacity, kvHeads * headSize) each. */
export interface Cache {
  capacity: number;
  keys: Tensor;
  values: Tensor;
}

/**
 * Which tokens a query sees. 'causal': its own and every one before; 'none': every token of its row (BERT, ViT);
 * `window`: its own and the `window - 1` before (Mistral); `documentStarts`: its own and those before in the same
 * document, where (B, T) u32 holds for each token the position of the first that it sees, with a `window` too the first in
 * both; `keyMask`: every token of its row that is no padding, where (B, T) i32 holds 0 for those that are.
 */
export type Mask =
  | 'causal'
  | 'none'
  | { readonly window: number }
  | { readonly documentStarts: Tensor; readonly window?: number }
  | { readonly keyMask: Tensor };

export interface AttentionOptions {
  /** Of each sequence, keys and values of earlier positions: what is new is appended, and queries see the whole. No backward pass. */
  caches?: readonly Cache[] | undefined;
  /** @default 'causal' */
  mask?: Mask;
  /** What scores are multiplied by. @default 1 / sqrt(headSize) */
  scale?: number | undefined;
}

const packedWidth = ({ heads, kvHeads, headSize }: Heads) => (heads + 2 * kvHeads) * headSize;

/**
 * A mask's field of a kernel's problem, and its operands. No field for the causal rule, so that its recorded choices of
 * variants are found.
 */
function ruleOf(mask: Mask): { rule: { mask?: AttentionMask }; masks: { documentStarts?: Tensor; keyMask?: Tensor } } {
  if (mask === 'causal') return { rule: {}, masks: {} };
  if (typeof mask === 'string') return { rule: { mask }, masks: {} };
  if ('keyMask' in mask) return { rule: { mask: 'padding' }, masks: mask };
  if (!('documentStarts' in mask)) return { rule: { mask }, masks: {} };
  const { window, ...masks } = mask;
  return { rule: { mask: window === undefined ? 'documents' : { window, documents: true } }, masks };
}

/** Rotates q and k of qkv (B, T, packed) in place, by the table (positions, headSize) of cosines and sines. */
export function rope(g: Graph, qkv: Tensor, tokens: Tokens, table: Tensor, shape: Heads): void {
  const { heads, kvHeads, headSize } = shape;
  const { batch, seq, position, positions = [position] } = tokens;
  const stride = packedWidth(shape);
  const rows = (batch * seq) / positions.length;
  const problem = { rows, seq, heads: heads + kvHeads, headSize, stride, positions: at(table.shape, 0) };
  const turn = (x: Tensor, inverse: boolean) => {
    for (const [i, position] of positions.entries())
      g.emit(ropeKernel, { ...problem, offset: i * rows * stride, inverse }, { table, position, x }, 'rope');
  };
  turn(qkv, false);
  // Recorded after the projection and before attention: run on dqkv between their two rules.
  g.onBackward(qkv, (dqkv) => turn(dqkv, true));
}

/** What attention gives of one sequence among several. */
const attendedBy = (g: Graph, label: string, seq: number, { heads, headSize }: Pick<Heads, 'heads' | 'headSize'>) => ({
  y: g.activation(`${label} of one`, [1, seq, heads * headSize]),
  lse: g.activation(`${label} lse of one`, [seq, heads, 2]),
});

/** qkv (B, T, packed) -> (B, T, heads * headSize): softmax(scale q k') v, over the keys the mask allows. */
export function attention(
  g: Graph,
  qkv: Tensor,
  tokens: Rows,
  shape: Heads,
  label: string,
  { caches, mask = 'causal', scale }: AttentionOptions = {},
): Tensor {
  const { batch, seq, position } = tokens;
  const { heads, kvHeads, headSize } = shape;
  const stride = packedWidth(shape);
  const rows = batch * seq;
  const y = g.activation(label, [batch, seq, heads * headSize], [qkv]);
  const lse = g.activation(`${label} lse`, [rows, heads, 2]);
  const { rule: seen, masks } = ruleOf(mask);
  const rule = { ...seen, ...(scale !== undefined && { scale }) };
  const q = { batch, seq, heads, kvHeads, headSize, qStride: stride, qOffset: 0, ...rule };
  const kOffset = heads * headSize;
  const vOffset = (heads + kvHeads) * headSize;

  if (caches) {
    assert(!('keyMask' in masks), 'a cache holds no padding');
    assert(batch === 1 || !('documentStarts' in masks), 'of several sequences, each is one document');
    assert(!y.wantsGradient, 'attention over a cache has no backward pass');
    const { positions = [position] } = tokens;
    assert(caches.length === batch && positions.length === batch, 'each sequence has a cache and a position');
    const width = kvHeads * headSize;
    for (const [i, { capacity, keys, values }] of caches.entries()) {
      const position = at(positions, i);
      const first = i * seq * stride;
      const append = { batch: 1, seq, width, stride, capacity };
      g.emit(cacheAppend, { ...append, offset: first + kOffset }, { x: qkv, position, cache: keys }, label);
      g.emit(cacheAppend, { ...append, offset: first + vOffset }, { x: qkv, position, cache: values }, label);
      const kv = { kvRows: capacity, kStride: width, kOffset: 0, vStride: width, vOffset: 0 };
      const own = batch === 1 ? { y, lse } : attendedBy(g, label, seq, { heads, headSize });
      const problem = { ...q, ...kv, batch: 1, qOffset: first };
      g.emit(attentionKernel, problem, { q: qkv, k: keys, v: values, position, ...masks, ...own }, label);
      if (batch === 1) continue;
      const place = { ...{ batch: 1, rows: seq, width: heads * headSize, xRows: seq, xFirst: 0 }, yRows: rows };
      g.emit(copyRows, { ...place, yFirst: i * seq, partial: i > 0 }, { x: own.y, y }, label);
    }
    return y;
  }

  const kv = { kvRows: seq, kStride: stride, kOffset, vStride: stride, vOffset };
  g.emit(attentionKernel, { ...q, ...kv }, { q: qkv, k: qkv, v: qkv, position, ...masks, y, lse }, label);
  g.onBackward(y, (dy) => {
    const delta = g.activation(`${label} delta`, [rows, heads]);
    const { gradient: dqkv, accumulate } = g.gradientTarget(qkv);
    assert(!accumulate, 'attention must be the only reader of its projection');
    const problem = { batch, seq, heads, kvHeads, headSize, ...rule };
    const from = { qkv, dy, lse, delta, ...masks };
    g.emit(attentionBackwardQ, problem, { ...from, y, dqkv }, label);
    g.emit(attentionBackwardKV, problem, { ...from, dqkv }, label);
  });
  return y;
}
