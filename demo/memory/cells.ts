// The cells on their two canvases: below what rests, painted once; above what glides, with rings around what is in use
// and what is marked, and only that is painted again from frame to frame. It follows a film; it keeps no time.
//
// A cell that glides carries bytes: up, so as to arrive with the moment that needs it, and down from the moment on in which it
// leaves. One that is dropped, a copy lying below, sinks hollow. One that is made or freed on the GPU stays.

import { drawing } from '../../src/browser/index.ts';
import { at } from '../at.ts';
import { decodedState, type Film, tierOf } from './film.ts';
import type { CellPlace, Paint } from './paint.ts';
import type { Shelves, Spot } from './shelves.ts';

/** Rings reach beyond the cells: so far the canvases reach beyond the stage. */
const MARGIN = 8;

/** What paints on a canvas of so many CSS pixels. */
export function open(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  canvas.style.width = `${width}px`;
  return drawing.openCanvas(canvas, width, height);
}

export interface Canvases {
  readonly resting: HTMLCanvasElement;
  readonly above: HTMLCanvasElement;
}

/** When it begins, and how long it takes from one shelf to another. */
export interface Motion {
  readonly time: number;
  readonly milliseconds: number;
}

interface Glide {
  readonly from: CellPlace;
  readonly began: number;
  readonly milliseconds: number;
  readonly hollow: boolean;
}

export class Cells {
  /** The chunk or activation that is pointed at. */
  marked: number | undefined;
  readonly #film: Film;
  readonly #shelves: Shelves;
  readonly #paint: Paint;
  readonly #resting: CanvasRenderingContext2D;
  readonly #above: CanvasRenderingContext2D;
  readonly #kinds: readonly string[];
  /** By chunk and activation: where it is, where it belongs, and its code, as the film told last. */
  readonly #here: CellPlace[];
  readonly #to: CellPlace[];
  readonly #codes: Uint8Array;
  readonly #gliding = new Map<number, Glide>();
  /** On their way to a slot that they have from a coming moment on. */
  readonly #expected = new Set<number>();
  readonly #computing = new Set<number>();
  readonly #changed = new Set<number>();
  /** Places of staging, from the last one on, that are painted as copies. */
  #copies = 0;

