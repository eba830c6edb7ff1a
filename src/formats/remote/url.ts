// A folder behind a URL, such as https://huggingface.co/ORG/NAME/resolve/main/: each file is asked for by its name, from
// the byte on that is missing. Redirects are followed.
//
// Invariant: bytes are given only of the file that was found: one whose size, tag or date is another is an error.

import { HoldfastError } from '../../util/errors.ts';
import { carefully, reasonOf } from './asking.ts';
import { Interrupted, type RemoteFile, type RemoteFolder } from './remote.ts';

type Fetch = typeof fetch;

export const isUrl = (name: string): boolean => /^https?:\/\//i.test(name);

/**
 * The folder of a model, or the one that the file lies in. `gettingIn`: what to do where the server asks for an account. Errors:
 * HoldfastError for what is no such address.
 */
export function urlFolder(
  address: string,
  request: Fetch = fetch,
  gettingIn = 'it asks for an account: download the model with one and name its folder',
): RemoteFolder {
  let url: URL;
  try {
    url = new URL(address);
  } catch {
    throw new HoldfastError(`${address}: is no address; it must be like https://host/folder/`);
  }
  if (url.search !== '' || url.hash !== '' || url.username !== '') {
    throw new HoldfastError(`${url.origin}${url.pathname}: leave out what is before the host and behind the folder`);
  }
  const place = url.href.replace(/\/*$/, '/');
  const asking = carefully(request);
  return {
    place,
    cacheName: `${url.host}${url.pathname}`.replace(/\/+$/, '').replace(/[^\w.-]+/g, (text) => codesOf(text)),
    find: (name) => findFile(new URL(encodeURIComponent(name), place).href, asking, gettingIn),
  };
}

/** Two addresses never have one name. */
const codesOf = (text: string): string =>
  [...new TextEncoder().encode(text)].map((byte) => (byte === 0x2f ? '+' : `%${byte.toString(16)}`)).join('');

async function findFile(url: string, request: Fetch, gettingIn: string): Promise<RemoteFile | undefined> {
  const first = await ask(request, url, { range: 'bytes=0-0' });
  await first.body?.cancel().catch(() => {});
  if (first.status === 404 || first.status === 410) return undefined;
  const hasRanges = first.status === 206 || first.status === 416;
  checkStatus(url, first, [200, 206, 416], gettingIn);
  const bytes = hasRanges ? rangeOf(first)?.total : lengthOf(first);
  if (bytes === undefined) {
    throw new HoldfastError(
      `${url}: the server does not say how long it is; download it in another way and name its folder`,
    );
  }
  const version = versionOf(first);
  return {
    place: url,
    bytes,
    ...(version !== undefined && { version }),
    hasRanges,
    async *read(from, to) {
      const abort = new AbortController();
      try {
        const response = await ask(
          request,
          url,
          hasRanges ? { range: `bytes=${from}-${to === undefined ? '' : to - 1}` } : {},
          abort.signal,
        );
        checkStatus(url, response, hasRanges ? [206] : [200], gettingIn);
        const range = hasRanges ? rangeOf(response) : { from: 0, total: lengthOf(response) };
        if (versionOf(response) !== version || range?.total !== bytes || range.from !== from) {
          throw new HoldfastError(
            `${url}: is another file than a moment ago, or the server sends other bytes than it was asked for; try again`,
          );
        }
        yield* piecesOf(response);
      } finally {
        abort.abort();
      }
    },
  };
}

async function ask(
  request: Fetch,
  url: string,
  headers: Record<string, string>,
  signal?: AbortSignal,
): Promise<Response> {
  try {
    // What is packed on its way has no length that is known before.
    return await request(url, { headers: { ...headers, 'accept-encoding': 'identity' }, ...(signal && { signal }) });
  } catch (error) {
    throw new Interrupted(reasonOf(error));
  }
}

/** Errors: Interrupted where the server may do better later; HoldfastError. */
function checkStatus(url: string, { status }: Response, expected: readonly number[], gettingIn: string): void {
  if (expected.includes(status)) return;
  if (status === 408 || status === 429 || status >= 500) throw new Interrupted(`the server answers ${status}`);
  const fix = status === 401 || status === 403 ? gettingIn : 'see whether the address is right';
  throw new HoldfastError(`${url}: the server answers ${status}; ${fix}`);
}

async function* piecesOf(response: Response): AsyncGenerator<Uint8Array> {
  const reader = response.body?.getReader();
  try {
    for (;;) {
      const next = await reader?.read();
      if (!next || next.done) return;
      yield next.value;
    }
  } catch (error) {
    throw new Interrupted(reasonOf(error));
  } finally {
    await reader?.cancel().catch(() => {});
  }
}

/** Content-Range: "bytes 5-9/100", or where there are none, "bytes *" and the length. */
function rangeOf({ headers }: Response): { readonly from: number; readonly total: number } | undefined {
  const match = /^bytes (?:(\d+)-\d+|\*)\/(\d+)$/.exec(headers.get('content-range') ?? '');
  return match ? { from: Number(match[1] ?? 0), total: Number(match[2]) } : undefined;
}

function lengthOf({ headers }: Response): number | undefined {
  const length = headers.get('content-length');
  const isPacked = (headers.get('content-encoding') ?? 'identity') !== 'identity';
  return length === null || isPacked || !/^\d+$/.test(length) ? undefined : Number(length);
}

const versionOf = ({ headers }: Response): string | undefined =>
  headers.get('etag') ?? headers.get('last-modified') ?? undefined;
