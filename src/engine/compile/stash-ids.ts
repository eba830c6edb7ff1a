// `StashIds`: numbers for what of a program's activations is below the GPU at once. Each stands for a place of its size, which
// is used again by a piece of that size once it is free: as what moves does so forward, and comes back backward, all pieces
// of a micro-batch are below at the end of its forward pass, so that there is no place more than the most that are there.
// And what of the pieces moves when a program runs: all of them, or the rows that a position says.

import type { AppendedRows, Instruction, Stash } from '../../graph/program.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { assert } from '../../util/errors.ts';

/** A part of an activation, no larger than a chunk, and the number it goes by below the GPU: those of chunks come before. */
export interface StashPiece {
  readonly id: number;
  /** Bytes, in the activation. */
  readonly offset: number;
  readonly bytes: number;
}

/** What moves of a piece; its offset and bytes are in the activation. */
export interface MovedPart extends StashPiece {
  /** Bytes, in the piece. */
  readonly at: number;
}

/** An activation that moves. */
interface Moved {
  readonly op: 'offload' | 'fetch';
  readonly pieces: readonly StashPiece[];
  readonly rows?: AppendedRows;
}

/** What moves in a run whose new rows begin at `position`, which only matters where there are rows. */
export function movedParts({ op, pieces, rows }: Moved, position: number): MovedPart[] {
  if (!rows) return pieces.map((piece) => ({ ...piece, at: 0 }));
  const first = position * rows.bytes;
  const [begin, end] = op === 'fetch' ? [0, first] : [first, first + rows.count * rows.bytes];
  return pieces.flatMap(({ id, offset, bytes }) => {
    const from = Math.max(begin, offset);
    const to = Math.min(end, offset + bytes);
    return from < to ? [{ id, offset: from, bytes: to - from, at: from - offset }] : [];
  });
}

/** The last position that leaves room for the new rows: the most comes up there. */
export const lastPosition = ({ pieces, rows }: Moved): number =>
  rows ? pieces.reduce((sum, { bytes }) => sum + bytes, 0) / rows.bytes - rows.count : 0;

export class StashIds {
  readonly #chunkBytes: number;
  readonly #taken = new Map<Stash, StashPiece[]>();
  /** By size. */
  readonly #free = new Map<number, number[]>();
  #next: number;

  /** What lasts has the first numbers, in every program that has the same in the same order. */
  constructor({ chunkBytes, count }: ChunkMap, instructions: readonly Instruction[]) {
    this.#chunkBytes = chunkBytes;
    this.#next = count;
    for (const each of instructions)
      if ('stash' in each && each.stash.lasts && !this.#taken.has(each.stash)) this.#number(each.stash);
  }

  take(stash: Stash): readonly StashPiece[] {
    const lasting = stash.lasts && this.#taken.get(stash);
    return lasting || this.#number(stash);
  }

  #number(stash: Stash): StashPiece[] {
    const pieces: StashPiece[] = [];
    for (let offset = 0; offset < stash.bytes; offset += this.#chunkBytes) {
      const bytes = Math.min(this.#chunkBytes, stash.bytes - offset);
      const id = this.#free.get(bytes)?.pop() ?? this.#next++;
      pieces.push({ id, offset, bytes });
    }
    this.#taken.set(stash, pieces);
    return pieces;
  }

  /** Of what is fetched; their numbers are free then, unless they keep their values. */
  piecesOf(stash: Stash, keeps: boolean): StashPiece[] {
    const pieces = this.#taken.get(stash);
    assert(pieces, `${stash.name} is fetched and was not moved below`);
    if (keeps || stash.lasts) return pieces;
    this.#taken.delete(stash);
    for (const { id, bytes } of pieces.toReversed()) {
      const free = this.#free.get(bytes);
      if (free) free.push(id);
      else this.#free.set(bytes, [id]);
    }
    return pieces;
  }
}
