// The records of files: JSON values, one a line, or the items of one JSON list. Lines are read in pieces and never held
// together; a list is parsed whole, as JSON is. Not what the values mean (shapes.ts).
//
// Invariant: memory is bounded by the longest line that is allowed, or list; whatever is no JSON, or longer, is refused in
// one line with its place.

import type { Files } from '../../runtime/host.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { joinedBytes } from '../../util/joined-bytes.ts';
import { parseJSON } from '../../util/json.ts';

/** A value as it lies in a file. */
export interface FoundRecord {
  /** For messages: the file and the line, or the item. */
  readonly at: string;
  readonly value: unknown;
}

const PIECE_BYTES = 2 ** 20;
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
  /** Told of all bytes of the file, in order, as they are read. */
  readonly onBytes?: (bytes: Uint8Array) => void;
}

/** The lines of a file, without their ends, from 1. Errors: HoldfastError for a longer line than is allowed. */
export async function* linesOf(
  files: Pick<Files, 'open'>,
  path: string,
  { pieceBytes = PIECE_BYTES, mostBytes = MOST_LINE_BYTES, onBytes }: LineOptions = {},
): AsyncGenerator<{ readonly number: number; readonly bytes: Uint8Array }> {
  const file = await files.open(path);
  try {
    let number = 1;
    let held: Uint8Array[] = [];
    let heldBytes = 0;
    for (let offset = 0; offset < file.bytes; offset += pieceBytes) {
      const piece = await file.readRange(offset, Math.min(pieceBytes, file.bytes - offset));
      onBytes?.(piece);
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
  } finally {
    await file.close();
  }
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
    yield { at, value: parseJSON(line, at, 'each line is one record') };
  }
}

async function* itemsOf(
  files: Pick<Files, 'open' | 'read'>,
  path: string,
  { onBytes }: LineOptions,
): AsyncGenerator<FoundRecord> {
  const bytes = await files.read(path, MOST_LIST_BYTES, ONE_A_LINE);
  onBytes?.(bytes);
  const list = parseJSON(withoutMark(bytes), path, 'it begins like a list of records');
  for (const [i, value] of (Array.isArray(list) ? list : [list]).entries()) yield { at: `${path}[${i}]`, value };
}

/** Whether a file is one JSON list. Errors: HoldfastError for a longer one than is parsed. */
async function isList(files: Pick<Files, 'open'>, path: string): Promise<boolean> {
  const file = await files.open(path);
  try {
    const head = withoutMark(await file.readRange(0, Math.min(file.bytes, 4096)));
    if (head[head.findIndex((byte) => !isSpace(byte))] !== 0x5b) return false;
    if (file.bytes <= MOST_LIST_BYTES) return true;
    throw new HoldfastError(
      `${path}: a JSON list of ${formatBytes(file.bytes)}, ${formatBytes(MOST_LIST_BYTES)} at most are read at once; ${ONE_A_LINE}`,
    );
  } finally {
    await file.close();
  }
}

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
export async function beginsLikeRecords(files: Pick<Files, 'open'>, path: string): Promise<boolean> {
  const file = await files.open(path);
  try {
    const head = withoutMark(await file.readRange(0, Math.min(file.bytes, PIECE_BYTES)));
    return BEGINS_LIKE_RECORDS.test(new TextDecoder().decode(head));
  } finally {
    await file.close();
  }
}

const isSpace = (byte: number): boolean => byte === 0x20 || (byte >= 0x09 && byte <= 0x0d);

const withoutMark = (bytes: Uint8Array): Uint8Array =>
  BYTE_ORDER_MARK.every((byte, i) => bytes[i] === byte) ? bytes.subarray(BYTE_ORDER_MARK.length) : bytes;
