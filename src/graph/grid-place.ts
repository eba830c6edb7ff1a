// Place of a rank among those along one axis of a grid of ranks.

/** Of so many ranks along an axis, one. */
export interface GridPlace {
  readonly rank: number;
  readonly size: number;
}
