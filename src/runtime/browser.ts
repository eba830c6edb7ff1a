// The browser host: what only browsers have is named here, in browser/ and in workers/ alone. Files lie in the site's private
// file system (OPFS), GPUs come from navigator.gpu, there is no terminal.
//
// What is atomic here: a file is written beside its target by a worker (workers/disk.ts), flushed, and moved over it;
// Chromium does the move as one change of its file table. Folders are renamed by browser/opfs.ts. Either holds whatever
// instant a tab, a worker or the browser ends at; against a loss of power, as far as the browser's own table does.

import exampleText from '../../assets/example.txt.gz?url';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { openBlockFile } from './browser/block-file.ts';
import { DiskLink } from './browser/disk-link.ts';
import { withNudges } from './browser/firefox-polls.ts';
import { finishRenames } from './browser/opfs.ts';
import { fileAt, OpfsFiles } from './browser/opfs-files.ts';
import { type DiskRoom, roomOnDisk } from './browser/room.ts';
import type { GPUSource, Host, Threads, ThreadWorker } from './host.ts';

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
  const files = new OpfsFiles(link);
  return {
    name: browserName(),
    args: [],
    files,
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
    resumeFile: (path) => files.resume(path),
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

// ---- Threads -------------------------------------------------------------------------------------------------

/** Spelled out: a bundler looks for these words. */
const workers: Record<ThreadWorker, () => Worker> = {
  optimizer: () => new Worker(new URL('../../workers/optimizer.ts', import.meta.url), { type: 'module' }),
  tokenizing: () => new Worker(new URL('../../workers/tokenizing.ts', import.meta.url), { type: 'module' }),
};

const threads: Threads = {
  count: navigator.hardwareConcurrency,
  async start(name, { message, failed }) {
    const worker = workers[name]();
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
