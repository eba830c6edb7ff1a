// `MovedActivations`: the copies of activations that a pass keeps below the GPU: a transfer operation takes one down, or
// brings it back, a piece at a time. Which activations move, and when, is the pass's (engine/compile); where pieces lie
// below, the stash tier's.
//
// Invariant: a piece is brought back from the copy that was taken of it; of rows that last over passes, those that were
// written.

import type { StashTier } from '../../memory/tiers/stash-tier.ts';
import { at } from '../../util/at.ts';
import type { TransferOperation } from '../compile/operations.ts';
import { movedParts } from '../compile/stash-ids.ts';
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

  /** Copies an activation down, or its new rows, a piece at a time. */
  async offload(operation: TransferOperation): Promise<void> {
    for (const value of this.#partsOf(operation)) {
      await this.#link.store([value]);
      this.#link.ledger.activationBytes += value.bytes;
    }
  }

  /** Brings an activation back; below, it is of no use any more, unless it is fetched again. */
  async fetch(operation: TransferOperation, moment: number): Promise<void> {
    const { pieces, keeps } = operation;
    const parts = this.#partsOf(operation);
    for (const value of parts) {
      await this.#reads.send(value.chunk, moment, (bytes) => this.#link.send(value, bytes));
      this.#link.ledger.activationBytes += value.bytes;
      if (keeps) this.#stashes.release(value.chunk);
      else this.#copies.forgetBelow(value.chunk);
    }
    // Rows of a text before this one: they are of no use, and should not be read ahead.
    for (const { id } of pieces.slice(parts.length)) if (!this.#copies.isGoingDown(id)) this.#copies.forgetBelow(id);
  }

  #partsOf(operation: TransferOperation): Placed[] {
    const { tensor, rows } = operation;
    const { buffer, offset } = this.#storage.range(tensor);
    const position = rows ? at(this.#storage.onHost(rows.position), 0) : 0;
    return movedParts(operation, position).map((part) => {
      return { chunk: part.id, at: part.at, buffer, offset: offset + part.offset, bytes: part.bytes };
    });
  }
}
