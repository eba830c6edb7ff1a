// A run's files on their way out of the site, and into the folder of another run.

import { filesOf } from '../data/corpus.ts';
import { KEPT_GGUF, storeFile } from '../formats/archive.ts';
import { CONFIG, TOKENIZER_FILES, TOKENIZER as TOKENIZER_JSON } from '../formats/checkpoint/folder.ts';
import { checkpointsOf, replaceState } from '../formats/checkpoint.ts';
import { modelIdsIn, type TokenizerFiles } from '../formats/tokenizer-files.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { join } from '../runtime/host.ts';
import { checkSettings } from '../train/run/check-settings.ts';
import { readSettings } from '../train/run/run-settings.ts';
import { savedState, withSettings } from '../train/run/saved-state.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import type { Exports } from './exports.ts';
import type { ChosenFile, Fork, RunRecord, TrainingText } from './protocol.ts';

export const TEXT = 'text';
export const IMAGES = 'images';
const TOKENIZER = 'tokenizer';

/** The latest checkpoint of a run, or the weights that were imported. Errors: HoldfastError where there is neither. */
export async function latestOf({ files }: BrowserHost, id: string, folder: string): Promise<string> {
  const found = (await checkpointsOf(files, folder)).at(-1)?.path;
  if (found) return found;
  for (const name of [CONFIG, KEPT_GGUF]) if (await files.stat(join(folder, name))) return folder;
  throw new HoldfastError(`run ${id} has no checkpoint yet; train it first`);
}

/** Keeps text with a run, by that name; returns its path. */
export async function keepText(
  { files }: BrowserHost,
  folder: string,
  text: TrainingText,
  name = TEXT,
): Promise<string> {
  const path = join(folder, name);
  await files.makeFolder(folder);
  const blob = typeof text === 'string' ? new Blob([text]) : text;
  await storeFile(files, path, { name: 'the text', bytes: blob.size, open: () => blob.stream() });
  return path;
}

/** What the paths of all files begin with: the folder that they were chosen by. */
export function topOf(given: readonly ChosenFile[]): string {
  const [top = ''] = given[0]?.path.split('/') ?? [];
  return given.every(({ path }) => path.startsWith(`${top}/`)) ? `${top}/` : '';
}

/** Keeps images with a run, in their folders, below one of that name; returns its path. Errors: HoldfastError for two of one name. */
export async function keepImages(
  { files }: BrowserHost,
  folder: string,
  given: readonly ChosenFile[],
  name = IMAGES,
): Promise<string> {
  const names = new Set<string>();
  for (const { path } of given) {
    if (names.has(path))
      throw new HoldfastError(
        `two of the images are called ${shortened(path)}; bring one of them, or give one another name`,
      );
    names.add(path);
  }
  const top = topOf(given);
  const made = new Set<string>();
  for (const { path, file } of given) {
    const target = join(folder, name, path.slice(top.length));
    const within = target.slice(0, target.lastIndexOf('/'));
    if (!made.has(within)) await files.makeFolder(within);
    made.add(within);
    await storeFile(files, target, { name: path, bytes: file.size, open: () => file.stream() });
  }
  return join(folder, name);
}

/** The tokenizer among chosen files. Errors: HoldfastError where there is no tokenizer.json. */
export async function readTokenizer(host: BrowserHost, chosen: readonly File[]): Promise<TokenizerFiles> {
  const known = chosen.filter(({ name }) => TOKENIZER_FILES.includes(name));
  const contents = new Map<string, Uint8Array<ArrayBuffer>>();
  for (const file of known) contents.set(file.name, new Uint8Array(await file.arrayBuffer()));
  const main = contents.get(TOKENIZER_JSON);
  if (!main) throw new HoldfastError(`there is no ${TOKENIZER_JSON} among the ${chosen.length} files; choose it`);
  const sum = await host.files.sha256();
  sum.update(main);
  const config = chosen.find(({ name }) => name === CONFIG);
  const modelIds = config && modelIdsIn(new Uint8Array(await config.arrayBuffer()), CONFIG);
  return { path: TOKENIZER_JSON, sha256: sum.hex(), contents, ...(modelIds && { modelIds }) };
}

