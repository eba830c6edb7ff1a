// A reader of a folder without its sums, which take all of the weights to be checked: they are when the weights are loaded.

import type { FolderReader } from '../../runtime/host.ts';
import { SUMS } from './folder.ts';

export const unsummed = (files: FolderReader): FolderReader => ({
  read: (path) => files.read(path),
  readRange: (...range) => files.readRange(...range),
  stat: async (path) => (path.endsWith(SUMS) ? undefined : files.stat(path)),
  list: (path) => files.list(path),
  sha256: () => files.sha256(),
});
