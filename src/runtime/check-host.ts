// Checks of a host, or of its files, that are given to the library: beside the ports themselves, which need no parser.

import { having } from '../util/arguments.ts';
import { check, text } from '../util/json.ts';
import type { FolderReader, Host } from './host.ts';

/** Errors: HoldfastError for what is no host. */
export const checkHost = (host: Pick<Host, 'files'>): void =>
  void check(having<Host>('a host, as headlessHost gives', 'files'), host, 'host');

/** Errors: HoldfastError for what are no files of a host. */
export const checkFiles = (files: FolderReader): void =>
  void check(having<FolderReader>('the files of a host', 'read', 'stat'), files, 'files');

/** Errors: HoldfastError for what are no files of a host, and for a path of a folder that is no text. */
export function checkFolder(files: FolderReader, folder: string): void {
  checkFiles(files);
  check(text, folder, 'the path of the folder');
}
