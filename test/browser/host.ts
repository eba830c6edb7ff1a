// In a browser the device tests run in this place: its own host, with the fixtures of the repository in its files.

import { openBrowserHost } from '../../src/runtime/browser.ts';
import type { Files } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';

/** Names alone; the bytes are fetched when they are read. */
const fixtures = Object.keys(import.meta.glob('/test/fixtures/**/*')).map((path) => path.slice(1));

async function fetchFile(path: string): Promise<Uint8Array<ArrayBuffer>> {
  if (!fixtures.includes(path)) throw new HoldfastError(`cannot read ${path}: it does not exist`);
  return new Uint8Array(await (await fetch(`/${path}`)).arrayBuffer());
}

const host = await openBrowserHost();

const files: Files = Object.assign(Object.create(host.files) as Files, {
  read: fetchFile,
  async readRange(path: string, offset: number, bytes: number) {
    return (await fetchFile(path)).slice(offset, offset + bytes);
  },
  async stat(path: string) {
    if (fixtures.includes(path)) return { kind: 'file' as const, bytes: (await fetchFile(path)).length };
    return fixtures.some((file) => file.startsWith(`${path}/`)) ? { kind: 'folder' as const, bytes: 0 } : undefined;
  },
  async list(folder: string) {
    const inside = fixtures.filter((file) => file.startsWith(`${folder}/`));
    return [...new Set(inside.map((file) => file.slice(folder.length + 1).replace(/\/.*/s, '')))].sort();
  },
} satisfies Partial<Files>);

export const testHost = { ...host, files };
export const ADAPTER = 'auto';
export const VERBOSE = false;
/** As in Node; config/vitest.browsers.ts says it here. */
export const EVERY_CASE = import.meta.env['EVERY_CASE'] === true;
export const THOROUGH = EVERY_CASE;
