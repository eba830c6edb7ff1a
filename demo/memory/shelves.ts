// `Shelves`: the places of all cells: GPU slots on top, under them the homes of activations on the GPU and staging,
// then host memory and disk, in which each chunk has a home under the name of its kind, and each activation that ever
// lies there. Pure geometry, in CSS pixels. Invariant: places do not overlap and lie within the width.
//
// One size for all homes, the largest with which all shelves fit into the height that is wished for. Where that is small,
// slots and staging, which are few, are drawn larger: one can read there what is on the GPU.

import type { ChunkHistory, Tier } from '../../src/browser/index.ts';
import { at } from '../at.ts';

export type ShelfName = Exclude<Tier, 'none'> | 'activations';

export interface Shelf {
  readonly name: ShelfName;
  /** Of its first row of cells; its name stands beside it, or above it where `gutter` is 0. */
  readonly top: number;
  readonly bottom: number;
}

/** The homes of one kind: of chunks and activations by their numbers. */
export interface KindColumn {
  readonly kind: string;
  readonly members: readonly number[];
  readonly x: number;
  readonly width: number;
}

export interface ShelfShape extends Pick<ChunkHistory, 'lists' | 'slots' | 'staging'> {
  readonly disk: boolean;
  /** Of each activation: whether it ever lies below the GPU. Their numbers follow those of chunks. */
  readonly activations: readonly boolean[];
}

/** What lies at a point: a place with a number, or the home of a chunk or an activation. */
export interface Spot {
  readonly shelf: ShelfName;
  readonly index: number;
}

const LARGEST_PITCH = 34;
/** Of slots, where homes are smaller, and the share of the height that they may take for it. */
const LARGER_PITCH = 24;
const LARGER_SHARE = 0.18;
const LEAST_PITCH = 4;
/** A width below which names stand above their shelves. */
const NARROW = 540;
const GUTTER = 112;
const NAME_HEIGHT = 20;
/** Two lines in the gutter. */
const LEAST_SHELF = 32;
const COLUMN_NAME_HEIGHT = 18;
/** Between shelves: room to see what moves. */
const LEAST_AIR = 14;
const MOST_AIR = 64;
const COLUMN_GAP = 14;

export class Shelves {
  readonly width: number;
  readonly height: number;
  readonly gutter: number;
  /** Of a home, with the gap behind it; and of slots and staging. */
  readonly pitch: number;
  readonly placePitch: number;
  readonly shelves: readonly Shelf[];
  readonly columns: readonly KindColumn[];
  readonly #shape: ShelfShape;
  /** Cells in a row of slots or of staging. */
  readonly #across: number;
  /** By chunk and activation: the left edge of its home below, and its row. */
  readonly #homeX: Float32Array;
  readonly #homeRow: Int32Array;
  readonly #perRow: readonly number[];
  readonly #rows: number;
  readonly #chunks: number;

