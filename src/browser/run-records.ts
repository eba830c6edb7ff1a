// The record of a run that is about to train: of what a page asked for, or of how it was left. The text and the tokenizer that
// came along are kept in the run's folder, and the settings name them. Nothing is started here.

import type { TextIdentity } from '../data/corpus.ts';
import { tokenizerOf } from '../data/open-tokenizer.ts';
import { isSynthetic } from '../data/synthetic.ts';
import { identityOf, isOfBytes } from '../data/tokenizer.ts';
import { sumOf } from '../formats/checkpoint/checksums.ts';
import { checkpointsOf, loadTokenizer } from '../formats/checkpoint.ts';
import { labelsIn, shapeOf } from '../formats/families/index.ts';
import type { TokenizerFiles } from '../formats/tokenizer-files.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { join } from '../runtime/host.ts';
import { checkSettings, checkStepsDone } from '../train/run/check-settings.ts';
import { readExamples } from '../train/run/class-data.ts';
import { hasMarkedWindows, type RunSettings, readSettings } from '../train/run/run-settings.ts';
import { savedState } from '../train/run/saved-state.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { withClasses } from './class-settings.ts';
import { recordSettings } from './conversations.ts';
import type { ChosenFile, MemorySettings, NewRun, RunRecord, TrainingText } from './protocol.ts';
import { readMemory } from './record.ts';
import { IMAGES, keepImages, keepText, keepTokenizer, TEXT } from './run-files.ts';
import { defaultRunName } from './runs.ts';

/** What may be another when a run is gone on with. */
export interface ResumeOptions {
  /** @default as before */
  readonly memory?: MemorySettings;
  /** Of the whole run. @default as before */
  readonly steps?: number;
  /** What it trains on, where it was imported and has a text of its own. @default as before */
  readonly text?: TrainingText;
  /** The images that it trains on, where it was imported and has some of its own: see `NewRun.images`. @default as before */
  readonly images?: readonly ChosenFile[];
}

/** Whether what a run learns from is in this browser: of one that was imported it may be elsewhere. */
export async function hasData({ files }: BrowserHost, { settings }: Pick<RunRecord, 'settings'>): Promise<boolean> {
  const { data = [] } = settings ?? {};
  if (isSynthetic(data)) return true;
  // Of another machine's path it may be that no file here could have such a name.
  const stat = async (path: string) => (await files.stat(path)) ?? (await files.stat(asideOf(path)));
  const found = await Promise.all(data.map((path) => stat(path).catch(() => undefined)));
  return !found.includes(undefined);
}

/**
 * The record of a new run in `folder`. Errors: HoldfastError for settings that make no run, and for a tokenizer of
 * another vocabulary.
 */
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
  const named = found && identityOf(found);
  return {
    id,
    name: name ?? defaultRunName(settings),
    created: Date.now(),
    settings: {
      ...settings,
      ...(named && { tokenizer: named }),
      ...(named && hasMarkedWindows(settings.config, named) && { markedWindows: asked.markedWindows ?? true }),
      ...(records &&
        !labelsIn(settings.config) && { records: await recordSettings(host.files, records, found, settings.from) }),
    },
    memory,
    status: 'running',
    savedStep: 0,
  };
}

/**
 * Of a run that goes on, whose folder this is. Errors: HoldfastError for one that has weights alone, for fewer steps than it has,
 * and where its text or images are not here, or are others than it learned from.
 */
export async function resumedRecord(
  host: BrowserHost,
  folder: string,
  { error: _, ...record }: RunRecord,
  { memory, steps, text, images }: ResumeOptions,
): Promise<RunRecord & { readonly settings: RunSettings }> {
  if (!record.settings) {
    throw new HoldfastError(`run ${record.id} has weights alone; start a new run from them (settings.from)`);
  }
  checkStepsDone({ ...record.settings, ...(steps !== undefined && { steps }) }, record.savedStep, `“${record.name}”`);
  await takeBackData(host, folder);
  let { data } = record.settings;
  if (text !== undefined) data = [await broughtText(host, folder, record.name, text)];
  else if (images) data = [await broughtImages(host, folder, record.name, record.settings, images)];
  else if (!(await hasData(host, record))) {
    const what = shapeOf(record.settings.config).vocabulary === 0 ? 'folder of images' : 'text';
    throw new HoldfastError(
      `“${record.name}” learns from ${shortened(data.join(', '))}, which is not in this browser; choose that ${what} as your own data, then go on`,
    );
  }
  return {
    ...record,
    settings: readSettings({ ...record.settings, data, steps: steps ?? record.settings.steps }),
    memory: readMemory(memory ?? record.memory),
    status: 'running',
  };
}

