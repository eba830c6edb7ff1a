// Exchanges between ranks as the executor does them: what others need of a value is read from the GPU, exchanged, and what
// became of it sent up again. What is exchanged when is a pass's affair (engine/ranks/collectives.ts), chunks that are gathered
// gathering.ts's.
//
// Invariant: what is handed to a neighbour is on its way when the next operation begins, and nothing waits for it to arrive
// there: two neighbours may hand something to each other at once. What a neighbour hands over is taken as soon as it comes, one
// value ahead of its use. While other ranks are waited for, the GPU does all that was encoded before.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { CollectiveOperation, Operation } from '../compile/operations.ts';
import { roleIn, spanOf } from '../ranks/collectives.ts';
import type { Communicator } from '../ranks/communicator.ts';
import { isChunkGather } from '../ranks/gather-order.ts';
import type { Ranks } from '../ranks/ranks.ts';
import { Gathering, type GatherPort } from './gathering.ts';
import type { Link } from './link.ts';
import type { Slots } from './slots.ts';
import type { Storage } from './storage.ts';

const receives = new WeakMap<readonly Operation[], readonly CollectiveOperation[]>();

const isReceive = (operation: Operation): operation is CollectiveOperation =>
  operation.op === 'collective' && operation.collective === 'receive';

/** Values on their way to a neighbour at once, for each rank of the axis: more than any order of a step has. */
const UNDER_WAY = 2;

/** A value that a neighbour hands over; there once it is awaited. */
interface Incoming {
  readonly operation: CollectiveOperation;
  posted?: { readonly bytes: Uint8Array<ArrayBuffer>; readonly arrives: () => Promise<void> };
}

export class Exchanges {
  readonly #link: Link;
  readonly #storage: Storage;
  readonly #slots: Slots;
  readonly #ranks: Ranks['step'] | undefined;
  readonly #pieceBytes: number;
  readonly #gathering: Gathering;
  #bytes = new Uint8Array(0);
  readonly #underWay: Promise<void>[] = [];
  /** By the neighbour: what it is to hand over from now on, the first of it in the memory where it is to be. */
  readonly #incoming = new Map<number, Incoming[]>();

  constructor(link: Link, storage: Storage, slots: Slots, pieceBytes: number, ranks: Ranks['step'] | undefined) {
    this.#link = link;
    this.#storage = storage;
    this.#slots = slots;
    this.#pieceBytes = pieceBytes;
    this.#ranks = ranks;
    const port: GatherPort = {
      isHere: (chunk) => slots.holds(chunk),
      readEarly: (chunk, into) => {
        const { buffer, offset } = slots.range(chunk);
        return link.readEarly(buffer, offset, into);
      },
      others: (what) => link.others(what),
      stop: (reason) => link.stop(reason),
    };
    this.#gathering = new Gathering(port, ranks?.data);
  }

  /** Bytes of host memory for what is gathered ahead. */
  get gatheredBytes(): number {
    return this.#gathering.bytes;
  }

  /** Begins a pass: what other ranks give in it is taken while this rank still works on what comes before. */
  async begin(operations: readonly Operation[]): Promise<void> {
    const known = receives.get(operations) ?? operations.filter(isReceive);
    receives.set(operations, known);
    for (const operation of known) {
      const { owner } = at(operation.parts, 0);
      const queue = this.#incoming.get(owner) ?? [];
      this.#incoming.set(owner, queue);
      queue.push({ operation });
    }
    for (const owner of this.#incoming.keys()) this.#post(owner);
    await this.#gathering.begin(operations);
  }

  /** Waits for the queue where others need something. */
  async run(operation: CollectiveOperation): Promise<void> {
    const { collective, axis, on, own, parts, label } = operation;
    const ranks = this.#ranks?.[axis];
    assert(ranks, `${label}: there are no other ranks`);
    const { buffer, offset } = 'chunk' in on ? this.#slots.range(on.chunk) : this.#storage.range(on);
    if (isChunkGather(operation)) {
      await this.#gathering.run(operation, (bytes) => this.#sendUp(buffer, offset, bytes));
      return;
    }
    const size = spanOf(operation);
    const { gives, gets } = roleIn(operation, ranks.rank);
    // What this rank has by itself is its part of the whole.
    const part = own && { place: this.#storage.range(own), ...at(parts, ranks.rank) };
    const bytes =
      collective === 'send'
        ? new Uint8Array(size)
        : collective === 'receive'
          ? await this.#received(operation)
          : this.#room(size);
    if (part && collective === 'all-gather') {
      const { place, offset: first, bytes: size } = part;
      await this.#link.read(place.buffer, place.offset, size, (piece, at) => bytes.set(piece, first + at));
    } else if (gives) await this.#link.read(buffer, offset, size, (piece, at) => bytes.set(piece, at));
    switch (collective) {
      case 'send':
        await this.#handOver(ranks, label, at(parts, 0).owner, bytes);
        break;
      case 'receive':
        break;
      case 'all-reduce':
        await this.#link.others(ranks.reduceScatter(label, bytes, parts));
        await this.#link.others(ranks.allGather(label, bytes, parts));
        break;
      case 'reduce-scatter':
        await this.#link.others(ranks.reduceScatter(label, bytes, parts));
        break;
      case 'all-gather':
        await this.#link.others(ranks.allGather(label, bytes, parts));
        break;
      default:
        collective satisfies never;
    }
    if (part && collective === 'reduce-scatter') {
      const { place, offset: first, bytes: size } = part;
      await this.#sendUp(place.buffer, place.offset, bytes.subarray(first, first + size));
    } else if (gets) await this.#sendUp(buffer, offset, bytes);
  }

  async #sendUp(buffer: GPUBuffer, offset: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    for (let at = 0; at < bytes.length; at += this.#pieceBytes) {
      await this.#link.roomUp();
      this.#link.write(buffer, offset + at, bytes.subarray(at, at + this.#pieceBytes));
    }
  }

  #post(owner: number): void {
    const [next] = this.#incoming.get(owner) ?? [];
    if (!next || next.posted) return;
    const { label, axis } = next.operation;
    const bytes = new Uint8Array(spanOf(next.operation));
    const ranks = this.#ranks?.[axis];
    assert(ranks, `${label}: there are no other ranks`);
    next.posted = { bytes, arrives: ranks.receiveEarly(label, owner, bytes) };
  }

  async #received(operation: CollectiveOperation): Promise<Uint8Array<ArrayBuffer>> {
    const { owner } = at(operation.parts, 0);
    const next = this.#incoming.get(owner)?.shift();
    assert(next?.posted && next.operation === operation, `${operation.label} comes in its turn`);
    this.#post(owner);
    await this.#link.others(next.posted.arrives());
    return next.posted.bytes;
  }

  #room(size: number): Uint8Array<ArrayBuffer> {
    if (this.#bytes.length < size) this.#bytes = new Uint8Array(size);
    return this.#bytes.subarray(0, size);
  }

  async #handOver(ranks: Communicator, label: string, to: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    const { size } = ranks;
    // A neighbour that is far behind is waited for.
    if (this.#underWay.length >= UNDER_WAY * size) await this.#link.others(at(this.#underWay, 0));
    const sent = ranks.send(label, to, bytes).finally(() => {
      this.#underWay.splice(this.#underWay.indexOf(sent), 1);
    });
    // What goes wrong is thrown at the next check.
    sent.catch((reason: unknown) => this.#link.stop(reason));
    this.#underWay.push(sent);
  }
}
