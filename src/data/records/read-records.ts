// Files of records as documents: each record read, written down by the chat template where it is a conversation, and
// encoded. Which files hold records is record-files.ts, how documents become batches packing.ts.
//
// Invariant: the same files and options give the same documents in the same order; a record that cannot be used ends the
// reading with its place, and nothing is left out but what has nothing to learn, which is counted. What was read once is kept
// in the host's cache (record-cache.ts).

import type { Host } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { counted } from '../../util/counted.ts';
import { HoldfastError, messageOf, shortened } from '../../util/errors.ts';
import { list, number, object, oneOf, optional, type Schema } from '../../util/json.ts';
import { wholeNumber } from '../../util/range.ts';
import { Bundles } from '../bundles.ts';
import type { TextIdentity } from '../corpus.ts';
import { Documents, type DocumentText, DocumentWriter } from '../documents.ts';
import { EncodingQueue, type EncodingTokenizer } from '../encoding-threads.ts';
import { PART_SIZES, type RecordEncoding, readRecords } from '../record-cache.ts';
import type { TokenizingOptions } from '../tokenized-text.ts';
import type { Tokenizer } from '../tokenizer.ts';
import { ChatRenderer, type ChatTemplate, chatTemplateSchema } from './chat-template.ts';
import { type FoundRecord, recordsOf } from './lines.ts';
import { type Example, exampleOf, SHAPE_NAMES, type ShapeName, shapeAt, unlearnedIn } from './shapes.ts';
import { checkToolCalls, checkTools } from './tool-calls.ts';
import { type Span, TurnFinder } from './turns.ts';

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

export const recordSettingsSchema: Schema<RecordSettings> = object({
  trainOn: oneOf(TRAIN_ON),
  pack: oneOf(['yes', 'no']),
  template: optional(chatTemplateSchema),
});

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

/** The number goes up where the same records become other documents than before. */
const FORMAT = 'holdfast documents 6';

type Figures = Pick<ReadDocuments, 'shapes' | 'leftOut'>;

const FIGURES = object({ ...PART_SIZES, shapes: list(oneOf(SHAPE_NAMES)), leftOut: number(wholeNumber(0)) });

/** What documents are encoded with, and known by. */
export type CachedTokenizer = EncodingTokenizer & Pick<Tokenizer, 'identity' | 'vocabulary'>;

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
  const encoding = {
    ...{ sources, format: FORMAT, deciders: decidersOf(tokenizer, settings), figures: FIGURES, tokenizer },
    encode: encoderOf(host, settings),
  };
  const { texts, numbers, figures, identity, names } = await readRecords<Figures>(host, encoding, options);
  const { shapes, leftOut } = figures;
  if (texts.count === 0) {
    const why = leftOut > 0 ? `${counted(leftOut, 'record')} with nothing to learn` : 'no records';
    throw new HoldfastError(`${shortened(sources.join(', '))}: ${why}; name a file of records`);
  }
  const isText = shapes.length === 1 && shapes[0] === 'text';
  const documents = new Documents(texts, numbers);
  return { documents, identity, names, shapes, longer: isText ? 'split' : 'cut', leftOut };
}

function decidersOf(tokenizer: CachedTokenizer, { trainOn, template }: Pick<RecordSettings, 'trainOn' | 'template'>) {
  const { identity, specials, addsBos } = tokenizer;
  // The name of a template is for messages.
  return [{ ...identity, path: '' }, specials, addsBos, trainOn, template && { ...template, name: '' }];
}

const encoderOf =
  (host: Host, settings: Pick<RecordSettings, 'trainOn' | 'template'>): RecordEncoding<Figures>['encode'] =>
  async (files, texts, { encoder, onBytes, onEncoded }) => {
    const documents = new DocumentWriter(texts);
    const writer = new Writer(settings);
    const shapes = new Set<ShapeName>();
    let leftOut = 0;
    const queue = new EncodingQueue<number>(encoder, async ({ ids, learned }, characters) => {
      for (const [i, document] of ids.entries()) if (!documents.add(document, at(learned, i))) leftOut++;
      await onEncoded(characters);
    });
    const bundles = new Bundles<DocumentText>((documents, characters) => queue.add({ documents }, characters));
    for (const { path } of files) {
      let shape: ShapeName | undefined;
      for await (const record of recordsOf(host.files, path, { onBytes })) {
        shape ??= shapeAt(record);
        const written = writer.write(record, shape);
        await bundles.add(written, written.text.length);
      }
      if (shape) shapes.add(shape);
    }
    await bundles.end();
    await queue.end();
    return { numbers: documents.firsts, figures: { shapes: [...shapes], leftOut } };
  };

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
      const { messages, tools, variables } = example;
      const input = { tools, variables };
      checkTools(this.#renderer, messages, input);
      checkToolCalls(this.#renderer, messages, input);
      const unlearned = unlearnedIn(example);
      if (this.#trainOn === 'all') {
        if (unlearned.length === 0) return { text: this.#renderer.render(messages, input) };
        const { text, answers } = this.#turns.render(example, unlearned);
        return { text, learned: between(answers, text.length) };
      }
      const { text, answers } = this.#turns.render(example);
      return { text, learned: answers };
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      throw new HoldfastError(`${at}: ${messageOf(error)}`);
    }
  }
}

/** What is left of a text without some spans of it. */
function between(spans: readonly Span[], length: number): Span[] {
  const begins = [0, ...spans.map(({ end }) => end)];
  const ends = [...spans.map(({ begin }) => begin), length];
  return begins.map((begin, i) => ({ begin, end: ends[i] ?? length }));
}
