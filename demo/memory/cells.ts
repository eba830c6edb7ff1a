// The cells on their two canvases: below what rests, painted once; above what glides, with rings around what is in use
// and what is marked, and only that is painted again from frame to frame. It follows a film; it keeps no time.

import { type Film, stateOf, tierOf } from './film.ts';
import type { Paint } from './paint.ts';
import type { Shelves, Spot } from './shelves.ts';

/** Milliseconds from one shelf to another. */
const GLIDE = 450;

/** What paints on a canvas of so many CSS pixels. */
export function open(canvas: HTMLCanvasElement, width: number, height: number): CanvasRenderingContext2D {
  const ratio = window.devicePixelRatio;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  canvas.style.height = `${height}px`;
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  context.scale(ratio, ratio);
  return context;
}

export interface Canvases {
  readonly resting: HTMLCanvasElement;
  readonly above: HTMLCanvasElement;
}

export class Cells {
  /** The chunk that is pointed at. */
  marked: number | undefined;
  readonly #film: Film;
  readonly #shelves: Shelves;
  readonly #paint: Paint;
  readonly #resting: CanvasRenderingContext2D;
  readonly #above: CanvasRenderingContext2D;
  readonly #kinds: readonly string[];
  /** By chunk, x and y: where it is, where it set out, where it belongs; and when it set out. */
  readonly #here: Float32Array;
  readonly #from: Float32Array;
  readonly #to: Float32Array;
  readonly #began: Float64Array;
  readonly #gliding = new Set<number>();
  readonly #computing = new Set<number>();
  readonly #changed = new Set<number>();

