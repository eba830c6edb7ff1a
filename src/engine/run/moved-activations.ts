// `MovedActivations`: the copies of activations that a pass keeps below the GPU: a transfer operation takes one down, or
// brings it back, a piece at a time. Which activations move, and when, is the pass's (engine/compile); where pieces lie
// below, the stash tier's.
//
// Invariant: a piece is brought back from the copy that was taken of it, or, where it lasts over passes and none was taken yet,
// as zeros.

import type { StashTier } from '../../memory/tiers/stash-tier.ts';
import type { TransferOperation } from '../compile/lower.ts';
import type { ChunkCopies } from './copies.ts';
import type { Link, Placed } from './link.ts';
import type { ScheduledReads } from './scheduled-reads.ts';
import type { Storage } from './storage.ts';

export class MovedActivations {
  readonly #link: Link;
  readonly #storage: Storage;
  readonly #copies: ChunkCopies;
  readonly #reads: ScheduledReads;
  readonly #stashes: StashTier;

  constructor(link: Link, storage: Storage, copies: ChunkCopies, reads: ScheduledReads, stashes: StashTier) {
    this.#link = link;
    this.#storage = storage;
    this.#copies = copies;
    this.#reads = reads;
    this.#stashes = stashes;
  }

  /** Copies an activation down, a piece at a time. */
  async offload(operation: TransferOperation): Promise<void> {
    for (const value of this.#piecesOf(operation)) {
      await this.#link.store([value]);
      this.#link.ledger.activationBytes += value.bytes;
    }
  }

  /** Brings an activation back; below, it is of no use any more, unless it is fetched again. */
  async fetch(operation: TransferOperation, moment: number): Promise<void> {
    for (const value of this.#piecesOf(operation)) {
      if (operation.lasts && this.#isNowhere(value.chunk)) {
        const { buffer, offset, bytes } = value;
        this.#link.command((encoder) => encoder.clearBuffer(buffer, offset, bytes));
        continue;
      }
      await this.#reads.send(value.chunk, moment, (bytes) => this.#link.send(value, bytes));
      this.#link.ledger.activationBytes += value.bytes;
      if (operation.keeps) this.#stashes.release(value.chunk);
      else this.#copies.forgetBelow(value.chunk);
    }
  }

  /** Neither below, nor on its way there. */
  #isNowhere(piece: number): boolean {
    return !this.#copies.isGoingDown(piece) && this.#stashes.where(piece) === 'nothing';
  }

  #piecesOf({ tensor, pieces }: TransferOperation): Placed[] {
    const { buffer, offset } = this.#storage.range(tensor);
    return pieces.map((piece) => ({ chunk: piece.id, buffer, offset: offset + piece.offset, bytes: piece.bytes }));
  }
}
