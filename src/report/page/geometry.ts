// Geometry of the chunk map, in CSS pixels: a row for every chunk and every activation, under each other by kind, and
// the moments from left to right. Pure; the part of the step that is in view is its only state.

import { type ChunkHistory, rowLists } from '../../engine/observe/chunk-codes.ts';
import type { MomentAxis } from '../paint/step.ts';

/** Names stand in it. */
export const GUTTER = 88;
/** Phases are named above the rows. */
export const HEAD = 22;
const GAP = 9;
/** The height that all rows share. */
const ROWS_HEIGHT = 420;
/** What is looked at closest. */
const LEAST_MOMENTS = 8;

export class Geometry implements MomentAxis {
  readonly left = GUTTER;
  readonly rowHeight: number;
  /** The upper edge of each row. */
  readonly tops: readonly number[];
  /** Of all rows and the names above them. */
  readonly height: number;
  /** How many there are. */
  readonly moments: number;
  right = 0;
  from = 0;
  to: number;

  constructor(history: ChunkHistory) {
    const lists = rowLists(history);
    const rows = history.chunks.length + history.activations.tensors.length;
    this.moments = history.operators.length;
    this.to = this.moments;
    // Whole pixels, so that rows of one state look alike.
    this.rowHeight = Math.min(10, Math.max(1, Math.round(ROWS_HEIGHT / rows)));
    const tops: number[] = [];
    let bottom = HEAD;
    for (const list of lists) {
      for (let i = 0; i < list.chunks; i++) tops[list.first + i] = bottom + i * this.rowHeight;
      bottom += list.chunks * this.rowHeight + GAP;
    }
    this.tops = tops;
    this.height = bottom - GAP + 1;
  }

  x(moment: number): number {
    return this.left + ((moment - this.from) / (this.to - this.from)) * (this.right - this.left);
  }

  /** The point in time at an x, with its fraction. */
  timeAt(x: number): number {
    return this.from + ((x - this.left) / (this.right - this.left)) * (this.to - this.from);
  }

  momentAt(x: number): number {
    return this.held(Math.floor(this.timeAt(x)));
  }

  /** The moment itself, or the nearest one that there is. */
  held(moment: number): number {
    return Math.min(Math.max(0, moment), this.moments - 1);
  }

  isInView(moment: number): boolean {
    return moment >= this.from && moment < this.to;
  }

  /** Brings these moments into view: not fewer than can be told apart, and none that there is not. */
  look(from: number, to: number): void {
    const least = Math.min(this.moments, LEAST_MOMENTS);
    const span = Math.min(this.moments, Math.max(least, to - from));
    this.from = Math.min(Math.max(0, from), this.moments - span);
    this.to = this.from + span;
  }

  /** The chunk or activation whose row is nearest. */
  chunkAt(y: number): number {
    let best = 0;
    let distance = Number.POSITIVE_INFINITY;
    this.tops.forEach((top, chunk) => {
      const far = Math.abs(top + this.rowHeight / 2 - y);
      if (far < distance) [best, distance] = [chunk, far];
    });
    return best;
  }
}
