// `Below`: all that lies below the GPU, by one sequence of numbers: chunks, and behind them pieces of activations. Host
// memory and the file are divided between the two (shares.ts); how each of them uses its part is its own affair
// (backing.ts, stash-tier.ts).

import type { BlockFile } from '../../runtime/host.ts';
import { counted } from '../../util/counted.ts';
import { finishing, HoldfastError } from '../../util/errors.ts';
import { Backing, type Ledger, type TierState } from './backing.ts';
import type { DiskFile } from './disk-file.ts';
import type { ChunkValue } from './puts.ts';
import { blockBytes, bytesBelow, leastHostBytes, type NeedBelow, sharesOf } from './shares.ts';
import { StashTier } from './stash-tier.ts';
import type { BackingOptions, Spared } from './tier-limits.ts';

export interface BelowOptions extends Pick<BackingOptions, 'allocate' | 'copyBytes'> {
  /** Bytes. @default no limit */
  readonly host?: number | undefined;
  /** @default none */
  readonly disk?: { readonly open: (bytes: number) => Promise<BlockFile>; readonly limit?: number } | undefined;
}

/** A new value; of a piece of an activation, what is put at an offset of it ends it. */
export interface PlacedValue extends ChunkValue {
  /** @default 0: it is the whole value */
  readonly offset?: number;
}

export class Below {
  readonly chunks: Backing;
  readonly stashes: StashTier;

  /** Opens the file. Errors: HoldfastError when there is too little of either, naming what would do. */
  static async open(need: NeedBelow, { host, disk, allocate, copyBytes }: BelowOptions): Promise<Below> {
    const hostBytes = host ?? Number.POSITIVE_INFINITY;
    const putBytes = need.largestPut * need.chunkBytes;
    const all =
      bytesBelow(need) + (hostBytes < bytesBelow(need) ? blockBytes(need) - need.held * need.chunkBytes : putBytes);
    const diskBytes = disk ? Math.min(disk.limit ?? all, all) : 0;
    const shares = sharesOf(need, { host: hostBytes, disk: diskBytes });
    if (!shares) throw tooLittle(need, hostBytes, diskBytes);
    const { chunks, stashes } = shares;
    const file = await disk?.open(chunks.disk + stashes.disk);
    try {
      const { chunkBytes } = need;
      const begin = Math.floor(chunks.disk / chunkBytes) * chunkBytes;
      const options = {
        ...need,
        hostLimit: chunks.host,
        allocate,
        copyBytes,
        ...(file && { disk: file, diskLimit: chunks.disk }),
      };
      return new Below(new Backing(options), new StashTier(stashes, file, begin, copyBytes));
    } catch (error) {
      return finishing(
        () => Promise.reject(error),
        () => file?.remove(),
      );
    }
  }

  constructor(chunks: Backing, stashes: StashTier) {
    this.chunks = chunks;
    this.stashes = stashes;
  }

  where(id: number): TierState {
    return this.#tierOf(id).where(id);
  }

  /** See `Backing.peek`. */
  peek(id: number): Uint8Array<ArrayBuffer> | undefined {
    return this.#tierOf(id).peek(id);
  }

  /** See `Backing.fetch`. */
  fetch(id: number): Promise<Uint8Array<ArrayBuffer>> {
    return this.#tierOf(id).fetch(id);
  }

  prefetch(id: number): void {
    this.#tierOf(id).prefetch(id);
  }

  discard(id: number): void {
    this.#tierOf(id).discard(id);
  }

  /** New values: of chunks in one turn, see `Backing.putAll`. */
  async putAll(entries: readonly PlacedValue[]): Promise<void> {
    const isChunk = ({ chunk }: ChunkValue) => chunk < this.chunks.chunks;
    const chunks = entries.filter(isChunk);
    if (chunks.length > 0) await this.chunks.putAll(chunks);
    for (const entry of entries) {
      if (!isChunk(entry)) await this.stashes.put(entry.chunk, entry.bytes, entry.offset);
    }
  }

