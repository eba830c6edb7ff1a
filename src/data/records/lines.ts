// The records of files: JSON values, one a line, or the items of one JSON list. Lines are read in pieces, also of a gzip file, and never
// held together; a list is parsed whole, as JSON is. Not what the values mean (shapes.ts).
//
// Invariant: memory is bounded by the longest line that is allowed, or list; whatever is no JSON, or longer, is refused in
// one line with its place.

import type { Files } from '../../runtime/host.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { joinedBytes } from '../../util/joined-bytes.ts';
import { parseJSON } from '../../util/json.ts';
import { toUTF8 } from './byte-forms.ts';
import { isPacked, unpacked } from './gzip.ts';

/** A value as it lies in a file. */
export interface FoundRecord {
  /** For messages: the file and the line, or the item. */
  readonly at: string;
  readonly value: unknown;
}

const PIECE_BYTES = 2 ** 20;
const PACKED_PIECE_BYTES = 2 ** 16;
const MOST_LINE_BYTES = 2 ** 24;
const MOST_LIST_BYTES = 2 ** 28;
const ONE_A_LINE = 'write one record a line instead';
const NEWLINE = 0x0a;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

export interface LineOptions {
  /** Read at once. @default 1 MiB */
  readonly pieceBytes?: number;
  /** In a line. @default 16 MiB */
  readonly mostBytes?: number;
  /** Told of all bytes of the file, in order, as they are read; of a gzip file those that are packed. */
  readonly onBytes?: (bytes: Uint8Array) => void;
}

/** What a file holds. Errors: HoldfastError for a damaged gzip file. */
async function* piecesIn(
  files: Pick<Files, 'open'>,
  path: string,
  { pieceBytes = PIECE_BYTES, onBytes }: LineOptions,
): AsyncGenerator<Uint8Array> {
  const file = await files.open(path);
  const most = isPacked(path) ? Math.min(pieceBytes, PACKED_PIECE_BYTES) : pieceBytes;
  async function* pieces() {
    for (let offset = 0; offset < file.bytes; offset += most) {
      const piece = await file.readRange(offset, Math.min(most, file.bytes - offset));
      onBytes?.(piece);
      yield piece;
    }
  }
  try {
    yield* isPacked(path) ? unpacked(pieces(), path) : pieces();
  } finally {
    await file.close();
  }
}

/** The first bytes of what a file holds. */
async function headOf(files: Pick<Files, 'open'>, path: string, bytes: number): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const piece of piecesIn(files, path, { pieceBytes: bytes })) {
    parts.push(piece);
    size += piece.length;
    if (size >= bytes) break;
  }
  return withoutMark(joinedBytes(parts).subarray(0, bytes));
}

/** The lines of a file, without their ends, from 1. Errors: HoldfastError for a longer line than is allowed. */
export async function* linesOf(
  files: Pick<Files, 'open'>,
  path: string,
  options: LineOptions = {},
): AsyncGenerator<{ readonly number: number; readonly bytes: Uint8Array }> {
  const { mostBytes = MOST_LINE_BYTES } = options;
  let number = 1;
  let held: Uint8Array[] = [];
  let heldBytes = 0;
  for await (const piece of piecesIn(files, path, options)) {
    for (let begin = 0; begin < piece.length; ) {
      const end = piece.indexOf(NEWLINE, begin);
      const part = piece.subarray(begin, end < 0 ? piece.length : end);
      held.push(part);
      heldBytes += part.length;
      if (heldBytes > mostBytes) {
        throw new HoldfastError(
          `${path}:${number}: longer than ${formatBytes(mostBytes)}; each line is one record, split it into several`,
        );
      }
      if (end < 0) break;
      yield { number, bytes: held.length === 1 ? part : joinedBytes(held) };
      number++;
      held = [];
      heldBytes = 0;
      begin = end + 1;
    }
  }
  if (heldBytes > 0) yield { number, bytes: joinedBytes(held) };
}

