// Limits of the tiers below the GPU: what they may use, and the least that they can work with. Pure.

import type { BlockFile, CopyBytes } from '../../runtime/host.ts';
import { counted } from '../../util/counted.ts';
import { HoldfastError } from '../../util/errors.ts';

export interface BackingOptions {
  /** Chunks are numbered from 0. */
  readonly chunks: number;
  /** The most of them that have a value at once. @default all */
  readonly held?: number | undefined;
  /** A multiple of 1024. */
  readonly chunkBytes: number;
  /** Bytes of host memory for chunks, never exceeded; Infinity for none. */
  readonly hostLimit: number;
  /** The slow tier, if there is one. */
  readonly disk?: BlockFile | undefined;
  /** Bytes of the file that may be used. @default all */
  readonly diskLimit?: number | undefined;
  /** The most chunks that one putAll brings: until it is done they lie beside the values they replace. @default 4 */
  readonly largestPut?: number | undefined;
  /** Chunks that an update here holds at once. @default nothing is updated here */
  readonly updates?: number;
  /** Chunks of new values that may be made beside the old ones where host memory has no limit: they are made room for at once. @default 0 */
  readonly beside?: number;
  /** Makes zeroed host memory. @default an ArrayBuffer each */
  readonly allocate?: ((bytes: number) => Uint8Array<ArrayBuffer>) | undefined;
  /** Takes new values into it. @default `to.set(from)` */
  readonly copyBytes?: CopyBytes | undefined;
}

/** One list's chunk each of parameters, gradients and both moments. */
export const LARGEST_PUT = 4;

/**
 * Slots without which they cannot run: with a disk one to read into while another is written, and those that an update here
 * holds; without, all.
 */
export function leastHostChunks(chunks: number, hasDisk: boolean, updates = 0): number {
  return hasDisk ? Math.min(chunks, updates + 2) : chunks;
}

/** Chunks that new values may have beside the old ones. */
export interface Spared {
  /** In slots and blocks. */
  readonly chunks: number;
  /** In slots. */
  readonly slots: number;
  /** Whether values that are read from disk for it give way in host memory. */
  readonly onDisk: boolean;
}

/** What an update that is made beside the values that it is of holds beside these: what it makes, and what the one before it did. */
const slotsToMake = (updates: number): number => 2 * (updates - 1);

/** Bytes for new values beside others that are taken where memory has no limit, as it may be less than all values need once more. */
const MOST_UNASKED = 2 ** 31;

/**
 * Of so many slots and blocks, what no value needs, nor a put; where memory has no limit as many chunks as may be made `beside`
 * others, up to 2 GiB. Where slots do not hold all, values are made in them that go to blocks, beside what works there anyway.
 */
export function sparedChunks(
  found: Readonly<Record<'slots' | 'blocks' | 'held' | 'largestPut' | 'updates' | 'beside' | 'chunkBytes', number>>,
): Spared {
  const { slots, blocks, held, largestPut, updates, beside, chunkBytes } = found;
  const none = { chunks: 0, slots: 0, onDisk: false };
  if (slots === Number.POSITIVE_INFINITY) {
    const room = Math.min(beside, Math.floor(MOST_UNASKED / chunkBytes));
    return { chunks: room, slots: room, onDisk: false };
  }
  if (slots >= held) {
    const spared = Math.max(0, slots - held - largestPut);
    return { chunks: spared, slots: spared, onDisk: false };
  }
  const left = slots - leastHostChunks(held, true, updates) - slotsToMake(updates);
  const chunks = slots + blocks - held - largestPut;
  if (updates === 0 || left < 0 || chunks <= 0) return none;
  return { chunks, slots: Math.min(chunks, left >> 1), onDisk: true };
}

/** Blocks without which they cannot run, with so many slots. Never more than chunks + largestPut for long. */
export function leastDiskChunks(chunks: number, hostChunks: number, largestPut = LARGEST_PUT): number {
  return hostChunks >= chunks ? 0 : chunks + largestPut - hostChunks;
}

/** Errors: HoldfastError when the limits are too small, with those that would do. */
export function checkLimits(
  { chunks, held = chunks, chunkBytes, disk, hostLimit, updates }: BackingOptions,
  slots: number,
  blocks: number,
  largestPut: number,
): void {
  const all = `${counted(held, 'chunk')} of ${chunkBytes} bytes`;
  const least = leastHostChunks(held, disk !== undefined, updates);
  if (slots < least) {
    const advice = disk ? '' : ', or use a disk tier';
    throw new HoldfastError(
      `host memory limit ${hostLimit} bytes: ${all} need at least ${least * chunkBytes}; raise it to that${advice}`,
    );
  }
  const leastDisk = leastDiskChunks(held, slots, largestPut);
  if (disk && blocks < leastDisk) {
    const host = Math.min(held, held + largestPut - blocks) * chunkBytes;
    throw new HoldfastError(
      `disk limit ${blocks * chunkBytes} bytes: ${all} need at least ${leastDisk * chunkBytes} beside ${slots * chunkBytes} ` +
        `of host memory; raise it to that, or the host memory limit to ${host}`,
    );
  }
}
