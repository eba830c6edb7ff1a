// Block files around a block file, for tests of the tiers: one counts and dawdles, one fails on purpose.

import { expect } from 'vitest';
import type { BlockFile } from '../../src/runtime/host.ts';

/** Waits 0, 1 or 2 microtasks, or, for more, so many turns of the event loop less two. */
export async function turns(count: number): Promise<void> {
  if (count <= 2) for (let i = 0; i < count; i++) await undefined;
  else for (let i = 2; i < count; i++) await new Promise((resolve) => setTimeout(resolve, 0));
}

/** Counts what is moved, takes its time, and holds its user to the contract of BlockFile. */
export class CountingFile implements BlockFile {
  readonly path: string;
  readonly bytes: number;
  readBytes = 0;
  writtenBytes = 0;
  removed = false;
  readonly #file: BlockFile;
  readonly #beforeMove: () => Promise<void> | undefined;
  readonly #writing: [from: number, to: number][] = [];

  constructor(file: BlockFile, beforeMove: () => Promise<void> | undefined = () => undefined) {
    this.path = file.path;
    this.bytes = file.bytes;
    this.#file = file;
    this.#beforeMove = beforeMove;
  }

  async read(offset: number, into: Uint8Array<ArrayBuffer>): Promise<number> {
    await this.#beforeMove();
    const moved = await this.#file.read(offset, into);
    this.readBytes += moved;
    return moved;
  }

  async write(offset: number, from: Uint8Array<ArrayBuffer>): Promise<number> {
    const end = offset + from.length;
    expect(end, 'a write past the end').toBeLessThanOrEqual(this.bytes);
    expect(
      this.#writing.filter(([a, b]) => a < end && offset < b),
      'two writes to one place',
    ).toEqual([]);
    const range: [number, number] = [offset, end];
    this.#writing.push(range);
    const before = from.slice();
    await this.#beforeMove();
    const moved = await this.#file.write(offset, from);
    expect(Buffer.compare(from, before), 'bytes changed under a write').toBe(0);
    this.#writing.splice(this.#writing.indexOf(range), 1);
    this.writtenBytes += moved;
    return moved;
  }

  async remove(): Promise<void> {
    expect(this.#writing, 'removed under a write').toEqual([]);
    this.removed = true;
    await this.#file.remove();
  }
}

export const FAULTS = {
  /** Half of it; the rest is there when asked for again. */
  short: 'half',
  /** Half of it, and nothing when asked for more. */
  stuck: 'half, then nothing',
  full: 'ENOSPC',
  broken: 'EIO',
  /** One bit is wrong: in what a read brings, or, for good, in what a write leaves. */
  flipped: 'a flipped bit',
  /** Another place of the file: a read brings it, a write goes there. */
  astray: 'the wrong block',
} as const;

export type Fault = keyof typeof FAULTS;

/** Behaves as the file does, but for its n-th read or write (from 0). */
export class FaultyFile implements BlockFile {
  readonly path: string;
  readonly bytes: number;
  /** Whether it came to the n-th. */
  fired = false;
  readonly #file: BlockFile;
  readonly #fault: Fault;
  #left: number;
  #stuck = false;

  constructor(file: BlockFile, fault: Fault, n: number) {
    this.path = file.path;
    this.bytes = file.bytes;
    this.#file = file;
    this.#fault = fault;
    this.#left = n;
  }

  async read(offset: number, into: Uint8Array<ArrayBuffer>): Promise<number> {
    return this.#move(
      (at, bytes) => this.#file.read(at, bytes),
      offset,
      into,
      async () => {
        const moved = await this.#file.read(offset, into);
        into[into.length >> 1]! ^= 8;
        return moved;
      },
    );
  }

  async write(offset: number, from: Uint8Array<ArrayBuffer>): Promise<number> {
    return this.#move(
      (at, bytes) => this.#file.write(at, bytes),
      offset,
      from,
      () => {
        const wrong = from.slice();
        wrong[wrong.length >> 1]! ^= 8;
        return this.#file.write(offset, wrong);
      },
    );
  }

  /** No fault from here on. */
  heal(): void {
    this.#left = -1;
    this.#stuck = false;
  }

  remove(): Promise<void> {
    return this.#file.remove();
  }

  async #move(
    move: (offset: number, bytes: Uint8Array<ArrayBuffer>) => Promise<number>,
    offset: number,
    bytes: Uint8Array<ArrayBuffer>,
    flipped: () => Promise<number>,
  ): Promise<number> {
    if (this.#stuck) {
      this.#stuck = false;
      return 0;
    }
    if (this.#left-- !== 0) return move(offset, bytes);
    this.fired = true;
    switch (this.#fault) {
      case 'stuck':
        this.#stuck = true;
        return move(offset, bytes.subarray(0, bytes.length >> 1));
      case 'short':
        return move(offset, bytes.subarray(0, bytes.length >> 1));
      case 'full':
        throw Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
      case 'broken':
        throw Object.assign(new Error('EIO: i/o error'), { code: 'EIO' });
      case 'flipped':
        return flipped();
      case 'astray':
        return move((offset + bytes.length) % this.bytes, bytes);
    }
  }
}
