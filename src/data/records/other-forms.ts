// Files that hold data in a form that is not read, told by their names: tables, and what is packed otherwise than records may be. What
// to do about them is said where they are named themselves, or lie among what is read.

import type { Files } from '../../runtime/host.ts';
import { firstFew, HoldfastError, shortened } from '../../util/errors.ts';
import { filesOf, type SourceFile } from '../corpus.ts';
import { isTextTable, liesBeside, OTHER_FORM } from './file-names.ts';

/** Loaders of the datasets library. */
const LOADERS: Readonly<Record<string, string>> = {
  parquet: "'parquet'",
  arrow: "'arrow'",
  feather: "'arrow'",
  csv: "'csv'",
  tsv: "'csv', sep='\\t'",
};
const UNPACK: Readonly<Record<string, string>> = { gz: 'gzip -dk', bz2: 'bzip2 -dk', xz: 'xz -dk', zst: 'zstd -d' };

/** A path as it can be part of a command in quotes. */
const inCommand = (path: string): string => (/^[\w./ -]+$/.test(path) ? path : 'FILE');

/** What to do about a packed file. */
export const unpackingOf = (path: string, by: string): string => `unpack it: ${by} "${inCommand(path)}"`;

/** What to do about a file of another form. */
function fixFor(path: string): string {
  const ending = path.replace(/^.*\./s, '').toLowerCase();
  const loader = LOADERS[ending];
  if (loader === undefined) return unpackingOf(path, UNPACK[ending] ?? '');
  const name = inCommand(path);
  return `write JSONL: python3 -c "from datasets import load_dataset as l; l(${loader}, data_files='${name}', split='train').to_json('${name.replace(/\.\w+$/, '')}.jsonl')"`;
}

/** Errors: HoldfastError for a file that was named itself and is of another form; a table is text, but one of records (record-files.ts). */
export function checkForm({ path, name, isFound, kind }: SourceFile): void {
  if (isFound || kind !== 'file' || !OTHER_FORM.test(name) || isTextTable(name)) return;
  throw new HoldfastError(`${path}: such files are not read; ${fixFor(path)}`);
}

/** The names of a table's columns, if its first line has them. */
export function columnsIn(name: string, head: Uint8Array): string[] {
  // The decoder takes a byte order mark away.
  const [line = ''] = new TextDecoder().decode(head).split(/\r?\n/, 1);
  return line.split(/\.tsv$/i.test(name) ? '\t' : ',').map((cell) => cell.trim().replace(/^"(.*)"$/s, '$1'));
}

/** Errors: HoldfastError for a table with such columns. */
export function refuseAsTable(path: string, columns: readonly string[]): never {
  const own = shortened(JSON.stringify(columns.join(', ')));
  throw new HoldfastError(`${path}: a table of records, with the columns ${own}, is not read; ${fixFor(path)}`);
}

/** A line that names the files of another form in folders; `isOfRecords`: tables of text are not read either. */
export async function notRead(
  files: Pick<Files, 'stat' | 'list'>,
  sources: readonly string[],
  isOfRecords: boolean,
): Promise<string[]> {
  const found: string[] = [];
  for await (const file of filesOf(files, sources)) {
    const { path, name, isFound, kind } = file;
    if (!isFound || kind !== 'file' || liesBeside(file) || !OTHER_FORM.test(name)) continue;
    if (isOfRecords || !isTextTable(name)) found.push(path);
  }
  const [first] = found;
  return first === undefined ? [] : [`${firstFew(found)} not read; ${fixFor(first)}`];
}
