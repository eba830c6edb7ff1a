// Files of records as documents: each record read, written down by the chat template where it is a conversation, and
// encoded. What holds records is seen from its content. How documents become batches is packing.ts.
//
// Invariant: the same files and options give the same documents in the same order; a record that cannot be used ends the
// reading with its place, and nothing is left out but what has nothing to learn, which is counted. What was read once is kept
// in the host's cache (document-cache.ts).

import type { Host } from '../../runtime/host.ts';
import { HoldfastError, messageOf, shortened } from '../../util/errors.ts';
import { object, oneOf, optional, type Schema } from '../../util/json.ts';
import { filesOf, piecesOf } from '../corpus.ts';
import { type CachedDocuments, type CachedTokenizer, DocumentCache } from '../document-cache.ts';
import { Documents, type DocumentText, type DocumentTokenizer, encodeDocument } from '../documents.ts';
import { PART, pauseBetween, type TextIdentity, type TokenizingOptions } from '../tokenized-text.ts';
import { ChatRenderer, type ChatTemplate, chatTemplateSchema } from './chat-template.ts';
import { type FoundRecord, firstRecord, recordsOf } from './lines.ts';
import { type Example, exampleOf, type ShapeName, shapeAt, shapeOf } from './shapes.ts';
import { TurnFinder } from './turns.ts';

/** What is learned of a document that has answers. */
export const TRAIN_ON = ['answers', 'all'] as const;
/** See TRAIN_ON. */
export type TrainOn = (typeof TRAIN_ON)[number];

/** How records are learned from: part of a run's settings. */
export interface RecordSettings {
  /** The answers alone, with the end of their turns, or every token. Of text, every token is learned. */
  readonly trainOn: TrainOn;
  /** Whether rows hold several documents, which do not see each other. */
  readonly pack: 'yes' | 'no';
  /** How conversations are written down; absent: there is no template. */
  readonly template?: ChatTemplate;
}

export const recordSettings: Schema<RecordSettings> = object({
  trainOn: oneOf(TRAIN_ON),
  pack: oneOf(['yes', 'no']),
  template: optional(chatTemplateSchema),
});

/** Names of files that are records whatever is in them. */
const RECORD_FILE = /\.(jsonl|ndjson)$/i;

/**
 * Whether the sources are files of records: each begins with a record of a known shape. Folders are records where all of
 * their files are. Errors: HoldfastError where some sources are records and some are text.
 */
export async function holdRecords(host: Host, sources: readonly string[]): Promise<boolean> {
  let text: string | undefined;
  let records: string | undefined;
  let isMixedFolder = false;
  for await (const { path, isFound, kind } of filesOf(host.files, sources)) {
    const isRecords = kind === 'file' && ((!isFound && RECORD_FILE.test(path)) || (await beginsWithRecord(host, path)));
    if (isRecords) records ??= path;
    else {
      text ??= path;
      isMixedFolder ||= isFound;
    }
  }
  if (records === undefined || text === undefined) return records !== undefined;
  if (isMixedFolder) return false;
  throw new HoldfastError(
    `the data is records in ${shortened(records)} and text in ${shortened(text)}; train on the one or the other`,
  );
}

async function beginsWithRecord({ files }: Host, path: string): Promise<boolean> {
  const first = await firstRecord(files, path);
  return first !== undefined && shapeOf(first.value) !== undefined;
}

export interface ReadDocuments {
  readonly documents: Documents;
  /** Of all files, joined. */
  readonly identity: TextIdentity;
  readonly names: readonly string[];
  readonly shapes: readonly ShapeName[];
  /** Whether documents longer than a row are pieces of text, or lose their end. */
  readonly longer: 'split' | 'cut';
  /** Records with nothing to learn. */
  readonly leftOut: number;
}

/**
 * All documents of the sources. Errors: HoldfastError naming the file, the line and the field of what cannot be used, and
 * where it is ended.
 */
export async function readDocuments(
  host: Host,
  sources: readonly string[],
  tokenizer: CachedTokenizer,
  settings: Pick<RecordSettings, 'trainOn' | 'template'>,
  options: TokenizingOptions = {},
): Promise<ReadDocuments> {
  const files: RecordFile[] = [];
  for await (const { path, kind, bytes } of filesOf(host.files, sources)) {
    if (kind !== 'file') throw new HoldfastError(`${path}: records are read from files; write them into one`);
    files.push({ path, bytes });
  }
  const identity = await identify(host, files);
  const sizes = files.map(({ bytes }) => bytes);
  const cache = await DocumentCache.at(host, { identity, files: sizes, tokenizer, ...settings });
  const { documents, shapes, leftOut } =
    (await cache.read()) ?? (await encodeRecords(host, files, identity, { tokenizer, settings, cache, options }));
  if (documents.count === 0) {
    const why = leftOut > 0 ? `${leftOut} records with nothing to learn in them` : 'no records';
    throw new HoldfastError(`${shortened(sources.join(', '))}: ${why}; name a file of records`);
  }
  const isText = shapes.length === 1 && shapes[0] === 'text';
  const names = files.map(({ path }) => path);
  return { documents, identity, names, shapes, longer: isText ? 'split' : 'cut', leftOut };
}

