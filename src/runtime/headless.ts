// The headless host: with its folder, the one place that names Node and Deno. Both read files and
// the terminal through the node: modules; they differ in where WebGPU comes from (npm `webgpu`, or the runtime's own).
//
// Without a GPU the embedded software adapter is used: SwiftShader and a Vulkan loader, out of the npm
// package @sparticuz/chromium, unpacked once into the cache folder. The Vulkan loader reads its manifest
// from the environment when an adapter is requested, so a source sets the environment as it opens.

import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { createBrotliDecompress } from 'node:zlib';
import { at } from '../util/at.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { withNaps } from './dawn-polls.ts';
import { codeOf, fileError } from './headless/file-errors.ts';
import { claimFolder, claimNextFolder } from './headless/folder-lock.ts';
import { freeBytes, makeFolders, syncFolder } from './headless/folders.ts';
import { readLines } from './headless/lines.ts';
import { joinRanks, leaveRanks } from './headless/mpi/messages.ts';
import { withoutNotices } from './headless/native-stderr.ts';
import { makePartialFolder, removePartials, writeStream } from './headless/partials.ts';
import { resumeFile } from './headless/resumed-file.ts';
import { threads } from './headless/threads.ts';
import { openBlockFile } from './headless/tier-file.ts';
import type { Files, GPUSource, Host, Terminal } from './host.ts';

const isDeno = 'Deno' in globalThis;
const require = createRequire(import.meta.url);

/** The host for Node and Deno. */
export function headlessHost(): Host {
  return {
    name: isDeno ? `Deno ${process.versions['deno']}` : `Node ${process.versions.node}`,
    version: async () => JSON.parse(await fs.readFile(path.join(packageFolder(), 'package.json'), 'utf8')).version,
    args: process.argv.slice(2),
    files,
    terminal,
    gpuSources: isDeno ? denoSources : nodeSources,
    exampleText: () => files.read(path.join(packageFolder(), 'assets', 'example.txt.gz')),
    cacheFolder: path.join(process.env['XDG_CACHE_HOME'] || path.join(os.homedir(), '.cache'), 'holdfast'),
    memoryBytes: os.totalmem(),
    openBlockFile,
    claimFolder,
    claimNextFolder,
    resumeFile,
    threads,
    readStandardInput,
    readLines,
    joinRanks,
    onInterrupt,
    exit(status) {
      leaveRanks(status);
      process.exit(status);
    },
  };
}

/** The nearest folder above this file with a package.json: the same from src/runtime and from dist. */
function packageFolder(): string {
  let folder = path.dirname(fileURLToPath(import.meta.url));
  const isRoot = (f: string) => path.dirname(f) === f;
  while (!isRoot(folder) && path.basename(folder) !== 'dist' && path.basename(folder) !== 'src') {
    folder = path.dirname(folder);
  }
  return path.dirname(folder);
}

// ---- GPUs ----------------------------------------------------------------------------------------------

/** By default Dawn rounds timestamps to 65 microseconds. */
const DAWN_OPTIONS = ['disable-dawn-features=timestamp_quantization'];

/** Dawn instances live as long as the process: an adapter outlives the call that opened its instance. */
const instances: GPU[] = [];

async function nodeSources(): Promise<GPUSource[]> {
  const dawn = await import('webgpu').catch((error) => {
    throw new HoldfastError(`npm package "webgpu" cannot be loaded (${messageOf(error)}); run npm install`);
  });
  const create = (options: string[]) => {
    const gpu = dawn.create([...DAWN_OPTIONS, ...options]) as unknown as GPU;
    instances.push(gpu);
    const requestAdapter = gpu.requestAdapter.bind(gpu);
    gpu.requestAdapter = (options) => withoutNotices(() => requestAdapter(options));
    return gpu;
  };
  const system: GPUSource[] = [];
  if (await systemHasLoader()) {
    for (const name of await dawnAdapterNames(create)) {
      const open = async () => {
        const gpu = create([`adapter=${name}`]);
        return isSoftware(name) ? withNaps(gpu) : gpu;
      };
      system.push({ name, embedded: false, open });
    }
    if (system.length === 0) system.push({ name: 'system', embedded: false, open: async () => create([]) });
  }
  const embedded: GPUSource = {
    name: 'embedded SwiftShader',
    embedded: true,
    open: async () => {
      await useEmbeddedDriver();
      return withNaps(create(['adapter=SwiftShader']));
    },
  };
  // Dawn's own order within a backend prefers discrete GPUs; software adapters go last.
  return [
    ...system.filter(({ name }) => !isSoftware(name)),
    ...system.filter(({ name }) => isSoftware(name)),
    embedded,
  ];
}

const isSoftware = (name: string): boolean => /llvmpipe|swiftshader|software|basic render/i.test(name);

