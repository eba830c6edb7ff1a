// Runs of token ids that are read in ranges: of what is in memory, or of a file of the cache (token-files.ts), where they are many.

import * as v from 'valibot';
import type { OpenFile } from '../runtime/host.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { check } from '../util/json.ts';
import type { CachedBytes } from './token-files.ts';

/** Token ids: as wide as they need. */
export type TokenIds = Int32Array | Uint8Array | Uint16Array | Uint32Array;

const tokenIds = v.union(
  [Int32Array, Uint8Array, Uint16Array, Uint32Array].map((type) => v.instance(type)),
  'an Int32Array, a Uint8Array, a Uint16Array or a Uint32Array',
);

/** Errors: HoldfastError for what is no array of token ids. */
export const checkTokenIds = (tokens: TokenIds): void => void check(tokenIds, tokens, 'tokens');

/** Bytes of an id. */
export type IdBytes = 1 | 2 | 4;

/** From one token up to before another. */
export type TokenRange = readonly [begin: number, end: number];

/** Many token ids. */
export interface TokenRun {
  readonly length: number;
  /** The ids of these ranges, not to be changed. Errors: HoldfastError where they lie in a file that cannot be read any more. */
  read(ranges: readonly TokenRange[]): Promise<TokenIds[]>;
}

/** In memory: what is read are views. */
export const heldRun = (ids: TokenIds): TokenRun => ({
  length: ids.length,
  read: async (ranges) => ranges.map(([begin, end]) => ids.subarray(begin, end)),
});

/** With one more id in front. */
export const runBehind = (first: number, run: TokenRun): TokenRun => ({
  length: run.length + 1,
  async read(ranges) {
    const parts = await run.read(ranges.map(([begin, end]) => [Math.max(0, begin - 1), Math.max(0, end - 1)]));
    return parts.map((part, i) => {
      const [begin, end] = ranges[i] ?? [0, 0];
      return begin === 0 && end > 0 ? Int32Array.from([first, ...part]) : part;
    });
  },
});

/** Ids of the cache: so many of them, of that width, behind the first so many. */
export const cachedRun = (
  { at }: Pick<CachedBytes<unknown>, 'at'>,
  width: IdBytes,
  first: number,
  length: number,
): TokenRun =>
  'held' in at
    ? heldRun(idsIn(at.held.subarray(first * width, (first + length) * width), width))
    : storedRun(at.file, width, first, length);

const idsIn = ({ buffer, byteOffset, length }: Uint8Array<ArrayBuffer>, width: IdBytes): TokenIds => {
  if (width === 1) return new Uint8Array(buffer, byteOffset, length);
  return new (width === 2 ? Uint16Array : Uint32Array)(buffer, byteOffset, length / width);
};

const storedRun = (file: OpenFile, width: IdBytes, first: number, length: number): TokenRun => ({
  length,
  async read(ranges) {
    try {
      const read = ([begin, end]: TokenRange) =>
        file.readRange((first + begin) * width, (Math.min(end, length) - begin) * width);
      return (await Promise.all(ranges.map(read))).map((bytes) => idsIn(bytes, width));
    } catch (error) {
      throw new HoldfastError(
        `${messageOf(error)}: the tokens of the data were in this file of the cache; go on from the last checkpoint, or start again: it is made again`,
      );
    }
  },
});
