// Files of records: which of the files that sources stand for hold records, and which lie beside them in a folder and are none.
// What is in them is lines.ts.
//
// Invariant: where data holds records, each of its files is read as records, or named in an error or a note (other-forms.ts): none of
// them is learned as text, and of those that may have records none is left out.

import type { Files, Host } from '../../runtime/host.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { isObject } from '../../util/json.ts';
import { checkSources, filesOf, type SourceFile } from '../corpus.ts';
import { problemOfContent, toUTF8 } from './byte-forms.ts';
import { JSON_FILE, liesBeside, OTHER_FORM, RECORDS } from './file-names.ts';
import { isPacked } from './gzip.ts';
import { beginsLikeRecords, type FoundRecord, firstRecord } from './lines.ts';
import { problemOfEncoding, problemOfForm } from './other-forms.ts';
import { exampleOf, recordShape } from './shapes.ts';

/** What of files is needed to tell records from text. */
export type SourceFiles = Pick<Files, 'stat' | 'list' | 'readRange' | 'open' | 'read'>;

/** A file that records are read from. */
export interface RecordFile {
  readonly path: string;
  readonly bytes: number;
}

const HEAD_BYTES = 4096;
/** What is parsed whole. */
const MOST_OBJECT_BYTES = 2 ** 28;

/**
 * The files that sources stand for, without what else lies in folders of records: what describes them, empty files, data in another
 * form, and what systems leave there, hidden files and folders, and files that begin as binary ones. Errors: HoldfastError for a
 * file of another form that is named itself.
 */
export async function* ownFilesOf(
  files: Pick<Files, 'stat' | 'list' | 'readRange'>,
  sources: readonly string[],
): AsyncGenerator<SourceFile> {
  for await (const file of filesOf(files, sources)) {
    const { path, name, isFound, kind, bytes } = file;
    if (!isFound && kind === 'file') await checkForm(files, file);
    if (isFound && (liesBeside(file) || OTHER_FORM.test(name))) continue;
    if (!isFound || kind !== 'file') yield file;
    else if (bytes > 0 && (isPacked(name) || !(await isBinary(files, path, bytes)))) yield file;
  }
}

const isBinary = async (files: Pick<Files, 'readRange'>, path: string, bytes: number): Promise<boolean> =>
  (await files.readRange(path, 0, Math.min(bytes, HEAD_BYTES))).includes(0);

/** The files of records that sources stand for, in order. Errors: HoldfastError for what is none. */
export async function* recordFilesOf(
  files: Pick<Files, 'stat' | 'list' | 'readRange'>,
  sources: readonly string[],
): AsyncGenerator<RecordFile> {
  for await (const { path, kind, bytes } of ownFilesOf(files, sources)) {
    if (kind !== 'file') throw new HoldfastError(`${path}: records are read from files; write them into one`);
    yield { path, bytes };
  }
}

/**
 * Whether the sources are files of records, by their names (*.jsonl, *.ndjson, also with .gz) or by what they begin with, a record of a known
 * shape. In folders, what describes records (README, LICENSE, *.md, dataset_info.json) and what systems leave there does
 * not count. A *.json file of other objects is what the other files are: text, among source code; by itself it is records, which
 * are refused when they are read. Errors: HoldfastError where some files are records and some are text, and for a file that is named
 * itself and is neither by its first bytes.
 */
export async function holdRecords(host: Host, sources: readonly string[]): Promise<boolean> {
  checkSources(host, sources);
  return areRecords(host.files, sources);
}

/** As `holdRecords`, of files alone. */
export async function areRecords(files: SourceFiles, sources: readonly string[]): Promise<boolean> {
  const found: Partial<Record<FileContent, string>> = {};
  for await (const file of ownFilesOf(files, sources)) {
    if (!file.isFound && file.kind === 'file') await checkContent(files, file);
    found[await contentOf(files, file)] ??= file.path;
  }
  const { records, objects, text } = found;
  if (text === undefined) return (records ?? objects) !== undefined;
  if (records === undefined) return false;
  throw new HoldfastError(
    `the data is records in ${shortened(records)} and text in ${shortened(text)}; name the files of the one or the other`,
  );
}

/**
 * Whether some file of the sources begins with a conversation: a file has one shape. What cannot be used is refused when all
 * records are read.
 */