  /** See `Backing.spare`. */
  get spare(): Spared {
    return this.chunks.spare;
  }

  /** See `Backing.takeRoom`. */
  takeRoom(): Uint8Array<ArrayBuffer> | undefined {
    return this.chunks.takeRoom();
  }

  /** See `Backing.giveRoomBack`. */
  giveRoomBack(bytes: Uint8Array<ArrayBuffer>): void {
    this.chunks.giveRoomBack(bytes);
  }

  /** Of a chunk: see `Backing.setZero`. */
  setZero(chunk: number): void {
    this.chunks.setZero(chunk);
  }

  update(...work: Parameters<Backing['update']>): Promise<void> {
    return this.chunks.update(...work);
  }

  /** See `Backing.make`. */
  make(...work: Parameters<Backing['make']>): ReturnType<Backing['make']> {
    return this.chunks.make(...work);
  }

  /** See `Backing.stow`. */
  stow(...value: Parameters<Backing['stow']>): ReturnType<Backing['stow']> {
    return this.chunks.stow(...value);
  }

  /** See `Backing.putStowed`. */
  putStowed(...value: Parameters<Backing['putStowed']>): void {
    this.chunks.putStowed(...value);
  }

  /** See `Backing.dropStowed`. */
  dropStowed(value: Parameters<Backing['dropStowed']>[0]): void {
    this.chunks.dropStowed(value);
  }

  /** See `Backing.leaveHost`. */
  leaveHost(chunk: number): void {
    this.chunks.leaveHost(chunk);
  }

  setOrder(nextUse: (chunk: number) => number): void {
    this.chunks.setOrder(nextUse);
  }

  /** Told of every read and write of the disk: see DiskFile. */
  set onDisk(told: DiskFile['onMove']) {
    this.chunks.onDisk = told;
    this.stashes.onDisk = told;
  }

  get ledger(): Ledger {
    const { waits, ...chunks } = this.chunks.ledger;
    const { diskReadMs, ...stashes } = this.stashes.ledger;
    const both = (key: keyof typeof stashes) => chunks[key] + stashes[key];
    return {
      diskReadBytes: both('diskReadBytes'),
      diskWriteBytes: both('diskWriteBytes'),
      hostBytes: both('hostBytes'),
      hostPeak: both('hostPeak'),
      diskBytes: both('diskBytes'),
      diskPeak: both('diskPeak'),
      waits: { ...waits, diskReadMs: waits.diskReadMs + diskReadMs },
    };
  }

  /** Waits for what is under way, and removes the file. Nothing may be asked after. */
  async close(): Promise<void> {
    await this.stashes.close();
    await this.chunks.close();
  }

  /** Every fact that a legal state must satisfy, for tests. */
  check(): void {
    this.chunks.check();
    this.stashes.check();
  }

  #tierOf(id: number): Backing | StashTier {
    return id < this.chunks.chunks ? this.chunks : this.stashes;
  }
}

function tooLittle(need: NeedBelow, host: number, disk: number): HoldfastError {
  const { held, chunkBytes, stashes } = need;
  const moved = stashes.reduce((a, b) => a + b, 0);
  const what = `${counted(held, 'chunk')} of ${chunkBytes} bytes and ${moved} bytes of activations that are moved`;
  const least = leastHostBytes(need, disk > 0);
  if (host < least) {
    const advice = disk > 0 ? '' : ', or use a disk tier';
    return new HoldfastError(
      `host memory limit ${host} bytes: ${what} need at least ${least}; raise it to that${advice}`,
    );
  }
  return new HoldfastError(
    `disk limit ${disk} bytes: ${what} take more beside ${host} of host memory; raise it to ${bytesBelow(need)} bytes and ` +
      `${need.largestPut + 2} chunks, or the host memory limit to ${bytesBelow(need)}`,
  );
}
