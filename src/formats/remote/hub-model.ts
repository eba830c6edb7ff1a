// Models of the Hugging Face hub by their addresses, as folders that are read over the network where they lie: headers by
// range requests, whole files as streams. With nothing but fetch, for pages, which have no package of the hub's and no cache
// of their own (remote.ts); what keeps a model stores these files.
//
// Invariant: all files are of one commit, and a stream brings as many bytes as its file has, or ends in an error.

import type { Files } from '../../runtime/host.ts';
import { HoldfastError, messageOf, shortened } from '../../util/errors.ts';
import { accept, isObject, list, object, optional, parsed, text } from '../../util/json.ts';
import { ADAPTER_FILES, COMPANIONS, CONFIG, INDEX, WEIGHTS } from '../checkpoint/folder.ts';
import { weightFiles } from '../checkpoint/tensor-files.ts';
import { openGGUF } from '../gguf/open.ts';
import { type ImportedFile, type ListedFile, ListedFolder } from '../listed-folder.ts';
import { carefully } from './asking.ts';
import { asAccount, endpointFrom, gettingIn, type HubAccount } from './hub-access.ts';
import { hubAddressIn, refuse } from './hub-address.ts';
import { Interrupted, persistently, type RemoteFile, type RemoteFolder, retryPause } from './remote.ts';
import { urlFolder } from './url.ts';

/** A model on the hub. */
export interface HubSource {
  /** ORG/NAME, ORG/NAME@REVISION or ORG/NAME/FILE.gguf, also behind hf://, or what a browser shows there: its address. */
  readonly hub: string;
  /** The address of a mirror. @default https://huggingface.co */
  readonly endpoint?: string;
  /** An access token of an account there, for models that ask for one. It goes to that address alone, and is not kept. @default none */
  readonly token?: string;
}

/** A model as it lies there. */
export interface HubModel {
  /** Without its owner. */
  readonly name: string;
  /** Another where a byte of it is another: its address with the commit, and its files with their sizes. */
  readonly source: string;
  readonly files: ListedFolder;
  /** There where it is in one GGUF file. */
  readonly gguf?: ImportedFile;
}

const WORDS = { verb: 'choose', wanted: 'name a model with its weights' } as const;
/** The SHA-256 of a large file, where the hub gives it. */
const sumIn = (lfs: unknown): string | undefined =>
  isObject(lfs) && typeof lfs['sha256'] === 'string' ? lfs['sha256'] : undefined;
const LISTED = object({ sha: text, siblings: list(object({ rfilename: text, lfs: optional(parsed(sumIn)) })) });
const SHOWN = 4;
/** In a row, without a byte between them. */
const MOST_FAILURES = 6;

/** What is kept here is kept once, and not in the browser's cache as well. */
const uncached: typeof fetch = (address, init) => fetch(address, { ...init, cache: 'no-store' });

