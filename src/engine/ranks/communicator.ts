// `Communicator`: what several ranks do together over one channel: sums in the order of the ranks, parts that each get from
// their owners, words that all agree on. All ranks call the same things in the same order. How bytes travel is the host's
// affair (runtime/host.ts); which values are to be exchanged, and when, is a pass's (collectives.ts).
//
// Invariants: a sum has the same bits in every run and with every library, since it is added here, from rank 0 upwards;
// every byte is in the ledger; a wait that is long says which rank waits in what for which.

import type { Messages } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { FloatSum } from '../../values/float-sum.ts';

/** What goes over different channels need not be in one order on all ranks. */
export const CHANNELS = {
  data: 1,
  control: 2,
  state: 3,
  tensor: 4,
  pipeline: 5,
  ends: 6,
  questions: 7,
  gathers: 8,
  sums: 9,
  failures: 10,
} as const;

/** A part of a value, and the rank that its sum, or its only copy, is on. */
export interface OwnedPart {
  readonly owner: number;
  /** Bytes. */
  readonly offset: number;
  readonly bytes: number;
}

/** Bytes that this rank sent and got since the start. */
export interface NetworkLedger {
  sentBytes: number;
  receivedBytes: number;
}

/** What a rank waits for. */
export interface RankWait {
  readonly rank: number;
  readonly peer: number;
  /** What all ranks do together: "reduce-scatter gradient chunk 3". */
  readonly what: string;
  readonly seconds: number;
}

/** Told of waits that are long, each time that they have become twice as long. */
export interface Watchdog {
  /** Milliseconds. */
  readonly patience: number;
  tell(wait: RankWait): void;
}

export class Communicator {
  readonly ledger: NetworkLedger;
  readonly #messages: Messages;
  readonly #channel: number;
  readonly #watchdog: Watchdog | undefined;
  /** Shared by communicators over other channels: one sum is made at a time. */
  readonly #sums: { last?: FloatSum };

  constructor(
    messages: Messages,
    channel: keyof typeof CHANNELS,
    watchdog?: Watchdog,
    ledger: NetworkLedger = { sentBytes: 0, receivedBytes: 0 },
    sums: { last?: FloatSum } = {},
  ) {
    this.ledger = ledger;
    this.#messages = messages;
    this.#channel = CHANNELS[channel];
    this.#watchdog = watchdog;
    this.#sums = sums;
  }

