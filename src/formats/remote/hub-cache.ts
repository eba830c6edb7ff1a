// Models of the hub that were brought whole, by the names that they were asked for by: what there is of them without the network.
//
// Invariant: a folder is named here only once all of a model was in it.

import { type Host, join } from '../../runtime/host.ts';
import { readJSON } from '../../runtime/read-whole.ts';
import { accept, namesTo, text } from '../../util/json.ts';
import { type HubAddress, hubName } from './hub-address.ts';

type CacheHost = Pick<Host, 'files' | 'cacheFolder'>;

const FILE = 'hub.json';
/** Folders by addresses. */
const SCHEMA = namesTo(text);

/** Keeps that the model of an address lies whole in a folder of the cache. It costs the network alone where that cannot be written. */
export async function keepOfHub(host: CacheHost, address: HubAddress, folder: string): Promise<void> {
  const name = hubName(address);
  try {
    const known = await namesIn(host);
    if (known[name] === folder) return;
    await host.files.writeAtomic(fileOf(host), JSON.stringify({ ...known, [name]: folder }));
  } catch {
    // The next time asks the hub again.
  }
}

/** The folder in which the model of an address lies whole; undefined where it was never brought, or is no more. */
export async function keptOfHub(host: CacheHost, address: HubAddress): Promise<string | undefined> {
  const folder = (await namesIn(host))[hubName(address)];
  return folder !== undefined && (await host.files.stat(folder)) ? folder : undefined;
}

const fileOf = ({ cacheFolder }: CacheHost): string => join(cacheFolder, 'models', FILE);

async function namesIn(host: CacheHost): Promise<Readonly<Record<string, string>>> {
  try {
    return accept(SCHEMA, await readJSON(host.files, fileOf(host), '')) ?? {};
  } catch {
    return {};
  }
}
