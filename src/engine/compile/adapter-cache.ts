// Caches of what was learned of adapters on this machine: a file each, in the host's cache folder. A cache that cannot be read
// or written, or is of another format, counts as empty: only time is lost with it.

import { type Host, join } from '../../runtime/host.ts';
import { readJSON } from '../../runtime/read-whole.ts';
import { accept, type Schema } from '../../util/json.ts';

/** The runtime, whose WebGPU may choose otherwise than another one's: its name without the lesser parts of its version. */
export const runtimeKey = ({ name }: Pick<Host, 'name'>): string => name.split('.')[0] ?? name;

export const adapterKey = (host: Host, { adapter }: { readonly adapter: { readonly name: string } }): string =>
  `${runtimeKey(host)} | ${adapter.name}`;

/** Undefined where there is none. */
export async function readCache<T>(host: Host, file: string, schema: Schema<T>): Promise<T | undefined> {
  try {
    return accept(schema, await readJSON(host.files, join(host.cacheFolder, file), ''));
  } catch {
    return undefined;
  }
}

export async function writeCache(host: Host, file: string, contents: unknown): Promise<void> {
  try {
    await host.files.makeFolder(host.cacheFolder);
    await host.files.writeAtomic(join(host.cacheFolder, file), JSON.stringify(contents, undefined, 1));
  } catch {
    // It is learned again at the next start.
  }
}
