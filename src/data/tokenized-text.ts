// A text as token ids: nine tenths of its bytes to train on (or another share, or all beside a second text), the rest to
// validate with, each tokenized by itself. It is read
// piece by piece and cut where the tokenizer says that it is safe, with pauses in which other work is done, and a large one encoded
// by threads (encoding-threads.ts): neither text nor ids are ever in memory twice. What was tokenized once is kept in the host's
// cache (token-cache.ts).
//
// Invariant: the ids are those of each part tokenized as a whole.

import type { Host } from '../runtime/host.ts';
import { assert, HoldfastError, Stopped } from '../util/errors.ts';
import type { TokenIds } from './batches.ts';
import { borderOf, split, type TextIdentity, type TextSource, wholeText } from './corpus.ts';
import { type PartEncoder, partEncoder } from './encoding-threads.ts';
import { TokenCache } from './token-cache.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface TokenizedText {
  readonly identity: TextIdentity;
  readonly train: TokenIds;
  readonly validation: TokenIds;
  /** Windows begin at multiples of it. */
  readonly stride: number;
}

export interface TokenizingOptions {
  /** Called while it goes on, with bytes of the text. */
  onProgress?: ((done: number, total: number) => void) | undefined;
  /** Ends it. */
  signal?: AbortSignal | undefined;
}

/** Characters that are encoded between two pauses: some hundredths of a second. */
export const PART = 2 ** 15;
/** A text with no place to cut is held until its end. */
export const MOST_HELD = 2 ** 28;

export interface SplitOptions extends TokenizingOptions {
  /** What is validated with: a share of the text, or another text. @default a tenth of it */
  heldBack?: number | TextSource | undefined;
}

/** Errors: HoldfastError where the text cannot be read, or changes while it is; Stopped where `signal` ends it. */
export async function tokenizedText(
  host: Host,
  source: TextSource,
  tokenizer: Tokenizer,
  { heldBack, ...options }: SplitOptions = {},
): Promise<TokenizedText> {
  if (typeof heldBack !== 'object') return splitText(host, source, tokenizer, heldBack, options);
  const total = source.bytes + heldBack.bytes;
  const behind = (bytes: number): TokenizingOptions => ({
    ...options,
    onProgress: (done) => options.onProgress?.(bytes + done, total),
  });
  const text = await splitText(host, source, tokenizer, 0, behind(0));
  const other = await splitText(host, heldBack, tokenizer, 0, behind(source.bytes));
  return { ...text, validation: other.train };
}

async function splitText(
  host: Host,
  source: TextSource,
  tokenizer: Tokenizer,
  validationShare: number | undefined,
  options: TokenizingOptions,
): Promise<TokenizedText> {
  const { tokenBytes } = tokenizer;
  const { lineBytes } = source;
  const stride = lineBytes === undefined || tokenBytes === undefined ? 1 : lineBytes / tokenBytes;
  if (tokenizer.identity.kind === 'byte') return { ...(await asBytes(host, source, validationShare, options)), stride };
  const identity = await identify(host, source, options);
  const border = borderOf(source.bytes, lineBytes, validationShare);
  const cache = await TokenCache.at(host, identity, border, tokenizer);
  const cached = await cache.read();
  if (cached) return { identity, ...cached, stride };
  return { identity, ...(await tokenize(host, source, identity, border, tokenizer, cache, options)), stride };
}

/** Bytes are their own ids. */
async function asBytes(
  host: Host,
  source: TextSource,
  validationShare: number | undefined,
  options: TokenizingOptions,
): Promise<Omit<TokenizedText, 'stride'>> {
  const whole = await wholeText(source.bytes, untilStopped(source.pieces(), options));
  const sum = await host.files.sha256();
  sum.update(whole);
  const identity = { bytes: whole.length, sha256: sum.hex() };
  return { identity, ...split({ bytes: whole, lineBytes: source.lineBytes }, validationShare) };
}

async function identify(host: Host, source: TextSource, options: TokenizingOptions): Promise<TextIdentity> {
  const sum = await host.files.sha256();
  for await (const piece of untilStopped(source.pieces(), options)) sum.update(piece);
  return { bytes: source.bytes, sha256: sum.hex() };
}

