// Files of records made into texts once: tokens with their marks, where each text ends, and a number of each text, kept
// in the host's cache by the checksum and the lengths of the files and by all that decides what becomes of them. What that is,
// and how a record is encoded, is for records/read-records.ts and labelled-texts.ts; what a file of the cache is, and when it counts,
// token-files.ts.
//
// Invariant: what is read from the cache is what reading the records again would give, and nothing is kept of a reading that
// failed, was ended, or found other bytes than before.

import type { Host } from '../runtime/host.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { number, type Schema } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import { piecesOf, type TextIdentity } from './corpus.ts';
import { type Encoder, type EncodingTokenizer, encoderFor } from './encoding-threads.ts';
import { MarkedTexts, MarkedTextsWriter, markedBytes } from './marked-texts.ts';
import { isPacked } from './records/gzip.ts';
import { type RecordFile, recordFilesOf } from './records/record-files.ts';
import { PART } from './text-parts.ts';
import { type CachedBytes, heldOrKept, TokenFile } from './token-files.ts';
import { cachedRun } from './token-run.ts';
import { pauseBetween, type TokenizingOptions, untilStopped } from './tokenized-text.ts';
import type { Tokenizer } from './tokenizer.ts';

/** How a file of the cache is divided. */
interface PartSizes {
  /** Of the part with the tokens. */
  readonly tokenBytes: number;
  /** Texts: behind the tokens lie the end of each, and the number of each. */
  readonly count: number;
}

/** Fields of a schema. */
export const PART_SIZES = { tokenBytes: number(wholeNumber(0)), count: number(wholeNumber(0)) };

/** What records became. */
export interface RecordTexts<F> {
  readonly texts: MarkedTexts;
  /** A number for each text. */
  readonly numbers: ArrayLike<number>;
  /** Of all texts. */
  readonly figures: F;
}

/** What encodes, and what is told how far it is. */
export interface EncodingTools {
  /** Of all records. */
  readonly encoder: Encoder;
  /** The bytes of all files, in order, as they are read. */
  readonly onBytes: (bytes: Uint8Array) => void;
  /** So many characters more are encoded: the records up to here are among the texts. */
  readonly onEncoded: (characters: number) => Promise<void>;
}

/** How records become texts, and all that decides it. */
export interface RecordEncoding<F> {
  readonly sources: readonly string[];
  /** Has a number, which goes up where the same records become other texts than before. */
  readonly format: string;
  /** What decides beside the files, as plain JSON. */
  readonly deciders: unknown;
  /** Of the figures, with PART_SIZES. */
  readonly figures: Schema<F & PartSizes>;
  readonly tokenizer: EncodingTokenizer & Pick<Tokenizer, 'vocabulary'>;
  /** Adds all records to the texts. */
  readonly encode: (
    files: readonly RecordFile[],
    texts: MarkedTextsWriter,
    tools: EncodingTools,
  ) => Promise<Omit<RecordTexts<F>, 'texts'>>;
}

/** What records became, and what they are known by. */
export interface ReadRecords<F> extends RecordTexts<F> {
  /** Of all files, joined. */
  readonly identity: TextIdentity;
  readonly names: readonly string[];
}

/**
 * The texts of records, from the cache or encoded and left there. Errors: HoldfastError for sources that are no files, for
 * files that change while they are read, and where it is ended; and those of `encode`.
 */
export async function readRecords<F>(
  host: Host,
  encoding: RecordEncoding<F>,
  options: TokenizingOptions,
): Promise<ReadRecords<F>> {
  const files: RecordFile[] = [];
  for await (const file of recordFilesOf(host.files, encoding.sources)) files.push(file);
  const identity = await identify(host, files, options);
  const packed = files.map(({ path }) => isPacked(path));
  const content = [
    identity,
    files.map(({ bytes }) => bytes),
    encoding.deciders,
    ...(packed.includes(true) ? [packed] : []),
  ];
  const file = await TokenFile.at(host, encoding.format, content, encoding.figures);
  const read = async (mostHeld: number) => {
    const known = await file.read(mostHeld);
    // Its disk may have gone meanwhile.
    const found = known && (await textsIn(known, encoding.tokenizer.vocabulary).catch(() => undefined));
    return found ?? encode(host, files, { identity, file, mostHeld }, encoding, options);
  };
  return { ...(await heldOrKept(read, options.mostHeld)), identity, names: files.map(({ path }) => path) };
}

async function identify(
  { files }: Host,
  found: readonly RecordFile[],
  options: TokenizingOptions,
): Promise<TextIdentity> {
  const sum = await files.sha256();
  for (const { path, bytes } of found)
    for await (const piece of untilStopped(piecesOf(files, path, bytes), options)) sum.update(piece);
  return { bytes: found.reduce((total, { bytes }) => total + bytes, 0), sha256: sum.hex() };
}

/** What lies in the cache; undefined where it cannot be texts of that vocabulary. */
async function textsIn<F>(cached: CachedBytes<F & PartSizes>, vocabulary: number): Promise<RecordTexts<F> | undefined> {
  const { figures, size, at } = cached;
  const { tokenBytes, count } = figures;
  const width = markedBytes(vocabulary);
  if (tokenBytes % width > 0 || size - tokenBytes !== 2 * 4 * count) return undefined;
  const behind = 'held' in at ? at.held.slice(tokenBytes) : await at.file.readRange(tokenBytes, size - tokenBytes);
  const [ends, numbers] = [new Uint32Array(behind.buffer, 0, count), new Uint32Array(behind.buffer, 4 * count, count)];
  const texts = MarkedTexts.of(cachedRun(cached, width, 0, tokenBytes / width), ends);
  return texts && { texts, numbers, figures };
}

/** Records that are to be encoded, and where what they become goes. */
interface Encoding<F> {
  readonly identity: TextIdentity;
  readonly file: TokenFile<F & PartSizes>;
  readonly mostHeld: number;
}

async function encode<F>(
  host: Host,
  files: readonly RecordFile[],
  { identity, file, mostHeld }: Encoding<F>,
  { tokenizer, encode }: RecordEncoding<F>,
  options: TokenizingOptions,
): Promise<RecordTexts<F>> {
  const texts = new MarkedTextsWriter(tokenizer.vocabulary);
  const sum = await host.files.sha256();
  let bytes = 0;
  /** Since the last pause. */
  let characters = 0;
  const out = await file.writer(mostHeld);
  const encoder = await encoderFor(host, tokenizer, identity.bytes);
  const tools: EncodingTools = {
    encoder,
    onBytes: (piece) => {
      sum.update(piece);
      bytes += piece.length;
    },
    onEncoded: async (more) => {
      characters += more;
      if (characters < PART) return;
      characters = 0;
      await out.write(texts.take());
      await pauseBetween(bytes, identity.bytes, options);
    },
  };
  try {
    const { numbers, figures } = await encode(files, texts, tools);
    if (sum.hex() !== identity.sha256)
      throw new HoldfastError(`the records (${identity.bytes} bytes) were changed while they were read; start again`);
    const { count, tokens, width } = texts;
    for (const part of [texts.take(), texts.ends(), Uint32Array.from(numbers)])
      await out.write(new Uint8Array(part.buffer));
    const written = await out.finish({ ...figures, tokenBytes: tokens * width, count });
    const made = await textsIn(written, tokenizer.vocabulary);
    assert(made, 'what was written are texts');
    return made;
  } catch (error) {
    await out.abort();
    throw error;
  } finally {
    await encoder.end();
  }
}
