// The browser host: the one file that names what only browsers have (with opfs.ts, opfs-disk.ts and workers/). Files
// lie in the site's private file system (OPFS), GPUs come from navigator.gpu, there is no terminal.
//
// What is atomic here: a file is written beside its target by a worker (workers/disk.ts), flushed, and moved over it;
// Chromium does the move as one change of its file table. Folders are renamed by opfs.ts. Either holds whatever
// instant a tab, a worker or the browser ends at; against a loss of power, as far as the browser's own table does.

import { type Remote, releaseProxy, transfer, wrap } from 'comlink';
import { createSHA256 } from 'hash-wasm';
import exampleText from '../../assets/example.txt.gz?url';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { withNudges } from './firefox-polls.ts';
import type { BlockFile, FileStat, Files, GPUSource, Host, OpenFile, Sha256, Threads, WriteStream } from './host.ts';
import { find, finishRenames, nameOf, openFolder, renameFolder, splitPath } from './opfs.ts';
import type { OpfsDisk } from './opfs-disk.ts';

/** The site's share of the disk, in bytes. */
export interface DiskRoom {
  /** Bytes that the site may keep. */
  readonly quota: number;
  /** Bytes in use. */
  readonly used: number;
  /** Whether the browser promised not to clear it when space is short. Only a page can ask it to. */
  readonly persisted: boolean;
}

export interface BrowserHost extends Host {
  /** Whether the page is cross-origin isolated: without, every block moved is copied once more. */
  readonly isolated: boolean;
  room(): Promise<DiskRoom>;
  /** A file to hand to the page; its bytes stay on disk. */
  fileAt(path: string): Promise<File>;
  /** Ends the worker. Block files that are open stay where they are until the next host. */
  close(): void;
}

/** The host of a page or a worker. It may be made more than once; first, what a closed tab left half-done is done. */
export async function openBrowserHost(): Promise<BrowserHost> {
  // Private windows refuse when they are asked.
  const mayKeepFiles = async () => Boolean(await navigator.storage?.getDirectory?.().catch(() => undefined));
  if (!globalThis.isSecureContext || !(await mayKeepFiles())) {
    throw new HoldfastError(
      'this page may keep no files: browsers allow it on https and on localhost, and not in every private window; open it there',
    );
  }
  await finishRenames();
  const link = new DiskLink();
  return {
    name: browserName(),
    args: [],
    files: new OpfsFiles(link),
    terminal: {
      interactive: false,
      columns: 80,
      write: (text) => console.log(text),
      warn: (text) => console.warn(text),
    },
    gpuSources: async () => [browserGPU],
    cacheFolder: 'cache',
    exampleText: fetchExample,
    openBlockFile: (folder, bytes) => openBlockFile(link, folder, bytes),
    threads,
    readStandardInput: () => Promise.reject(new HoldfastError('a browser has no standard input; name a file')),
    onInterrupt() {},
    exit() {},
    isolated: globalThis.crossOriginIsolated === true,
    room: roomOnDisk,
    async fileAt(path) {
      return (await fileAt(path)).getFile();
    },
    close: () => link.close(),
  };
}

function browserName(): string {
  const [, name, version] = /(Firefox|Edg|Chrome|Version)\/(\d+)/.exec(navigator.userAgent) ?? [];
  return `${name === 'Version' ? 'Safari' : (name ?? 'browser')} ${version ?? ''}`.trim();
}

const browserGPU: GPUSource = {
  name: 'the browser',
  embedded: false,
  open: async () => {
    if (navigator.gpu) return { ...navigator.gpu, requestAdapter };
    throw new HoldfastError('this browser has no WebGPU; recent Chrome, Edge, Safari and Firefox have');
  },
};

const RETRY_MS = 100;
/** While the browser starts, and after its GPU process has crashed. */
const RETRIES = { first: 20, again: 50 };
let hadAdapter = false;