/** Keeps a tokenizer with a run. */
export async function keepTokenizer(
  host: BrowserHost,
  folder: string,
  chosen: readonly File[],
): Promise<TokenizerFiles> {
  const found = await readTokenizer(host, chosen);
  const path = join(folder, TOKENIZER);
  await host.files.makeFolder(path);
  for (const [name, bytes] of found.contents) await host.files.writeAtomic(join(path, name), bytes);
  if (found.modelIds) await host.files.writeAtomic(join(path, CONFIG), JSON.stringify(found.modelIds));
  return { ...found, path };
}

/** A folder as one zip of that name, which stays on disk. */
export async function zipOf(host: BrowserHost, exports: Exports, folder: string, name: string): Promise<File> {
  const path = `${await exports.newPath()}.zip`;
  const { writeZip } = await import('../formats/zip.ts');
  await writeZip(host.files, folder, path);
  return new File([await host.fileAt(path)], `${name}.zip`, { type: 'application/zip' });
}

/** What a person calls it, in any script, as the name of a file. */
export const fileName = (name: string): string =>
  /[\p{L}\p{N}]/u.test(name) ? name.replace(/[^\p{L}\p{M}\p{N}_.-]+/gu, '-') : 'run';

export async function copyOut(host: BrowserHost, folder: string, target: FileSystemDirectoryHandle): Promise<void> {
  for (const name of await host.files.list(folder)) {
    const writable = await (await target.getFileHandle(name, { create: true })).createWritable();
    await (await host.fileAt(join(folder, name))).stream().pipeTo(writable);
  }
}

/**
 * Makes the folder of a new run from the checkpoint of another: its files, its text, and other settings from here on.
 * Errors: HoldfastError for weights alone, and for settings that make no schedule.
 */
export async function forkInto(
  host: BrowserHost,
  folder: string,
  source: RunRecord,
  from: { readonly folder: string; readonly checkpoint: string },
  changes: Fork['changes'] = {},
): Promise<Pick<RunRecord, 'settings' | 'savedStep'>> {
  const { files } = host;
  if (!source.settings) {
    throw new HoldfastError(`run ${source.id} has weights alone; start a new run from them (settings.from)`);
  }
  const state = await savedState(host, from.checkpoint);
  const { step } = state.trainer;
  const { data } = source.settings;
  const kept = [TEXT, IMAGES].filter((name) => data.includes(join(from.folder, name)));
  const settings = readSettings({
    ...source.settings,
    ...changes,
    data: data.map((path) => {
      const own = kept.find((name) => path === join(from.folder, name));
      return own === undefined ? path : join(folder, own);
    }),
  });
  if (settings.steps <= step) {
    throw new HoldfastError(`the fork begins after ${step} steps and would end after ${settings.steps}; give it more`);
  }
  checkSettings(settings);
  const partial = join(folder, '.checkpoint-0.partial');
  await files.makeFolder(partial);
  const copy = async (path: string, to: string) => {
    const file = await host.fileAt(path);
    await storeFile(files, to, { name: path, bytes: file.size, open: () => file.stream() });
  };
  for (const name of await files.list(from.checkpoint)) await copy(join(from.checkpoint, name), join(partial, name));
  await replaceState(files, partial, withSettings(state, settings));
  for (const name of kept) {
    const source = join(from.folder, name);
    for await (const { path } of filesOf(files, [source])) {
      const target = join(folder, name, path.slice(source.length));
      await files.makeFolder(target.slice(0, target.lastIndexOf('/')));
      await copy(path, target);
    }
  }
  await files.rename(partial, join(folder, `checkpoint-${step}`));
  return { settings, savedStep: step };
}
