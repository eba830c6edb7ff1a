// Text to learn from, as one run of bytes: files, folders, standard input, or what the package brings along.
//
// Not tokens, and no decoding: bytes as they lie on disk, joined with nothing between them. Invariant: the
// same sources give the same bytes in the same order on every system, and nothing in a folder makes reading it endless.

import { type Files, type Host, join } from '../runtime/host.ts';
import { HoldfastError, messageOf, shortened } from '../util/errors.ts';
import { type TaskName, taskOf } from './tasks.ts';

/** Text to learn from, as bytes. */
export interface Corpus {
  /** All sources, joined with nothing between them. */
  readonly bytes: Uint8Array<ArrayBuffer>;
  /** How many sources were joined; standard input counts as one. */
  readonly files: number;
  /** Their paths in the order of the bytes; standard input is "-". */
  readonly names: readonly string[];
  /** Of text whose lines are all of one length: that length. Windows of it begin with a line. */
  readonly lineBytes?: number;
  /** Found in folders and left out: binary files (containing a NUL byte), and what is neither file nor folder. */
  readonly skipped: number;
}

/** What a run learns from: a task's text, the sources, or the default corpus. */
export async function corpusOf(
  host: Host,
  { task, data, seed }: { task?: TaskName; data: readonly string[]; seed: number },
): Promise<Corpus> {
  if (task === undefined) return data.length > 0 ? loadCorpus(host, data) : defaultCorpus(host);
  const { text, lineBytes } = taskOf(task);
  return { bytes: new TextEncoder().encode(text(seed)), files: 1, names: [task], lineBytes, skipped: 0 };
}

/** A file among the sources. */
interface SourceFile {
  readonly path: string;
  /** Found in a folder, not named itself: what is no text is passed over. */
  readonly isFound: boolean;
  readonly kind: 'file' | 'pipe' | 'input' | 'other';
}

/** The files that sources stand for, in order; nothing in a folder makes it endless. Errors: HoldfastError for nothing there. */
export async function* filesOf(
  files: Pick<Files, 'stat' | 'list'>,
  sources: readonly string[],
): AsyncGenerator<SourceFile> {
  /** `above`: the ids of the folder itself and of those that it lies in. */
  async function* inFolder(folder: string, above: readonly (string | undefined)[]): AsyncGenerator<SourceFile> {
    for (const name of await files.list(folder)) {
      const path = join(folder, name);
      const { kind, id } = (await files.stat(path)) ?? {};
      const leadsUp = id !== undefined && above.includes(id);
      if (kind === 'folder' && !leadsUp) yield* inFolder(path, [...above, id]);
      else yield { path, isFound: true, kind: kind === 'file' ? kind : 'other' };
    }
  }
  for (const source of sources) {
    if (source === '-') {
      yield { path: source, isFound: false, kind: 'input' };
      continue;
    }
    const { kind, id } = (await files.stat(source)) ?? {};
    if (kind === 'folder') yield* inFolder(source, [id]);
    else if (kind === 'file' || kind === 'pipe') yield { path: source, isFound: false, kind };
    else {
      const what = kind ? 'a device, a socket or a link to itself is' : 'nothing is';
      throw new HoldfastError(
        `corpus ${shortened(source)}: ${what} there; name a text file, a folder, or - for standard input`,
      );
    }
  }
}

/**
 * Each source is a file, a folder (all its files, sub-folders included, by name) or "-" for standard input.
 * A file named itself is read whatever it holds, and so is a pipe, which a shell makes of `<(command)`. In a folder,
 * binary files, pipes, devices, sockets and links to nothing or to a folder above themselves are skipped and counted.
 */
export async function loadCorpus(host: Host, sources: readonly string[]): Promise<Corpus> {
  const names: string[] = [];
  const parts: Uint8Array[] = [];
  let skipped = 0;
  for await (const { path, isFound, kind } of filesOf(host.files, sources)) {
    const read = () => (kind === 'input' ? host.readStandardInput() : host.files.read(path));
    const bytes = kind === 'other' ? undefined : await read();
    if (bytes && !(isFound && bytes.includes(0))) {
      names.push(path);
      parts.push(bytes);
    } else skipped++;
  }
  const bytes = concatenate(parts);
  if (bytes.length === 0) {
    const why = skipped > 0 ? ` (${skipped} skipped: binary, or no files)` : '';
    throw new HoldfastError(
      `corpus ${shortened(sources.join(', '))}: no text in it${why}; name a file or folder with text`,
    );
  }
  return { bytes, files: names.length, names, skipped };
}

/**
 * The text that the package brings along, 3.8 MB of code and prose: the same bytes on every system, see assets/.
 * Errors: HoldfastError where the package is not whole.
 */
export async function defaultCorpus(host: Host): Promise<Corpus> {
  return { bytes: await unpacked(await host.exampleText()), files: 1, names: ['example text'], skipped: 0 };
}

/** A server that goes by a file's name may have unpacked it on the way. */
async function unpacked(bytes: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>> {
  const isPacked = bytes[0] === 0x1f && bytes[1] === 0x8b;
  if (!isPacked) return bytes;
  try {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('gzip'));
    return new Uint8Array(await new Response(stream).arrayBuffer());
  } catch (error) {
    throw new HoldfastError(`the example text is damaged (${messageOf(error)}); install the package again`);
  }
}

/**
 * The first 90 % of the bytes (rounded down, to a whole line) train, the rest validate, or another share of them. Both share
 * memory with `bytes`.
 */
export function split(
  { bytes, lineBytes = 1 }: Pick<Corpus, 'bytes' | 'lineBytes'>,
  validationShare?: number,
): {
  train: Uint8Array;
  validation: Uint8Array;
} {
  const { length } = bytes;
  const share = Math.floor(validationShare === undefined ? (length * 9) / 10 : length * (1 - validationShare));
  const border = share - (share % lineBytes);
  return { train: bytes.subarray(0, border), validation: bytes.subarray(border) };
}

function concatenate(parts: readonly Uint8Array[]): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    bytes.set(part, at);
    at += part.length;
  }
  return bytes;
}
