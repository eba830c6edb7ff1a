// `Recorder`: the record of what the executor did in a few runs of one pass, as it did it: the raw material of the
// chunk map and of the timeline. Off unless asked for; then a few pushes per moment, and a look at everything that may
// lie below the GPU.
//
// All times are of the CPU that encodes, in milliseconds since the recorder was made: the executor runs ahead of the
// GPU, so a moment is when an operator was encoded, not when it ran. Transfers end when the CPU has been notified.

import { chunkCount } from '../../memory/plan/trace.ts';
import type { Backing } from '../../memory/tiers/backing.ts';
import { type Deferred, deferred } from '../../util/deferred.ts';
import type { Pass } from '../compile/pass.ts';
import { stashesIn } from '../compile/pass-figures.ts';

export type Action = 'use' | 'load' | 'clear' | 'store' | 'drop' | 'free';

/** What happened to a chunk at a moment. */
export interface ChunkEvent {
  readonly moment: number;
  readonly chunk: number;
  readonly action: Action;
  readonly at: number;
}

/**
 * `down`: room in staging or values on their way down; `up`: the GPU taking what was sent; `below`: the tiers; `network`: what
 * other ranks send or take.
 */
export const CAUSES = ['down', 'up', 'below', 'network'] as const;
export type Cause = (typeof CAUSES)[number];

export interface Wait {
  readonly cause: Cause;
  readonly moment: number;
  readonly from: number;
  readonly to: number;
}

export type LinkName = 'h2d' | 'd2h' | 'diskRead' | 'diskWrite';

/** Chunks, or pieces of activations by their numbers behind those of chunks, on their way over a link. */
export interface Transfer {
  readonly link: LinkName;
  readonly chunks: readonly number[];
  readonly moment: number;
  readonly from: number;
  /** A copy that the executor was asked to keep below, in this run or in one before. @default it is not */
  readonly isKept?: true;
  /** Absent while it is under way, and for good if it failed. */
  to?: number;
}

/** Where the newest value of a chunk lies below its slot: `staging` if it is on its way down. */
export type CopyPlace = ReturnType<Backing['where']> | 'staging';

/**
 * A chunk, or a piece of an activation by its number behind those of chunks, lies elsewhere below the GPU when this moment's
 * operator is encoded than at the moment before.
 */
export interface Moved {
  readonly moment: number;
  readonly chunk: number;
  readonly where: CopyPlace;
}

/** One run of a pass. */
export interface Recording {
  readonly pass: Pass;
  /** Slots on the GPU that there always are, and chunks that staging holds in all. */
  readonly slots: number;
  readonly staging: number;
  readonly began: number;
  /** What was on the GPU then, and where each chunk was below it, and behind them each piece of an activation. */
  readonly residents: readonly number[];
  readonly below: readonly CopyPlace[];
  /** By moment: when the work for it began, when its operator was encoded, and how many chunks staging held then. */
  readonly entered: number[];
  readonly encoded: number[];
  readonly staged: number[];
  /** By moment: how many chunks were in slots among the activations when its operator was encoded. */
  readonly among: number[];
  readonly events: ChunkEvent[];
  readonly moved: Moved[];
  readonly waits: Wait[];
  readonly transfers: Transfer[];
  /** Chunks of which the run asked for copies to be kept below; how many of these go down behind its end depends on time. */
  readonly kept: number[];
  readonly submits: number[];
}

export class Recorder {
  /** In the order in which they began. The last one grows until its run is over; then what it moved may yet arrive. */
  readonly recordings: Recording[] = [];
  readonly #pass: Pass;
  #runs: number;
  readonly #since = performance.now();
  #current: Recording | undefined;
  #moment = 0;
  #underWay = 0;
  #quiet: Deferred<void> | undefined;
  /** Where each chunk and piece of an activation was last seen below the GPU. */
  #seen: CopyPlace[] = [];

  constructor(pass: Pass, runs: number) {
    this.#pass = pass;
    this.#runs = runs;
  }

