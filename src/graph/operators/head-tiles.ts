// The sizes of a tile of logits, of which one is there at a time: columns of the vocabulary, and rows where there are many.
// No result depends on the rows; how the columns are cut is a part of the arithmetic.

import { ceilDiv } from '../../kernels/kernel.ts';

const MOST_COLUMNS = 8192;

/** Tiles of fewer columns have as many as they come to: no load of theirs is worth a tile that is not like the others. */
const FEW_COLUMNS = 64;

/**
 * Vocabulary columns a tile: about 256 for small vocabularies, an eighth of larger ones, at most 8192; a multiple of 4, so that products
 * load four at a time of all tiles but the last.
 */
export function vocabularyTile(vocabulary: number): number {
  const tiles = Math.max(Math.min(8, ceilDiv(vocabulary, 256)), ceilDiv(vocabulary, MOST_COLUMNS));
  const columns = ceilDiv(vocabulary, tiles);
  return columns < FEW_COLUMNS ? columns : Math.min(vocabulary, 4 * ceilDiv(columns, 4));
}

/** Elements of a tile of logits, at most: 128 MiB of them, which every adapter binds. Where memory is short it is cut (row-slices.ts). */
const MOST_LOGITS = 2 ** 25;
/** Rows of a tile are a multiple of this, but for the last: fours of floats then lie as they do in all rows at once. */
const ROW_UNIT = 64;

/** Tiles of logits of one batch, at most: each is some operators of the plan, and the plan of so many takes a gigabyte. */
export const MOST_LOGIT_TILES = 2 ** 13;

/** Rows of a batch, at most, that no more tiles come of. */
export function mostRows(vocabulary: number): number {
  const tile = vocabularyTile(vocabulary);
  return Math.floor(MOST_LOGIT_TILES / ceilDiv(vocabulary, tile)) * rowTile(Number.POSITIVE_INFINITY, tile);
}

/** Rows of a tile of logits: all of them, or an even part. */
export function rowTile(rows: number, tile: number): number {
  const most = Math.max(1, Math.floor(MOST_LOGITS / tile / ROW_UNIT)) * ROW_UNIT;
  if (rows <= most || rows === Number.POSITIVE_INFINITY) return Math.min(rows, most);
  return ceilDiv(ceilDiv(rows, ceilDiv(rows, most)), ROW_UNIT) * ROW_UNIT;
}
