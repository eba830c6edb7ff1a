// A file that is written in several goes, by several processes if need be: what an earlier one wrote lies beside the
// target until all of it is there. Not for two writers at once.

import * as fs from 'node:fs/promises';
import { finishing } from '../../util/errors.ts';
import type { ResumedFile } from '../host.ts';
import { fileError } from './file-errors.ts';

export async function resumeFile(path: string): Promise<ResumedFile> {
  const partial = `${path}.incoming`;
  const attempt = async <T>(work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      throw fileError(`cannot write ${path}`, error, 'there is no such folder');
    }
  };
  const handle = await attempt(() => fs.open(partial, 'a'));
  const { size } = await attempt(() => handle.stat());
  return {
    written: size,
    write: (bytes) => attempt(() => handle.appendFile(bytes)),
    restart: () => attempt(() => handle.truncate(0)),
    commit: () =>
      attempt(async () => {
        await finishing(
          () => handle.sync(),
          () => handle.close(),
        );
        await fs.rename(partial, path);
      }),
    close: () => attempt(() => handle.close()),
  };
}