/** Whether Dawn would find a Vulkan loader; where it does not, it complains on standard error and finds no GPU. */
async function systemHasLoader(): Promise<boolean> {
  if (process.platform !== 'linux') return true;
  const koffi = await import('koffi').catch(() => undefined);
  if (!koffi) return true;
  try {
    koffi.default.load('libvulkan.so.1');
    return true;
  } catch {
    return false;
  }
}

/** Dawn names every adapter only in the error for one that is not there. */
async function dawnAdapterNames(create: (options: string[]) => GPU): Promise<string[]> {
  try {
    await create(['adapter=(none has this name)']).requestAdapter();
    return [];
  } catch (error) {
    const names = [...messageOf(error).matchAll(/name: '(.*)'/g)].map((match) => at(match, 1));
    return [...new Set(names)];
  }
}

/** Deno makes one WebGPU instance a process, at the first request: what is wanted is set before. */
async function denoSources(): Promise<GPUSource[]> {
  const open = async () => {
    if (!navigator.gpu) throw new HoldfastError('Deno shows no navigator.gpu; run it with --unstable-webgpu');
    return navigator.gpu;
  };
  const system: GPUSource = { name: 'system', embedded: false, open };
  const embedded: GPUSource = {
    name: 'embedded SwiftShader',
    embedded: true,
    open: async () => {
      await useEmbeddedDriver();
      return open();
    },
  };
  return (await systemHasDriver()) ? [system, embedded] : [embedded];
}

/** On Linux: a render device, or a software driver's manifest. Elsewhere the system always has WebGPU. */
async function systemHasDriver(): Promise<boolean> {
  if (process.platform !== 'linux' || process.env['VK_DRIVER_FILES']) return true;
  if ((await files.stat('/dev/dri')) || (await files.stat('/dev/nvidia0'))) return true;
  const folder = '/usr/share/vulkan/icd.d';
  const manifests = (await files.stat(folder)) ? await files.list(folder) : [];
  return manifests.some((name) => name.startsWith('lvp_icd'));
}

/** Unpacks SwiftShader on first use, makes sure that a Vulkan loader is there, and points it to the driver. */
async function useEmbeddedDriver(): Promise<void> {
  const folder = await unpackSwiftShader();
  const koffi = (await import('koffi')).default;
  try {
    koffi.load('libvulkan.so.1');
  } catch {
    koffi.load(path.join(folder, 'libvulkan.so.1'));
  }
  const manifest = path.join(folder, 'vk_swiftshader_icd.json');
  process.env['VK_DRIVER_FILES'] = manifest;
  process.env['VK_ICD_FILENAMES'] = manifest; // loaders before 1.3.207 know only this name
}

async function unpackSwiftShader(): Promise<string> {
  if (process.platform !== 'linux' || process.arch !== 'x64') {
    throw new HoldfastError(
      `no embedded software adapter for ${process.platform}-${process.arch} (only linux-x64); use the system's GPU`,
    );
  }
  let archive: string;
  let version: string;
  try {
    const entry = require.resolve('@sparticuz/chromium');
    const root = entry.slice(0, entry.lastIndexOf('chromium') + 'chromium'.length);
    archive = path.join(root, 'bin', 'swiftshader.tar.br');
    version = JSON.parse(await fs.readFile(path.join(root, 'package.json'), 'utf8')).version;
  } catch {
    throw new HoldfastError('the embedded software adapter is not installed; run npm install @sparticuz/chromium');
  }
  const target = path.join(headlessHost().cacheFolder, `swiftshader-${version}`);
  if (await files.stat(target)) return target;
  const partial = await files.makePartial(target);
  const tar = await import('tar-fs');
  await new Promise<void>((resolve, reject) => {
    createReadStream(archive)
      .on('error', reject)
      .pipe(createBrotliDecompress())
      .on('error', reject)
      .pipe(tar.extract(partial))
      .on('error', reject)
      .on('finish', resolve);
  });
  // Another process may have been first: its copy is as good.
  await fs.rename(partial, target).catch(() => fs.rm(partial, { recursive: true, force: true }));
  return target;
}

// ---- Files ---------------------------------------------------------------------------------------------

