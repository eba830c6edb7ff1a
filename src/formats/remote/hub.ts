// Models on the Hugging Face hub by their addresses, through its own library, which is an optional peer: it is asked for when
// the first name comes.
//
// Invariant: all files are of one commit, also where the branch moves on meanwhile.

import { HoldfastError, messageOf } from '../../util/errors.ts';
import { asAccount, GIVING_A_TOKEN, gettingIn, type HubAccount } from './hub-access.ts';
import { HUB, type HubAddress, hubPlace } from './hub-address.ts';
import { Interrupted, type RemoteFile, type RemoteFolder } from './remote.ts';

const PACKAGE = '@huggingface/hub';

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
    throw new HoldfastError(`${called}: names on the hub need ${PACKAGE} (${reasonOf(error)}); npm install ${PACKAGE}`);
  });
  // Without an account the library's own way to ask, which may be faster.
  const request = account.token === undefined ? given : asAccount(account, given ?? fetch);
  const asked = { hubUrl: account.endpoint, ...(request && { fetch: request }) };
  const fix = gettingIn(account, name, GIVING_A_TOKEN);
  const answer = <T>(place: string, work: () => Promise<T>) => answerOf(hub, place, fix, work);
  const { sha } = await answer(called, () => hub.modelInfo({ name, revision, additionalFields: ['sha'], ...asked }));
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
            throw new Interrupted(messageOf(error));
          } finally {
            await reader.cancel().catch(() => {});
          }
        },
      };
    },
  };
}

const reasonOf = (error: unknown): string =>
  (error as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND' ? 'it is not installed' : messageOf(error);

/** Errors: HoldfastError for what the hub refuses, Interrupted where it cannot be reached. */
async function answerOf<T>(hub: Hub, place: string, gettingIn: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof hub.HubApiError)) throw new Interrupted(messageOf(error));
    const { statusCode: status } = error;
    if (status === 429 || status >= 500) throw new Interrupted(`the hub answers ${status}`);
    const fix = status === 401 || status === 403 ? gettingIn : 'see whether the name is right';
    throw new HoldfastError(`${place}: the hub answers ${status}; ${fix}`);
  }
}