/** All records of a file. Errors: HoldfastError naming the file and the line of what is no JSON, or too long. */
export async function* recordsOf(
  files: Pick<Files, 'open' | 'read'>,
  path: string,
  options: LineOptions = {},
): AsyncGenerator<FoundRecord> {
  if (await isList(files, path)) return yield* itemsOf(files, path, options);
  for await (const { number, bytes } of linesOf(files, path, options)) {
    const line = number === 1 ? withoutMark(bytes) : bytes;
    if (line.every(isSpace)) continue;
    const at = `${path}:${number}`;
    yield { at, value: parsedFrom(path, line, at, 'each line is one record') };
  }
}

async function* itemsOf(
  files: Pick<Files, 'open' | 'read'>,
  path: string,
  { onBytes }: LineOptions,
): AsyncGenerator<FoundRecord> {
  const bytes = isPacked(path)
    ? await unpackedList(files, path, { ...(onBytes && { onBytes }) })
    : await files.read(path, MOST_LIST_BYTES, ONE_A_LINE);
  if (!isPacked(path)) onBytes?.(bytes);
  const list = parsedFrom(path, withoutMark(bytes), path, 'it begins like a list of records');
  for (const [i, value] of (Array.isArray(list) ? list : [list]).entries()) yield { at: `${path}[${i}]`, value };
}

/** What JSON says in a file, at a place in it. Errors: as parseJSON; of what is in no UTF-8 with the command that writes it so. */
function parsedFrom(path: string, bytes: Uint8Array, at: string, fix: string): unknown {
  try {
    return parseJSON(bytes, at, fix);
  } catch (error) {
    if (isUTF8(bytes)) throw error;
    const command = isPacked(path) ? '' : `: ${toUTF8(path, 'WINDOWS-1252')}, or as what it is`;
    throw new HoldfastError(`${at}: is not in UTF-8, as JSON is; write the file in that${command}`);
  }
}

function isUTF8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

/** The bytes of a list in a gzip file. Errors: HoldfastError for a longer one than is parsed. */
async function unpackedList(files: Pick<Files, 'open'>, path: string, options: LineOptions): Promise<Uint8Array> {
  const parts: Uint8Array[] = [];
  let size = 0;
  for await (const piece of piecesIn(files, path, options)) {
    parts.push(piece);
    size += piece.length;
    if (size > MOST_LIST_BYTES) throw tooLong(path, 'more');
  }
  return joinedBytes(parts);
}

/** Whether a file is one JSON list. Errors: HoldfastError for a longer one than is parsed. */
async function isList(files: Pick<Files, 'open'>, path: string): Promise<boolean> {
  const head = await headOf(files, path, 4096);
  if (head[head.findIndex((byte) => !isSpace(byte))] !== 0x5b) return false;
  const file = await files.open(path);
  await file.close();
  if (isPacked(path) || file.bytes <= MOST_LIST_BYTES) return true;
  throw tooLong(path, formatBytes(file.bytes));
}

const tooLong = (path: string, length: string): HoldfastError =>
  new HoldfastError(
    `${path}: a JSON list of ${length}, ${formatBytes(MOST_LIST_BYTES)} at most are read at once; ${ONE_A_LINE}`,
  );

/** The first record of a file, if that is what it begins with. */
export async function firstRecord(files: Pick<Files, 'open' | 'read'>, path: string): Promise<FoundRecord | undefined> {
  try {
    for await (const record of recordsOf(files, path)) return record;
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
  }
  return undefined;
}

/** A list of objects; or an object, and behind a line that no JSON value goes on after, another. */
const BEGINS_LIKE_RECORDS = /^\s*(?:\[\s*\{|\{.*[^\s[{,:][^\S\n]*\n\s*\{)/;

/** Whether a file begins as a list of objects does, or as lines that are an object each; whole or not. */
export const beginsLikeRecords = async (files: Pick<Files, 'open'>, path: string): Promise<boolean> =>
  BEGINS_LIKE_RECORDS.test(new TextDecoder().decode(await headOf(files, path, PIECE_BYTES)));

const isSpace = (byte: number): boolean => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);

const withoutMark = (bytes: Uint8Array): Uint8Array =>
  BYTE_ORDER_MARK.every((byte, i) => bytes[i] === byte) ? bytes.subarray(BYTE_ORDER_MARK.length) : bytes;
