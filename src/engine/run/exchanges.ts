// Exchanges between ranks as the executor does them: what others need of a value is read from the GPU, exchanged, and what
// became of it sent up again. What is exchanged when is a pass's affair (engine/ranks/collectives.ts), chunks that are gathered
// gathering.ts's, what neighbours hand to each other hand-overs.ts's.
//
// What others add up of a chunk leaves as soon as the GPU has it, and nothing here waits for it: links of several owners work at once.
//
// Invariant: while other ranks are waited for, the GPU does all that was encoded before.

import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { CollectiveOperation, Operation } from '../compile/operations.ts';
import { roleIn, spanOf } from '../ranks/collectives.ts';
import type { Communicator } from '../ranks/communicator.ts';
import { exchangeRooms, isChunkSum, isGiven } from '../ranks/exchange-memory.ts';
import { isChunkGather } from '../ranks/gather-order.ts';
import { EXCHANGE_AXES } from '../ranks/grid.ts';
import type { Ranks } from '../ranks/ranks.ts';
import { Gathering, type GatherPort } from './gathering.ts';
import { HandOvers } from './hand-overs.ts';
import type { Link } from './link.ts';
import { Outgoing } from './outgoing.ts';
import type { Slots } from './slots.ts';
import type { Storage } from './storage.ts';

export class Exchanges {
  readonly #link: Link;
  readonly #storage: Storage;
  readonly #slots: Slots;
  readonly #ranks: Ranks['step'] | undefined;
  readonly #pieceBytes: number;
  readonly #gathering: Gathering;
  readonly #handOvers: HandOvers;
  /** What others add up. */
  readonly #given: Outgoing;
  readonly #sums: Communicator | undefined;
  #bytes = new Uint8Array(0);

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
    this.#handOvers = new HandOvers(link, ranks);
    this.#given = new Outgoing(link);
    this.#sums = ranks?.data.over('sums');
  }

  /** Bytes of host memory that it has for all that. */
  get bytes(): number {
    const sums = EXCHANGE_AXES.map((axis) => this.#ranks?.[axis].sumBytes ?? 0);
    const { bytes } = this.#given;
    return [this.#bytes.length, bytes, this.#gathering.bytes, this.#handOvers.bytes, ...sums].reduce((a, b) => a + b);
  }

  /** Begins a pass. */
  async begin(operations: readonly Operation[]): Promise<void> {
    const ranks = this.#ranks;
    if (!ranks) return;
    const rooms = exchangeRooms(operations, ranks);
    if (this.#bytes.length < rooms.value) this.#bytes = new Uint8Array(rooms.value);
    for (const axis of EXCHANGE_AXES) if (rooms.sums[axis]) ranks[axis].readyForSums(rooms.sums[axis]);
    await this.#given.grow(rooms.gives);
    await this.#handOvers.begin(operations, rooms);
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
    if (isGiven(operation, ranks)) {
      const room = await this.#given.room(size);
      const there = await this.#link.readEarly(buffer, offset, room.bytes);
      this.#given.send(room, () => this.#sumsOf(operation).send(label, at(parts, 0).owner, room.bytes), there());
      return;
    }
    const { gives, gets } = roleIn(operation, ranks.rank);
    // What this rank has by itself is its part of the whole.
    const part = own && { place: this.#storage.range(own), ...at(parts, ranks.rank) };
    if (collective === 'receive') {
      await this.#handOvers.receive(operation, (bytes) => this.#sendUp(buffer, offset, bytes));
      return;
    }
    if (collective === 'send') {
      const room = await this.#handOvers.room(size);
      await this.#link.read(buffer, offset, size, (piece, at) => room.bytes.set(piece, at));
      this.#handOvers.send(ranks, operation, room);
      return;
    }
    const bytes = this.#bytes.subarray(0, size);
    if (part && collective === 'all-gather') {
      const { place, offset: first, bytes: size } = part;
      await this.#link.read(place.buffer, place.offset, size, (piece, at) => bytes.set(piece, first + at));
    } else if (gives) await this.#link.read(buffer, offset, size, (piece, at) => bytes.set(piece, at));
    switch (collective) {
      case 'all-reduce':
        await this.#link.others(ranks.reduceScatter(label, bytes, parts));
        await this.#link.others(ranks.allGather(label, bytes, parts));
        break;
      case 'reduce-scatter':
        await this.#link.others(this.#sumsOf(operation).reduceScatter(label, bytes, parts));
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

  /** Over which ranks add up: chunks apart from all else, since what is given of them leaves when the GPU has it. */
  #sumsOf(operation: CollectiveOperation): Communicator {
    const ranks = isChunkSum(operation) ? this.#sums : this.#ranks?.[operation.axis];
    assert(ranks, `${operation.label}: there are no other ranks`);
    return ranks;
  }

  async #sendUp(buffer: GPUBuffer, offset: number, bytes: Uint8Array<ArrayBuffer>): Promise<void> {
    for (let at = 0; at < bytes.length; at += this.#pieceBytes) {
      await this.#link.roomUp();
      this.#link.write(buffer, offset + at, bytes.subarray(at, at + this.#pieceBytes));
    }
  }
}
