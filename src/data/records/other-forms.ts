// Files that hold data in a form that is not read, told by their names: tables, documents with more than text in them, and what is
// packed otherwise than records may be; and text in UTF-16. What to do about them is said where they are named themselves, or lie among
// what is read.

import type { Files } from '../../runtime/host.ts';
import { firstFew, shortened } from '../../util/errors.ts';
import { filesOf } from '../corpus.ts';
import { toUTF8 } from './byte-forms.ts';
import { isTextTable, liesBeside, OTHER_FORM } from './file-names.ts';
import { inCommand, unpackingOf } from './gzip.ts';
import { hasLabel } from './labelled-fields.ts';
import { recordShape } from './shapes.ts';

/** Of a table, what has the names of its columns. */
const HEAD_BYTES = 4096;

/** Loaders of the datasets library. */
const LOADERS: Readonly<Record<string, string>> = {
  parquet: "'parquet'",
  arrow: "'arrow'",
  feather: "'arrow'",
  csv: "'csv'",
  tsv: "'csv', sep='\\t'",
};
/** Columns of questions with their answers, also by names that no record has: those JSONL is refused by. */
const ASKS = /^(?:prompt|question|instruction|input|query)$/i;
const ANSWERS = /^(?:completion|answer|response|output)$/i;
const UNPACK: Readonly<Record<string, string>> = {
  ...{ gz: 'gzip -dk', bz2: 'bzip2 -dk', xz: 'xz -dk', zst: 'zstd -d' },
  ...{ zip: 'unzip', tar: 'tar -xf', tgz: 'tar -xf' },
};
/** Several files in one, packed behind that or not. */
const ARCHIVE = /\.tar\.\w+$/i;
const PANDOC = 'pandoc "IN" -t plain -o "OUT"';
/** Documents, and what writes the text that is in them. */
const TO_TEXT: Readonly<Record<string, string>> = {
  pdf: 'pdftotext "IN" "OUT"',
  docx: PANDOC,
  odt: PANDOC,
  epub: PANDOC,
};

/** What to do about a file of another form. */
function fixFor(path: string): string {
  const ending = path.replace(/^.*\./s, '').toLowerCase();
  const loader = LOADERS[ending];
  const name = inCommand(path);
  const toText = TO_TEXT[ending];
  const named = (word: string) => (word === 'IN' ? name : `${name.replace(/\.\w+$/, '')}.txt`);
  if (toText !== undefined) return `write its text: ${toText.replace(/IN|OUT/g, named)}`;
  if (loader === undefined) return unpackingOf(path, ARCHIVE.test(path) ? 'tar -xf' : (UNPACK[ending] ?? ''));
  return `write JSONL: python3 -c "from datasets import load_dataset as l; l(${loader}, data_files='${name}', split='train').to_json('${name.replace(/\.\w+$/, '')}.jsonl')"`;
}

/**
 * What is wrong with a file that is named itself, by its name, and of a table by the names of its columns: one of records would teach
 * its syntax. Undefined for what is read; any other table is text. `read`: so many bytes from its beginning, or all that it has.
 */
export async function problemOfForm(
  path: string,
  read: (bytes: number) => Promise<Uint8Array>,
): Promise<string | undefined> {
  if (!OTHER_FORM.test(path)) return undefined;
  if (!isTextTable(path)) return `such files are not read; ${fixFor(path)}`;
  const columns = columnsIn(path, await read(HEAD_BYTES));
  if (columns.length < 2 || !areOfRecords(columns)) return undefined;
  const own = shortened(JSON.stringify(columns.join(', ')));
  return `a table of records, with the columns ${own}, is not read; ${fixFor(path)}`;
}

/**
 * What is wrong with the encoding of a file that is named itself, by its byte order mark: text in UTF-16, as Windows writes it, would be
 * learned with a NUL beside each letter. `read`: as of problemOfForm.
 */
export async function problemOfEncoding(
  path: string,
  read: (bytes: number) => Promise<Uint8Array>,
): Promise<string | undefined> {
  const [first, second] = await read(2);
  if (!((first === 0xff && second === 0xfe) || (first === 0xfe && second === 0xff))) return undefined;
  return `is in UTF-16, and text is read in UTF-8; write that: ${toUTF8(path, 'UTF-16')}`;
}

function areOfRecords(columns: readonly string[]): boolean {
  const record = Object.fromEntries(columns.map((column) => [column, '']));
  const isAnswered = [ASKS, ANSWERS].every((names) => columns.some((column) => names.test(column)));
  return isAnswered || hasLabel(record) || recordShape(record) !== undefined;
}

/** The names of a table's columns, if its first line has them. */
function columnsIn(path: string, head: Uint8Array): string[] {
  // The decoder takes a byte order mark away.
  const [line = ''] = new TextDecoder().decode(head).split(/\r?\n/, 1);
  return line.split(/\.tsv$/i.test(path) ? '\t' : ',').map((cell) => cell.trim().replace(/^"(.*)"$/s, '$1'));
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
