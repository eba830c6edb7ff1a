// Files in memory that fail at one change of the disk, for tests of what is left then.

import { expect } from 'vitest';
import type { WriteStream } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { MemoryFiles } from '../memory-files.ts';

/** Files that fail at one change of the disk; `gone`: and at all after it, as for a process that has ended. */
export class FaultyFiles extends MemoryFiles {
  changes = 0;
  failAt = Number.POSITIVE_INFINITY;
  gone = false;

  #change(): void {
    this.changes++;
    if (this.changes === this.failAt || (this.gone && this.changes > this.failAt)) throw new HoldfastError('disk full');
  }

  override async writeStream(path: string): Promise<WriteStream> {
    this.#change();
    const { write, commit, abort } = await super.writeStream(path);
    const change = async (work: () => Promise<void>) => {
      this.#change();
      await work();
    };
    // A write that fails has written some of its bytes.
    const half = (bytes: Uint8Array) => write(bytes.subarray(0, bytes.length >> 1));
    return {
      write: (bytes) => change(() => write(bytes)).catch((error) => half(bytes).then(() => Promise.reject(error))),
      commit: () => change(commit),
      abort: () => change(abort).catch(() => {}),
    };
  }

  override async makeFolder(path: string): Promise<void> {
    this.#change();
    await super.makeFolder(path);
  }

  override async rename(from: string, to: string): Promise<void> {
    this.#change();
    expect((await this.stat(to))?.kind, `${to} is a folder that is in the way`).not.toBe('folder');
    await super.rename(from, to);
  }

  /** File by file, as a disk does it. */
  override async remove(path: string): Promise<void> {
    for (const key of [...this.contents.keys()].filter((key) => key.startsWith(`${path}/`))) {
      this.#change();
      await super.remove(key);
    }
    this.#change();
    await super.remove(path);
  }
}
