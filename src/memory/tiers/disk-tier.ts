// The slow tier: a file cut into blocks that hold one chunk each. Allots blocks, moves bytes, and guards them:
// every block has a checksum in memory, taken as it is written and compared as it is read. Knows nothing of what
// is needed when.
//
// Invariant: a read that resolves brought the bytes of the last write to that block, for that chunk; all else
// is an error that names the file, the chunk, the block and what to do. Every byte moved is counted, those of
// moves that failed as well.

import type { BlockFile } from '../../runtime/host.ts';
import { assert, HoldfastError, messageOf } from '../../util/errors.ts';
import { checksum } from './checksum.ts';

export type DiskWay = 'diskRead' | 'diskWrite';

export class DiskTier {
  readBytes = 0;
  writtenBytes = 0;
  /** Told when a read or write begins; what it returns is called when that has ended well. */
  onMove: ((way: DiskWay, chunk: number) => (() => void) | undefined) | undefined;
  /** The most blocks ever in use at once. */
  peak = 0;
  readonly #file: BlockFile;
  readonly #chunkBytes: number;
  readonly #blocks: number;
  readonly #checksums: Int32Array;
  readonly #free: number[] = [];
  /** Blocks from here on were never used. */
  #fresh = 0;

  constructor(file: BlockFile, chunkBytes: number, blocks: number) {
    this.#file = file;
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
    const ended = this.onMove?.('diskWrite', chunk);
    this.#checksums[block] = checksum(bytes, chunk);
    const what = `cannot write ${this.#name(block, chunk)}`;
    const done = await this.#move(what, bytes, async (part, offset) => {
      const moved = await this.#file.write(block * this.#chunkBytes + offset, part);
      this.writtenBytes += moved;
      return moved;
    });
    if (done < bytes.length) {
      throw new HoldfastError(
        `${what}: the file took ${done} of ${bytes.length} bytes; make space on that disk or choose another folder`,
      );
    }
    ended?.();
  }

  async read(block: number, chunk: number, into: Uint8Array<ArrayBuffer>): Promise<void> {
    const ended = this.onMove?.('diskRead', chunk);
    const what = `cannot read ${this.#name(block, chunk)}`;
    const done = await this.#move(what, into, async (part, offset) => {
      const moved = await this.#file.read(block * this.#chunkBytes + offset, part);
      this.readBytes += moved;
      return moved;
    });
    if (done < into.length) {
      throw new HoldfastError(
        `${what}: the file gave ${done} of ${into.length} bytes, something cut it short; ` +
          'leave the file alone while a run lasts, and resume from the last checkpoint',
      );
    }
    if (checksum(into, chunk) !== this.#checksums[block]) {
      throw new HoldfastError(
        `${this.#name(block, chunk)} came back damaged (checksum mismatch); ` +
          'check that disk or choose another folder, and resume from the last checkpoint',
      );
    }
    ended?.();
  }

  /** Closes and removes the file. */
  remove(): Promise<void> {
    return this.#file.remove();
  }

  /** Moves what it can in two tries: a short one is continued once. Returns the bytes moved. */
  async #move(
    what: string,
    bytes: Uint8Array<ArrayBuffer>,
    move: (part: Uint8Array<ArrayBuffer>, offset: number) => Promise<number>,
  ): Promise<number> {
    try {
      const first = await move(bytes, 0);
      return first < bytes.length ? first + (await move(bytes.subarray(first), first)) : first;
    } catch (error) {
      throw new HoldfastError(`${what}: ${reason(error)}`);
    }
  }

  #name(block: number, chunk: number): string {
    return `chunk ${chunk} (block ${block} of ${this.#file.path})`;
  }
}

/** What a file says when its disk, or its share of it, is full: Node's and Deno's codes, the browser's name. */
const FULL = ['ENOSPC', 'EDQUOT', 'QuotaExceededError'];

function reason(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown };
  return FULL.includes(String(code)) || FULL.includes(String(name))
    ? 'the disk is full; make space on it or choose another folder, and resume from the last checkpoint'
    : `${messageOf(error)}; check that disk or choose another folder`;
}