/** A GPU process takes a moment to be there; until then there is no adapter, as where there is none at all. */
async function requestAdapter(options?: GPURequestAdapterOptions): Promise<GPUAdapter | null> {
  for (let i = 0; ; i++) {
    const adapter = await navigator.gpu.requestAdapter(options);
    hadAdapter ||= adapter !== null;
    if (adapter) return browserName().startsWith('Firefox') ? withNudges(adapter) : adapter;
    if (i === (hadAdapter ? RETRIES.again : RETRIES.first)) return null;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

async function fetchExample(): Promise<Uint8Array<ArrayBuffer>> {
  const response = await fetch(exampleText).catch((error) => {
    throw new HoldfastError(`cannot load the example text (${messageOf(error)}); give text of your own`);
  });
  if (!response.ok) {
    throw new HoldfastError(`cannot load the example text (status ${response.status}); give text of your own`);
  }
  return new Uint8Array(await response.arrayBuffer());
}

// ---- Room ----------------------------------------------------------------------------------------------------

async function roomOnDisk(): Promise<DiskRoom> {
  const { quota = Number.POSITIVE_INFINITY, usage = 0 } = await navigator.storage.estimate();
  return { quota, used: usage, persisted: await navigator.storage.persisted() };
}

async function describeRoom(): Promise<string> {
  const { quota, used } = await roomOnDisk();
  return `this site may keep ${formatBytes(quota)} (${quota} bytes) here and ${formatBytes(used)} are in use: ${formatBytes(Math.max(0, quota - used))} would fit`;
}

async function fileError(what: string, error: unknown): Promise<HoldfastError> {
  const reasons: Record<string, string> = {
    NotFoundError: 'it does not exist',
    TypeMismatchError: 'it, or a part of its path, is a folder where a file should be, or the other way round',
    NoModificationAllowedError: 'another tab is using it',
  };
  const full = nameOf(error) === 'QuotaExceededError';
  const reason = full ? `${await describeRoom()}; remove runs, or make space on the disk` : reasons[nameOf(error)];
  return new HoldfastError(`${what}: ${reason ?? messageOf(error)}`);
}

// ---- Threads -------------------------------------------------------------------------------------------------

const threads: Threads = {
  count: navigator.hardwareConcurrency,
  async start({ message, failed }) {
    const worker = new Worker(new URL('../../workers/optimizer.ts', import.meta.url), { type: 'module' });
    worker.onmessage = ({ data }) => message(data);
    worker.onerror = (event) => failed(new Error(event.message));
    return {
      post: (data) => worker.postMessage(data),
      // A page lives as long as it is open.
      keepAlive() {},
      end: async () => worker.terminate(),
    };
  },
};

// ---- The worker ----------------------------------------------------------------------------------------------

/** Shared buffers kept for the next move. */
const MOST_IDLE = 8;

/** This side of workers/disk.ts: carries bytes there and back. */
class DiskLink {
  readonly #isolated = globalThis.crossOriginIsolated === true;
  readonly #idle: SharedArrayBuffer[] = [];
  #worker: Worker | undefined;
  #disk: Remote<OpfsDisk> | undefined;

  get disk(): Remote<OpfsDisk> {
    this.#worker ??= new Worker(new URL('../../workers/disk.ts', import.meta.url), { type: 'module' });
    this.#disk ??= wrap<OpfsDisk>(this.#worker);
    return this.#disk;
  }

  async read(file: number, offset: number, into: Uint8Array): Promise<number> {
    const shared = this.#take(into.length);
    try {
      const { count, bytes } = await this.disk.read(file, offset, into.length, shared);
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
      return this.disk.write(file, offset, from.length, transfer(copy, [copy]));
    }
    new Uint8Array(shared).set(from);
    try {
      return await this.disk.write(file, offset, from.length, shared);
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

// ---- Files ---------------------------------------------------------------------------------------------------

async function fileAt(path: string): Promise<FileSystemFileHandle> {
  const [folder, name] = splitPath(path);
  return (await openFolder(folder)).getFileHandle(name);
}

class OpfsFiles implements Files {
  readonly #link: DiskLink;

  constructor(link: DiskLink) {
    this.#link = link;
  }

  read(path: string): Promise<Uint8Array<ArrayBuffer>> {
    return this.#attempt(
      `cannot read ${path}`,
      async () => new Uint8Array(await (await (await fileAt(path)).getFile()).arrayBuffer()),
    );
  }

  async readRange(path: string, offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    return (await this.open(path)).readRange(offset, bytes);
  }

  async open(path: string): Promise<OpenFile> {
    const what = `cannot read ${path}`;
    const file = await this.#attempt(what, async () => (await fileAt(path)).getFile());
    const readRange = async (offset: number, bytes: number) => {
      if (file.size < offset + bytes) throw new Error(`it ends at byte ${file.size}, before ${offset + bytes}`);
      return new Uint8Array(await file.slice(offset, offset + bytes).arrayBuffer());
    };
    return {
      bytes: file.size,
      readRange: (offset, bytes) => this.#attempt(what, () => readRange(offset, bytes)),
      close: async () => {},
    };
  }

  async writeAtomic(path: string, bytes: Uint8Array | string): Promise<void> {
    const stream = await this.writeStream(path);
    try {
      await stream.write(typeof bytes === 'string' ? new TextEncoder().encode(bytes) : bytes);
      await stream.commit();
    } catch (error) {
      await stream.abort();
      throw error;
    }
  }

  async writeStream(path: string): Promise<WriteStream> {
    const { disk } = this.#link;
    const partial = `${path}.partial-${crypto.randomUUID()}`;
    const attempt = <T>(work: () => Promise<T>) => this.#attempt(`cannot write ${path}`, work);
    const [folder, name] = splitPath(path);
    // As everywhere, a folder that is missing is an error, not made.
    await attempt(() => openFolder(folder));
    const file = await attempt(() => disk.create(partial, 0));
    let open = true;
    let at = 0;
    return {
      write: (bytes) =>
        attempt(async () => {
          for (let done = 0; done < bytes.length; ) {
            const count = await this.#link.write(file, at, bytes.subarray(done));
            if (count === 0) throw new Error('the browser wrote nothing and gave no reason');
            done += count;
            at += count;
          }
        }),
      commit: () =>
        attempt(async () => {
          open = false;
          await disk.close(file, true);
          await (await fileAt(partial)).move(name);
        }),
      abort: async () => {
        if (open) await disk.close(file, false).catch(() => {});
        await this.remove(partial).catch(() => {});
      },
    };
  }

  stat(path: string): Promise<FileStat | undefined> {
    return this.#attempt(`cannot look at ${path}`, async () => {
      const found = await find(path);
      if (found?.kind !== 'file') return found && { kind: 'folder', bytes: 0 };
      return { kind: 'file', bytes: (await found.getFile()).size };
    });
  }

  list(folder: string): Promise<string[]> {
    return this.#attempt(`cannot list ${folder}`, async () => {
      const names: string[] = [];
      for await (const name of (await openFolder(folder)).keys()) names.push(name);
      return names.sort();
    });
  }

  async makeFolder(folder: string): Promise<void> {
    await this.#attempt(`cannot make the folder ${folder}`, () => openFolder(folder, true));
  }

  /** The browser's own table holds the names: nothing here can sync it. */
  async syncFolder(): Promise<void> {}

  async sha256(): Promise<Sha256> {
    const hash = await createSHA256();
    return { update: (bytes) => void hash.update(bytes), hex: () => hash.digest('hex') };
  }

  rename(from: string, to: string): Promise<void> {
    return this.#attempt(`cannot rename ${from} to ${to}`, async () => {
      const source = await find(from);
      if (!source) throw new Error('it does not exist');
      const [folder, name] = splitPath(to);
      if (source.kind === 'file') return source.move(await openFolder(folder), name);
      if (await find(to)) throw new Error(`${to} is there already`);
      return renameFolder(from, to, (path, text) => this.writeAtomic(path, text));
    });
  }

  remove(path: string): Promise<void> {
    return this.#attempt(`cannot remove ${path}`, async () => {
      if (!(await find(path))) return;
      const [folder, name] = splitPath(path);
      await (await openFolder(folder)).removeEntry(name, { recursive: true });
    });
  }

  async #attempt<T>(what: string, work: () => Promise<T>): Promise<T> {
    try {
      return await work();
    } catch (error) {
      throw error instanceof HoldfastError ? error : await fileError(what, error);
    }
  }
}

