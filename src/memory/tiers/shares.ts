// The division of host memory and disk between chunks, of one size, and pieces of activations, which have sizes of their own:
// worked out before any of it is made, so that what fits is known on paper. Pure.
//
// Each piece has a home for as long as the activations are planned as they are: in host memory, or on disk. All pieces that
// are below at all are there at once, at the end of the forward pass, each for one write and one read: which of them
// lie on disk does not matter to the bytes that move. What is read from disk passes through one of a few readers.

import { formatBytes } from '../../util/bytes.ts';
import { leastDiskChunks, leastHostChunks } from './tier-limits.ts';

/** What must have room below the GPU. */
export interface NeedBelow {
  /** Chunks are numbered from 0. */
  readonly chunks: number;
  /** The most of them that have a value at once. */
  readonly held: number;
  readonly chunkBytes: number;
  /** The most chunks that come down in one turn. */
  readonly largestPut: number;
  /** Chunks that an update there holds; 0 where nothing is updated there. */
  readonly updates: number;
  /**
   * Chunks of new values that may be made there beside the old ones, where memory is left, or on disk where that is used; nothing needs
   * them. @default none
   */
  readonly beside?: number;
  /** Of each piece of an activation. */
  readonly stashes: readonly number[];
}

/** Bytes of host memory and of disk; no disk: 0. */
export interface TierBytes {
  readonly host: number;
  readonly disk: number;
}

export interface Shares {
  readonly chunks: TierBytes;
  readonly stashes: TierBytes;
}

/** Where pieces lie: on disk those that the others leave no room for in host memory. */
export interface StashHomes {
  /** By piece: its place in their part of the file, in bytes; undefined: it is in host memory. */
  readonly offsets: readonly (number | undefined)[];
  readonly onHost: number;
  readonly onDisk: number;
  /** Host memory through which pieces come from disk: so many parts, each as large as the largest that does. */
  readonly readers: number;
  readonly readerBytes: number;
}

/** Room below for a fit to go by. */
export interface RoomBelow {
  /** Whether activations have room beside chunks; without activations it always is so. */
  holds(need: NeedBelow): boolean;
  /** Whether chunks have room by themselves. */
  holdsChunks(need: NeedBelow): boolean;
  /** All that there is: what does not go into host memory takes the disk's time. */
  readonly all: TierBytes;
  /** What there is, to the byte, and in words. */
  readonly key: string;
  readonly described: string;
}

/** One for what is needed now, and others for what is read ahead. */
const MOST_READERS = 4;
/** The part of the host memory of pieces that their readers may take where one would do. */
const READERS_SHARE = 0.05;
/**
 * The part of pieces that is in host memory beside that of chunks: these are read and written more often in a step, and need
 * slots for what is under way. Measured: from 0.7 to 1 the bytes to and from disk differ by a few per cent.
 */
const PIECES_PART = 0.7;

/** The part of what is left that new values may have. */
const BESIDE_PART = 0.5;

const sum = (sizes: readonly number[]): number => sizes.reduce((a, b) => a + b, 0);
const largest = (sizes: readonly number[]): number => sizes.reduce((a, b) => Math.max(a, b), 0);

/** The homes of pieces within so much memory; undefined where there is not enough. The last ones come back first: they stay nearer. */
export function stashHomes(stashes: readonly number[], { host, disk }: TierBytes): StashHomes | undefined {
  const all = sum(stashes);
  if (all <= host) {
    return { offsets: stashes.map(() => undefined), onHost: all, onDisk: 0, readers: 0, readerBytes: 0 };
  }
  const readerBytes = largest(stashes);
  const readers = Math.min(MOST_READERS, Math.max(1, Math.floor((READERS_SHARE * host) / readerBytes)));
  let left = host - readers * readerBytes;
  if (left < 0) return undefined;
  const offsets: (number | undefined)[] = [];
  let onDisk = 0;
  for (let i = stashes.length - 1; i >= 0; i--) {
    const bytes = stashes[i] ?? 0;
    if (bytes <= left) {
      left -= bytes;
      offsets[i] = undefined;
    } else {
      offsets[i] = onDisk;
      onDisk += bytes;
    }
  }
  return onDisk <= disk ? { offsets, onHost: all - onDisk, onDisk, readers, readerBytes } : undefined;
}

