// Place of a rank among those along one axis of a grid of ranks.

/** The place of a rank along an axis of the grid: its number, and how many there are. */
export interface GridPlace {
  readonly rank: number;
  readonly size: number;
}