  constructor(shape: ShelfShape, width: number, wished: number) {
    this.#shape = shape;
    this.width = width;
    this.gutter = width < NARROW ? 0 : GUTTER;
    const inner = width - this.gutter;
    const named = this.gutter === 0 ? NAME_HEIGHT : 0;
    const reserved = (height: number) => (this.gutter === 0 ? height : Math.max(LEAST_SHELF, height));
    const chunks = shape.lists.reduce((sum, list) => sum + list.chunks, 0);
    const below = shape.activations.flatMap((isBelow, i) => (isBelow ? [chunks + i] : []));
    const kinds = [
      ...shape.lists.map(({ kind, first, chunks }): [kind: string, members: number[]] => [
        kind,
        Array.from({ length: chunks }, (_, i) => first + i),
      ]),
      ...(below.length > 0 ? [['activation', below] as [string, number[]]] : []),
    ];
    const counts = kinds.map(([, { length }]) => length);
    const lines = { gpu: shape.slots, activations: shape.activations.length, staging: shape.staging };
    const names: ShelfName[] = [
      'gpu',
      ...(shape.activations.length > 0 ? ['activations' as const] : []),
      ...(shape.staging > 0 ? ['staging' as const] : []),
      'host',
      ...(shape.disk ? ['disk' as const] : []),
    ];
    const attempt = (pitch: number) => {
      const larger = placePitch(Math.max(shape.slots, shape.activations.length), pitch, inner, wished);
      const across = acrossOf(larger, inner);
      const rows = homeRows(counts, pitch, inner);
      const heights = names.map((name) =>
        isPlaced(name) ? Math.max(1, Math.ceil(lines[name] / across)) * larger : rows * pitch,
      );
      const cells = heights.reduce((sum, height) => sum + reserved(height), 0);
      const texts = names.length * named + COLUMN_NAME_HEIGHT;
      return { larger, across, rows, heights, least: cells + texts + (names.length - 1) * LEAST_AIR };
    };
    let pitch = LARGEST_PITCH;
    while (pitch > LEAST_PITCH && attempt(pitch).least > wished) pitch--;
    const { larger, across, rows, heights, least } = attempt(pitch);
    this.pitch = pitch;
    this.placePitch = larger;
    this.#across = across;
    this.#rows = rows;
    const air = Math.min(MOST_AIR, LEAST_AIR + Math.max(0, wished - least) / (names.length - 1));
    let y = 0;
    this.shelves = names.map((name, i) => {
      const top = y + named + (name === 'host' ? COLUMN_NAME_HEIGHT : 0);
      const bottom = top + at(heights, i);
      y = top + reserved(at(heights, i)) + air;
      return { name, top: Math.round(top), bottom: Math.round(bottom) };
    });
    this.height = Math.ceil(Math.max(wished, y - air));
    this.#chunks = chunks;
    this.#homeX = new Float32Array(chunks + shape.activations.length).fill(Number.NaN);
    this.#homeRow = new Int32Array(chunks + shape.activations.length);
    this.#perRow = counts.map((count) => Math.max(1, Math.ceil(count / rows)));
    const widths = this.#perRow.map((count) => count * pitch - gapOf(pitch));
    // What is left of the width goes between the columns.
    const rest = inner - widths.reduce((sum, one) => sum + one, 0);
    const between = Math.floor(rest / Math.max(1, widths.length));
    let x = this.gutter;
    this.columns = kinds.map(([kind, members], list) => {
      const perRow = at(this.#perRow, list);
      members.forEach((member, i) => {
        this.#homeX[member] = x + (i % perRow) * pitch;
        this.#homeRow[member] = Math.floor(i / perRow);
      });
      const column = { kind, members, x, width: at(widths, list) };
      x += column.width + between;
      return column;
    });
  }

  shelf(name: ShelfName): Shelf | undefined {
    return this.shelves.find((shelf) => shelf.name === name);
  }

  /** Of a cell on a shelf. */
  sizeOn(name: ShelfName | 'none'): number {
    const pitch = this.#pitchOf(name);
    return pitch - gapOf(pitch);
  }

  /** The left upper corner of a slot or of a place in staging. */
  place(name: Placed, index: number): readonly [x: number, y: number] {
    const row = Math.floor(index / this.#across);
    return [this.gutter + (index % this.#across) * this.placePitch, this.#topOf(name) + row * this.placePitch];
  }

  /** Whether it has a home below the GPU. */
  isBelow(which: number): boolean {
    return !Number.isNaN(this.#homeX[which]);
  }

  /** Of a chunk's home in a tier; what lies nowhere is at home in the first, and an activation on the GPU. */
  home(tier: 'gpu' | 'host' | 'disk' | 'none', chunk: number): readonly [x: number, y: number] {
    if (chunk >= this.#chunks && (tier === 'gpu' || tier === 'none')) {
      return this.place('activations', chunk - this.#chunks);
    }
    const top = this.#topOf(tier === 'disk' && this.#shape.disk ? 'disk' : 'host');
    return [at(this.#homeX, chunk), top + at(this.#homeRow, chunk) * this.pitch];
  }

  /** What lies at a point; the gap behind a cell is the cell's. */
  at(x: number, y: number): Spot | undefined {
    const shelf = this.shelves.find(({ top, bottom }) => y >= top && y < bottom);
    if (!shelf) return undefined;
    const pitch = this.#pitchOf(shelf.name);
    const row = Math.floor((y - shelf.top) / pitch);
    const { name } = shelf;
    if (isPlaced(name)) {
      const { slots, staging, activations } = this.#shape;
      const column = Math.floor((x - this.gutter) / pitch);
      const index = row * this.#across + column;
      const count = { gpu: slots, activations: activations.length, staging }[name];
      if (column < 0 || column >= this.#across || index >= count) return undefined;
      return { shelf: name, index: name === 'activations' ? this.#chunks + index : index };
    }
    const list = this.columns.findIndex((column) => x >= column.x && x < column.x + column.width + gapOf(pitch));
    const column = this.columns[list];
    const perRow = at(this.#perRow, list);
    if (!column || row >= this.#rows) return undefined;
    const index = column.members[row * perRow + Math.floor((x - column.x) / pitch)];
    return index === undefined ? undefined : { shelf: name, index };
  }

  #pitchOf(name: ShelfName | 'none'): number {
    return name !== 'none' && isPlaced(name) ? this.placePitch : this.pitch;
  }

  #topOf(name: ShelfName): number {
    return this.shelf(name)?.top ?? 0;
  }
}

type Placed = 'gpu' | 'activations' | 'staging';

const isPlaced = (name: ShelfName): name is Placed => name !== 'host' && name !== 'disk';

const gapOf = (pitch: number): number => (pitch >= 18 ? 4 : pitch >= 12 ? 3 : pitch >= 7 ? 2 : 1);

const acrossOf = (pitch: number, inner: number): number => Math.max(1, Math.floor((inner + gapOf(pitch)) / pitch));

function placePitch(slots: number, pitch: number, inner: number, wished: number): number {
  for (let larger = LARGER_PITCH; larger > pitch; larger--) {
    if (Math.ceil(slots / acrossOf(larger, inner)) * larger <= LARGER_SHARE * wished) return larger;
  }
  return pitch;
}

/** The fewest rows of homes with which all columns stand side by side. */
function homeRows(counts: readonly number[], pitch: number, inner: number): number {
  const fits = (rows: number) => {
    const across = counts.reduce((sum, count) => sum + Math.max(1, Math.ceil(count / rows)), 0);
    return across * pitch + (counts.length - 1) * COLUMN_GAP <= inner;
  };
  const all = counts.reduce((sum, count) => sum + count, 0);
  let rows = Math.max(1, Math.ceil((all * pitch) / inner));
  const most = Math.max(1, ...counts);
  while (rows < most && !fits(rows)) rows++;
  return rows;
}
