// Source of a model on the command line: a path, as it is; an address or a name on the hub, brought into the cache
// first, with progress on a terminal.

import { CONFIG } from '../formats/checkpoint/folder.ts';
import { besideAdapter } from '../formats/checkpoint/load.ts';
import { hubFolder } from '../formats/remote/hub.ts';
import { asAccount, endpointFrom, GIVING_A_TOKEN, gettingIn, type HubAccount } from '../formats/remote/hub-access.ts';
import {
  HUB_SCHEME,
  type HubAddress,
  hubAddressIn,
  hubAddressOf,
  hubName,
  hubPlace,
} from '../formats/remote/hub-address.ts';
import { keepOfHub, keptOfHub } from '../formats/remote/hub-cache.ts';
import { fetchFile, fetchModel, Interrupted, type RemoteFolder } from '../formats/remote/remote.ts';
import { isUrl, urlFolder } from '../formats/remote/url.ts';
import { folderOf, type Host } from '../runtime/host.ts';
import type { RunSettings } from '../train/run/run-settings.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';

const SHOWN_MS = 200;

/** What a model's name may be, for the help of flags. */
export const MODEL_SOURCES =
  'a folder, zip or GGUF file, its https:// address, hf://ORG/NAME, hf://ORG/NAME/FILE.gguf, or its page on the hub';

/** The path of the model that a name stands for. Errors: HoldfastError where it cannot be had. */
export const localModel = (host: Host, name: string): Promise<string> => broughtHere(host, name, false);

/** As `localModel`, for its config.json alone: what else a model has elsewhere stays there. Errors: also for a zip or GGUF file elsewhere. */
export async function localConfig(host: Host, name: string): Promise<string> {
  if (isRemoteName(name) && WHOLE_FILE.test(name))
    throw new HoldfastError(
      `${name}: holds the weights with the sizes, and a plan brings no weights; name a folder or a model of the hub, or download the file`,
    );
  return broughtHere(host, name, true);
}

