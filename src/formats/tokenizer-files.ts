// The files of a tokenizer as models' folders have them: tokenizer.json and its companions, found by the name of a folder,
// of a zip or of the file itself, and kept byte for byte, so that checkpoints carry them along. What they mean is in
// src/data/huggingface. Not read for folders without a tokenizer.json.

import { checkFolder } from '../runtime/check-host.ts';
import { type Files, type FolderReader, folderOf, join } from '../runtime/host.ts';
import { MOST_SETTINGS_BYTES, MOST_TEXT_BYTES, readWhole } from '../runtime/read-whole.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { parseJSON } from '../util/json.ts';
import { readerOf } from './archive.ts';
import { CONFIG, modelFolder, TOKENIZER, TOKENIZER_FILES } from './checkpoint/folder.ts';
import { type ModelTokenIds, tokenIdsOf } from './token-ids.ts';

/** A tokenizer.json and its companions. */
export interface TokenizerFiles {
  /** The tokenizer.json, its folder or its zip, as it was named. */
  readonly path: string;
  /** Of tokenizer.json, as 64 hexadecimal digits. */
  readonly sha256: string;
  /** By their names: tokenizer.json, and what lies beside it of TOKENIZER_FILES. */
  readonly contents: ReadonlyMap<string, Uint8Array<ArrayBuffer>>;
  /** What the config.json beside it says of special tokens, by its fields: checkpoints say so, too. @default nothing */
  readonly modelIds?: ModelTokenIds;
}

/** The names of a folder's files that belong to its tokenizer; none where there is no tokenizer.json. */
export async function tokenizerNames(files: FolderReader, folder: string): Promise<string[]> {
  if ((await files.stat(join(folder, TOKENIZER)))?.kind !== 'file') return [];
  const found: string[] = [];
  for (const name of TOKENIZER_FILES) if ((await files.stat(join(folder, name)))?.kind === 'file') found.push(name);
  return found;
}

/** The tokenizer in a folder, undefined where there is none. `path`: what it is called. */
export async function tokenizerIn(
  files: FolderReader,
  folder: string,
  path = folder,
): Promise<TokenizerFiles | undefined> {
  const contents = new Map<string, Uint8Array<ArrayBuffer>>();
  for (const name of await tokenizerNames(files, folder)) {
    const at = join(folder, name);
    contents.set(name, await readWhole(files, at, MOST_TEXT_BYTES));
  }
  const main = contents.get(TOKENIZER);
  if (!main) return undefined;
  const sum = await files.sha256();
  sum.update(main);
  const config = join(folder, CONFIG);
  const modelIds =
    (await files.stat(config))?.kind === 'file'
      ? modelIdsIn(await readWhole(files, config, MOST_SETTINGS_BYTES), config)
      : undefined;
  return { path, sha256: sum.hex(), contents, ...(modelIds && { modelIds }) };
}

/** What a config.json says of special tokens. Errors: HoldfastError for what is not JSON. */
export const modelIdsIn = (bytes: Uint8Array, path: string): ModelTokenIds | undefined =>
  tokenIdsOf(parseJSON(bytes, shortened(path), 'get the file again'));

/**
 * The tokenizer that a path names: a tokenizer.json, its folder, a model's folder, a run (its latest checkpoint), or a zip
 * of one of these. Errors: HoldfastError where there is none.
 */
export async function findTokenizer(from: Files, path: string): Promise<TokenizerFiles> {
  checkFolder(from, path);
  const files = await readerOf(from, path);
  const kind = (await files.stat(path))?.kind;
  const folder = files === from && kind === 'file' ? folderOf(path) : path;
  const isFile = folder !== path;
  if (isFile && !path.endsWith('.json')) {
    throw new HoldfastError(`${shortened(path)}: is no tokenizer.json; name one, or a folder or zip that has one`);
  }
  const found =
    (isFile ? await namedFile(files, path) : await tokenizerIn(files, folder)) ??
    (kind === 'folder' ? await ofModel(files, path) : undefined);
  if (found) return { ...found, path };
  throw new HoldfastError(
    `${shortened(path)}: ${kind ? 'there is no tokenizer.json in it' : 'nothing is there'}; name a tokenizer.json, or a folder or zip that has one`,
  );
}

/** A file of any name counts as the tokenizer.json of its folder. */
async function namedFile(files: FolderReader, path: string): Promise<TokenizerFiles> {
  const main = await readWhole(files, path, MOST_TEXT_BYTES);
  const beside = await tokenizerIn(files, folderOf(path));
  const sum = await files.sha256();
  sum.update(main);
  return { ...beside, path, sha256: sum.hex(), contents: new Map([...(beside?.contents ?? []), [TOKENIZER, main]]) };
}

async function ofModel(files: FolderReader, path: string): Promise<TokenizerFiles | undefined> {
  const folder = await modelFolder(files, path).catch(() => undefined);
  return folder === undefined ? undefined : tokenizerIn(files, folder, path);
}
