// Text to learn from, as one run of bytes: files, folders, standard input, or what the package brings along.
//
// Not tokens, and no decoding: bytes as they lie on disk, joined with nothing between them. Invariant: the
// same sources give the same bytes in the same order on every system, and nothing in a folder makes reading it endless.

import { checkHost } from '../runtime/check-host.ts';
import { type Files, type Host, join } from '../runtime/host.ts';
import { readWhole } from '../runtime/read-whole.ts';
import { bytes as byteArray } from '../util/arguments.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError, messageOf, shortened } from '../util/errors.ts';
import { heldBytes } from '../util/held.ts';
import { check, list, number, object, optional, text } from '../util/json.ts';
import { realNumber, wholeNumber } from '../util/range.ts';
import { formOf } from './records/byte-forms.ts';
import { isTextTable, OTHER_FORM } from './records/file-names.ts';
import { problemOfStream } from './records/stream-forms.ts';
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
  /** Found in folders and left out: binary files (with a NUL byte, or of another form by their first ones), and what is neither file nor folder. */
  readonly skipped: number;
}

/** Text to learn from that is read in pieces, as often as it is needed: it is never in memory as a whole. */
export interface TextSource extends Omit<Corpus, 'bytes'> {
  /** Of all of it. */
  readonly bytes: number;
  /** From its first byte to its last; what a file has gained since is left out. */
  pieces(): AsyncGenerator<Uint8Array>;
}

/** The identity of a corpus: a run goes on with the text that it began with. */
export interface TextIdentity {
  /** Its length. */
  readonly bytes: number;
  /** As 64 hexadecimal digits. */
  readonly sha256: string;
}

const PIECE_BYTES = 4 * 2 ** 20;
/** Of what can be read only once, and is held in memory, all together: pipes, standard input, what a system makes when it is read. */
const MOST_STREAM_BYTES = 2 ** 30;
const STREAM_FIX = 'write it to a file first, and name that: files are read in pieces, whatever their size';

/** What a run learns from: a task's text, the sources, or the default corpus. */
export async function openText(
  host: Host,
  { task, data, seed }: { task?: TaskName; data: readonly string[]; seed: number },
): Promise<TextSource> {
  if (task === undefined) return data.length > 0 ? openSources(host, data) : inMemory(await defaultCorpus(host));
  const { text, lineBytes } = taskOf(task);
  return inMemory({ bytes: new TextEncoder().encode(text(seed)), files: 1, names: [task], lineBytes, skipped: 0 });
}

const inMemory = ({ bytes, ...rest }: Corpus): TextSource => ({
  ...rest,
  bytes: bytes.length,
  async *pieces() {
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) yield bytes.subarray(at, at + PIECE_BYTES);
  },
});

/** A text that is not in the host's files, such as one that was chosen on a page. Errors: HoldfastError for an empty one. */
export function textIn(text: string | Blob): TextSource {
  const blob = typeof text === 'string' ? new Blob([text]) : text;
  if (blob.size === 0) throw new HoldfastError('the text is empty; give another');
  return {
    ...{ bytes: blob.size, files: 1, names: ['the text'], skipped: 0 },
    async *pieces() {
      for (let at = 0; at < blob.size; at += PIECE_BYTES)
        yield new Uint8Array(await blob.slice(at, at + PIECE_BYTES).arrayBuffer());
    },
  };
}

/** A file among the sources. */
export interface SourceFile {
  readonly path: string;
  /** Its own, without folders. */
  readonly name: string;
  /** Found in a folder, not named itself: what is no text is passed over. */
  readonly isFound: boolean;
  /** The names of the folders that it was found in, below the one that is a source. */
  readonly folders: readonly string[];
  readonly kind: 'file' | 'pipe' | 'input' | 'other';
  /** Of a file; what a system makes when it is read says 0. */
  readonly bytes: number;
}

/** The files that sources stand for, in order; nothing in a folder makes it endless. Errors: HoldfastError for nothing there. */
export async function* filesOf(
  files: Pick<Files, 'stat' | 'list'>,
  sources: readonly string[],
): AsyncGenerator<SourceFile> {
  /** `above`: the ids of the folder itself and of those that it lies in; `folders`: as of the files there. */
  async function* inFolder(
    folder: string,
    above: readonly (string | undefined)[],
    folders: readonly string[],
  ): AsyncGenerator<SourceFile> {
    for (const name of await files.list(folder)) {
      const path = join(folder, name);
      const { kind, id, bytes = 0 } = (await files.stat(path)) ?? {};
      const leadsUp = id !== undefined && above.includes(id);
      if (kind === 'folder' && !leadsUp) yield* inFolder(path, [...above, id], [...folders, name]);
      else yield { path, name, isFound: true, folders, kind: kind === 'file' ? kind : 'other', bytes };
    }
  }
  const named = (path: string) => ({ path, name: path.replace(/^.*[/\\]/s, ''), isFound: false, folders: [] });
  for (const source of sources) {
    if (source === '-') {
      yield { ...named(source), kind: 'input', bytes: 0 };
      continue;
    }
    const { kind, id, bytes = 0 } = (await files.stat(source)) ?? {};
    if (kind === 'folder') yield* inFolder(source, [id], []);
    else if (kind === 'file' || kind === 'pipe') yield { ...named(source), kind, bytes };
    else {
      const what = kind ? 'a device, a socket or a link to itself is' : 'nothing is';
      throw new HoldfastError(
        `corpus ${shortened(source)}: ${what} there; name a text file, a folder, or - for standard input`,
      );
    }
  }
}