export async function holdConversations(files: SourceFiles, sources: readonly string[]): Promise<boolean> {
  for await (const { path, kind } of ownFilesOf(files, sources)) {
    const first = kind === 'file' ? await firstRecord(files, path) : undefined;
    if (first && isConversation(first)) return true;
  }
  return false;
}

function isConversation(record: FoundRecord): boolean {
  const shape = recordShape(record.value);
  try {
    return shape !== undefined && exampleOf(record, shape, true).kind === 'conversation';
  } catch (error) {
    if (error instanceof HoldfastError) return false;
    throw error;
  }
}

/** `objects`: of no shape that is known, or damaged. */
type FileContent = 'records' | 'objects' | 'text';

async function contentOf(files: Pick<Files, 'open' | 'read'>, file: SourceFile): Promise<FileContent> {
  const { path, name, kind } = file;
  if (kind !== 'file') return 'text';
  if (RECORDS.test(name)) return 'records';
  const first = await firstRecord(files, path);
  if (first !== undefined && recordShape(first.value) !== undefined) return 'records';
  await refuseInside(files, file);
  return JSON_FILE.test(name) && (await beginsLikeRecords(files, path)) ? 'objects' : 'text';
}

/**
 * Errors: HoldfastError for a JSON file, named itself, that is one object with records inside, as `{"data": [...]}` is, or one record over
 * several lines: as text its syntax would be learned.
 */
async function refuseInside(files: Pick<Files, 'read'>, { path, name, isFound, bytes }: SourceFile): Promise<void> {
  if (isFound || !JSON_FILE.test(name) || isPacked(name) || bytes > MOST_OBJECT_BYTES) return;
  const value = parsed(await files.read(path));
  if (!isObject(value)) return;
  if (recordShape(value) !== undefined)
    throw new HoldfastError(`${path}: is one record over several lines; write it in one line, or as a list, [...]`);
  const inside = Object.entries(value).find(([, list]) => Array.isArray(list) && recordShape(list[0]) !== undefined);
  if (inside)
    throw new HoldfastError(
      `${path}: its records are in the field ${shortened(JSON.stringify(inside[0]))}; write that list alone, or one record a line`,
    );
}

/** Errors: HoldfastError for a file of another form, such as a table of records, and for text in UTF-16. */
async function checkForm(files: Pick<Files, 'readRange'>, { path, bytes }: SourceFile): Promise<void> {
  const read = (most: number) => files.readRange(path, 0, Math.min(bytes, most));
  const problem = (await problemOfForm(path, read)) ?? (await problemOfEncoding(path, read));
  if (problem !== undefined) throw new HoldfastError(`${path}: ${problem}`);
}

/** Errors: HoldfastError for a file that is no text by its first bytes, whatever its name. What is packed is looked into where it is read. */
async function checkContent(files: Pick<Files, 'readRange'>, { path, bytes }: SourceFile): Promise<void> {
  if (isPacked(path)) return;
  const problem = await problemOfContent(path, (most) => files.readRange(path, 0, Math.min(bytes, most)));
  if (problem !== undefined) throw new HoldfastError(`${path}: ${problem}`);
}

/** What is looked at of a text, and the share of its characters from which on it is damaged, or none. */
const LOOKED_AT = 2 ** 16;
const DAMAGED = 1e-3;

/**
 * Errors: HoldfastError for a text, named itself, that is not in UTF-8: in tokens other than bytes what cannot be decoded would be
 * learned as U+FFFD.
 */
export async function checkUTF8(
  files: Pick<Files, 'stat' | 'list' | 'readRange'>,
  sources: readonly string[],
): Promise<void> {
  for await (const { path, isFound, kind, bytes } of ownFilesOf(files, sources)) {
    if (isFound || kind !== 'file') continue;
    // The last character may go on behind what is looked at.
    const text = new TextDecoder().decode(await files.readRange(path, 0, Math.min(bytes, LOOKED_AT)), { stream: true });
    if (text.split('\ufffd').length - 1 > DAMAGED * text.length)
      throw new HoldfastError(
        `${path}: is not in UTF-8, which a tokenizer reads; write that: ${toUTF8(path, 'WINDOWS-1252')}, or as what it is; or train in bytes: --tokenizer bytes`,
      );
  }
}

/** What JSON says; undefined for what is none. */
function parsed(bytes: Uint8Array): unknown {
  try {
    // The decoder takes a byte order mark away.
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch {
    return undefined;
  }
}