const files: Files = {
  async read(file) {
    try {
      return new Uint8Array(await fs.readFile(file));
    } catch (error) {
      throw fileError(`cannot read ${file}`, error);
    }
  },
  async readRange(file, offset, bytes, into) {
    const open = await files.open(file);
    try {
      return await open.readRange(offset, bytes, into);
    } finally {
      await open.close();
    }
  },
  async open(file) {
    const attempt = async <T>(work: () => Promise<T>): Promise<T> => {
      try {
        return await work();
      } catch (error) {
        throw fileError(`cannot read ${file}`, error);
      }
    };
    const handle = await attempt(() => fs.open(file));
    const readRange = async (offset: number, bytes: number, into?: Uint8Array<ArrayBuffer>) => {
      const result = into?.subarray(0, bytes) ?? new Uint8Array(bytes);
      for (let done = 0; done < bytes; ) {
        const { bytesRead } = await handle.read(result, done, bytes - done, offset + done);
        if (bytesRead === 0) throw new Error(`it ends at byte ${offset + done}, before ${offset + bytes}`);
        done += bytesRead;
      }
      return result;
    };
    try {
      const { size } = await handle.stat();
      return {
        bytes: size,
        readRange: (...range) => attempt(() => readRange(...range)),
        close: () => handle.close(),
      };
    } catch (error) {
      await handle.close();
      throw fileError(`cannot read ${file}`, error);
    }
  },
  async writeAtomic(file, bytes) {
    const stream = await files.writeStream(file);
    try {
      await stream.write(typeof bytes === 'string' ? new TextEncoder().encode(bytes) : bytes);
      await stream.commit();
    } catch (error) {
      await stream.abort();
      throw error;
    }
  },
  writeStream,
  async stat(file) {
    try {
      const stat = await fs.stat(file, { bigint: true });
      const kind = stat.isDirectory() ? 'folder' : stat.isFile() ? 'file' : stat.isFIFO() ? 'pipe' : 'other';
      return { kind, bytes: Number(stat.size), id: `${stat.dev}:${stat.ino}` };
    } catch (error) {
      if (/ENOENT|ENOTDIR/.test(codeOf(error))) return undefined;
      if (codeOf(error) === 'ELOOP') return { kind: 'other', bytes: 0 };
      throw fileError(`cannot look at ${file}`, error);
    }
  },
  async list(folder) {
    try {
      return (await fs.readdir(folder)).sort();
    } catch (error) {
      throw fileError(`cannot list ${folder}`, error);
    }
  },
  async makeFolder(folder) {
    try {
      await makeFolders(folder);
    } catch (error) {
      throw fileError(`cannot make the folder ${folder}`, error);
    }
  },
  makePartial: makePartialFolder,
  async removePartials(folder) {
    try {
      await removePartials(folder);
    } catch (error) {
      throw fileError(`cannot remove what ended processes left in ${folder}`, error);
    }
  },
  async syncFolder(folder) {
    try {
      await syncFolder(folder);
    } catch (error) {
      throw fileError(`cannot sync the folder ${folder}`, error);
    }
  },
  freeBytes,
  async sha256() {
    const hash = createHash('sha256');
    return { update: (bytes) => void hash.update(bytes), hex: () => hash.digest('hex') };
  },
  async rename(from, to) {
    try {
      if (!(await fs.lstat(from)).isDirectory()) return await fs.rename(from, to);
      const place = await fs.realpath(to).catch(() => to);
      // Not everywhere is a folder renamed onto an empty one. One that is not empty stays, and is in the way.
      await fs.rmdir(place).catch(() => {});
      await fs.rename(from, place);
    } catch (error) {
      throw fileError(`cannot rename ${from} to ${to}`, error);
    }
  },
  async remove(file) {
    try {
      await fs.rm(file, { recursive: true, force: true });
    } catch (error) {
      throw fileError(`cannot remove ${file}`, error);
    }
  },
};

// ---- Terminal ------------------------------------------------------------------------------------------

const terminal: Terminal = {
  get interactive() {
    return process.stdout.isTTY === true;
  },
  get columns() {
    return process.stdout.columns ?? 80;
  },
  write: (text) => write(process.stdout, text),
  warn: (text) => write(process.stderr, text),
};

/** Called when the terminal is closed or the reader of a pipe has gone. */
let onClosed = (): void => process.exit(141);
const watched = new Set<NodeJS.WriteStream>();

function write(stream: NodeJS.WriteStream, text: string): void {
  // Without a listener, output that has nowhere to go ends the process, and what it has not saved is lost.
  if (!watched.has(stream)) stream.on('error', () => onClosed());
  watched.add(stream);
  stream.write(text);
}

async function readStandardInput(): Promise<Uint8Array<ArrayBuffer>> {
  const parts: Uint8Array[] = [];
  for await (const part of process.stdin) parts.push(part);
  return new Uint8Array(Buffer.concat(parts));
}

function onInterrupt(callback: () => void): void {
  let interrupted = false;
  const interrupt = () => {
    if (!interrupted) callback();
    interrupted = true;
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => (interrupted ? process.exit(130) : interrupt()));
  }
  // A closed terminal sends one, its shell another, and what is written fails from then on: that is one request.
  process.on('SIGHUP', interrupt);
  onClosed = interrupt;
}
