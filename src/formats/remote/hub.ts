// Models on the Hugging Face hub by their addresses, through its own library, which is an optional peer: it is asked for when
// the first name comes.
//
// Invariant: all files are of one commit, also where the branch moves on meanwhile.

import { HoldfastError, messageOf, shortened } from '../../util/errors.ts';
import { carefully, reasonOf } from './asking.ts';
import { asAccount, GIVING_A_TOKEN, gettingIn, type HubAccount } from './hub-access.ts';
import { HUB, type HubAddress, hubPlace } from './hub-address.ts';
import { Interrupted, type RemoteFile, type RemoteFolder } from './remote.ts';

const PACKAGE = '@huggingface/hub';

/** What to do where the answers are none of a hub. */
const NO_HUB = 'see whether HF_ENDPOINT is the address of a hub';

type Hub = typeof import('@huggingface/hub');

export interface HubOptions {
  /** The address of the hub, and the access token sent to it. @default the public one, with no account */
  readonly account?: HubAccount;
  /** How it is asked. @default the runtime's own */
  readonly fetch?: typeof fetch;
  /** @default the hub's library, if it is installed */
  readonly load?: () => Promise<Hub>;
}

/** The files of a model. Errors: HoldfastError where the library is missing, and where the hub has no such model. */
export async function hubFolder(address: HubAddress, options: HubOptions = {}): Promise<RemoteFolder> {
  const { load = () => import('@huggingface/hub'), account = { endpoint: HUB }, fetch: given } = options;
  const { repo: name, revision = 'main' } = address;
  const called = hubPlace({ ...address, file: undefined });
  const hub = await load().catch((error: unknown) => {
    throw new HoldfastError(
      `${called}: names on the hub need ${PACKAGE} (${absenceOf(error)}); npm install ${PACKAGE}`,
    );
  });
  const isWhole = (url: string) => url.startsWith(`${account.endpoint}/api/`);
  const request = carefully(asAccount(account, given ?? fetch), { isWhole });
  const asked = { hubUrl: account.endpoint, fetch: request };
  const fix = gettingIn(account, name, GIVING_A_TOKEN);
  const answer = <T>(place: string, work: () => Promise<T>) => answerOf(hub, place, fix, work);
  const { sha } = await answer(called, () => hub.modelInfo({ name, revision, additionalFields: ['sha'], ...asked }));
  // It becomes a part of addresses and of a path.
  if (typeof sha !== 'string' || !/^[0-9a-f]{40,64}$/.test(sha))
    throw new HoldfastError(`${called}: the answer names no commit, but ${shortened(String(sha))}; ${NO_HUB}`);
  return {
    place: `${called}/`,
    cacheName: `hub+${name.replace('/', '+')}+${sha}`,
    async find(path): Promise<RemoteFile | undefined> {
      const at = { repo: { type: 'model', name }, path, revision: sha, ...asked } as const;
      const place = `${called}/${path}`;
      const info = await answer(place, () => hub.fileDownloadInfo(at));
      if (!info) return undefined;
      const blob = await answer(place, () => hub.downloadFile({ ...at, downloadInfo: info }));
      if (!blob) return undefined;
      // Of a large file, the tag is its checksum.
      const [sha256] = /^"?([0-9a-f]{64})"?$/.exec(info.etag)?.slice(1) ?? [];
      return {
        place,
        bytes: info.size,
        version: info.etag,
        ...(sha256 !== undefined && { sha256 }),
        hasRanges: true,
        async *read(from, to) {
          const reader = blob.slice(from, to).stream().getReader();
          try {
            for (;;) {
              const { done, value } = await reader.read();
              if (done) return;
              yield value;
            }
          } catch (error) {
            if (error instanceof HoldfastError) throw error;
            throw new Interrupted(reasonOf(error));
          } finally {
            await reader.cancel().catch(() => {});
          }
        },
      };
    },
  };
}

const absenceOf = (error: unknown): string =>
  (error as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND' ? 'it is not installed' : messageOf(error);

/** Errors: HoldfastError for what the hub refuses and for answers that are none of a hub, Interrupted where it cannot be reached. */
async function answerOf<T>(hub: Hub, place: string, gettingIn: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof Interrupted || error instanceof HoldfastError) throw error;
    if (error instanceof SyntaxError) throw new HoldfastError(`${place}: the answer is no JSON; ${NO_HUB}`);
    // All that the network does is Interrupted.
    if (!(error instanceof hub.HubApiError))
      throw new HoldfastError(`${place}: the answer is none of a hub (${reasonOf(error)}); ${NO_HUB}`);
    const { statusCode: status } = error;
    if (status === 429 || status >= 500) throw new Interrupted(`the hub answers ${status}`);
    const fix = status === 401 || status === 403 ? gettingIn : 'see whether the name is right';
    throw new HoldfastError(`${place}: the hub answers ${status}; ${fix}`);
  }
}
