// Records and conversations on a page: what a text holds, how its records are learned from, and the chat template that a
// run writes with: the one it learned by, else its model's. What templates and records are is data/records'.

import type { ChatTemplate } from '../data/records/chat-template.ts';
import { findChatTemplate } from '../data/records/find-template.ts';
import { firstRecord } from '../data/records/lines.ts';
import type { RecordSettings } from '../data/records/read-records.ts';
import { recordShape, type ShapeName } from '../data/records/shapes.ts';
import { findTokenizer, type TokenizerFiles } from '../formats/tokenizer-files.ts';
import type { Files } from '../runtime/host.ts';
import type { RecordChoice, RunRecord, TrainingText } from './protocol.ts';

/** What templates take for today. */
const today = (): string => new Date().toISOString().slice(0, 10);

/** The shape of the records that a text begins with; undefined: it is text. */
export async function recordsIn(text: TrainingText): Promise<ShapeName | undefined> {
  const blob = typeof text === 'string' ? new Blob([text]) : text;
  const readRange = async (offset: number, bytes: number) =>
    new Uint8Array(await blob.slice(offset, offset + bytes).arrayBuffer());
  const files: Pick<Files, 'open' | 'read'> = {
    open: async () => ({ bytes: blob.size, readRange, close: async () => {} }),
    read: () => readRange(0, blob.size),
  };
  const first = await firstRecord(files, 'the text');
  return first && recordShape(first.value);
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
