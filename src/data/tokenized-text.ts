// A text as token ids: nine tenths of its bytes to train on (or another share, or all beside a second text), the rest to validate
// with, each tokenized by itself. It is read piece by piece and cut where the tokenizer says that it is safe, with pauses in which
// other work is done, and a large one is encoded by threads (encoding-threads.ts): neither text nor ids are ever in memory twice.
// What was tokenized once is kept in the host's cache (token-cache.ts), and where there is much of it, read from there.
//
// Invariant: the ids are those of each part tokenized as a whole.

import type { Host } from '../runtime/host.ts';
import { HoldfastError, Stopped } from '../util/errors.ts';
import { borderOf, split, type TextIdentity, type TextSource, wholeText } from './corpus.ts';
import { encoderFor } from './encoding-threads.ts';
import { ByteParts, EncodedParts, type Take } from './text-parts.ts';
import { TokenCache, type TokenParts } from './token-cache.ts';
import { heldOrKept, MOST_HELD } from './token-files.ts';
import { heldRun, type TokenRun } from './token-run.ts';
import type { Tokenizer } from './tokenizer.ts';

export interface TokenizedText {
  readonly identity: TextIdentity;
  readonly train: TokenRun;
  readonly validation: TokenRun;
  /** Windows begin at multiples of it. */
  readonly stride: number;
}

export interface TokenizingOptions {
  /** Called while it goes on, with bytes of the text. */
  onProgress?: ((done: number, total: number) => void) | undefined;
  /** Ends it. */
  signal?: AbortSignal | undefined;
  /** Bytes of tokens that are held in memory; more are read from the cache, if that can be written. @default 64 MiB */
  mostHeld?: number | undefined;
}

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
  const isOfBytes = tokenizer.identity.kind === 'byte';
  const { mostHeld = MOST_HELD } = options;
  if (isOfBytes && source.bytes <= mostHeld)
    return { ...(await asBytes(host, source, validationShare, options)), stride };
  const identity = await identify(host, source, options);
  const border = borderOf(source.bytes, lineBytes, validationShare);
  const tokenized = async (mostHeld: number) => {
    const cache = await TokenCache.at(host, identity, border, tokenizer, mostHeld);
    return (await cache.read()) ?? tokenize(host, source, { identity, border, tokenizer, cache }, options);
  };
  return { identity, ...(await heldOrKept(tokenized, mostHeld)), stride };
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
  const { train, validation } = split({ bytes: whole, lineBytes: source.lineBytes }, validationShare);
  return { identity, train: heldRun(train), validation: heldRun(validation) };
}

async function identify(host: Host, source: TextSource, options: TokenizingOptions): Promise<TextIdentity> {
  const sum = await host.files.sha256();
  for await (const piece of untilStopped(source.pieces(), options)) sum.update(piece);
  return { bytes: source.bytes, sha256: sum.hex() };
}

/** What is to be tokenized, and where its ids go. */
interface Tokenizing {
  readonly identity: TextIdentity;
  /** Bytes that train. */
  readonly border: number;
  readonly tokenizer: Tokenizer;
  readonly cache: TokenCache;
}

async function tokenize(
  host: Host,
  source: TextSource,
  { identity, border, tokenizer, cache }: Tokenizing,
  options: TokenizingOptions,
): Promise<TokenParts> {
  const sum = await host.files.sha256();
  const writer = await cache.writer();
  let done = 0;
  const isOfBytes = tokenizer.identity.kind === 'byte';
  const encoder = await encoderFor(host, tokenizer, source.bytes);
  const pause = (bytes: number) => pauseBetween(bytes, source.bytes, options);
  const part = (take: Take) =>
    isOfBytes ? new ByteParts(take, pause) : new EncodedParts({ tokenizer, encoder, take, pause });
  const parts = { train: part(writer.train), validation: part(writer.validation) };
  try {
    for await (const piece of source.pieces()) {
      sum.update(piece);
      let at = Math.min(Math.max(border - done, 0), piece.length);
      // A character that lies across the border is trained on.
      const isInside = () => !isOfBytes && done + at >= border && parts.validation.empty && at < piece.length;
      while (isInside() && ((piece[at] ?? 0) & 0xc0) === 0x80) at++;
      await parts.train.add(piece.subarray(0, at), done);
      if (at < piece.length) {
        await parts.train.end();
        await parts.validation.add(piece.subarray(at), done + at);
      }
      done += piece.length;
    }
    await parts.train.end();
    await parts.validation.end();
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
