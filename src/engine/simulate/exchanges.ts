// Exchanges between ranks on the simulated clock, by the rules of run/exchanges.ts: what others need of a value is read, exchanged
// and what became of it sent up again, or it goes from GPU to GPU (machine.ts). What an exchange takes is network.ts's affair,
// which value it is about simulate.ts's.
//
// Invariant: bytes that are sent are those of the plan.

import { assert } from '../../util/errors.ts';
import type { CollectiveOperation } from '../compile/lower.ts';
import { roleIn, spanOf } from '../ranks/collectives.ts';
import type { SimulatedTask } from './clock.ts';
import type { Command, SimulatedLink } from './link.ts';
import type { Machine } from './machine.ts';
import { exchangeSeconds, type SimulatedRanks, sentBytes } from './network.ts';

export class SimulatedExchanges {
  /** Bytes that this rank sent so far. */
  sentBytes = 0;
  readonly #link: SimulatedLink;
  readonly #machine: Machine;
  readonly #pieceBytes: number;
  readonly #ranks: SimulatedRanks | undefined;

  constructor(link: SimulatedLink, machine: Machine, pieceBytes: number, ranks: SimulatedRanks | undefined) {
    this.#link = link;
    this.#machine = machine;
    this.#pieceBytes = pieceBytes;
    this.#ranks = ranks;
  }

  /**
   * `after`: what the value is behind on the GPU; `roomUp` waits until staging has room for a piece. Returns the command behind
   * which the new value is there, if there is one.
   */
  run(
    operation: CollectiveOperation,
    after: readonly (Command | undefined)[],
    roomUp: () => void,
  ): Command | undefined {
    const ranks = this.#ranks;
    assert(ranks, `${operation.label} waits for other ranks, and there is one here`);
    const { gives, gets } = roleIn(operation, ranks.sharding.rank);
    const seconds = exchangeSeconds(this.#machine, ranks, operation);
    this.sentBytes += sentBytes(ranks, operation);
    if (this.#machine.network?.exchange === 'direct') return this.#link.encode('network', seconds, after);
    // Where another has the value, it is read there.
    const reading = gives ? this.#read(spanOf(operation), after) : undefined;
    const elsewhere = gives ? 0 : spanOf(operation) / this.#machine.link.downBytesPerSecond;
    this.#link.wait(reading);
    this.#link.exchange(elsewhere + seconds);
    let there: Command | undefined;
    for (const bytes of gets ? this.#pieces(spanOf(operation)) : []) {
      roomUp();
      there = this.#link.send(bytes, after);
    }
    return there;
  }

  /** Bytes that the host reads on the GPU: it waits for them. */
  #read(bytes: number, after: readonly (Command | undefined)[]): SimulatedTask | undefined {
    let last: Command | undefined;
    for (const piece of this.#pieces(bytes)) last = this.#link.read(piece, after);
    return last?.task;
  }

  #pieces(bytes: number): number[] {
    return Array.from({ length: Math.ceil(bytes / this.#pieceBytes) }, (_, i) =>
      Math.min(this.#pieceBytes, bytes - i * this.#pieceBytes),
    );
  }
}
