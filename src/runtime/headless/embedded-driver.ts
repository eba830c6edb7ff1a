// The embedded software adapter: SwiftShader and a Vulkan loader, out of the npm package @sparticuz/chromium, unpacked
// once into the cache folder. The Vulkan loader reads its manifest from the environment when an adapter is requested, and shows
// nothing but what that names: it is there for that long (`withDriver`), so that the system's GPUs are found afterwards.

import { createReadStream } from 'node:fs';
import * as fs from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import process from 'node:process';
import { pipeline } from 'node:stream/promises';
import { isMainThread } from 'node:worker_threads';
import { createBrotliDecompress } from 'node:zlib';
import { HoldfastError, messageOf } from '../../util/errors.ts';
import { fileError } from './file-errors.ts';
import { files } from './files.ts';
import { cacheFolder } from './places.ts';

const require = createRequire(import.meta.url);

/** The variables that name a driver's manifest; loaders before 1.3.207 know only the second. */
const VARIABLES = ['VK_DRIVER_FILES', 'VK_ICD_FILENAMES'] as const;

/** Unpacks SwiftShader on first use and makes sure that a Vulkan loader is there; the path of the driver's manifest. */
export async function embeddedDriver(): Promise<string> {
  const folder = await unpackSwiftShader();
  const koffi = (await import('koffi')).default;
  try {
    koffi.load('libvulkan.so.1');
  } catch {
    koffi.load(path.join(folder, 'libvulkan.so.1'));
  }
  return path.join(folder, 'vk_swiftshader_icd.json');
}

/** While `work` is done, the Vulkan loader shows the driver of this manifest and no other; without one, all that there are. */
export async function withDriver<T>(manifest: string | undefined, work: () => Promise<T>): Promise<T> {
  if (manifest === undefined) return work();
  const { get, set } = isMainThread ? OWN : await variablesOfProcess();
  const before = VARIABLES.map(get);
  for (const name of VARIABLES) set(name, manifest);
  try {
    return await work();
  } finally {
    for (const [i, name] of VARIABLES.entries()) set(name, before[i]);
  }
}

/** Variables of an environment; undefined is one that is not there. */
interface Variables {
  get(name: string): string | undefined;
  set(name: string, value: string | undefined): void;
}

const OWN: Variables = {
  get: (name) => process.env[name],
  set(name, value) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
  },
};

/** Those that native code sees. What a thread has of its own is a copy of them. */
async function variablesOfProcess(): Promise<Variables> {
  const libc = (await import('koffi')).default.load(null);
  const getenv = libc.func('str getenv(str)');
  const setenv = libc.func('int setenv(str, str, int)');
  const unsetenv = libc.func('int unsetenv(str)');
  return {
    get: (name) => getenv(name) ?? undefined,
    set: (name, value) => (value === undefined ? unsetenv(name) : setenv(name, value, 1)),
  };
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
  const target = path.join(cacheFolder(), `swiftshader-${version}`);
  if (await files.stat(target)) return target;
  const partial = await files.makePartial(target).catch((error) => {
    throw new HoldfastError(
      `${messageOf(error)}; set XDG_CACHE_HOME to a folder where the software adapter can be unpacked`,
      { cause: error },
    );
  });
  const tar = await import('tar-fs');
  try {
    // Ends all of them where one fails.
    await pipeline(createReadStream(archive), createBrotliDecompress(), tar.extract(partial));
  } catch (error) {
    await fs.rm(partial, { recursive: true, force: true }).catch(() => {});
    throw fileError(`cannot unpack the embedded software adapter into ${target}`, error);
  }
  // Another process may have been first: its copy is as good.
  await fs.rename(partial, target).catch(() => fs.rm(partial, { recursive: true, force: true }));
  return target;
}
