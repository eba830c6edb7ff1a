// The mask rules of attention: which keys a query sees, as data, as WGSL and in float64. By every rule they lie in one
// range of keys, and neither end of it falls from a query to the next, so that kernels can skip whole tiles on both sides;
// a query sees one key at least. A rule is a part of the shader: the causal one costs nothing for the others' sake.

import causalText from '../../shaders/attention/mask_causal.wgsl?raw';
import documentsText from '../../shaders/attention/mask_documents.wgsl?raw';
import noneText from '../../shaders/attention/mask_none.wgsl?raw';
import paddingText from '../../shaders/attention/mask_padding.wgsl?raw';
import windowText from '../../shaders/attention/mask_window.wgsl?raw';
import { assert } from '../util/errors.ts';
import { type Arrays, type Dispatch, type Operands, read } from './kernel.ts';

/**
 * - causal: a query sees its own token and every one before.
 * - none: every token of its row (and, over a cache, every one before the row).
 * - documents: its own token and those before in the same document, with a `window` the `window - 1` nearest of these. The
 *   operand `documentStarts` (batch * seq) holds for each query the first key that it sees; along a row it never falls.
 * - padding: every token of its row that is no padding, its own if it is none. The operand `keyMask` (batch * seq) holds 0
 *   for those that are; keys are those of the row, not of a cache.
 * - window: its own token and the `window - 1` before.
 */
export type AttentionMask =
  | 'causal'
  | 'none'
  | 'documents'
  | 'padding'
  | { readonly window: number; readonly documents?: true };

/** A problem's mask. */
export interface Masked {
  /** @default 'causal' */
  mask?: AttentionMask;
}

const readsStarts = (mask?: AttentionMask): mask is 'documents' | { window: number; documents: true } =>
  mask === 'documents' || (typeof mask === 'object' && mask.documents === true);

/** The text that every attention shader is completed with, and its constants. */
export function maskShader({ mask = 'causal' }: Masked): Pick<Dispatch, 'shader' | 'constants'> {
  if (typeof mask === 'string') {
    const texts = { causal: causalText, none: noneText, documents: documentsText, padding: paddingText };
    return { shader: texts[mask], constants: {} };
  }
  assert(Number.isInteger(mask.window) && mask.window >= 1, `attention over a window of ${mask.window} tokens`);
  // Its operand holds what the window leaves.
  if (mask.documents) return { shader: documentsText, constants: {} };
  return { shader: windowText, constants: { WINDOW: mask.window } };
}

export function maskOperands({ mask }: Masked, rows: number): Operands {
  if (readsStarts(mask)) return { documentStarts: read(rows, 'u32') };
  return mask === 'padding' ? { keyMask: read(rows, 'i32') } : {};
}

/** What the reference of a masked kernel finds beside its other operands. */
export type MaskArrays = Partial<Arrays<'documentStarts' | 'keyMask'>>;

/** Where a row of queries lies among the keys of its batch. */
interface Row {
  seq: number;
  kvRows: number;
  /** The key that belongs to the row's first query. */
  position: number;
}

/** The keys that a query sees, ascending: that of `row` of all rows of queries, batch by batch. */
export function keysSeen(
  mask: AttentionMask = 'causal',
  { seq, kvRows, position }: Row,
  row: number,
  { documentStarts, keyMask }: MaskArrays,
): number[] {
  const query = row % seq;
  const own = Math.min(position + query, kvRows - 1);
  const range = (first: number, last: number) => Array.from({ length: last + 1 - first }, (_, i) => first + i);
  const whole = () => range(0, Math.min(position + seq, kvRows) - 1);
  if (mask === 'none') return whole();
  if (mask === 'padding') return whole().filter((key) => keyMask?.[row - query + key] !== 0);
  if (mask === 'causal') return range(0, own);
  if (readsStarts(mask)) return range(Math.min(documentStarts?.[row] ?? 0, own), own);
  return range(Math.max(0, own - mask.window + 1), own);
}

/** Pairs of a query and a key that it sees, in a row of `seq` tokens: for documents, those of one as long as the row, without padding. */
export function pairsSeen(mask: AttentionMask = 'causal', seq: number): number {
  if (mask === 'none' || mask === 'padding') return seq * seq;
  const window = typeof mask === 'string' ? seq : Math.min(mask.window, seq);
  return (window * (window + 1)) / 2 + (seq - window) * window;
}

/**
 * For each token of rows of `seq` tokens, the first that it sees, by its place in the row: where its document begins, or the
 * `window` of tokens that it ends. The operand of the rule 'documents'. Equal numbers side by side are one document.
 */
export function documentStarts(documents: ArrayLike<number>, seq: number, window = seq): Uint32Array<ArrayBuffer> {
  const starts = new Uint32Array(documents.length);
  let begin = 0;
  for (let i = 0; i < documents.length; i++) {
    const t = i % seq;
    if (t === 0 || documents[i] !== documents[i - 1]) begin = t;
    starts[i] = Math.max(begin, t - window + 1);
  }
  return starts;
}
