// Files of records made into texts once: tokens with their marks, where each text ends, and for some a number of each text, kept
// in the host's cache by the checksum and the lengths of the files and by all that decides what becomes of them. What that is,
// and how a record is encoded, is for records/read-records.ts and labelled-texts.ts; what a file of the cache is, and when it counts,
// token-files.ts.
//
// Invariant: what is read from the cache is what reading the records again would give, and nothing is kept of a reading that
// failed, was ended, or found other bytes than before.

import type { Host } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';
import { number, type Schema } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import { piecesOf, type TextIdentity } from './corpus.ts';
import { type Encoder, type EncodingTokenizer, encoderFor } from './encoding-threads.ts';
import { MarkedTexts } from './marked-texts.ts';
import { type RecordFile, recordFilesOf } from './records/lines.ts';
import { PART } from './text-parts.ts';
import { TokenFile, type TokenFileWriter } from './token-files.ts';
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
  /** A number for each text, or none at all. */
  readonly numbers: Uint32Array | readonly number[];
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
    texts: MarkedTexts,
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
  const content = [identity, files.map(({ bytes }) => bytes), encoding.deciders];
  const file = await TokenFile.at(host, encoding.format, content, encoding.figures);
  const read =
    (await cached(file, encoding.tokenizer.vocabulary)) ??
    (await encode(host, files, identity, file, encoding, options));
  return { ...read, identity, names: files.map(({ path }) => path) };
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

/** Undefined where there are none, or none that are whole. */
async function cached<F>(file: TokenFile<F & PartSizes>, vocabulary: number): Promise<RecordTexts<F> | undefined> {
  const found = await file.read();
  if (!found?.bytes) return undefined;
  const { bytes, figures } = found;
  const { tokenBytes, count } = figures;
  if (tokenBytes > bytes.length || (bytes.length - tokenBytes) % 4 > 0) return undefined;
  const behind = new Uint32Array(bytes.slice(tokenBytes).buffer);
  const texts = MarkedTexts.from(vocabulary, bytes.subarray(0, tokenBytes), behind.subarray(0, count));
  return texts && { texts, numbers: behind.subarray(count), figures };
}

async function encode<F>(
  host: Host,
  files: readonly RecordFile[],
  identity: TextIdentity,
  file: TokenFile<F & PartSizes>,
  { tokenizer, encode }: RecordEncoding<F>,
  options: TokenizingOptions,
): Promise<RecordTexts<F>> {
  const texts = new MarkedTexts(tokenizer.vocabulary);
  const sum = await host.files.sha256();
  let bytes = 0;
  /** Since the last pause. */
  let characters = 0;
  const out = new TextWriter(texts, await file.writer());
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
      await out.write();
      await pauseBetween(bytes, identity.bytes, options);
    },
  };
  try {
    const read = await encode(files, texts, tools);
    if (sum.hex() !== identity.sha256)
      throw new HoldfastError(`the records (${identity.bytes} bytes) were changed while they were read; start again`);
    await out.finish(read);
    return { texts, ...read };
  } catch (error) {
    await out.abort();
    throw error;
  } finally {
    await encoder.end();
  }
}

/** Writes texts into the cache while they become more. It ends with one `finish` or one `abort`. */
class TextWriter<F> {
  readonly #texts: MarkedTexts;
  readonly #out: TokenFileWriter<F & PartSizes>;
  #tokens = 0;
  #tokenBytes = 0;

  constructor(texts: MarkedTexts, out: TokenFileWriter<F & PartSizes>) {
    this.#texts = texts;
    this.#out = out;
  }

  /** The texts that were added since. */
  async write(): Promise<void> {
    const bytes = this.#texts.tokenBytes(this.#tokens);
    this.#tokens = this.#texts.tokens;
    this.#tokenBytes += bytes.length;
    await this.#out.write(bytes);
  }

  async finish({ numbers, figures }: Omit<RecordTexts<F>, 'texts'>): Promise<void> {
    await this.write();
    await this.#out.write(this.#texts.endBytes());
    await this.#out.write(new Uint8Array(Uint32Array.from(numbers).buffer));
    await this.#out.finish({ ...figures, tokenBytes: this.#tokenBytes, count: this.#texts.count });
  }

  abort(): Promise<void> {
    return this.#out.abort();
  }
}
