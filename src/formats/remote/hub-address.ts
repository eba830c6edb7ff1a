// The addresses of models on the Hugging Face hub, as people write and copy them: hf://ORG/NAME, or what a browser shows of the
// model, of one of its revisions, or of a GGUF file in it. Read in one place for the command line and for pages.

import { HoldfastError, shortened } from '../../util/errors.ts';

export const HUB = 'https://huggingface.co';
/** The hosts that show the hub. */
const HOSTS: readonly string[] = ['huggingface.co', 'www.huggingface.co', 'hf.co'];
export const HUB_SCHEME = 'hf://';

const PART = '(?!\\.{1,2}(?:[/@]|$))[\\w.-]{1,100}';
const NAME = new RegExp(`^(${PART}/${PART}?)(?:/([\\w.-]{1,200}\\.gguf))?(?:@([\\w./-]{1,200}))?/?$`, 'i');
/** What is shown there beside models, by the first part of its path. */
const OTHERS = /^(?:api|blog|collections|datasets|docs|models|papers|settings|spaces)$/;

/** A model on the hub. */
export interface HubAddress {
  /** ORG/NAME. */
  readonly repo: string;
  /** A branch, a tag or a commit. @default main */
  readonly revision?: string | undefined;
  /** The GGUF file that is the model. @default the model's own files */
  readonly file?: string | undefined;
}

/**
 * The model that a text names on the hub, or on the mirror of it at `endpoint`; undefined of a path, and of an address elsewhere or
 * of a folder of files (.../resolve/...).
 * Errors: HoldfastError for what is on the hub, and no model.
 */
export function hubAddressIn(text: string, endpoint = HUB): HubAddress | undefined {
  if (text.startsWith(HUB_SCHEME)) return hubAddressOf(text.slice(HUB_SCHEME.length)) ?? refuse(text);
  const url = /^https?:\/\//i.test(text) && URL.canParse(text) ? new URL(text) : undefined;
  if (!url) return undefined;
  const within = `${url.origin}${url.pathname}`;
  if (within.startsWith(`${endpoint}/`)) return shownAt(within, within.slice(endpoint.length));
  return HOSTS.includes(url.host) ? shownAt(within, url.pathname) : undefined;
}

/** The model of a name, ORG/NAME, with a revision or a file; undefined of what is no such name. */
export function hubAddressOf(name: string): HubAddress | undefined {
  const [, repo, file, revision] = NAME.exec(name) ?? [];
  return repo === undefined ? undefined : { repo, revision, file };
}

/** The name of a model, with its revision where one is said: what its runs and the cache know it by. */
export const hubName = ({ repo, revision }: HubAddress): string =>
  revision === undefined ? repo : `${repo}@${revision}`;

/** An address as hf://. */
export const hubPlace = ({ repo, revision, file }: HubAddress): string =>
  HUB_SCHEME + hubName({ repo: file === undefined ? repo : `${repo}/${file}`, revision });

/** Errors: HoldfastError, always. */
export function refuse(text: string): never {
  throw new HoldfastError(
    `${shortened(text)}: is no name on the hub; it must be like hf://ORG/NAME, hf://ORG/NAME@REVISION or hf://ORG/NAME/FILE.gguf`,
  );
}

/** What is shown at a path, of `place`: /ORG/NAME, /ORG/NAME/tree/REVISION or /ORG/NAME/blob/REVISION/FILE. */
function shownAt(place: string, path: string): HubAddress | undefined {
  const parts = partsOf(path) ?? refuse(place);
  const [org = '', model = '', view = '', revision = 'main', ...inside] = parts;
  if (view === 'resolve') return undefined;
  if (OTHERS.test(org)) return refuse(place);
  const itself = hubAddressOf(parts.join('/'));
  if (itself) return itself;
  const at = hubAddressOf(`${org}/${model}@${revision}`);
  if (!at || !['tree', 'blob'].includes(view)) return refuse(place);
  if (inside.length === 0) return at;
  const file = view === 'blob' ? hubAddressOf(`${at.repo}/${inside.join('/')}@${revision}`) : undefined;
  if (file) return file;
  throw new HoldfastError(
    `${shortened(place)}: is a part of a model; name the model, ${hubPlace(at)}, or a GGUF file in it`,
  );
}

/** The parts of a path; undefined of one that cannot be decoded. */
function partsOf(path: string): string[] | undefined {
  try {
    return path.split('/').filter(Boolean).map(decodeURIComponent);
  } catch {
    return undefined;
  }
}