/** Bytes of all blocks that chunks use: those of a put and of new values beside them. */
export const blockBytes = ({ held, largestPut, beside = 0, chunkBytes }: Omit<NeedBelow, 'stashes'>): number =>
  (held + largestPut + beside) * chunkBytes;

/** Bytes of everything, however it is divided. */
export const bytesBelow = ({ held, chunkBytes, stashes }: NeedBelow): number => held * chunkBytes + sum(stashes);

/** Host memory without which nothing works. */
export function leastHostBytes(need: NeedBelow, hasDisk: boolean): number {
  if (!hasDisk) return bytesBelow(need);
  const { held, chunkBytes, updates, stashes } = need;
  return leastHostChunks(held, true, updates) * chunkBytes + largest(stashes);
}

const hasRoomForChunks = ({ held, chunkBytes, largestPut, updates }: NeedBelow, { host, disk }: TierBytes): boolean => {
  const slots = Math.floor(host / chunkBytes);
  const blocks = Math.floor(disk / chunkBytes);
  return slots >= leastHostChunks(held, disk > 0, updates) && blocks >= leastDiskChunks(held, slots, largestPut);
};

/** How the two divide what there is; undefined where it is too little. Without pieces chunks have it all. */
export function sharesOf(need: NeedBelow, { host, disk }: TierBytes): Shares | undefined {
  const { held, chunkBytes, largestPut, beside = 0, stashes } = need;
  const all = sum(stashes);
  const blocks = (held + largestPut) * chunkBytes;
  if (host >= bytesBelow(need)) {
    // What both leave is for new values, and for activations that are planned otherwise later.
    const ofNew = Math.min(beside * chunkBytes, Math.max(0, BESIDE_PART * (host - all - blocks)));
    const ofChunks = host === Number.POSITIVE_INFINITY ? host : Math.min(host - all, blocks + Math.floor(ofNew));
    return {
      chunks: { host: ofChunks, disk: Math.min(disk, blocks) },
      stashes: { host: host === Number.POSITIVE_INFINITY ? host : host - ofChunks, disk: 0 },
    };
  }
  // Whether that is enough for them is for their own limits to say.
  if (all === 0) return { chunks: { host, disk }, stashes: { host: 0, disk: 0 } };
  if (disk === 0) return undefined;
  const least = leastHostBytes({ ...need, stashes: [] }, true);
  const most = host - least;
  // About the same part of both is in host memory, or else what leaves the others enough.
  for (const wanted of [(PIECES_PART * host * all) / bytesBelow(need), most, largest(stashes)]) {
    const given = Math.floor(Math.min(most, Math.max(largest(stashes), wanted)));
    const homes = given >= 0 ? stashHomes(stashes, { host: given, disk }) : undefined;
    if (!homes) continue;
    const taken = homes.onHost + homes.readers * homes.readerBytes;
    const forChunks = { host: host - taken, disk: Math.min(disk - homes.onDisk, blockBytes(need)) };
    if (hasRoomForChunks(need, forChunks)) {
      return { chunks: forChunks, stashes: { host: taken, disk: homes.onDisk } };
    }
  }
  return undefined;
}

/** Where chunks have their share of `all` already. */
export const roomForStashes = (room: TierBytes, all: TierBytes): RoomBelow => ({
  holds: ({ stashes }) => stashHomes(stashes, room) !== undefined,
  holdsChunks: () => true,
  all,
  key: `${room.host} ${room.disk} beside chunks`,
  described: `${described(room)} beside chunks`,
});

/** All that there is below, to be divided as is best. */
export const roomOf = ({ host, disk }: TierBytes): RoomBelow => ({
  // What is too little for chunks alone is no reason to treat activations otherwise.
  holds: (need) =>
    (disk > 0 && host < leastHostBytes({ ...need, stashes: [] }, true)) || sharesOf(need, { host, disk }) !== undefined,
  holdsChunks: (need) => hasRoomForChunks(need, { host, disk }),
  all: { host, disk },
  key: `${host} ${disk}`,
  described: described({ host, disk }),
});

const described = ({ host, disk }: TierBytes): string =>
  `${shown(host)} of host memory and ${disk > 0 ? `${shown(disk)} of disk` : 'no disk'}`;

const shown = (bytes: number): string => (bytes === Number.POSITIVE_INFINITY ? 'any amount' : formatBytes(bytes));
