// The slow tier of chunks: a file cut into blocks that hold one chunk each. Allots blocks, and keeps the checksum of each,
// taken as it is written and compared as it is read (disk-file.ts). Knows nothing of what is needed when.
//
// Invariant: a read that resolves brought the bytes of the last write to that block, for that chunk.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { DiskFile, OnDisk } from './disk-file.ts';

export class DiskTier {
  readonly file: DiskFile;
  /** The most blocks ever in use at once. */
  peak = 0;
  readonly #chunkBytes: number;
  readonly #blocks: number;
  readonly #checksums: Int32Array;
  readonly #free: number[] = [];
  /** Blocks from here on were never used. */
  #fresh = 0;

  constructor(file: DiskFile, chunkBytes: number, blocks: number) {
    this.file = file;
    this.#chunkBytes = chunkBytes;
    this.#blocks = blocks;
    this.#checksums = new Int32Array(blocks);
  }

  get used(): number {
    return this.#fresh - this.#free.length;
  }

  get available(): number {
    return this.#blocks - this.used;
  }

  /** A block to write to; undefined when all are in use. */
  take(): number | undefined {
    const block = this.#free.pop() ?? (this.#fresh < this.#blocks ? this.#fresh++ : undefined);
    this.peak = Math.max(this.peak, this.used);
    return block;
  }

  free(block: number): void {
    assert(block >= 0 && block < this.#fresh, `block ${block} was never taken`);
    this.#free.push(block);
  }

  /** `bytes` must stay as they are until this resolves. */
  async write(block: number, chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.#checksums[block] = await this.file.write(this.#place(block, chunk), bytes);
  }

  read(block: number, chunk: number, into: Uint8Array<ArrayBuffer>): Promise<void> {
    return this.file.read(this.#place(block, chunk), at(this.#checksums, block), into);
  }

  #place(block: number, chunk: number): OnDisk {
    const name = `chunk ${chunk} (block ${block} of ${this.file.path})`;
    return { id: chunk, name, offset: block * this.#chunkBytes };
  }
}