/** Errors: HoldfastError for what is no host, and for sources that are no list of paths. */
export function checkSources(host: Host, sources: readonly string[]): void {
  checkHost(host);
  check(list(text), sources, 'sources');
}

/**
 * Each source is a file, a folder (all its files, sub-folders included, by name) or "-" for standard input.
 * A file named itself is read whatever it holds, and so is a pipe, which a shell makes of `<(command)`, but for what is no text by
 * its first bytes, and records. In a folder, binary files, pipes, devices, sockets and links to nothing or to a folder above themselves
 * are skipped and counted.
 */
export async function loadCorpus(host: Host, sources: readonly string[]): Promise<Corpus> {
  checkSources(host, sources);
  const { bytes, pieces, ...rest } = await openSources(host, sources);
  return { ...rest, bytes: await wholeText(bytes, pieces()) };
}

/** All pieces of a text of so many bytes. Errors: HoldfastError for more than are held in memory. */
export async function wholeText(bytes: number, pieces: AsyncIterable<Uint8Array>): Promise<Uint8Array<ArrayBuffer>> {
  const whole = heldBytes(bytes, 'the text', 'use a part of it');
  let at = 0;
  for await (const piece of pieces) {
    whole.set(piece, at);
    at += piece.length;
  }
  return whole;
}

/** A part of a text: a file, or what can be read only once. */
type Source = { readonly path: string; readonly bytes: number } | { readonly content: Uint8Array };

async function openSources(host: Host, sources: readonly string[]): Promise<TextSource> {
  const names: string[] = [];
  const parts: Source[] = [];
  let skipped = 0;
  let held = 0;
  for await (const file of filesOf(host.files, sources)) {
    const part = await partOf(host, file, MOST_STREAM_BYTES - held);
    if (part) {
      if ('content' in part) held += part.content.length;
      names.push(file.path);
      parts.push(part);
    } else skipped++;
  }
  const bytes = parts.reduce((sum, part) => sum + ('content' in part ? part.content.length : part.bytes), 0);
  if (bytes === 0) {
    const why = skipped > 0 ? ` (${skipped} skipped: binary, or no files)` : '';
    throw new HoldfastError(
      `corpus ${shortened(sources.join(', '))}: no text in it${why}; name a file or folder with text`,
    );
  }
  return {
    ...{ bytes, files: names.length, names, skipped },
    async *pieces() {
      for (const part of parts) {
        if ('content' in part) yield part.content;
        else yield* piecesOf(host.files, part.path, part.bytes);
      }
    },
  };
}

/** Undefined for what is passed over; `most`: bytes of what is held in memory. */
async function partOf(
  host: Host,
  { path, isFound, kind, bytes }: SourceFile,
  most: number,
): Promise<Source | undefined> {
  const isRest = most < MOST_STREAM_BYTES;
  const fix = isRest ? `with the pipes before it, ${formatBytes(MOST_STREAM_BYTES)} in all; ${STREAM_FIX}` : STREAM_FIX;
  if (kind === 'input') return ofStream('standard input', await host.readStandardInput(most, fix));
  if (isFound) {
    const isRead = kind === 'file' && (isTextTable(path) || !OTHER_FORM.test(path));
    const isText = isRead && !(await isBinary(host.files, path, bytes));
    return isText ? { path, bytes } : undefined;
  }
  if (kind === 'file' && bytes > 0) return { path, bytes };
  return ofStream(path, await readWhole(host.files, path, most, { fix, pipes: true }));
}

/** Errors: HoldfastError for what is not text in UTF-8 by its first bytes, and for records. */
function ofStream(name: string, content: Uint8Array): Source {
  const problem = problemOfStream(content);
  if (problem !== undefined) throw new HoldfastError(`${shortened(name)}: ${problem}`);
  return { content };
}

/** The first so many bytes of a file. */
export async function* piecesOf(files: Files, path: string, bytes: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes; at += PIECE_BYTES) yield files.readRange(path, at, Math.min(PIECE_BYTES, bytes - at));
}

/** Whether it has a NUL byte, or is in another form than text by its first bytes. */
async function isBinary(files: Files, path: string, bytes: number): Promise<boolean> {
  let isFirst = true;
  for await (const piece of piecesOf(files, path, bytes)) {
    if (piece.includes(0) || (isFirst && formOf(piece))) return true;
    isFirst = false;
  }
  return false;
}

/**
 * The text that the package brings along, 3.8 MB of code and prose: the same bytes on every system, see assets/.
 * Errors: HoldfastError where the package is not whole.
 */
export async function defaultCorpus(host: Host): Promise<Corpus> {
  checkHost(host);
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

/** Where what validates begins: the first nine tenths of the bytes train, or another share (rounded down, to a whole line). */
export function borderOf(bytes: number, lineBytes = 1, validationShare?: number): number {
  const share = Math.floor(validationShare === undefined ? (bytes * 9) / 10 : bytes * (1 - validationShare));
  return share - (share % lineBytes);
}

const splitText = object({ bytes: byteArray, lineBytes: optional(number(wholeNumber(1))) });

/**
 * The first 90 % of the bytes (rounded down, to a whole line) train, the rest validate, or another share of them. Both share
 * memory with `bytes`.
 */
export function split(
  given: { readonly bytes: Uint8Array; readonly lineBytes?: number | undefined },
  validationShare?: number,
): {
  train: Uint8Array;
  validation: Uint8Array;
} {
  const { bytes, lineBytes } = check(splitText, given, 'the text');
  check(optional(number(realNumber(0, 1))), validationShare, 'validationShare');
  const border = borderOf(bytes.length, lineBytes, validationShare);
  return { train: bytes.subarray(0, border), validation: bytes.subarray(border) };
}
