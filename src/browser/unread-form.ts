// Files that a person chose to train on and that are not learned as they are: in a form that is not read, such as tables of records, or
// records that no model which writes text learns. Told in the words of the command line, by its code.

import { problemOfContent } from '../data/records/byte-forms.ts';
import { isPacked, unpackingOf } from '../data/records/gzip.ts';
import { recordsOf } from '../data/records/lines.ts';
import { problemOfForm } from '../data/records/other-forms.ts';
import { areRecords, type SourceFiles } from '../data/records/record-files.ts';
import { shapeAt } from '../data/records/shapes.ts';
import { HoldfastError } from '../util/errors.ts';
import { check, list } from '../util/json.ts';
import { file as aFile } from './arguments.ts';

const bytesOf = async (blob: Blob) => new Uint8Array(await blob.arrayBuffer());

/**
 * What is wrong with the form of a file, and what to do about it, as it goes on behind the file's name: of a packed file, of
 * a table (CSV, TSV) whose columns are those of records, whose syntax would be learned as text, and of what is no text in UTF-8 by its
 * first bytes, whatever its name: UTF-16, a PDF document, an archive, an image, a binary file. Undefined for any other.
 * Errors: HoldfastError for what is no file.
 */
export async function unreadForm(file: File): Promise<string | undefined> {
  check(aFile, file, 'the file');
  // Only the command line unpacks them.
  if (isPacked(file.name)) return `such files are not read here; ${unpackingOf(file.name, 'gzip -dk')}`;
  const read = (bytes: number) => bytesOf(file.slice(0, bytes));
  return (await problemOfForm(file.name, read)) ?? problemOfContent(file.name, read);
}

/**
 * What keeps a model that writes text from learning of these files together, by what they begin with: records with a label, which are
 * for a classifier, others that are not known or damaged, and records among text. Undefined for text, and for records that it learns.
 * Errors: HoldfastError for what are no files.
 */
export async function unreadRecords(chosen: readonly File[]): Promise<string | undefined> {
  check(list(aFile), chosen, 'the files');
  const files = filesIn(chosen);
  const names = chosen.map(({ name }) => name);
  try {
    if (await areRecords(files, names)) for (const name of names) await checkFirst(files, name);
    return undefined;
  } catch (error) {
    if (error instanceof HoldfastError) return error.message;
    throw error;
  }
}

/** Errors: HoldfastError where a file begins with no record that a model which writes text learns. */
async function checkFirst(files: SourceFiles, path: string): Promise<void> {
  for await (const record of recordsOf(files, path)) return void shapeAt(record);
  throw new HoldfastError(`${path}: no records; name a file of records`);
}

/** Chosen files, by their names. */
function filesIn(chosen: readonly File[]): SourceFiles {
  const found = (path: string): File => {
    const file = chosen.find(({ name }) => name === path);
    if (!file) throw new HoldfastError(`${path}: was not chosen`);
    return file;
  };
  const part = (path: string, offset: number, bytes: number) => bytesOf(found(path).slice(offset, offset + bytes));
  return {
    list: async () => [],
    stat: async (path) => ({ kind: 'file', bytes: found(path).size }),
    read: (path) => bytesOf(found(path)),
    readRange: part,
    open: async (path) => ({
      bytes: found(path).size,
      readRange: (offset, bytes) => part(path, offset, bytes),
      close: async () => {},
    }),
  };
}
