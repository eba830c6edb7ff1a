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

type Bytes = Uint8Array<ArrayBuffer>;

const receives = new WeakMap<readonly Operation[], readonly CollectiveOperation[]>();

const isReceive = (operation: Operation): operation is CollectiveOperation =>
  operation.op === 'collective' && operation.collective === 'receive';

/** A value that a neighbour hands over; there once it is awaited. */
interface Incoming {
  readonly operation: CollectiveOperation;
  posted?: { readonly room: Bytes; readonly bytes: Bytes; readonly arrives: () => Promise<void> };
}

/** Rooms of one size. */
interface Rooms {
  bytes: number;
  most: number;
  made: number;
  free: Bytes[];
}

const noRooms = (): Rooms => ({ bytes: 0, most: 0, made: 0, free: [] });

/** Nothing lies in them. */
function growTo(rooms: Rooms, { bytes, most }: Pick<Rooms, 'bytes' | 'most'>): void {
  rooms.most = Math.max(rooms.most, most);
  if (bytes <= rooms.bytes) return;
  rooms.bytes = bytes;
  rooms.made = 0;
  rooms.free = [];
}

function take(rooms: Rooms): Bytes | undefined {
  const room = rooms.free.pop();
  if (room || rooms.made === rooms.most) return room;
  rooms.made++;
  return new Uint8Array(rooms.bytes);
}

export class HandOvers {
  readonly #link: Link;
  readonly #ranks: Ranks['step'] | undefined;
  readonly #underWay: Promise<void>[] = [];
  readonly #sending = noRooms();
  /** By the neighbour: what it is to hand over from now on, the first of it in the memory where it is to be. */
  readonly #incoming = new Map<number, Incoming[]>();
  readonly #taking = new Map<number, Rooms>();

  constructor(link: Link, ranks: Ranks['step'] | undefined) {
    this.#link = link;
    this.#ranks = ranks;
  }

  /** Bytes of host memory that it has. */
  get bytes(): number {
    return [this.#sending, ...this.#taking.values()].reduce((sum, { bytes, made }) => sum + made * bytes, 0);
  }

  /** Begins a pass: what neighbours give in it is taken while this rank still works on what comes before. */
  async begin(operations: readonly Operation[], rooms: ExchangeRooms): Promise<void> {
    if (rooms.sends.bytes > this.#sending.bytes) await this.#link.others(Promise.all(this.#underWay));
    growTo(this.#sending, rooms.sends);
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
  async room(size: number): Promise<{ readonly room: Bytes; readonly bytes: Bytes }> {
    for (;;) {
      const room = take(this.#sending);
      if (room) return { room, bytes: room.subarray(0, size) };
      await this.#link.others(Promise.race(this.#underWay));
    }
  }

  send(ranks: Communicator, { label, parts }: CollectiveOperation, { room, bytes }: { room: Bytes; bytes: Bytes }) {
    const sent = ranks.send(label, at(parts, 0).owner, bytes).finally(() => {
      this.#underWay.splice(this.#underWay.indexOf(sent), 1);
      if (room.length === this.#sending.bytes) this.#sending.free.push(room);
    });
    // What goes wrong is thrown at the next check.
    sent.catch((reason: unknown) => this.#link.stop(reason));
    this.#underWay.push(sent);
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
    const room = rooms && take(rooms);
    assert(room, `${label}: another value of its rank is in use`);
    const bytes = room.subarray(0, spanOf(next.operation));
    next.posted = { room, bytes, arrives: ranks.receiveEarly(label, owner, bytes) };
  }
}