  /** `before`: cells of the same chunks, which glide from where they were. */
  constructor(
    canvases: Canvases,
    film: Film,
    shelves: Shelves,
    paint: Paint,
    { time, milliseconds }: Motion,
    before?: Cells,
  ) {
    this.#film = film;
    this.#shelves = shelves;
    this.#paint = paint;
    const wide = ({ width, height }: Shelves, canvas: HTMLCanvasElement) => {
      const context = open(canvas, width + 2 * MARGIN, height + 2 * MARGIN);
      context.translate(MARGIN, MARGIN);
      return context;
    };
    this.#resting = wide(shelves, canvases.resting);
    this.#above = wide(shelves, canvases.above);
    const { rows } = film;
    this.#kinds = film.history.lists.flatMap((list) => Array<string>(list.chunks).fill(list.kind));
    this.#codes = film.codes.slice();
    this.#to = rows.map((_, chunk) => this.#spotOf(chunk));
    const known = before !== undefined && before.#here.length === rows.length;
    this.#here = known ? [...before.#here] : [...this.#to];
    this.#paintPlaces();
    for (let chunk = 0; chunk < rows.length; chunk++) {
      if (decodedState(at(film.codes, chunk)) === 'COMPUTE') this.#computing.add(chunk);
      if (same(at(this.#here, chunk), at(this.#to, chunk))) this.#rest(chunk);
      else this.#setOut(chunk, time, milliseconds, false);
    }
    this.#paintCopies();
  }

  /** The film says that something is other with a chunk. */
  readonly changed = (chunk: number): void => {
    this.#changed.add(chunk);
  };

  /** Sets in motion what has changed; in no time it is there at once. */
  follow({ time, milliseconds }: Motion): void {
    // All leave before any arrives: a place may get another chunk.
    const arrived: number[] = [];
    for (const chunk of this.#changed) {
      const code = at(this.#film.codes, chunk);
      const [from, to] = [tierOf(at(this.#codes, chunk)), tierOf(code)];
      this.#codes[chunk] = code;
      if (decodedState(code) === 'COMPUTE') this.#computing.add(chunk);
      else this.#computing.delete(chunk);
      const spot = this.#spotOf(chunk);
      const expected = this.#expected.delete(chunk);
      if (same(spot, at(this.#to, chunk))) {
        if (expected || !this.#gliding.has(chunk)) arrived.push(chunk);
        continue;
      }
      if (!this.#gliding.has(chunk)) this.#leave(chunk);
      this.#to[chunk] = spot;
      const carries = from !== 'none' && to !== 'none';
      const hollow = from === 'gpu' && (to === 'host' || to === 'disk') && !this.#film.isActivation(chunk);
      if (milliseconds > 0 && carries) this.#setOut(chunk, time, milliseconds, hollow);
      else arrived.push(chunk);
    }
    for (const chunk of arrived) this.#land(chunk);
    this.#changed.clear();
    this.#paintCopies();
  }

  /** A chunk will have a slot at a coming time, or an activation be back: it sets out now. */
  expect(chunk: number, slot: number, time: number, arrival: number): void {
    if (this.#expected.has(chunk)) return;
    this.#expected.add(chunk);
    if (!this.#gliding.has(chunk)) this.#leave(chunk);
    const at = this.#film.isActivation(chunk) ? this.#shelves.home('gpu', chunk) : this.#shelves.place('gpu', slot);
    this.#to[chunk] = [...at, this.#shelves.sizeOn('gpu')];
    this.#setOut(chunk, time, Math.max(1, arrival - time), false);
  }

  /** Time does not go on as expected: cells that have set out go back. */
  recall(): void {
    for (const chunk of this.#expected) this.#changed.add(chunk);
  }

  /** Paints what moves; false when nothing does. `pulse`: 0 to 1, of the rings. */
  frame(time: number, pulse: number): boolean {
    const context = this.#above;
    const { colors } = this.#paint;
    context.clearRect(-MARGIN, -MARGIN, this.#shelves.width + 2 * MARGIN, this.#shelves.height + 2 * MARGIN);
    for (const [chunk, glide] of this.#gliding) {
      const passed = (time - glide.began) / glide.milliseconds;
      // A cell that is expected waits in front of its slot for the film.
      if (passed >= 1 && !this.#expected.has(chunk)) this.#land(chunk);
      else this.#glide(chunk, glide, Math.min(1, Math.max(0, passed)));
    }
    for (const chunk of this.#computing) {
      const here = at(this.#here, chunk);
      const wide = here[2] >= 10;
      this.#paint.ring(context, colors.ink, here, wide ? 1 + 1.6 * pulse : 1, wide ? 1.6 : 1);
    }
    if (this.marked !== undefined) {
      const here = at(this.#here, this.marked);
      this.#paint.ring(context, colors.paper, here, 2, 4);
      this.#paint.ring(context, colors.staging, here, 3, 2);
    }
    return this.#gliding.size > 0;
  }

  /** The chunk or activation in a place; of an empty home, whose it is. */
  chunkAt(spot: Spot): number | undefined {
    if (spot.shelf !== 'gpu' && spot.shelf !== 'staging') return spot.index;
    const { codes, places } = this.#film;
    const chunk = places.findIndex((place, i) => place === spot.index && tierOf(at(codes, i)) === spot.shelf);
    return chunk < 0 ? undefined : chunk;
  }

  /** Where a chunk or an activation is painted now. */
  placeOf(chunk: number): CellPlace {
    return at(this.#here, chunk);
  }

  #spotOf(chunk: number): CellPlace {
    const tier = tierOf(at(this.#film.codes, chunk));
    if (this.#film.isActivation(chunk)) {
      // It is too large for staging to hold all of it at once.
      const home = tier === 'staging' ? 'host' : tier;
      return [...this.#shelves.home(home, chunk), this.#shelves.sizeOn(home === 'none' ? 'gpu' : home)];
    }
    const placed = tier === 'gpu' || tier === 'staging';
    const corner = placed ? this.#shelves.place(tier, at(this.#film.places, chunk)) : this.#shelves.home(tier, chunk);
    return [...corner, this.#shelves.sizeOn(tier)];
  }

  #paintPlaces(): void {
    const { slots, staging } = this.#film.history;
    const { rows } = this.#film;
    const empty = ([x, y]: readonly [number, number], size: number) => this.#paint.empty(this.#resting, x, y, size);
    const larger = this.#shelves.sizeOn('gpu');
    for (let slot = 0; slot < slots; slot++) empty(this.#shelves.place('gpu', slot), larger);
    for (let chunk = this.#film.history.chunks.length; chunk < rows.length; chunk++) {
      empty(this.#shelves.home('gpu', chunk), larger);
    }
    for (let place = 0; place < staging; place++) empty(this.#shelves.place('staging', place), larger);
    for (const tier of ['host', 'disk'] as const) {
      if (!this.#shelves.shelf(tier)) continue;
      for (let chunk = 0; chunk < rows.length; chunk++) {
        if (!this.#shelves.isBelow(chunk)) continue;
        empty(this.#shelves.home(tier, chunk), this.#shelves.sizeOn(tier));
      }
    }
  }

  /**
   * Staging also holds copies of chunks that are on the GPU: on their way up until the GPU has taken them, or on their
   * way down while the chunk stays. The history counts them and does not name them; they stand at the far end.
   */
  #paintCopies(): void {
    const { at, staged, history } = this.#film;
    let own = 0;
    for (const code of this.#film.codes.subarray(0, history.chunks.length)) if (tierOf(code) === 'staging') own++;
    const copies = Math.max(0, (staged[at] ?? 0) - own);
    const size = this.#shelves.sizeOn('staging');
    for (let i = Math.min(copies, this.#copies); i < Math.max(copies, this.#copies); i++) {
      const [x, y] = this.#shelves.place('staging', history.staging - 1 - i);
      this.#clear([x, y, size]);
      if (i < copies) this.#paint.hollow(this.#resting, 'staging', x, y, size);
      else this.#paint.empty(this.#resting, x, y, size);
    }
    this.#copies = copies;
  }

  #clear([x, y, size]: CellPlace): void {
    // Less than the gap between cells.
    this.#resting.clearRect(x - 0.5, y - 0.5, size + 1, size + 1);
  }

  #leave(chunk: number): void {
    const here = at(this.#here, chunk);
    this.#clear(here);
    this.#paint.empty(this.#resting, ...here);
  }

  #setOut(chunk: number, time: number, milliseconds: number, hollow: boolean): void {
    this.#gliding.set(chunk, { from: at(this.#here, chunk), began: time, milliseconds, hollow });
  }

  #rest(chunk: number): void {
    const here = at(this.#here, chunk);
    this.#clear(here);
    this.#paint.chunk(this.#resting, at(this.#codes, chunk), this.#kinds[chunk] ?? 'activation', ...here);
  }

  #land(chunk: number): void {
    this.#here[chunk] = at(this.#to, chunk);
    this.#gliding.delete(chunk);
    this.#rest(chunk);
  }

  #glide(chunk: number, { from, hollow }: Glide, passed: number): void {
    const to = at(this.#to, chunk);
    // Slow at both ends.
    const share = passed * passed * (3 - 2 * passed);
    const between = (i: 0 | 1 | 2) => from[i] + (to[i] - from[i]) * share;
    const here: CellPlace = [between(0), between(1), between(2)];
    this.#here[chunk] = here;
    const code = at(this.#codes, chunk);
    this.#trail(this.#paint.of(code), from, here, 1 - share);
    if (hollow) this.#paint.hollow(this.#above, tierOf(code), ...here);
    else this.#paint.chunk(this.#above, code, this.#kinds[chunk] ?? 'activation', ...here);
  }

  /** What a cell leaves behind it for a moment: stills and quick eyes see where it came from. */
  #trail(color: string, from: CellPlace, at: CellPlace, strength: number): void {
    const context = this.#above;
    context.globalAlpha = 0.35 * strength;
    context.strokeStyle = color;
    context.lineWidth = Math.max(1, Math.min(from[2], at[2]) * 0.3);
    context.lineCap = 'round';
    context.beginPath();
    context.moveTo(from[0] + from[2] / 2, from[1] + from[2] / 2);
    context.lineTo(at[0] + at[2] / 2, at[1] + at[2] / 2);
    context.stroke();
    context.globalAlpha = 1;
  }
}

const same = (a: CellPlace, b: CellPlace): boolean => a[0] === b[0] && a[1] === b[1];
