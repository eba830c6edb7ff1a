// The link to the disk worker (workers/disk.ts): carries bytes there and back, through memory that both share where the page is
// isolated, else in buffers that are transferred. The worker starts at the first call.

import { type Remote, releaseProxy, transfer, wrap } from 'comlink';
import { deferred } from '../../util/deferred.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { OpfsDisk } from './opfs-disk.ts';

/** Shared buffers kept for the next move. */
const MOST_IDLE = 8;

export class DiskLink {
  readonly #isolated = globalThis.crossOriginIsolated === true;
  readonly #idle: SharedArrayBuffer[] = [];
  /** How what was asked and not yet answered is refused. */
  readonly #waiting = new Set<(error: Error) => void>();
  #worker: Worker | undefined;
  #disk: Remote<OpfsDisk> | undefined;

  /** Errors: those of `question`, and HoldfastError where the worker does not start; the next call starts it again. */
  async ask<T>(question: (disk: Remote<OpfsDisk>) => Promise<T>): Promise<T> {
    const { promise, resolve, reject } = deferred<T>();
    this.#waiting.add(reject);
    try {
      question(this.#started).then(resolve, reject);
      return await promise;
    } finally {
      this.#waiting.delete(reject);
    }
  }

  async read(file: number, offset: number, into: Uint8Array): Promise<number> {
    const shared = this.#take(into.length);
    try {
      const { count, bytes } = await this.ask((disk) => disk.read(file, offset, into.length, shared));
      into.set(new Uint8Array(shared ?? bytes, 0, count));
      return count;
    } finally {
      this.#give(shared);
    }
  }

  async write(file: number, offset: number, from: Uint8Array): Promise<number> {
    const shared = this.#take(from.length);
    if (!shared) {
      const copy = from.slice().buffer;
      return this.ask((disk) => disk.write(file, offset, from.length, transfer(copy, [copy])));
    }
    new Uint8Array(shared).set(from);
    try {
      return await this.ask((disk) => disk.write(file, offset, from.length, shared));
    } finally {
      this.#give(shared);
    }
  }

  close(): void {
    this.#disk?.[releaseProxy]();
    this.#worker?.terminate();
    this.#worker = undefined;
    this.#disk = undefined;
  }

  get #started(): Remote<OpfsDisk> {
    if (!this.#worker) {
      this.#worker = new Worker(new URL('../../../workers/disk.ts', import.meta.url), { type: 'module' });
      this.#worker.addEventListener('error', ({ message }) => this.#refuse(message));
    }
    this.#disk ??= wrap<OpfsDisk>(this.#worker);
    return this.#disk;
  }

  /** What goes wrong in a call is its answer: this is a worker that could not be loaded. */
  #refuse(message = ''): void {
    this.close();
    const reason = message === '' ? '' : ` (${message})`;
    const error = new HoldfastError(`the worker that writes files did not start${reason}; reload the page`);
    for (const refuse of this.#waiting) refuse(error);
  }

  #take(bytes: number): SharedArrayBuffer | undefined {
    if (!this.#isolated) return undefined;
    const index = this.#idle.findIndex(({ byteLength }) => byteLength >= bytes);
    return this.#idle.splice(index, index < 0 ? 0 : 1)[0] ?? new SharedArrayBuffer(bytes);
  }

  #give(shared: SharedArrayBuffer | undefined): void {
    if (!shared) return;
    // The largest serve every move.
    this.#idle.push(shared);
    this.#idle.sort((a, b) => a.byteLength - b.byteLength);
    if (this.#idle.length > MOST_IDLE) this.#idle.shift();
  }
}
