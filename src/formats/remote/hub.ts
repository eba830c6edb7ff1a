// Models on the Hugging Face hub by their addresses, through its own library, which is an optional peer: it is asked for when
// the first name comes. Public models only.
//
// Invariant: all files are of one commit, also where the branch moves on meanwhile.

import { HoldfastError, messageOf } from '../../util/errors.ts';
import { type HubAddress, hubPlace } from './hub-address.ts';
import { Interrupted, type RemoteFile, type RemoteFolder } from './remote.ts';

const PACKAGE = '@huggingface/hub';

type Hub = typeof import('@huggingface/hub');

export interface HubOptions {
  /** How it is asked. @default the runtime's own */
  readonly fetch?: typeof fetch;
  /** @default the hub's library, if it is installed */
  readonly load?: () => Promise<Hub>;
}

/** The files of a model. Errors: HoldfastError where the library is missing, and where the hub has no such model. */
export async function hubFolder(address: HubAddress, options: HubOptions = {}): Promise<RemoteFolder> {
  const { load = () => import('@huggingface/hub'), fetch: request } = options;
  const { repo: name, revision = 'main' } = address;
  const called = hubPlace({ ...address, file: undefined });
  const hub = await load().catch((error: unknown) => {
    throw new HoldfastError(`${called}: names on the hub need ${PACKAGE} (${reasonOf(error)}); npm install ${PACKAGE}`);
  });
  const asked = { ...(request && { fetch: request }) };
  const { sha } = await answer(hub, called, () =>
    hub.modelInfo({ name, revision, additionalFields: ['sha'], ...asked }),
  );
  return {
    place: `${called}/`,
    cacheName: `hub+${name.replace('/', '+')}+${sha}`,
    async find(path): Promise<RemoteFile | undefined> {
      const at = { repo: { type: 'model', name }, path, revision: sha, ...asked } as const;
      const place = `${called}/${path}`;
      const info = await answer(hub, place, () => hub.fileDownloadInfo(at));
      if (!info) return undefined;
      const blob = await answer(hub, place, () => hub.downloadFile({ ...at, downloadInfo: info }));
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
async function answer<T>(hub: Hub, place: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof hub.HubApiError)) throw new Interrupted(messageOf(error));
    const { statusCode: status } = error;
    if (status === 429 || status >= 500) throw new Interrupted(`the hub answers ${status}`);
    const fix =
      status === 401 || status === 403
        ? 'there is no such public model; where it asks for an account, download it with one and name its folder'
        : 'see whether the name is right';
    throw new HoldfastError(`${place}: the hub answers ${status}; ${fix}`);
  }
}
