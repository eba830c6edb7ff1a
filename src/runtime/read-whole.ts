// Small files that are read whole: what kind of file each is, and how much there may be of it, is asked first.

import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { parseJSON } from '../util/json.ts';
import type { Files } from './host.ts';

/** Of a file of settings: a list of 100,000 classes has 5 MB. */
export const MOST_SETTINGS_BYTES = 2 ** 24;
/** Of what V8 can make one text of, in any encoding. */
export const MOST_TEXT_BYTES = 2 ** 28;

type Reader = Pick<Files, 'read' | 'stat'>;

export interface WholeFile {
  /** What to do about one that is none, or too large. @default 'get the file again' */
  readonly fix?: string;
  /** @default false */
  readonly pipes?: boolean;
}

/**
 * All bytes of a file, at most so many; `pipes`: or of a pipe, which are waited for. Errors: HoldfastError naming the file where
 * there are more, where it is a pipe or a device, and as `Files.read`.
 */
export async function readWhole(
  files: Reader,
  path: string,
  most: number,
  { fix = 'get the file again', pipes = false }: WholeFile = {},
): Promise<Uint8Array<ArrayBuffer>> {
  const { kind, bytes } = (await files.stat(path)) ?? { kind: 'file', bytes: 0 };
  const refuse = (what: string) => new HoldfastError(`${shortened(path)}: ${what}; ${fix}`);
  if (kind === 'other' || (kind === 'pipe' && !pipes))
    throw refuse(`is a ${kind === 'pipe' ? 'pipe' : 'device'}, not a file`);
  if (bytes > most) throw refuse(`has ${formatBytes(bytes)}, at most ${formatBytes(most)} are read of such a file`);
  return files.read(path, most, fix);
}

/** The JSON of a file of settings, or of one of at most so many bytes. Errors: as `readWhole` and `parseJSON`. */
export const readJSON = async (
  files: Reader,
  path: string,
  fix: string,
  most: number = MOST_SETTINGS_BYTES,
): Promise<unknown> => parseJSON(await readWhole(files, path, most, { fix }), path, fix);
