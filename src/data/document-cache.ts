// The cached documents of records that were read before: their tokens, each with whether it is learned, and where each
// document ends, by the checksum and the lengths of the files, the tokenizer, the template and what is learned. What a file
// of the cache is, and when it counts, is token-files.ts.
//
// Invariant: what is read is what reading the records again would give.

import type { Host } from '../runtime/host.ts';
import { list, number, object, oneOf } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import { Documents, type DocumentTokenizer } from './documents.ts';
import type { ChatTemplate } from './records/chat-template.ts';
import { SHAPE_NAMES, type ShapeName } from './records/shapes.ts';
import { TokenFile, type TokenFileWriter } from './token-files.ts';
import type { TextIdentity } from './tokenized-text.ts';
import type { Tokenizer } from './tokenizer.ts';

/** The number goes up where the same records become other documents than before. */
const FORMAT = 'holdfast documents 1';

interface Figures {
  /** Of the part with the tokens. */
  readonly tokenBytes: number;
  readonly leftOut: number;
  readonly shapes: readonly ShapeName[];
}

const FIGURES = object({
  tokenBytes: number(wholeNumber(0)),
  leftOut: number(wholeNumber(0)),
  shapes: list(oneOf(SHAPE_NAMES)),
});

/** What documents are encoded with, and known by. */
export type CachedTokenizer = DocumentTokenizer & Pick<Tokenizer, 'identity' | 'vocabulary'>;

/** All that decides what records become. */
export interface DocumentSources {
  /** Of all files, joined. */
  readonly identity: TextIdentity;
  /** The bytes of each. */
  readonly files: readonly number[];
  readonly tokenizer: CachedTokenizer;
  readonly trainOn: string;
  readonly template?: ChatTemplate | undefined;
}

/** What records became. */
export interface CachedDocuments {
  readonly documents: Documents;
  readonly shapes: readonly ShapeName[];
  /** Records with nothing to learn. */
  readonly leftOut: number;
}

export class DocumentCache {
  readonly #file: TokenFile<Figures>;
  readonly #vocabulary: number;

  static async at(
    host: Host,
    { identity, files, tokenizer, trainOn, template }: DocumentSources,
  ): Promise<DocumentCache> {
    const { specials, addsBos } = tokenizer;
    const encoding = [{ ...tokenizer.identity, path: '' }, specials, addsBos];
    // The name of a template is for messages.
    const content = [identity, files, encoding, trainOn, template && { ...template, name: '' }];
    return new DocumentCache(await TokenFile.at(host, FORMAT, content, FIGURES), tokenizer.vocabulary);
  }

  private constructor(file: TokenFile<Figures>, vocabulary: number) {
    this.#file = file;
    this.#vocabulary = vocabulary;
  }

  /** Undefined where there are none, or none that are whole. */
  async read(): Promise<CachedDocuments | undefined> {
    const found = await this.#file.read();
    if (!found) return undefined;
    const { bytes, figures } = found;
    const { tokenBytes, leftOut, shapes } = figures;
    if (tokenBytes > bytes.length || (bytes.length - tokenBytes) % 4 > 0) return undefined;
    const ends = new Uint32Array(bytes.slice(tokenBytes).buffer);
    const documents = Documents.from(this.#vocabulary, bytes.subarray(0, tokenBytes), ends);
    return documents && { documents, shapes, leftOut };
  }

  async writer(): Promise<DocumentWriter> {
    return new DocumentWriter(await this.#file.writer());
  }
}

/** Writes documents into the cache while they become more. It ends with one `finish` or one `abort`. */
export class DocumentWriter {
  readonly #out: TokenFileWriter<Figures>;
  #tokens = 0;
  #tokenBytes = 0;

  constructor(out: TokenFileWriter<Figures>) {
    this.#out = out;
  }

  /** The documents that were added since. */
  async write(documents: Documents): Promise<void> {
    const bytes = documents.tokenBytes(this.#tokens);
    this.#tokens = documents.tokens;
    this.#tokenBytes += bytes.length;
    await this.#out.write(bytes);
  }

  async finish({ documents, shapes, leftOut }: CachedDocuments): Promise<void> {
    await this.write(documents);
    await this.#out.write(documents.endBytes());
    await this.#out.finish({ tokenBytes: this.#tokenBytes, leftOut, shapes });
  }

  abort(): Promise<void> {
    return this.#out.abort();
  }
}
