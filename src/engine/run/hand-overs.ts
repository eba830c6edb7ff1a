// `HandOvers`: values that neighbours hand to each other, one message each: what is given is on its way when the next operation
// begins, and nothing waits for it to arrive there; what is to come is taken as soon as it comes, one value ahead of its use. Two
// neighbours may hand something to each other at once.
//
// Invariant: values on their way lie in as many rooms as exchange-memory.ts says, at most, each as large as the largest.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { CollectiveOperation, Operation } from '../compile/operations.ts';
import { spanOf } from '../ranks/collectives.ts';
import type { Communicator } from '../ranks/communicator.ts';
import type { ExchangeRooms } from '../ranks/exchange-memory.ts';
import type { Ranks } from '../ranks/ranks.ts';
import type { Link } from './link.ts';
import { Outgoing, type OutgoingRoom } from './outgoing.ts';
import { growTo, noRooms, type Rooms } from './rooms.ts';

type Bytes = Uint8Array<ArrayBuffer>;

const receives = new WeakMap<readonly Operation[], readonly CollectiveOperation[]>();

const isReceive = (operation: Operation): operation is CollectiveOperation =>
  operation.op === 'collective' && operation.collective === 'receive';

/** A value that a neighbour hands over; there once it is awaited. */
interface Incoming {
  readonly operation: CollectiveOperation;
  posted?: { readonly room: Bytes; readonly bytes: Bytes; readonly arrives: () => Promise<void> };
}

export class HandOvers {
  readonly #link: Link;
  readonly #ranks: Ranks['step'] | undefined;
  readonly #outgoing: Outgoing;
  /** By the neighbour: what it is to hand over from now on, the first of it in the memory where it is to be. */
  readonly #incoming = new Map<number, Incoming[]>();
  readonly #taking = new Map<number, Rooms>();

  constructor(link: Link, ranks: Ranks['step'] | undefined) {
    this.#link = link;
    this.#ranks = ranks;
    this.#outgoing = new Outgoing(link);
  }

  /** Bytes of host memory that it has. */
  get bytes(): number {
    return [...this.#taking.values()].reduce((sum, { bytes, count }) => sum + count * bytes, this.#outgoing.bytes);
  }

  /** Begins a pass: what neighbours give in it is taken while this rank still works on what comes before. */
  async begin(operations: readonly Operation[], rooms: ExchangeRooms): Promise<void> {
    await this.#outgoing.grow(rooms.sends);
    for (const { from, ...size } of rooms.receives) {
      const own = this.#taking.get(from) ?? noRooms();
      this.#taking.set(from, own);
      growTo(own, size);
    }
    const known = receives.get(operations) ?? operations.filter(isReceive);
    receives.set(operations, known);
    for (const operation of known) {
      const { owner } = at(operation.parts, 0);
      const queue = this.#incoming.get(owner) ?? [];
      this.#incoming.set(owner, queue);
      queue.push({ operation });
    }
    for (const owner of this.#incoming.keys()) this.#post(owner);
  }

  /** Memory for a value to hand over. A neighbour that is far behind is waited for. */
  room(size: number): Promise<OutgoingRoom> {
    return this.#outgoing.room(size);
  }

  send(ranks: Communicator, { label, parts }: CollectiveOperation, room: OutgoingRoom): void {
    this.#outgoing.send(room, () => ranks.send(label, at(parts, 0).owner, room.bytes));
  }

  /** What a neighbour hands over, once it is there; `use` has its memory until it is done. */
  async receive(operation: CollectiveOperation, use: (bytes: Bytes) => Promise<void>): Promise<void> {
    const { owner } = at(operation.parts, 0);
    const next = this.#incoming.get(owner)?.shift();
    assert(next?.posted && next.operation === operation, `${operation.label} comes in its turn`);
    const { room, bytes, arrives } = next.posted;
    this.#post(owner);
    await this.#link.others(arrives());
    await use(bytes);
    this.#taking.get(owner)?.free.push(room);
  }

  #post(owner: number): void {
    const [next] = this.#incoming.get(owner) ?? [];
    if (!next || next.posted) return;
    const { label, axis } = next.operation;
    const ranks = this.#ranks?.[axis];
    assert(ranks, `${label}: there are no other ranks`);
    const rooms = this.#taking.get(owner);
    const room = rooms?.free.pop();
    assert(room, `${label}: another value of its rank is in use`);
    const bytes = room.subarray(0, spanOf(next.operation));
    next.posted = { room, bytes, arrives: ranks.receiveEarly(label, owner, bytes) };
  }
}