/** The one file of an address, where it is of one. */
const WHOLE_FILE = /^(.*\/)([^/?#]+\.(?:zip|gguf))$/i;

async function broughtHere(host: Host, name: string, isConfig: boolean): Promise<string> {
  if (!isRemoteName(name)) return name;
  const { terminal } = host;
  let shown = 0;
  /** Whether the terminal's line has progress on it. */
  let begun = false;
  const progress = (file: string, bytes: number, of: number) => {
    const now = performance.now();
    if (!terminal.interactive || (now - shown < SHOWN_MS && bytes < of)) return;
    shown = now;
    begun = bytes !== of;
    terminal.warn(`\r${file}: ${formatBytes(bytes)} of ${formatBytes(of)}\u001b[K${bytes === of ? '\n' : ''}`);
  };
  const waits = (why: string) => terminal.warn(`waiting for another process that fetches ${name}: ${why}\n`);
  const again = (file: string, why: string) => {
    terminal.warn(`${begun ? '\n' : ''}${file}: ${why}; it is asked for again\n`);
    begun = false;
  };
  const account: HubAccount = { endpoint: endpointOf(host), token: await host.hub?.token() };
  const onHub = hubAddressIn(name, account.endpoint);
  const bring = async (remote: RemoteFolder) => {
    if (!isConfig) return fetchModel(host, remote, progress, waits, again);
    const file = await fetchFile(host, remote, CONFIG, progress, waits, again);
    return file.slice(0, -`/${CONFIG}`.length);
  };
  try {
    if (onHub?.file !== undefined)
      return await fetchFile(host, await hubFolder(onHub, { account }), onHub.file, progress, waits, again);
    if (onHub) {
      const folder = await bring(await hubFolder(onHub, { account }));
      if (!isConfig) await keepOfHub(host, onHub, folder);
      return folder;
    }
    const folderAt = (address: string) => urlFolder(address, asAccount(account, fetch), wayIn(account, name));
    const [, folder, zip] = WHOLE_FILE.exec(name) ?? [];
    if (folder !== undefined && zip !== undefined) {
      return await fetchFile(host, folderAt(folder), fileNameOf(zip), progress, waits, again);
    }
    return await bring(folderAt(name));
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    const kept = onHub && onHub.file === undefined ? await keptOfHub(host, onHub) : undefined;
    if (kept !== undefined) {
      terminal.warn(`holdfast: ${name}: the hub cannot be reached; it is taken as it was brought before\n`);
      return kept;
    }
    throw new HoldfastError(`${name}: cannot be reached (${error.message}); try again, or name a folder`);
  }
}

const endpointOf = ({ hub }: Host): string => endpointFrom(hub?.endpoint, 'HF_ENDPOINT');

/** Whether a name is an address, or of the hub. */
export const isRemoteName = (name: string): boolean => isUrl(name) || name.startsWith(HUB_SCHEME);

const addressIn = (host: Host, name: string): HubAddress | undefined =>
  isRemoteName(name) ? hubAddressIn(name, endpointOf(host)) : undefined;

/** What to do where files of the hub that are named by their own address are refused; undefined elsewhere. */
function wayIn(account: HubAccount, name: string): string | undefined {
  const repo = name.startsWith(`${account.endpoint}/`) && /^[^/]+\/[^/]+/.exec(name.slice(account.endpoint.length + 1));
  return repo ? gettingIn(account, repo[0], GIVING_A_TOKEN) : undefined;
}

/** What a run that starts from a model keeps of where it is: `from` is its path here, `name` what it was named by. */
export function sourceSettings(host: Host, from: string, name: string): Pick<RunSettings, 'from' | 'fromHub'> {
  const onHub = addressIn(host, name);
  return { from, ...(onHub && onHub.file === undefined && { fromHub: hubName(onHub) }) };
}

/**
 * The path of the base that is to be used for what a name stands for, which lies at `path`; undefined: the one that it names,
 * or none. The base of an adapter from the hub is brought from there, too. Errors: as `localModel`.
 */
export async function localBase(
  host: Host,
  { name, path, base }: { readonly name: string; readonly path: string; readonly base: string | undefined },
): Promise<string | undefined> {
  if (base !== undefined) return localModel(host, base);
  const { base: own, revision } = (addressIn(host, name) && (await besideAdapter(host.files, path))) || {};
  if (own === undefined || (await host.files.stat(own))) return undefined;
  const address = hubAddressOf(revision === undefined ? own : `${own}@${revision}`);
  return address && localModel(host, hubPlace(address));
}

/**
 * The base that the adapter at `path` names, where that is plainly another model than the one called `model`: another of the hub, or
 * another folder here. Undefined where it is the same, and where the two cannot be compared.
 */
export async function otherBase(host: Host, path: string, model: string): Promise<string | undefined> {
  const { base } = (await besideAdapter(host.files, path)) ?? {};
  if (base === undefined) return undefined;
  const [named, used] = [await host.files.stat(base), await host.files.stat(model)];
  if (named && used) {
    const idOf = async (at: string) => (await host.files.stat(at))?.id ?? at;
    const isIn = async (one: string, other: string) => (await idOf(folderOf(one))) === (await idOf(other));
    // A run and its checkpoint are one model.
    const isNamed =
      (await idOf(base)) === (await idOf(model)) || (await isIn(base, model)) || (await isIn(model, base));
    return isNamed || named.kind !== 'folder' || used.kind !== 'folder' ? undefined : base;
  }
  const [there, here] = [named ? undefined : hubAddressOf(base), addressIn(host, model)];
  return there && here && there.repo.toLowerCase() !== here.repo.toLowerCase() ? base : undefined;
}

/** As a file here is called. Errors: HoldfastError for what is no name of one. */
function fileNameOf(encoded: string): string {
  let name = '';
  try {
    name = decodeURIComponent(encoded);
  } catch {}
  if (/^[^/\\\p{Cc}]+$/u.test(name)) return name;
  throw new HoldfastError(`${encoded}: is no name of a file; see whether the address is right`);
}