  /** A communicator of these ranks over another channel, with the ledger of this one, and its memory for sums. */
  over(channel: keyof typeof CHANNELS): Communicator {
    return new Communicator(this.#messages, channel, this.#watchdog, this.ledger, this.#sums);
  }

  /** Bytes of host memory for sums that are made here. */
  get sumBytes(): number {
    return this.#sums.last?.bytes ?? 0;
  }

  get rank(): number {
    return this.#messages.rank;
  }
  get size(): number {
    return this.#messages.size;
  }

  /** Makes the memory for sums of so many bytes ready. */
  readyForSums(bytes: number): FloatSum {
    const { last } = this.#sums;
    const found = last && last.bytes >= 2 * bytes ? last : new FloatSum(bytes);
    this.#sums.last = found;
    return found;
  }

  /** f32: of each part its owner gets the sum over all ranks; what it was elsewhere stays as it is. */
  async reduceScatter(what: string, bytes: Uint8Array<ArrayBuffer>, parts: readonly OwnedPart[]): Promise<void> {
    const sent = parts
      .filter(({ owner }) => owner !== this.rank)
      .map(({ owner, ...part }) => this.send(what, owner, partOf(bytes, part)));
    for (const part of parts) {
      if (part.owner === this.rank) await this.#sumInto(what, partOf(bytes, part));
    }
    await Promise.all(sent);
  }

  /** Each part gets the value that it has on its owner. */
  async allGather(what: string, bytes: Uint8Array<ArrayBuffer>, parts: readonly OwnedPart[]): Promise<void> {
    await Promise.all(
      parts.flatMap(({ owner, ...part }) => {
        const value = partOf(bytes, part);
        return [owner === this.rank ? this.sendToAll(what, value) : this.receive(what, owner, value)];
      }),
    );
  }

  /** Resolves when all others have taken the bytes. */
  async sendToAll(what: string, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    await Promise.all(this.#others.map((other) => this.send(what, other, bytes)));
  }

  /** What rank 0 says. */
  async fromFirst(what: string, text: string): Promise<string> {
    return at(await this.fromAll(what, this.rank === 0 ? text : ''), 0);
  }

  /** What each rank says, by rank. */
  async fromAll(what: string, text: string): Promise<string[]> {
    const own = new TextEncoder().encode(text);
    const lengths = new Uint32Array(this.size);
    lengths[this.rank] = own.length;
    const { BYTES_PER_ELEMENT: bytes } = lengths;
    const words = Array.from(lengths, (_, owner) => ({ owner, offset: owner * bytes, bytes }));
    await this.allGather(what, new Uint8Array(lengths.buffer), words);
    let end = 0;
    const parts = Array.from(lengths, (bytes, owner) => {
      end += bytes;
      return { owner, offset: end - bytes, bytes };
    });
    const all = new Uint8Array(end);
    all.set(own, at(parts, this.rank).offset);
    const spoken = parts.filter(({ bytes }) => bytes > 0);
    await this.allGather(what, all, spoken);
    return parts.map((part) => new TextDecoder().decode(partOf(all, part)));
  }

  /** Whether it is so on any rank. */
  async any(what: string, truth: boolean): Promise<boolean> {
    return at(await this.anyOf(what, [truth]), 0);
  }

  /** Of each, whether it is so on any rank; all say as many. */
  async anyOf(what: string, truths: readonly boolean[]): Promise<boolean[]> {
    const { length } = truths;
    const all = new Uint8Array(this.size * length);
    all.set(truths.map(Number), this.rank * length);
    const parts = Array.from({ length: this.size }, (_, owner) => ({ owner, offset: owner * length, bytes: length }));
    await this.allGather(what, all, parts);
    return truths.map((_, i) => all.some((truth, k) => k % length === i && truth === 1));
  }

  /** Resolves when all ranks have come here. */
  async barrier(what: string): Promise<void> {
    await this.any(what, true);
  }

  async send(what: string, to: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    this.ledger.sentBytes += bytes.length;
    await this.watched(what, to, this.#messages.send(to, this.#channel, bytes));
  }

  async receive(what: string, from: number, into: Uint8Array<ArrayBuffer>): Promise<void> {
    await this.receiveEarly(what, from, into)();
  }

  /** Takes the next message as soon as it comes; the function that it returns waits for it. */
  receiveEarly(what: string, from: number, into: Uint8Array<ArrayBuffer>): () => Promise<void> {
    const received = this.#messages.receive(from, this.#channel, into).then(() => {
      this.ledger.receivedBytes += into.length;
    });
    // It may fail before it is waited for.
    received.catch(() => {});
    return () => this.watched(what, from, received);
  }

  /** Waits for what another rank is to do: a long wait is told of. */
  async watched(what: string, peer: number, wait: Promise<void>): Promise<void> {
    const watchdog = this.#watchdog;
    if (!watchdog) return wait;
    const began = performance.now();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const watch = (patience: number): void => {
      timer = setTimeout(() => {
        watchdog.tell({ rank: this.rank, peer, what, seconds: Math.round((performance.now() - began) / 1000) });
        watch(2 * patience);
      }, patience);
    };
    watch(watchdog.patience);
    try {
      await wait;
    } finally {
      clearTimeout(timer);
    }
  }

  get #others(): number[] {
    return Array.from({ length: this.size }, (_, rank) => rank).filter((rank) => rank !== this.rank);
  }

  /** One message at a time is held beside the sum. */
  async #sumInto(what: string, own: Uint8Array<ArrayBuffer>): Promise<void> {
    const { length } = own;
    const sums = this.readyForSums(length);
    for (let rank = 0; rank < this.size; rank++) {
      const into = rank === 0 ? sums.sum(length) : sums.incoming(length);
      if (rank === this.rank) into.set(own);
      else await this.receive(what, rank, into);
      if (rank > 0) sums.add(length);
    }
    own.set(sums.sum(length));
  }
}

const partOf = (bytes: Uint8Array<ArrayBuffer>, { offset, bytes: length }: Omit<OwnedPart, 'owner'>) =>
  bytes.subarray(offset, offset + length);
