// A recorded step as a film: what changes at each moment, so that going on by a moment, or back, costs no more than
// the changes. Pure: of moments and places, not of pixels and seconds.
//
// Activations are in it too, their numbers behind those of chunks; each has a home on the GPU, and no slot.
//
// The history says that a chunk is on the GPU, not in which slot. As the executor does, a chunk takes the slot that
// it had last if that is free, or else the first free one: so it stays put, and no slot holds two.

import {
  type ChunkHistory,
  CODES,
  decode,
  expand,
  type RunLengths,
  rowsOf,
  type Tier,
} from '../../src/browser/index.ts';
import { at } from '../at.ts';

/** Of a chunk that is neither in a slot nor in staging, and of all activations: it is at its home in the tier. */
export const HOME = -1;

const DECODED = Array.from({ length: CODES }, (_, code) => decode(code));

export const decoded = (code: number) => at(DECODED, code);
export const tierOf = (code: number): Tier => at(DECODED, code).tier;
export const decodedState = (code: number) => at(DECODED, code).state;

/** The tiers that have numbered places; the others have a home for each chunk. */
type Placed = 'gpu' | 'staging';

/** Changes of all moments, one behind the other; moment m's are those from `first[m]` up to `first[m + 1]`. */
interface Changes {
  readonly first: Int32Array;
  readonly chunk: Int32Array;
  readonly before: Uint8Array;
  readonly after: Uint8Array;
  readonly placeBefore: Int32Array;
  readonly placeAfter: Int32Array;
}

export class Film {
  readonly history: ChunkHistory;
  /** How many there are. */
  readonly moments: number;
  /** Of each chunk and activation: its codes over the moments. */
  readonly rows: readonly RunLengths[];
  /** By chunk and activation, at the moment that is shown; see `decode`. */
  readonly codes: Uint8Array;
  /** By chunk and activation: its slot, its place in staging, or HOME. */
  readonly places: Int32Array;
  /** Chunks in slots, and in staging both ways, by moment. */
  readonly used: Uint16Array;
  readonly staged: readonly number[];
  /**
   * By moment: chunks that come up with their value, that leave with it on their way down, and that leave because a
   * copy lies below: those move no bytes.
   */
  readonly risen: Uint16Array;
  readonly sunk: Uint16Array;
  readonly dropped: Uint16Array;
  /** By moment: bytes of activations that come back from below, and that leave for there. */
  readonly fetched: Float64Array;
  readonly offloaded: Float64Array;
  readonly #changes: Changes;
  #at = 0;

  /** `before`: the film that this one follows; what it left on the GPU keeps its slot. */
  constructor(history: ChunkHistory, before?: Film) {
    this.history = history;
    this.moments = history.operators.length;
    this.staged = expand(history.staged);
    this.rows = rowsOf(history);
    this.codes = Uint8Array.from(this.rows, (runs) => at(runs, 0));
    this.places = new Int32Array(this.rows.length).fill(HOME);
    this.risen = new Uint16Array(this.moments);
    this.sunk = new Uint16Array(this.moments);
    this.dropped = new Uint16Array(this.moments);
    this.used = new Uint16Array(this.moments);
    this.fetched = new Float64Array(this.moments);
    this.offloaded = new Float64Array(this.moments);
    const chunks = this.codes.subarray(0, history.chunks.length);
    this.used[0] = chunks.reduce((sum, code) => sum + (tierOf(code) === 'gpu' ? 1 : 0), 0);
    this.#changes = this.#work(before);
  }

  /** The moment that is shown. */
  get at(): number {
    return this.#at;
  }

  /** Whether a number is that of an activation. */
  isActivation(which: number): boolean {
    return which >= this.history.chunks.length;
  }

