// `DiskFile`: moves values between memory and a file, whole or not at all, counts what it moved, and tells failures and
// damage by the value's name. Which value lies where in the file, and when it is needed, is its users' affair.
//
// Invariant: a read that resolves brought bytes with the checksum that their write returned; all else is an error that
// says what to do. Every byte moved is counted, those of moves that failed as well.

import type { BlockFile } from '../../runtime/host.ts';
import { HoldfastError, messageOf } from '../../util/errors.ts';
import { checksum } from './checksum.ts';

export type DiskWay = 'diskRead' | 'diskWrite';

/** A value, by its number below the GPU and its name, and where in the file it lies. */
export interface OnDisk {
  readonly id: number;
  readonly name: string;
  readonly offset: number;
}

/** The checksum of a part of a value, which begins where the part before it ends. */
export interface PartSum {
  /** Bytes, in the value. */
  readonly end: number;
  readonly sum: number;
}

export class DiskFile {
  readBytes = 0;
  writtenBytes = 0;
  /** Told when a read or write begins; what it returns is called when that has ended well. */
  onMove: ((way: DiskWay, id: number) => (() => void) | undefined) | undefined;
  readonly #file: BlockFile;

  constructor(file: BlockFile) {
    this.#file = file;
  }

  get path(): string {
    return this.#file.path;
  }

  /** `bytes` must stay as they are until this resolves; they are the value from byte `at` on. Returns their checksum. */
  async write({ id, name, offset }: OnDisk, bytes: Uint8Array<ArrayBuffer>, at = 0): Promise<number> {
    const ended = this.onMove?.('diskWrite', id);
    const from = offset + at;
    const sum = checksum(bytes, id + at);
    const what = `cannot write ${name}`;
    const done = await this.#move(what, bytes, async (part, offset) => {
      const moved = await this.#file.write(from + offset, part);
      this.writtenBytes += moved;
      return moved;
    });
    if (done < bytes.length) {
      throw new HoldfastError(
        `${what}: the file took ${done} of ${bytes.length} bytes; make space on that disk or choose another folder`,
      );
    }
    ended?.();
    return sum;
  }

  /** Of a value whose write returned `sum`, or whose parts' writes did. */
  async read(
    { id, name, offset: from }: OnDisk,
    sums: number | readonly PartSum[],
    into: Uint8Array<ArrayBuffer>,
  ): Promise<void> {
    const ended = this.onMove?.('diskRead', id);
    const what = `cannot read ${name}`;
    const done = await this.#move(what, into, async (part, offset) => {
      const moved = await this.#file.read(from + offset, part);
      this.readBytes += moved;
      return moved;
    });
    if (done < into.length) {
      throw new HoldfastError(
        `${what}: the file gave ${done} of ${into.length} bytes, something cut it short; ` +
          'leave the file alone while a run lasts, and resume from the last checkpoint',
      );
    }
    const parts = typeof sums === 'number' ? [{ end: into.length, sum: sums }] : sums;
    const isWhole = parts.every(({ end, sum }, i) => {
      const begin = parts[i - 1]?.end ?? 0;
      return checksum(into.subarray(begin, end), id + begin) === sum;
    });
    if (!isWhole) {
      throw new HoldfastError(
        `${name} came back damaged (checksum mismatch); ` +
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
}

/** What a file says when its disk, or its share of it, is full: Node's and Deno's codes, the browser's name. */
const FULL = ['ENOSPC', 'EDQUOT', 'QuotaExceededError'];

function reason(error: unknown): string {
  const { code, name } = error as { code?: unknown; name?: unknown };
  return FULL.includes(String(code)) || FULL.includes(String(name))
    ? 'the disk is full; make space on it or choose another folder, and resume from the last checkpoint'
    : `${messageOf(error)}; check that disk or choose another folder`;
}
