// Documents as tokens, each token with whether it is learned. How they lie in memory or in a file is marked-texts.ts, how they are cut and put
// into rows packing.ts, what they are made of records/.
//
// Invariant: a token is learned only where something in front of it in its own document is there to predict it from.

import { assert } from '../util/errors.ts';
import type { MarkedTexts, MarkedTextsWriter } from './marked-texts.ts';
import type { TokenIds, TokenRange } from './token-run.ts';
import { joinedIds, type Tokenizer } from './tokenizer.ts';

/** What documents are encoded with. */
export type DocumentTokenizer = Pick<Tokenizer, 'encode' | 'stream' | 'tokenBytes' | 'specials' | 'addsBos'>;

/** Text, and which characters of it are learned: all, or those of spans in order. */
export interface DocumentText {
  readonly text: string;
  readonly learned?: readonly { readonly begin: number; readonly end: number }[] | undefined;
  /**
   * Whether it begins and ends as a document does by itself: with BOS where the tokenizer adds it, as prompts do, and with
   * the first of the tokens that end a text, where there is one. @default false
   */
  readonly whole?: boolean;
}

/** Many documents, one behind the other. */
export class Documents {
  readonly #texts: MarkedTexts;
  readonly #firsts: DocumentWriter['firsts'];

  /** `texts` and `firsts`: as a DocumentWriter made them. */
  constructor(texts: MarkedTexts, firsts: DocumentWriter['firsts']) {
    assert(firsts.length === texts.count, 'every document says where learning begins');
    this.#texts = texts;
    this.#firsts = firsts;
  }

  /** How many. */
  get count(): number {
    return this.#texts.count;
  }

  /** Of all. */
  get tokens(): number {
    return this.#texts.tokens;
  }

  /** Where a document begins and ends among the tokens. */
  range(document: number): TokenRange {
    return this.#texts.range(document);
  }

  /** The first token of a document that is learned. */
  firstLearned(document: number): number {
    return this.range(document)[0] + (this.#firsts[document] ?? 0);
  }

  /** Tokens, with a mark (`isMarked`) where they are learned; not to be changed. Errors: as those of a TokenRun. */
  read(ranges: readonly TokenRange[]): Promise<TokenIds[]> {
    return this.#texts.read(ranges);
  }
}

/** Adds documents to texts. */
export class DocumentWriter {
  readonly #texts: MarkedTextsWriter;
  readonly #firsts: number[] = [];

  constructor(texts: MarkedTextsWriter) {
    this.#texts = texts;
  }

  /** The first token of each document that is learned, counted from its own first. */
  get firsts(): ArrayLike<number> {
    return this.#firsts;
  }

  /** Appends one. False where nothing of it would be learned, which leaves it out. */
  add(ids: Int32Array, learned: Uint8Array): boolean {
    const first = learned.indexOf(1, 1);
    if (first < 0) return false;
    this.#texts.add(ids, (i) => i > 0 && learned[i] === 1);
    this.#firsts.push(first);
    return true;
  }
}

/**
 * Tokens of a document's text, and which of them are learned. Text is encoded as a whole; a token belongs to what its
 * first character belongs to, as it is predicted before anything of it is written. Where the tokenizer's text is not the
 * document's, character for character (it normalises), the parts are encoded by themselves, so that no token straddles. The
 * space that some put before a text, and behind each added token, is none of the document's.
 */
export function encodeDocument(
  tokenizer: DocumentTokenizer,
  { text, learned: spans = [{ begin: 0, end: text.length }], whole = false }: DocumentText,
): { ids: Int32Array; learned: Uint8Array } {
  const { bos, eos } = tokenizer.specials;
  const [end] = eos;
  const inner =
    (tokenizer.tokenBytes === undefined && bySpans(tokenizer, text, spans)) || byParts(tokenizer, text, spans);
  if (!whole) return inner;
  const before = bos === undefined || !tokenizer.addsBos || inner.ids[0] === bos ? [] : [bos];
  const after = end === undefined || eos.includes(inner.ids.at(-1) ?? -1) ? [] : [end];
  const ids = joinedIds(before, inner.ids, after);
  const learned = new Uint8Array(ids.length);
  learned.set(inner.learned, before.length);
  learned.fill(1, before.length + inner.ids.length);
  return { ids, learned };
}

type Spans = NonNullable<DocumentText['learned']>;

/** Undefined where tokens cannot be followed through the text. */
function bySpans(tokenizer: DocumentTokenizer, text: string, spans: Spans) {
  const ids = tokenizer.encode(text);
  const learned = new Uint8Array(ids.length);
  const decoder = tokenizer.stream();
  let place = 0;
  let next = 0;
  for (const [i, id] of ids.entries()) {
    while (next < spans.length && place >= (spans[next]?.end ?? 0)) next++;
    const span = spans[next];
    if (span && place >= span.begin) learned[i] = 1;
    const found = decoder.push(id);
    const isOwn = text.startsWith(found, place) || !found.startsWith(' ');
    const piece = isOwn ? found : found.slice(1);
    if (!text.startsWith(piece, place)) return undefined;
    place += piece.length;
  }
  return place === text.length && decoder.end() === '' ? { ids, learned } : undefined;
}

function byParts(tokenizer: DocumentTokenizer, text: string, spans: Spans) {
  const parts: { ids: Int32Array; learned: 0 | 1 }[] = [];
  const add = (begin: number, end: number, learned: 0 | 1) => {
    if (begin < end) parts.push({ ids: tokenizer.encode(text.slice(begin, end)), learned });
  };
  let at = 0;
  for (const { begin, end } of spans) {
    add(at, begin, 0);
    add(begin, end, 1);
    at = end;
  }
  add(at, text.length, 0);
  const size = parts.reduce((sum, { ids }) => sum + ids.length, 0);
  const [ids, learned] = [new Int32Array(size), new Uint8Array(size)];
  let filled = 0;
  for (const part of parts) {
    ids.set(part.ids, filled);
    learned.fill(part.learned, filled, filled + part.ids.length);
    filled += part.ids.length;
  }
  return { ids, learned };
}
