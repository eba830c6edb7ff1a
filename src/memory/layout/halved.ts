// A layout in elements half as wide: of chunks of the same bytes, one holds what two of the other hold, one behind the other. Pure
// arithmetic.

import type { Piece, TiledLayout } from './layout.ts';

/** The pieces of a layout in chunks of equal bytes whose elements are half as wide: what two chunks hold, one behind the other. */
export function halved(layout: TiledLayout, chunkElements: number): TiledLayout {
  const { held, tiled } = layout;
  const moved = (piece: Piece): Piece => ({
    ...piece,
    chunk: piece.chunk >> 1,
    offset: piece.offset + (piece.chunk & 1) * chunkElements,
  });
  const used: number[] = [];
  layout.used.forEach((end, chunk) => {
    if (end > 0) used[chunk >> 1] = end + (chunk & 1) * chunkElements;
  });
  return {
    chunkElements: 2 * chunkElements,
    chunks: used.length,
    pieces: new Map([...layout.pieces].map(([name, pieces]) => [name, pieces.map(moved)])),
    used,
    held,
    padding: used.length * 2 * chunkElements - held,
    tiled,
  };
}