  /** `before`: cells of the same chunks, which glide from where they were. */
  constructor(canvases: Canvases, film: Film, shelves: Shelves, paint: Paint, time: number, before?: Cells) {
    this.#film = film;
    this.#shelves = shelves;
    this.#paint = paint;
    this.#resting = open(canvases.resting, shelves.width, shelves.height);
    this.#above = open(canvases.above, shelves.width, shelves.height);
    const { lists, chunks } = film.history;
    this.#kinds = lists.flatMap((list) => Array<string>(list.chunks).fill(list.kind));
    const count = chunks.length;
    this.#to = new Float32Array(2 * count);
    for (let chunk = 0; chunk < count; chunk++) this.#to.set(this.#spotOf(chunk), 2 * chunk);
    this.#here = before && before.#here.length === 2 * count ? before.#here.slice() : this.#to.slice();
    this.#from = this.#here.slice();
    this.#began = new Float64Array(count).fill(time);
    this.marked = before?.marked !== undefined && before.marked < count ? before.marked : undefined;
    this.#paintPlaces();
    for (let chunk = 0; chunk < count; chunk++) {
      if (stateOf(film.codes[chunk] as number) === 'COMPUTE') this.#computing.add(chunk);
      if (this.#isAtHome(chunk)) this.#rest(chunk);
      else this.#gliding.add(chunk);
    }
  }

  /** The film says that something is other with a chunk. */
  readonly changed = (chunk: number): void => {
    this.#changed.add(chunk);
  };

  /** Sets in motion what has changed; without `glide` it is there at once. */
  follow(time: number, glide: boolean): void {
    // All leave before any arrives: a place may change hands.
    for (const chunk of this.#changed) {
      const [x, y] = this.#spotOf(chunk);
      if (stateOf(this.#film.codes[chunk] as number) === 'COMPUTE') this.#computing.add(chunk);
      else this.#computing.delete(chunk);
      const moves = x !== this.#to[2 * chunk] || y !== this.#to[2 * chunk + 1];
      if (!moves) continue;
      if (!this.#gliding.has(chunk)) this.#leave(chunk);
      this.#from.set(this.#here.subarray(2 * chunk, 2 * chunk + 2), 2 * chunk);
      this.#to.set([x, y], 2 * chunk);
      this.#began[chunk] = time;
      this.#gliding.add(chunk);
    }
    for (const chunk of this.#changed) {
      if (!this.#gliding.has(chunk)) this.#rest(chunk);
      else if (!glide) this.#land(chunk);
    }
    this.#changed.clear();
  }

  /** Paints what moves; false when nothing does. `pulse`: 0 to 1, of the rings. */
  frame(time: number, pulse: number): boolean {
    const context = this.#above;
    const { colors } = this.#paint;
    context.clearRect(0, 0, this.#shelves.width, this.#shelves.height);
    for (const chunk of this.#gliding) {
      const passed = (time - (this.#began[chunk] as number)) / GLIDE;
      if (passed >= 1) this.#land(chunk);
      else this.#glide(chunk, 1 - (1 - Math.max(0, passed)) ** 3);
    }
    for (const chunk of this.#computing) {
      const [x, y] = [this.#here[2 * chunk] as number, this.#here[2 * chunk + 1] as number];
      const wide = this.#shelves.size >= 10;
      this.#paint.ring(context, colors['ink'] ?? '', x, y, wide ? 1 + 1.6 * pulse : 1, wide ? 1.6 : 1);
    }
    if (this.marked !== undefined) {
      const [x, y] = [this.#here[2 * this.marked] as number, this.#here[2 * this.marked + 1] as number];
      this.#paint.ring(context, colors['paper'] ?? '', x, y, 2, 4);
      this.#paint.ring(context, colors['staging'] ?? '', x, y, 3, 2);
    }
    return this.#gliding.size > 0;
  }

  /** The chunk in a place; of an empty home, whose it is. */
  chunkAt(spot: Spot): number | undefined {
    const { codes, places } = this.#film;
    if (spot.shelf === 'host' || spot.shelf === 'disk') return spot.index;
    const chunk = places.findIndex((place, i) => place === spot.index && tierOf(codes[i] as number) === spot.shelf);
    return chunk < 0 ? undefined : chunk;
  }

  /** Where a chunk is painted now: its left upper corner. */
  cornerOf(chunk: number): readonly [x: number, y: number] {
    return [this.#here[2 * chunk] as number, this.#here[2 * chunk + 1] as number];
  }

  #spotOf(chunk: number): readonly [number, number] {
    const tier = tierOf(this.#film.codes[chunk] as number);
    if (tier === 'gpu' || tier === 'staging') return this.#shelves.place(tier, this.#film.places[chunk] as number);
    return this.#shelves.home(tier, chunk);
  }

  #isAtHome(chunk: number): boolean {
    return this.#here[2 * chunk] === this.#to[2 * chunk] && this.#here[2 * chunk + 1] === this.#to[2 * chunk + 1];
  }

  #paintPlaces(): void {
    const { slots, staging, chunks } = this.#film.history;
    const empty = ([x, y]: readonly [number, number]) => this.#paint.empty(this.#resting, x, y);
    for (let slot = 0; slot < slots; slot++) empty(this.#shelves.place('gpu', slot));
    for (let place = 0; place < staging; place++) empty(this.#shelves.place('staging', place));
    const tiers = (['host', 'disk'] as const).filter((name) => this.#shelves.shelf(name));
    for (const tier of tiers) {
      for (let chunk = 0; chunk < chunks.length; chunk++) empty(this.#shelves.home(tier, chunk));
    }
  }

  #clear(x: number, y: number): void {
    const { size } = this.#shelves;
    const edge = (this.#shelves.pitch - size) / 2;
    this.#resting.clearRect(x - edge, y - edge, size + 2 * edge, size + 2 * edge);
  }

  #leave(chunk: number): void {
    const [x, y] = this.cornerOf(chunk);
    this.#clear(x, y);
    this.#paint.empty(this.#resting, x, y);
  }

  #rest(chunk: number): void {
    const [x, y] = this.cornerOf(chunk);
    this.#clear(x, y);
    this.#paint.chunk(this.#resting, this.#film.codes[chunk] as number, this.#kinds[chunk] ?? '', x, y);
  }

  #land(chunk: number): void {
    this.#here.set(this.#to.subarray(2 * chunk, 2 * chunk + 2), 2 * chunk);
    this.#gliding.delete(chunk);
    this.#rest(chunk);
  }

  #glide(chunk: number, share: number): void {
    const [fromX, fromY] = [this.#from[2 * chunk] as number, this.#from[2 * chunk + 1] as number];
    const x = fromX + ((this.#to[2 * chunk] as number) - fromX) * share;
    const y = fromY + ((this.#to[2 * chunk + 1] as number) - fromY) * share;
    this.#here.set([x, y], 2 * chunk);
    this.#trail(chunk, fromX, fromY, x, y, 1 - share);
    const grown = 1 + 0.25 * Math.sin(Math.PI * share);
    this.#paint.chunk(this.#above, this.#film.codes[chunk] as number, this.#kinds[chunk] ?? '', x, y, grown);
  }

  /** What a cell leaves behind it for a moment: stills and quick eyes see where it came from. */
  #trail(chunk: number, fromX: number, fromY: number, x: number, y: number, strength: number): void {
    const half = this.#shelves.size / 2;
    const context = this.#above;
    const tier = tierOf(this.#film.codes[chunk] as number);
    context.globalAlpha = 0.4 * strength;
    context.strokeStyle = this.#paint.colors[tier === 'none' ? 'muted' : tier] ?? '';
    context.lineWidth = Math.max(1, half * 0.6);
    context.lineCap = 'round';
    context.beginPath();
    context.moveTo(fromX + half, fromY + half);
    context.lineTo(x + half, y + half);
    context.stroke();
    context.globalAlpha = 1;
  }
}
