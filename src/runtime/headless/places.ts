// Places of the package: its own folder, and the folder for what it keeps between runs.

import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

/** What is kept between runs: `holdfast` in the user's cache folder. */
export const cacheFolder = (): string =>
  path.join(process.env['XDG_CACHE_HOME'] || path.join(os.homedir(), '.cache'), 'holdfast');

/** The nearest folder above this file with a package.json: the same from src/runtime/headless and from dist. */
export function packageFolder(): string {
  let folder = path.dirname(fileURLToPath(import.meta.url));
  const isRoot = (f: string) => path.dirname(f) === f;
  while (!isRoot(folder) && path.basename(folder) !== 'dist' && path.basename(folder) !== 'src') {
    folder = path.dirname(folder);
  }
  return path.dirname(folder);
}
