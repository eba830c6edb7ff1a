// The moments at which activations move, a piece at a time: each piece somewhere between its activation's last use and the
// first use that something else makes of its memory, or between the last use of the memory in which it is to be and its
// own first. Spread over that, pieces have the arithmetic between them to hide behind: staging holds few, and until the GPU
// has taken one, none may follow.
//
// Invariants: a piece leaves before anything else comes to lie where it was, and comes when nothing else does; it comes behind
// all moments at which a piece of the same activation leaves.

import { ArenaParts } from '../../graph/arena-parts.ts';
import type { ArenaRange, Placement } from '../../graph/liveness.ts';
import { bytesOf, type Tensor } from '../../graph/program.ts';
import type { ExtraSlots, SlotRange } from '../../memory/plan/extra-slots.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import { countTo } from '../../util/fewest.ts';
import { occupiedIn } from './extra-slots.ts';
import { type Move, type Moves, NO_MOVES } from './moves.ts';
import { isTransfer, type Operation } from './operations.ts';
import type { Pass } from './pass.ts';

/** The memory that something has from one moment to another, both included. */
interface Held {
  readonly arena: number;
  readonly from: number;
  readonly to: number;
  readonly first: number;
  readonly last: number;
}

/** What lies where its activations do. */
export interface Beside {
  readonly placements: readonly Placement[];
  /** What is read when a pass is over. */
  readonly outputs: ReadonlySet<Tensor>;
  readonly extra?: ExtraPlaces | undefined;
}

/** The ranges of the extra slots, and when they hold chunks. */
interface ExtraPlaces {
  readonly ranges: readonly SlotRange[];
  readonly slots: ExtraSlots;
  readonly chunkBytes: number;
}

/** By moment, of a pass: undefined where nothing moves. */
export function movesOf(
  pass: Pick<Pass, 'operations' | 'starts'>,
  { placements, outputs, extra }: Beside,
): readonly Moves[] | undefined {
  const { operations } = pass;
  if (!operations.some(isTransfer)) return undefined;
  const places = new Map(placements.flatMap((placement) => [...placement.places]));
  const held: Held[] = occupiedIn(pass, places, outputs).map(({ arena, offset, bytes, first, last }) => {
    return { arena, from: offset, to: offset + bytes, first, last };
  });
  if (extra) held.push(...heldBySlots(extra, operations.length));
  const occupied = new OccupiedParts(held);
  const stays = staysBelow(operations);
  const moves = operations.map((): { down: Move[]; up: Move[] } => ({ down: [], up: [] }));
  operations.forEach((operation, m) => {
    if (!isTransfer(operation)) return;
    const { op, pieces, rows } = operation;
    const ways = op === 'offload' ? 'down' : 'up';
    const place = rows ? undefined : places.get(operation.tensor);
    // Of rows, what moves is known when it does.
    if (!place) {
      at(moves, m)[ways].push({ operation, pieces });
      return;
    }
    const others = occupied.in(place, bytesOf(operation.tensor));
    const { away, back } = stays.get(m) ?? { away: -1, back: operations.length };
    const [begin, end] = op === 'offload' ? [m, leftBy(others, m, back)] : [freeFrom(others, m, away), m];
    pieces.forEach((piece, i) => {
      const moment = begin + Math.floor((i * (end - begin + 1)) / pieces.length);
      const list = at(moves, moment)[ways];
      const last = list.at(-1);
      if (last?.operation === operation) list[list.length - 1] = { operation, pieces: [...last.pieces, piece] };
      else list.push({ operation, pieces: [piece] });
    });
  });
  return moves.map((found) => (found.down.length + found.up.length > 0 ? found : NO_MOVES));
}

/** The moment before which all of what leaves at `moment` has left, and which comes `back` then. */
function leftBy(others: readonly Occupied[], moment: number, back: number): number {
  const next = others.reduce((least, { firsts }) => Math.min(least, firsts[countTo(firsts, moment)] ?? least), back);
  return halfway(moment, next);
}

/** The first moment at which what is used at `moment` may come. It left `away`. */
function freeFrom(others: readonly Occupied[], moment: number, away: number): number {
  const before = others.reduce(
    (most, { lasts }) => Math.max(most, lasts[countTo(lasts, moment - 1) - 1] ?? most),
    away,
  );
  return Math.min(moment, halfway(before, moment) + 1);
}

/** What leaves a memory has the first half of the time in which nothing lies there, and what comes to it the other. */
const halfway = (last: number, first: number): number => Math.floor((last + first) / 2);

/** Of a part of an arena: the moments at which something begins to lie there, and at which it did last; each ascending. */
interface Occupied {
  readonly firsts: number[];
  readonly lasts: number[];
}

/** What lies in each part of the arenas, and when. */
class OccupiedParts {
  readonly #arenas = new Map<number, { readonly parts: ArenaParts; readonly occupied: readonly Occupied[] }>();

  constructor(held: readonly Held[]) {
    for (const arena of new Set(held.map(({ arena }) => arena))) {
      const here = held.filter((one) => one.arena === arena);
      const parts = new ArenaParts(here.flatMap(({ from, to }) => [from, to]));
      const occupied = Array.from({ length: parts.count }, (): Occupied => ({ firsts: [], lasts: [] }));
      for (const { from, to, first, last } of here) {
        const { first: start, end } = parts.within(from, to);
        for (const { firsts, lasts } of occupied.slice(start, end)) {
          firsts.push(first);
          lasts.push(last);
        }
      }
      for (const moments of occupied.flatMap(({ firsts, lasts }) => [firsts, lasts])) moments.sort((a, b) => a - b);
      this.#arenas.set(arena, { parts, occupied });
    }
  }

  in({ arena, offset }: ArenaRange, bytes: number): readonly Occupied[] {
    const found = this.#arenas.get(arena);
    if (!found) return [];
    const { first, end } = found.parts.within(offset, offset + bytes);
    return found.occupied.slice(first, end);
  }
}

/** Chunks in extra slots. What goes on into the next step is there at this one's beginning, too. */
function heldBySlots({ ranges, slots, chunkBytes }: ExtraPlaces, moments: number): Held[] {
  return ranges.flatMap(({ arena, offset }, slot) =>
    at(slots.windows, slot).flatMap(({ from, to }) => {
      const range = { arena, from: offset, to: offset + chunkBytes };
      const here = { ...range, first: from, last: Math.min(to, moments) - 1 };
      return to > moments && from > 0 ? [here, { ...range, first: 0, last: to - moments - 1 }] : [here];
    }),
  );
}

/** Of each transfer, by its moment: when what it moves went away, and when it comes back first. */
function staysBelow(operations: readonly Operation[]): ReadonlyMap<number, { away: number; back: number }> {
  const found = new Map<number, { away: number; back: number }>();
  /** By the number of a first piece: its last transfer down. */
  const leaving = new Map<number, number>();
  operations.forEach((operation, m) => {
    if (!isTransfer(operation)) return;
    const { op, pieces } = operation;
    const { id } = at(pieces, 0);
    if (op === 'offload') {
      leaving.set(id, m);
      found.set(m, { away: m, back: operations.length });
      return;
    }
    const away = leaving.get(id);
    // What lasts over passes was taken down in another.
    found.set(m, { away: away ?? -1, back: m });
    const left = away === undefined ? undefined : found.get(away);
    assert(away === undefined || left, 'a transfer down is known before what it moved comes back');
    if (left) left.back = Math.min(left.back, m);
  });
  return found;
}