  /** A pass begins: the run before it is over. */
  begin(
    pass: Pass,
    slots: number,
    staging: number,
    residents: readonly number[],
    where: (chunk: number) => CopyPlace,
  ): void {
    this.#current = undefined;
    if (pass !== this.#pass || this.#runs === 0) return;
    this.#runs--;
    this.#moment = 0;
    const chunks = chunkCount(pass.trace);
    const below = Array.from({ length: chunks + stashesIn([pass], chunks).length }, (_, chunk) => where(chunk));
    this.#seen = [...below];
    this.#current = {
      ...{ pass, slots, staging, began: this.#now(), residents, below },
      ...{ entered: [], encoded: [], staged: [], among: [] },
      ...{ events: [], moved: [], waits: [], transfers: [], kept: [], submits: [] },
    };
    this.recordings.push(this.#current);
  }

  /** The run under way is over: what comes now, as copies that are kept before a checkpoint, is none of it. */
  end(): void {
    this.#current = undefined;
  }

  /** From here on, what happens belongs to this moment. */
  enter(moment: number): void {
    this.#moment = moment;
    if (this.#current) this.#current.entered[moment] = this.#now();
  }

  /** The moment's operator is encoded now, with so many chunks in staging, and so many in slots among the activations. */
  encode(staged: number, among: number, whereIs: (chunk: number) => CopyPlace): void {
    const run = this.#current;
    if (!run) return;
    run.encoded[this.#moment] = this.#now();
    run.staged[this.#moment] = staged;
    run.among[this.#moment] = among;
    for (let chunk = 0; chunk < this.#seen.length; chunk++) {
      const where = whereIs(chunk);
      if (where === this.#seen[chunk]) continue;
      this.#seen[chunk] = where;
      run.moved.push({ moment: this.#moment, chunk, where });
    }
  }

  event(moment: number, chunk: number, action: Action): void {
    this.#current?.events.push({ moment, chunk, action, at: this.#now() });
  }

  /** `from`: of performance.now(). The wait is over now. */
  waited(cause: Cause, from: number): void {
    this.#current?.waits.push({ cause, moment: this.#moment, from: from - this.#since, to: this.#now() });
  }

  /** Copies of chunks are to be kept below. */
  keep(chunks: readonly number[]): void {
    this.#current?.kept.push(...chunks);
  }

  /** Chunks set out; call what this returns when they have arrived. */
  transfer(link: LinkName, chunks: readonly number[], isKept = false): (() => void) | undefined {
    if (!this.#current) return undefined;
    const transfer: Transfer = { link, chunks, moment: this.#moment, from: this.#now(), ...(isKept && { isKept }) };
    this.#current.transfers.push(transfer);
    this.#underWay++;
    return () => {
      transfer.to = this.#now();
      if (--this.#underWay === 0) this.#quiet?.resolve();
    };
  }

  /** Resolves when all that was recorded so far has arrived; never, if the device was lost before. */
  async arrived(): Promise<void> {
    if (this.#underWay === 0) return;
    this.#quiet ??= deferred();
    await this.#quiet.promise;
  }

  submit(): void {
    this.#current?.submits.push(this.#now());
  }

  #now(): number {
    return performance.now() - this.#since;
  }
}

/** When all of a run was encoded, and what its last operation waited for was there. */
export const endOf = ({ began, encoded, waits }: Pick<Recording, 'began' | 'encoded' | 'waits'>): number =>
  Math.max(encoded.at(-1) ?? began, waits.at(-1)?.to ?? began);

/** Milliseconds of a run that were waited for each of the causes. */
export function waitedIn({ waits }: Pick<Recording, 'waits'>): Record<Cause, number> {
  const spent = { down: 0, up: 0, below: 0, network: 0 };
  for (const { cause, from, to } of waits) spent[cause] += to - from;
  return spent;
}

export type LinkBytes = Readonly<Record<LinkName, number>>;

/** Bytes of what a pass moves, by its number: of chunks, and behind them of pieces of activations. */
export function transferSizes(pass: Pass): (id: number) => number {
  const { trace } = pass;
  const count = chunkCount(trace);
  const stashes = stashesIn([pass], count);
  return (id) => (id < count ? trace.chunkBytes : (stashes[id - count] ?? 0));
}

/** Bytes that a run set on their way, or asked to be kept below: of chunks, and, from and to the disk, of activations. */
export function linkBytes({ pass, transfers, kept }: Recording): LinkBytes {
  const bytes = { h2d: 0, d2h: 0, diskRead: 0, diskWrite: 0 };
  const count = chunkCount(pass.trace);
  const sizeOf = transferSizes(pass);
  for (const { link, chunks, isKept } of transfers) {
    if (isKept) continue;
    const isDisk = link === 'diskRead' || link === 'diskWrite';
    for (const id of chunks) if (isDisk || id < count) bytes[link] += sizeOf(id);
  }
  for (const chunk of kept) bytes.d2h += sizeOf(chunk);
  return bytes;
}

/** Whether every moment was encoded: a lost device cuts a run short. */
export function isWhole({ pass, encoded }: Recording): boolean {
  return pass.trace.moments.every((_, m) => encoded[m] !== undefined);
}
