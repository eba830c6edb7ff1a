// The record of a run that is about to train: of what a page asked for, or of how it was left. The text and the tokenizer that
// came along are kept in the run's folder, and the settings name them. Nothing is started here.

import { identityOf, tokenizerOf } from '../data/tokenizer.ts';
import { loadTokenizer } from '../formats/checkpoint.ts';
import { labelsIn, shapeOf } from '../formats/families/index.ts';
import type { TokenizerFiles } from '../formats/tokenizer-files.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { checkSettings } from '../train/check-settings.ts';
import { type RunSettings, readSettings } from '../train/run-settings.ts';
import { HoldfastError } from '../util/errors.ts';
import { withClasses } from './class-settings.ts';
import { recordSettings } from './conversations.ts';
import type { MemorySettings, NewRun, RunRecord, TrainingText } from './protocol.ts';
import { readMemory } from './record.ts';
import { keepImages, keepText, keepTokenizer } from './run-files.ts';
import { nameOf } from './runs.ts';

/** What may be another when a run is gone on with. */
export interface ResumeOptions {
  /** @default as before */
  readonly memory?: MemorySettings;
  /** Of the whole run. @default as before */
  readonly steps?: number;
  /** What it trains on, where it was imported and has a text of its own. @default as before */
  readonly text?: TrainingText;
}

/** Of a new run, whose folder this is. Errors: HoldfastError for settings that make no run, and for a tokenizer of another vocabulary. */
export async function newRecord(
  host: BrowserHost,
  id: string,
  folder: string,
  { settings: given, name, memory: limits = {}, text, images, tokenizer, records }: NewRun,
): Promise<RunRecord> {
  const [asked, memory] = [readSettings(given), readMemory(limits)];
  checkSettings(asked);
  let { data } = asked;
  if (text !== undefined) data = [await keepText(host, folder, text)];
  if (images) data = [await keepImages(host, folder, images)];
  const settings = await withClasses(host, { ...asked, data });
  const found = await tokenizerFilesOf(host, folder, settings, tokenizer);
  return {
    id,
    name: name ?? nameOf(settings),
    created: Date.now(),
    settings: {
      ...settings,
      ...(found && { tokenizer: identityOf(found) }),
      ...(records &&
        !labelsIn(settings.config) && { records: await recordSettings(host.files, records, found, settings.from) }),
    },
    memory,
    status: 'running',
    savedStep: 0,
  };
}

/** Of a run that goes on, whose folder this is. Errors: HoldfastError for one that has weights alone. */
export async function resumedRecord(
  host: BrowserHost,
  folder: string,
  { error: _, ...record }: RunRecord,
  { memory, steps, text }: ResumeOptions,
): Promise<RunRecord & { readonly settings: RunSettings }> {
  if (!record.settings) {
    throw new HoldfastError(`run ${record.id} has weights alone; start a new run from them (settings.from)`);
  }
  const data = text === undefined ? record.settings.data : [await keepText(host, folder, text)];
  return {
    ...record,
    settings: readSettings({ ...record.settings, data, steps: steps ?? record.settings.steps }),
    memory: readMemory(memory ?? record.memory),
    status: 'running',
  };
}

/** The one that was given, which is kept with the run; else that of the weights, unless the model is one of bytes. */
async function tokenizerFilesOf(
  host: BrowserHost,
  folder: string,
  { from, config }: RunSettings,
  given: NewRun['tokenizer'],
): Promise<TokenizerFiles | undefined> {
  const { vocabulary } = shapeOf(config);
  let found: TokenizerFiles | undefined;
  if (given) found = await keepTokenizer(host, folder, given);
  else if (from !== undefined && vocabulary !== 256) found = await loadTokenizer(host.files, from);
  if (found) await tokenizerOf(undefined, found, vocabulary, 'the model');
  return found;
}