  /** Shows a moment. `changed` is called for each chunk and activation that changes on the way there, once or more. */
  seek(moment: number, changed: (chunk: number) => void): void {
    const { first, chunk, before, after, placeBefore, placeAfter } = this.#changes;
    const target = Math.min(this.moments - 1, Math.max(0, moment));
    const put = (i: number, code: number, place: number) => {
      const which = at(chunk, i);
      this.codes[which] = code;
      this.places[which] = place;
      changed(which);
    };
    const end = at(first, target + 1);
    for (let i = at(first, this.#at + 1); i < end; i++) put(i, at(after, i), at(placeAfter, i));
    for (let i = at(first, this.#at + 1) - 1; i >= end; i--) {
      put(i, at(before, i), at(placeBefore, i));
    }
    this.#at = target;
  }

  /** What comes up from below within so many moments from here: `arrives` is called with the slot and the moment. */
  ahead(moments: number, arrives: (chunk: number, slot: number, moment: number) => void): void {
    const { first, chunk, before, after, placeAfter } = this.#changes;
    const seen = new Set<number>();
    for (let m = this.#at + 1; m <= Math.min(this.#at + moments, this.moments - 1); m++) {
      for (let i = at(first, m); i < at(first, m + 1); i++) {
        const from = tierOf(at(before, i));
        const comes = tierOf(at(after, i)) === 'gpu' && from !== 'gpu' && from !== 'none';
        // A chunk that changes otherwise before it comes is not on its way yet.
        const other = seen.has(at(chunk, i));
        seen.add(at(chunk, i));
        if (!comes || other) continue;
        arrives(at(chunk, i), at(placeAfter, i), m);
      }
    }
  }

  /** Goes through the step once, dealing out places, and back to its first moment. */
  #work(previous: Film | undefined): Changes {
    const { chunks, slots, staging } = this.history;
    const first = new Int32Array(this.moments + 1);
    for (const runs of this.rows) {
      for (let i = 0, m = 0; i + 2 < runs.length; i += 2) {
        m += at(runs, i + 1);
        first[m + 1] = at(first, m + 1) + 1;
      }
    }
    for (let m = 0; m < this.moments; m++) first[m + 1] = at(first, m + 1) + at(first, m);
    const count = at(first, this.moments);
    const changes: Changes = {
      first,
      chunk: new Int32Array(count),
      before: new Uint8Array(count),
      after: new Uint8Array(count),
      placeBefore: new Int32Array(count),
      placeAfter: new Int32Array(count),
    };
    const next = first.slice();
    this.rows.forEach((runs, which) => {
      for (let i = 0, m = 0; i + 2 < runs.length; i += 2) {
        m += at(runs, i + 1);
        const place = at(next, m);
        next[m] = place + 1;
        changes.chunk[place] = which;
        changes.before[place] = at(runs, i);
        changes.after[place] = at(runs, i + 2);
      }
    });
    const rooms = { gpu: new Places(slots, chunks.length), staging: new Places(staging, chunks.length) };
    const had = previous?.history.chunks.length === chunks.length ? previous.#last() : undefined;
    if (had) rooms.gpu.had.set(had);
    // Chunks that had a slot choose first.
    for (const chosen of [true, false]) {
      this.codes.forEach((code, which) => {
        const tier = tierOf(code);
        if (this.isActivation(which) || !isPlaced(tier) || (rooms[tier].had[which] !== HOME) !== chosen) return;
        if (this.places[which] === HOME) this.places[which] = rooms[tier].take(which);
      });
    }
    const start = this.places.slice();
    for (let m = 1; m < this.moments; m++) this.#deal(changes, m, rooms);
    this.places.set(start);
    return changes;
  }

  /** The places of one moment: chunks that leave make room for those that come. */
  #deal({ first, chunk, before, after, placeBefore, placeAfter }: Changes, m: number, rooms: Record<Placed, Places>) {
    const end = at(first, m + 1);
    let used = at(this.used, m - 1);
    for (let i = at(first, m); i < end; i++) {
      const which = at(chunk, i);
      const place = at(this.places, which);
      const from = tierOf(at(before, i));
      const to = tierOf(at(after, i));
      placeBefore[i] = place;
      placeAfter[i] = from === to ? place : HOME;
      if (from === to) continue;
      if (this.isActivation(which)) {
        const { bytes = 0 } = this.history.activations.tensors[which - this.history.chunks.length] ?? {};
        const way = from === 'none' || to === 'none' ? undefined : to === 'gpu' ? this.fetched : this.offloaded;
        if (way && (from === 'gpu' || to === 'gpu')) way[m] = at(way, m) + bytes;
        continue;
      }
      if (isPlaced(from)) rooms[from].give(place);
      if (from === 'gpu') used--;
      if (to === 'gpu') used++;
      if (from === 'gpu' && to === 'staging') this.sunk[m] = at(this.sunk, m) + 1;
      else if (from === 'gpu' && to !== 'none') this.dropped[m] = at(this.dropped, m) + 1;
      if (to === 'gpu' && from !== 'none') this.risen[m] = at(this.risen, m) + 1;
    }
    this.used[m] = used;
    for (let i = at(first, m); i < end; i++) {
      const which = at(chunk, i);
      const to = tierOf(at(after, i));
      const moves = to !== tierOf(at(before, i)) && !this.isActivation(which);
      if (moves && isPlaced(to)) placeAfter[i] = rooms[to].take(which);
      this.places[which] = at(placeAfter, i);
    }
  }

  /** The slots at the end of the step, HOME for chunks that have none. */
  #last(): Int32Array {
    const slots = new Int32Array(this.history.chunks.length).fill(HOME);
    const now = this.#at;
    this.seek(this.moments - 1, () => {});
    this.codes.forEach((code, which) => {
      if (!this.isActivation(which) && tierOf(code) === 'gpu') slots[which] = at(this.places, which);
    });
    this.seek(now, () => {});
    return slots;
  }
}

const isPlaced = (tier: Tier): tier is Placed => tier === 'gpu' || tier === 'staging';

/** Numbered places, each for one chunk at a time. */
class Places {
  /** By chunk: the place that it had last. */
  readonly had: Int32Array;
  readonly #taken: Uint8Array;
  /** No place below this one is free. */
  #lowest = 0;

  constructor(count: number, chunks: number) {
    this.#taken = new Uint8Array(count);
    this.had = new Int32Array(chunks).fill(HOME);
  }

  take(chunk: number): number {
    const last = at(this.had, chunk);
    const place = this.#taken[last] === 0 ? last : this.#firstFree();
    this.#taken[place] = 1;
    this.had[chunk] = place;
    return place;
  }

  give(place: number): void {
    this.#taken[place] = 0;
    this.#lowest = Math.min(this.#lowest, place);
  }

  #firstFree(): number {
    while (this.#taken[this.#lowest] === 1) this.#lowest++;
    return this.#lowest;
  }
}
