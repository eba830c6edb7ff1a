// A linear program as it is stated here, row by row and column by column, and solved by HiGHS; and room that comes around: what is
// held at each moment of a step that is repeated, stated as differences of neighbours, two entries for a stay of any length.

import type { Highs, ModelData } from 'highs';
import { at } from '../../util/at.ts';

/** What a column adds to a row. */
export type Entry = readonly [row: number, value: number];

export interface Solution {
  readonly objective: number;
  /** By column. */
  readonly values: readonly number[];
}

/** Minimises the cost of columns of at least 0, within rows. */
export class LinearProgram {
  readonly #lower: number[] = [];
  readonly #upper: number[] = [];
  readonly #costs: number[] = [];
  readonly #limits: number[] = [];
  readonly #whole: boolean[] = [];
  readonly #entries: Entry[][] = [];
  /** Added to the cost of all columns. */
  offset = 0;

  /** The number of a row whose sum is within these. */
  row(lower: number, upper = Number.POSITIVE_INFINITY): number {
    this.#lower.push(lower);
    return this.#upper.push(upper) - 1;
  }

  /** The number of a column of at most `limit`. `isWhole`: in a program over whole numbers it is one. */
  column({ cost = 0, limit = 1, isWhole = true }: ColumnOptions, entries: readonly Entry[] = []): number {
    this.#costs.push(cost);
    this.#limits.push(limit);
    this.#whole.push(isWhole);
    return this.#entries.push([...entries]) - 1;
  }

  /** One more entry of a column. */
  add(column: number, row: number, value: number): void {
    at(this.#entries, column).push([row, value]);
  }

  /** Undefined where there is no solution, or none is found in so many seconds. `whole`: over whole numbers, to the optimum. */
  solve(highs: Highs, { seconds, whole = false }: { seconds?: number; whole?: boolean } = {}): Solution | undefined {
    return highs.withModel(this.#model(whole), (solver) => {
      solver.options.set({ output_flag: false });
      // Costs are whole numbers: an incumbent less than one above the bound is the optimum.
      if (whole) solver.options.set({ mip_rel_gap: 0, mip_abs_gap: 0.99 });
      if (seconds !== undefined) solver.options.set({ time_limit: seconds });
      solver.run();
      if (solver.getModelStatus() !== highs.constants.modelStatus.optimal) return undefined;
      return { objective: solver.getObjectiveValue(), values: [...solver.getSolution().colValue] };
    });
  }

  /**
   * No solution over whole numbers costs less: what was proved in so many seconds, and no further than to a share `gap` of the best one
   * that was found. Infinite where there is none.
   */
  wholeBound(highs: Highs, { seconds, gap }: { seconds: number; gap: number }): number {
    return highs.withModel(this.#model(true), (solver) => {
      solver.options.set({ output_flag: false, time_limit: seconds, mip_rel_gap: gap });
      solver.run();
      const { infeasible } = highs.constants.modelStatus;
      return solver.getModelStatus() === infeasible
        ? Number.POSITIVE_INFINITY
        : Number(solver.info.get('mip_dual_bound'));
    });
  }

  #model(whole: boolean): ModelData {
    const starts = [0];
    const indices: number[] = [];
    const values: number[] = [];
    for (const entries of this.#entries) {
      entries.sort(([a], [b]) => a - b);
      for (const [row, value] of entries) {
        indices.push(row);
        values.push(value);
      }
      starts.push(indices.length);
    }
    const [numRows, numCols] = [this.#lower.length, this.#entries.length];
    return {
      ...{ numCols, numRows, offset: this.offset },
      ...{ colCost: this.#costs, colLower: this.#costs.map(() => 0), colUpper: this.#limits },
      ...{ rowLower: this.#lower, rowUpper: this.#upper },
      matrix: { format: 'csc', numRows, numCols, starts, indices, values },
      ...(whole && { integrality: this.#whole.map((isWhole) => (isWhole ? 1 : 0)) }),
    };
  }
}

export interface ColumnOptions {
  /** @default 0 */
  readonly cost?: number;
  /** @default 1 */
  readonly limit?: number;
  /** @default true */
  readonly isWhole?: boolean;
}

/** Rows of a program: at each of some places in a circle, what is held is within the room there. */
export class CyclicRoom {
  readonly #first: number;
  readonly #count: number;

  constructor(program: LinearProgram, room: ArrayLike<number>) {
    const rows = Array.from(room);
    const limits = rows.map((limit, i) => limit - (i > 0 ? at(rows, i - 1) : 0));
    const own = limits.map((limit) => program.row(limit, limit));
    this.#first = own[0] ?? 0;
    this.#count = rows.length;
    // What is left of each place's room.
    own.forEach((row, i) => {
      const next = own[i + 1];
      const entries: Entry[] =
        next === undefined
          ? [[row, 1]]
          : [
              [row, 1],
              [next, -1],
            ];
      program.column({ limit: Number.POSITIVE_INFINITY, isWhole: false }, entries);
    });
  }

  /** The entries of what takes so much at `count` places from `first` on, around the end. */
  entries(first: number, count: number, amount = 1): Entry[] {
    const rows = this.#count;
    if (count <= 0) return [];
    const at = first % rows;
    const end = at + count;
    if (count >= rows) return [[this.#first, amount]];
    const found: Entry[] = [];
    // At the first place all that is held counts, at the others what it is more than before.
    if (at === 0 || end > rows) found.push([this.#first, amount]);
    if (at > 0) found.push([this.#first + at, amount]);
    if (end % rows > 0) found.push([this.#first + (end % rows), -amount]);
    return found;
  }
}
