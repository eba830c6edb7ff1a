// Files that a person chose to train on and that are in a form that is not read, such as tables of records: told in the words of
// the command line. What begins as no text at all is the page's to tell.

import { isPacked, unpackingOf } from '../data/records/gzip.ts';
import { problemOfForm } from '../data/records/other-forms.ts';
import { check } from '../util/json.ts';
import { file as aFile } from './arguments.ts';

/**
 * What is wrong with the form of a file, and what to do about it, as it goes on behind the file's name: of a packed file, and of
 * a table (CSV, TSV) whose columns are those of records, whose syntax would be learned as text. Undefined for any other.
 * Errors: HoldfastError for what is no file.
 */
export async function unreadForm(file: File): Promise<string | undefined> {
  check(aFile, file, 'the file');
  // Only the command line unpacks them.
  if (isPacked(file.name)) return `such files are not read here; ${unpackingOf(file.name, 'gzip -dk')}`;
  return problemOfForm(file.name, async (bytes) => new Uint8Array(await file.slice(0, bytes).arrayBuffer()));
}