async function tokenize(
  host: Host,
  source: TextSource,
  identity: TextIdentity,
  border: number,
  tokenizer: Tokenizer,
  cache: TokenCache,
  options: TokenizingOptions,
): Promise<Pick<TokenizedText, 'train' | 'validation'>> {
  const sum = await host.files.sha256();
  const writer = await cache.writer();
  let done = 0;
  const encoder = await partEncoder(host, tokenizer, source.bytes);
  const pause = (bytes: number) => pauseBetween(bytes, source.bytes, options);
  const parts = { train: new Parts(tokenizer, encoder, pause), validation: new Parts(tokenizer, encoder, pause) };
  try {
    for await (const piece of source.pieces()) {
      sum.update(piece);
      // A character that lies across the border is trained on.
      let at = Math.min(Math.max(border - done, 0), piece.length);
      while (done + at >= border && parts.validation.empty && at < piece.length && ((piece[at] ?? 0) & 0xc0) === 0x80)
        at++;
      await parts.train.add(piece.subarray(0, at), done, writer.train);
      if (at < piece.length) {
        await parts.train.end(writer.train);
        await parts.validation.add(piece.subarray(at), done + at, writer.validation);
      }
      done += piece.length;
    }
    await parts.train.end(writer.train);
    await parts.validation.end(writer.validation);
    if (sum.hex() !== identity.sha256)
      throw new HoldfastError(`the text (${identity.bytes} bytes) was changed while it was read; start again`);
    return await writer.finish();
  } catch (error) {
    await writer.abort();
    throw error;
  } finally {
    await encoder.end();
  }
}

/** Lets messages, timers and signals have their turn. */
export const pauseForOthers = (): Promise<void> => new Promise((resolve) => setTimeout(resolve));

/** Pauses. Errors: Stopped where `signal` is to end what is done, which `what` names. */
export async function pauseUnlessStopped({ signal }: Pick<TokenizingOptions, 'signal'>, what: string): Promise<void> {
  await pauseForOthers();
  if (signal?.aborted) throw new Stopped(`stopped while ${what}, before the first step; start again`);
}

/** The pieces of a text, with a pause before each. Errors: Stopped where it is to end. */
export async function* untilStopped(
  pieces: AsyncIterable<Uint8Array>,
  options: Pick<TokenizingOptions, 'signal'>,
): AsyncGenerator<Uint8Array> {
  for await (const piece of pieces) {
    await pauseUnlessStopped(options, 'the text was read');
    yield piece;
  }
}

/** Says how far tokenizing is, and pauses. Errors: Stopped where it is to end. */
export async function pauseBetween(
  done: number,
  total: number,
  { onProgress, signal }: TokenizingOptions,
): Promise<void> {
  onProgress?.(done, total);
  await pauseUnlessStopped({ signal }, 'the text was tokenized');
}

type Take = (ids: Int32Array) => Promise<void>;

/** A text that comes in bytes, encoded in parts as soon as there is a place to cut, some of them at once. */
class Parts {
  readonly #tokenizer: Tokenizer;
  readonly #encoder: PartEncoder;
  /** With the bytes of the text that are encoded. */
  readonly #pause: (done: number) => Promise<void>;
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  /** In the order of the text; `end`: about so many bytes of it are before the next. */
  readonly #underWay: { readonly ids: Promise<Int32Array>; readonly end: number }[] = [];
  #text = '';
  /** Up to here there is no place to cut behind the first part. */
  #searched = 0;
  /** Where what was added ends. */
  #end = 0;
  #ended = false;
  empty = true;

  constructor(tokenizer: Tokenizer, encoder: PartEncoder, pause: (done: number) => Promise<void>) {
    this.#tokenizer = tokenizer;
    this.#encoder = encoder;
    this.#pause = pause;
  }

  /** `first`: the bytes of the text before these. */
  async add(bytes: Uint8Array, first: number, take: Take): Promise<void> {
    if (bytes.length === 0) return;
    this.empty = false;
    this.#end = first + bytes.length;
    this.#text += this.#decoder.decode(bytes, { stream: true });
    let begin = 0;
    while (this.#text.length - begin > PART) {
      const cut = this.#tokenizer.nextCut?.(this.#text, Math.max(begin + PART, this.#searched));
      if (!cut) break;
      const part = this.#text.slice(begin, cut.end);
      begin = cut.begin;
      await this.#encode(part, first + Math.floor((begin / this.#text.length) * bytes.length), take);
    }
    this.#text = this.#text.slice(begin);
    // What a place is, is seen from the character before it to two behind it.
    this.#searched = Math.max(0, this.#text.length - 4);
    if (this.#text.length > MOST_HELD) {
      throw new HoldfastError(
        `the text has ${this.#text.length} characters in which it cannot be cut for this tokenizer; split it into files of less than ${MOST_HELD}, with spaces or lines`,
      );
    }
  }

  async end(take: Take): Promise<void> {
    if (this.#ended || this.empty) return;
    this.#ended = true;
    await this.#encode(this.#text + this.#decoder.decode(), this.#end, take);
    this.#text = '';
    while (this.#underWay.length > 0) await this.#takeFirst(take);
  }

  async #encode(text: string, end: number, take: Take): Promise<void> {
    const ids = this.#encoder.encode(text);
    // Its rejection is thrown where it is awaited; until then it is no unhandled one.
    ids.catch(() => {});
    this.#underWay.push({ ids, end });
    if (this.#underWay.length >= this.#encoder.atOnce) await this.#takeFirst(take);
  }

  async #takeFirst(take: Take): Promise<void> {
    const first = this.#underWay.shift();
    assert(first, 'a part is under way');
    await take(await first.ids);
    await this.#pause(first.end);
  }
}
