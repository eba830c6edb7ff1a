// `PendingReads`: values on their way from disk, or from nothing but zeros, into slots of host memory: begun when they are needed
// or ahead of that, each once, and accounted to the fetches that wait. New values are in puts.ts.
//
// Invariant: a load whose chunk gets another value meanwhile ends without effect.

import type { DiskTier } from './disk-tier.ts';
import type { Claim, HostPlacement, Located } from './host-placement.ts';
import type { HostTier, Slot } from './host-tier.ts';
import { StopWatch } from './stop-watch.ts';
import type { WaitQueue } from './wait-queue.ts';

/** What moves values between host memory and disk: the tiers, where values lie in them, and what waits for room there. */
export interface TierParts {
  readonly placement: HostPlacement;
  readonly host: HostTier;
  readonly disk: DiskTier | undefined;
  readonly queue: WaitQueue;
  /** Runs while a request waits for room. */
  readonly roomWatch: StopWatch;
}

export interface Loadable extends Located {
  /** On its way into a slot. */
  load: Load | undefined;
}

/** A value on its way into a slot; a chunk forgets it when the value changes meanwhile. */
interface Load {
  readonly done: Promise<void>;
  settle(error?: unknown): void;
  /** A fetch waits for it. */
  awaited: boolean;
  reading: boolean;
  watch: StopWatch | undefined;
}

function newLoad(): Load {
  let settle: Load['settle'] = () => {};
  const done = new Promise<void>((resolve, reject) => {
    settle = (error) => (error === undefined ? resolve() : reject(error));
  });
  done.catch(() => {}); // of a prefetch that is not awaited
  return { done, settle, awaited: false, reading: false, watch: undefined };
}

export class PendingReads {
  readonly #placement: HostPlacement;
  readonly #host: HostTier;
  readonly #disk: DiskTier | undefined;
  readonly #queue: WaitQueue;
  readonly #readWatch = new StopWatch();
  readonly #roomWatch: StopWatch;

  constructor({ placement, host, disk, queue, roomWatch }: TierParts) {
    this.#placement = placement;
    this.#host = host;
    this.#disk = disk;
    this.#queue = queue;
    this.#roomWatch = roomWatch;
  }

  /** Time in which at least one fetch waited for a read. */
  get readMs(): number {
    return this.#readWatch.milliseconds;
  }

  /** Brings a chunk that has a value and no slot; the slot may be gone again where that is not used at once. */
  async load(chunk: Loadable): Promise<void> {
    if (!chunk.load) this.#start(chunk, this.#queue.isEmpty ? this.#placement.claimAny() : undefined);
    const load = chunk.load as Load;
    load.awaited = true;
    this.#charge(load);
    await load.done;
  }

  /** Starts to bring one if a slot is free or its owner is needed later. */
  prefetch(chunk: Loadable): void {
    const claim = this.#placement.claim((victim) => this.#placement.rank(victim) > this.#placement.rank(chunk));
    if (claim) this.#start(chunk, claim);
  }

  /** What is under way for a chunk ends without effect. */
  forget(chunk: Loadable): void {
    chunk.load?.settle();
    chunk.load = undefined;
  }

  /** Without a claim it stands in line for one. */
  #start(chunk: Loadable, claim: Claim | undefined): void {
    const load = newLoad();
    chunk.load = load;
    void this.#queue.track(this.#bring(chunk, load, claim));
  }

  async #bring(chunk: Loadable, load: Load, ready: Claim | undefined): Promise<void> {
    let claim: Claim | null | undefined = ready;
    try {
      claim ??= await this.#queue.wait(() => (chunk.load === load ? this.#placement.claimAny() : null));
      if (!claim) return; // forgotten while in line
      await this.#placement.empty(claim);
      if (chunk.load === load) await this.#read(chunk, load, claim.slot);
      if (chunk.load === load) {
        chunk.load = undefined;
        chunk.slot = claim.slot;
        claim.slot.owner = chunk.id;
        if (load.awaited) this.#host.lend(claim.slot);
      }
      load.settle();
    } catch (error) {
      if (chunk.load === load) chunk.load = undefined;
      load.settle(error);
    } finally {
      load.watch?.stop();
      load.watch = undefined;
      if (claim) this.#host.release(claim.slot);
      this.#queue.advance();
    }
  }

  async #read(chunk: Loadable, load: Load, { bytes }: Slot): Promise<void> {
    load.reading = true;
    this.#charge(load);
    if (chunk.zero) bytes.fill(0);
    else await this.#disk?.read(chunk.block, chunk.id, bytes);
  }

  /** Counts the time of the fetches that wait for a load: for room at first, then for the read. */
  #charge(load: Load): void {
    if (!load.awaited) return;
    load.watch?.stop();
    load.watch = load.reading ? this.#readWatch : this.#roomWatch;
    load.watch.start();
  }
}