/**
 * Text for a run that goes on, in the place of what it had. Errors: HoldfastError where its checkpoint was trained on another; what
 * it had is kept then.
 */
function broughtText(host: BrowserHost, folder: string, name: string, text: TrainingText): Promise<string> {
  const keep = (place: string) => keepText(host, folder, text, place);
  return inPlace(host, folder, TEXT, keep, async (path, { sha256 }) => {
    if ((await sumOf(host.files, path)) !== sha256)
      throw new HoldfastError(`“${name}” learned from another text than this; choose the one that it began with`);
  });
}

/** As `broughtText`, of images. */
async function broughtImages(
  host: BrowserHost,
  folder: string,
  name: string,
  { config, seq, images }: RunSettings,
  given: readonly ChosenFile[],
): Promise<string> {
  const labels = labelsIn(config);
  if (!labels)
    throw new HoldfastError(`“${name}” tells no classes apart, and learns nothing from images; give its text`);
  const keep = (place: string) => keepImages(host, folder, given, place);
  return inPlace(host, folder, IMAGES, keep, async (path, { sha256 }) => {
    const tokenizer = await tokenizerOf(undefined, undefined, 0, name);
    const found = await readExamples(host, { config, labels, data: [path], seq, images, tokenizer });
    if (found.kind !== 'images' || found.images.identity.sha256 !== sha256)
      throw new HoldfastError(`“${name}” learned from other images than these; choose the folder that it began with`);
  });
}

/**
 * Keeps what is brought for a run beside what it has; once it passes the check against its checkpoint, in the place of that. One
 * of the two is there at any moment.
 */
async function inPlace(
  host: BrowserHost,
  folder: string,
  name: string,
  keep: (place: string) => Promise<string>,
  check: (brought: string, corpus: TextIdentity) => Promise<void>,
): Promise<string> {
  const { files } = host;
  const [kept, brought] = [join(folder, name), broughtTo(join(folder, name))];
  // Of a try that was cut off.
  await files.remove(brought);
  try {
    await keep(broughtTo(name));
    const checkpoint = (await checkpointsOf(files, folder)).at(-1);
    if (checkpoint) await check(brought, (await savedState(host, checkpoint.path)).corpus);
    await files.remove(asideOf(kept));
  } catch (error) {
    await files.remove(brought).catch(() => {});
    throw error;
  }
  // From here on both are left as they are where something fails: of folders, some files may have moved.
  if (await files.stat(kept)) await files.rename(kept, asideOf(kept));
  await files.rename(brought, kept);
  await files.remove(asideOf(kept));
  return kept;
}

/** Where a run's data lies while other data takes its place. */
const asideOf = (path: string): string => `${path} before`;

/** Where other data lies until it is known to be the run's. */
const broughtTo = (path: string): string => `${path} brought`;

/** Brings data back that was put aside in a run's folder, where no other took its place. */
export async function takeBackData({ files }: BrowserHost, folder: string): Promise<void> {
  for (const name of [TEXT, IMAGES]) {
    const [kept, aside] = [join(folder, name), asideOf(join(folder, name))];
    if (!(await files.stat(aside))) continue;
    if (!(await files.stat(kept))) await files.rename(aside, kept);
    else if (!(await files.stat(broughtTo(kept)))) await files.remove(aside);
  }
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
  else if (from !== undefined && !isOfBytes(vocabulary)) found = await loadTokenizer(host.files, from);
  if (found) await tokenizerOf(undefined, found, vocabulary, 'the model');
  return found;
}
