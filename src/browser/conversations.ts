// Records and conversations on a page: what a text holds, how its records are learned from, and the chat template that a
// run writes with: the one it learned by, else its model's. What templates and records are is data/records'.

import { type TextSource, textIn } from '../data/corpus.ts';
import type { ChatTemplate } from '../data/records/chat-template.ts';
import { recordContents } from '../data/records/contents.ts';
import { RECORDS } from '../data/records/file-names.ts';
import { findChatTemplate } from '../data/records/find-template.ts';
import { firstRecord } from '../data/records/lines.ts';
import type { RecordSettings } from '../data/records/read-records.ts';
import { recordShape, type ShapeName } from '../data/records/shapes.ts';
import type { CountedTexts } from '../data/train-bpe.ts';
import { findTokenizer, type TokenizerFiles } from '../formats/tokenizer-files.ts';
import type { Files } from '../runtime/host.ts';
import type { RecordChoice, RunRecord, TrainingText } from './protocol.ts';

/** What templates take for today. */
const today = (): string => new Date().toISOString().slice(0, 10);

/** The path of a text that is in no file. */
const THE_TEXT = 'the text';

const blobOf = (text: TrainingText): Blob => (typeof text === 'string' ? new Blob([text]) : text);

/** A text as the one file there is. */
function fileOf(text: TrainingText): Pick<Files, 'open' | 'read'> {
  const blob = blobOf(text);
  const readRange = async (offset: number, bytes: number) =>
    new Uint8Array(await blob.slice(offset, offset + bytes).arrayBuffer());
  return {
    open: async () => ({ bytes: blob.size, readRange, close: async () => {} }),
    read: () => readRange(0, blob.size),
  };
}

/** The shape of the records that a text begins with; undefined: it is text. */
export async function recordsIn(text: TrainingText): Promise<ShapeName | undefined> {
  const first = await firstRecord(fileOf(text), THE_TEXT);
  return first && recordShape(first.value);
}

/** What a tokenizer is made of: a text, or what its records say. Errors: HoldfastError for an empty one. */
export async function countedIn(text: TrainingText): Promise<TextSource | CountedTexts> {
  const isOfRecords = (text instanceof File && RECORDS.test(text.name)) || (await recordsIn(text)) !== undefined;
  return isOfRecords ? recordContents(fileOf(text), [{ path: THE_TEXT, bytes: blobOf(text).size }]) : textIn(text);
}

/** The choice, as a run's settings have it. */
export async function recordSettings(
  files: Files,
  { trainOn = 'answers', pack = 'yes', template: name }: RecordChoice,
  tokenizer: TokenizerFiles | undefined,
  model: string | undefined,
): Promise<RecordSettings> {
  const template = await findChatTemplate(files, { name, tokenizer, model, date: today() });
  return { trainOn, pack, ...(template && { template }) };
}

/** The template of a run, or of a model that is kept in `folder`. */
export async function templateOf(
  files: Files,
  { settings }: RunRecord,
  folder: string,
): Promise<ChatTemplate | undefined> {
  if (settings?.records?.template) return settings.records.template;
  const { tokenizer: named } = settings ?? {};
  const tokenizer =
    named?.kind === 'huggingface' ? await findTokenizer(files, named.path).catch(() => undefined) : undefined;
  const model = settings ? settings.from : folder;
  // It may have been removed since.
  const isThere = model !== undefined && (await files.stat(model)) !== undefined;
  return findChatTemplate(files, { tokenizer, model: isThere ? model : undefined, date: today() });
}