interface RecordFile {
  readonly path: string;
  readonly bytes: number;
}

async function identify(host: Host, files: readonly RecordFile[]): Promise<TextIdentity> {
  const sum = await host.files.sha256();
  for (const { path, bytes } of files) for await (const piece of piecesOf(host.files, path, bytes)) sum.update(piece);
  return { bytes: files.reduce((total, { bytes }) => total + bytes, 0), sha256: sum.hex() };
}

/** How records become documents. */
interface Encoding {
  readonly tokenizer: DocumentTokenizer & Pick<CachedTokenizer, 'vocabulary'>;
  readonly settings: Pick<RecordSettings, 'trainOn' | 'template'>;
  readonly cache: DocumentCache;
  readonly options: TokenizingOptions;
}

/** Reads records, and leaves their documents in the cache. */
async function encodeRecords(
  host: Host,
  files: readonly RecordFile[],
  identity: TextIdentity,
  { tokenizer, settings, cache, options }: Encoding,
): Promise<CachedDocuments> {
  const documents = new Documents(tokenizer.vocabulary);
  const writer = new Writer(settings);
  const sum = await host.files.sha256();
  const shapes = new Set<ShapeName>();
  let bytes = 0;
  let leftOut = 0;
  /** Characters since the last pause. */
  let encoded = 0;
  const onBytes = (piece: Uint8Array) => {
    sum.update(piece);
    bytes += piece.length;
  };
  const out = await cache.writer();
  try {
    for (const { path } of files) {
      let shape: ShapeName | undefined;
      for await (const record of recordsOf(host.files, path, { onBytes })) {
        shape ??= shapeAt(record);
        const written = writer.write(record, shape);
        const { ids, learned } = encodeDocument(tokenizer, written);
        if (!documents.add(ids, learned)) leftOut++;
        encoded += written.text.length;
        if (encoded < PART) continue;
        encoded = 0;
        await out.write(documents);
        await pauseBetween(bytes, identity.bytes, options);
      }
      if (shape) shapes.add(shape);
    }
    if (sum.hex() !== identity.sha256)
      throw new HoldfastError(`the records (${identity.bytes} bytes) were changed while they were read; start again`);
    const read = { documents, shapes: [...shapes], leftOut };
    await out.finish(read);
    return read;
  } catch (error) {
    await out.abort();
    throw error;
  }
}

/** Writes records down. */
class Writer {
  readonly #trainOn: TrainOn;
  readonly #renderer: ChatRenderer | undefined;
  readonly #turns: TurnFinder | undefined;

  constructor({ trainOn, template }: Pick<RecordSettings, 'trainOn' | 'template'>) {
    this.#trainOn = trainOn;
    this.#renderer = template && new ChatRenderer(template);
    this.#turns = this.#renderer && new TurnFinder(this.#renderer);
  }

  write(record: FoundRecord, shape: ShapeName): DocumentText {
    const example = exampleOf(record, shape, this.#renderer !== undefined);
    if (example.kind === 'text') return { text: example.text, whole: true };
    if (example.kind === 'conversation') return this.#conversation(example, record.at);
    const { prompt, completion } = example;
    const text = prompt + completion;
    if (this.#trainOn === 'all') return { text, whole: true };
    return { text, learned: [{ begin: prompt.length, end: text.length }], whole: true };
  }

  #conversation(example: Extract<Example, { kind: 'conversation' }>, at: string): DocumentText {
    if (!this.#renderer || !this.#turns) {
      throw new HoldfastError(
        `${at}: a conversation is written down by a chat template, and the model has none; name one (chatml comes along)`,
      );
    }
    try {
      const { messages, tools } = example;
      if (this.#trainOn === 'all') return { text: this.#renderer.render(messages, { tools }) };
      const { text, answers } = this.#turns.render(example);
      return { text, learned: answers };
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      throw new HoldfastError(`${at}: ${messageOf(error)}`);
    }
  }
}
