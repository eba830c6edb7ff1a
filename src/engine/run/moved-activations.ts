// `MovedActivations`: the copies of activations that a pass keeps below the GPU: they are taken down, and brought back, a piece at
// a time. Which of them move, and when, is the pass's (engine/compile/transfer-moments.ts); where pieces lie below, the
// stash tier's.
//
// Invariant: a piece is brought back from the copy that was taken of it; of rows that last over passes, those that were
// written.

import type { StashTier } from '../../memory/tiers/stash-tier.ts';
import { at } from '../../util/at.ts';
import type { Move } from '../compile/moves.ts';
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

  /** Copies pieces of an activation down, or their new rows. */
  async offload(move: Move): Promise<void> {
    for (const value of this.#partsOf(move)) {
      await this.#link.store([value]);
      this.#link.ledger.activationBytes += value.bytes;
    }
  }

  /** Brings pieces of an activation back; below, they are of no use any more, unless they are fetched again. */
  async fetch(move: Move, moment: number): Promise<void> {
    const { pieces, operation } = move;
    const { keeps } = operation;
    const parts = this.#partsOf(move);
    for (const value of parts) {
      await this.#reads.send(value.chunk, moment, (bytes) => this.#link.send(value, bytes));
      this.#link.ledger.activationBytes += value.bytes;
      if (keeps) this.#stashes.release(value.chunk);
      else this.#copies.forgetBelow(value.chunk);
    }
    // Rows of a text before this one: they are of no use, and should not be read ahead.
    for (const { id } of pieces.slice(parts.length)) if (!this.#copies.isGoingDown(id)) this.#copies.forgetBelow(id);
  }

  #partsOf({ operation, pieces }: Move): Placed[] {
    const { op, tensor, rows } = operation;
    const { buffer, offset } = this.#storage.range(tensor);
    const position = rows ? at(this.#storage.onHost(rows.position), 0) : 0;
    return movedParts({ op, pieces, ...(rows && { rows }) }, position).map((part) => {
      return { chunk: part.id, at: part.at, buffer, offset: offset + part.offset, bytes: part.bytes };
    });
  }
}