/** Errors: HoldfastError for what is no such name, where the hub cannot be reached, and where it has no such model. */
export async function openHubModel(
  { hub, endpoint: given, token }: HubSource,
  sha256: Files['sha256'],
  asking: typeof fetch = uncached,
): Promise<HubModel> {
  const account: HubAccount = { endpoint: endpointFrom(given, 'endpoint'), token };
  const { endpoint } = account;
  const request = asAccount(account, asking);
  const named = hub.trim();
  const {
    repo,
    revision = 'main',
    file: gguf,
  } = hubAddressIn(named.includes('://') ? named : `hf://${named}`, endpoint) ?? refuse(named);
  const name = repo.replace(/^.*\//, '');
  const fix = gettingIn(account, repo, 'give an access token of yours beside the name');
  const { sha, sums } = await listing(repo, revision, endpoint, request, fix);
  const names = [...sums.keys()];
  const folder = urlFolder(`${endpoint}/${repo}/resolve/${sha}/`, request, fix);
  const sourceOf = (files: readonly ListedFile[]) =>
    JSON.stringify([folder.place, ...files.map(({ path, bytes }) => [path, bytes])]);
  if (gguf !== undefined) {
    const file = await fileOf(folder, gguf, sums.get(gguf));
    const source = { size: file.bytes, read: (offset: number, bytes: number) => file.readRange(gguf, offset, bytes) };
    const files = await openGGUF(source, gguf, sha256);
    return { name: gguf, source: sourceOf([file]), files, gguf: { ...file, name: gguf } };
  }
  const has = (wanted: string) => names.includes(wanted);
  if (!has(CONFIG) || !(has(WEIGHTS) || has(INDEX))) throw nothingIn(repo, names);
  const found = new Map<string, ListedFile>();
  const bring = async (wanted: readonly string[]) => {
    const files = await Promise.all(wanted.map((each) => fileOf(folder, each, sums.get(each))));
    for (const file of files) found.set(file.path, file);
  };
  await bring([CONFIG, has(WEIGHTS) ? WEIGHTS : INDEX, ...COMPANIONS.filter(has)]);
  const listed = () => new ListedFolder(name, [...found.values()], sha256, WORDS);
  if (!has(WEIGHTS)) await bring(await weightFiles(listed(), name));
  return { name, source: sourceOf([...found.values()]), files: listed() };
}

function nothingIn(repo: string, names: readonly string[]): HoldfastError {
  const files = names.filter((name) => /^[^/]+\.gguf$/i.test(name));
  if (files.length > 0) {
    const shown = files.slice(0, SHOWN).map((name) => shortened(`${repo}/${name}`));
    const more = files.length > SHOWN ? `, or another of its ${files.length}` : '';
    return new HoldfastError(`${repo}: has GGUF files; name one of them: ${shown.join(', ')}${more}`);
  }
  const isAdapter = ADAPTER_FILES.every((name) => names.includes(name));
  const problem = isAdapter ? 'is an adapter without its model' : `has no ${CONFIG} with ${WEIGHTS}`;
  return new HoldfastError(`${repo}: ${problem}; name a model with its weights`);
}

/** The commit that a revision stands for, and its files, with the SHA-256 of those that the hub says one of. */
async function listing(
  repo: string,
  revision: string,
  endpoint: string,
  request: typeof fetch,
  fix: string,
): Promise<{ readonly sha: string; readonly sums: ReadonlyMap<string, string | undefined> }> {
  const { host } = new URL(endpoint);
  let status: number;
  let answer: unknown;
  try {
    const response = await carefully(request, { isWhole: () => true })(
      `${endpoint}/api/models/${repo}/revision/${encodeURIComponent(revision)}?blobs=true`,
    );
    ({ status } = response);
    answer = status === 200 ? await response.json() : undefined;
  } catch (error) {
    if (error instanceof HoldfastError) throw error;
    if (error instanceof SyntaxError)
      throw new HoldfastError(`${repo}: ${host} answers with no JSON; see whether the address of the hub is right`);
    throw new HoldfastError(
      `${repo}: ${host} cannot be reached from here (${messageOf(error)}); a model by its name needs the network, without it drop its folder`,
    );
  }
  if (status === 401 || status === 403 || status === 404)
    throw new HoldfastError(
      `${repo}: ${host} shows no such model${revision === 'main' ? '' : ` with a revision ${shortened(revision)}`}; ${fix}`,
    );
  const found = accept(LISTED, answer);
  if (!found || !/^[0-9a-f]{40}$/.test(found.sha))
    throw new HoldfastError(`${repo}: ${host} answers ${status}, with no list of its files; try again later`);
  return { sha: found.sha, sums: new Map(found.siblings.map(({ rfilename, lfs }) => [rfilename, lfs])) };
}

/** Errors: HoldfastError where it is not there, or cannot be reached. */
async function fileOf(folder: RemoteFolder, name: string, sha256: string | undefined): Promise<ListedFile> {
  const file = await persistently(folder.place, name, () => folder.find(name));
  if (!file) throw new HoldfastError(`${folder.place}${name}: there is no such file`);
  if (!file.hasRanges)
    throw new HoldfastError(`${file.place}: the server takes no range requests; download it and drop its folder`);
  const { bytes } = file;
  const readRange = async (_: string, offset: number, count: number) => {
    const read = new Uint8Array(count);
    let at = 0;
    for await (const piece of steadily(file, offset, offset + count)) {
      read.set(piece, at);
      at += piece.length;
    }
    return read;
  };
  return {
    ...{ path: name, bytes, readRange },
    ...(sha256 !== undefined && { sha256 }),
    open: () => streamOf(steadily(file, 0, bytes)),
    openFrom: (from) => streamOf(steadily(file, from, bytes)),
    whole: (path) => readRange(path, 0, bytes),
  };
}

/** Bytes of a file in order; a connection that drops is taken up where it ended. */
async function* steadily(file: RemoteFile, from: number, to: number): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
  let at = from;
  for (let failures = 0; at < to; ) {
    const before = at;
    try {
      for await (const piece of file.read(at, to)) {
        if (at + piece.length > to)
          throw new HoldfastError(`${file.place}: more arrived than was asked for; the server is wrong`);
        at += piece.length;
        yield piece as Uint8Array<ArrayBuffer>;
      }
      if (at < to) throw new Interrupted(`it ended at byte ${at} of ${to}`);
    } catch (error) {
      if (!(error instanceof Interrupted)) throw error;
      failures = at > before ? 1 : failures + 1;
      if (failures > MOST_FAILURES)
        throw new HoldfastError(`${file.place}: ${error.message}, ${failures} times in a row; try again`, {
          cause: error,
        });
      await retryPause(failures);
    }
  }
}

const streamOf = (pieces: AsyncGenerator<Uint8Array<ArrayBuffer>, void>): ReadableStream<Uint8Array> =>
  new ReadableStream({
    async pull(controller) {
      const { done, value } = await pieces.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await pieces.return();
    },
  });