// ---- Block files ---------------------------------------------------------------------------------------------

const TIER = /^holdfast-tier-.*\.bin$/;

async function openBlockFile(link: DiskLink, folder: string, bytes: number): Promise<BlockFile> {
  const parent = await openFolder(folder, true);
  // A file that a living worker has open refuses to be removed: what goes was left by one that is gone.
  for await (const name of parent.keys()) {
    if (TIER.test(name)) await parent.removeEntry(name).catch(() => {});
  }
  const { quota, used } = await roomOnDisk();
  if (quota - used < bytes) throw await tooLarge(bytes);
  const name = `holdfast-tier-${crypto.randomUUID()}.bin`;
  const path = `${folder}/${name}`;
  const remove = () => parent.removeEntry(name).catch(() => {});
  let file: number;
  try {
    file = await link.disk.create(path, bytes);
  } catch (error) {
    await remove();
    throw nameOf(error) === 'QuotaExceededError'
      ? await tooLarge(bytes)
      : await fileError(`cannot create ${path}`, error);
  }
  return {
    path,
    bytes,
    read: (offset, into) => link.read(file, offset, into),
    write: (offset, from) => link.write(file, offset, from),
    async remove() {
      await link.disk.close(file, false);
      await remove();
    },
  };
}

async function tooLarge(bytes: number): Promise<HoldfastError> {
  return new HoldfastError(
    `${await describeRoom()}, the disk tier needs ${formatBytes(bytes)} (${bytes} bytes); remove runs, make space on the disk, ` +
      'set a lower disk limit, or use a smaller model',
  );
}
