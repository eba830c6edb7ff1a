// A layout as text, for a person to read.

import { at } from '../../util/at.ts';
import type { TiledLayout } from './layout.ts';

/** `124.4 M elements in 24 chunks of 5.2 M, 9 tensors tiled, 0.004 % padding`, then one line a chunk. */
export function printLayout(layout: TiledLayout): string {
  const share = layout.held === 0 ? 0 : (100 * layout.padding) / layout.held;
  const lines = [
    `${layout.held} elements in ${layout.chunks} chunks of ${layout.chunkElements}, ` +
      `${layout.tiled} tensors tiled, ${share.toFixed(4)} % padding`,
  ];
  const inChunk: string[][] = Array.from({ length: layout.chunks }, () => []);
  for (const list of layout.pieces.values()) {
    for (const { tensor, chunk, row, rows } of list) {
      at(inChunk, chunk).push(list.length === 1 ? tensor : `${tensor}[${row}..${row + rows - 1}]`);
    }
  }
  inChunk.forEach((names, chunk) => {
    lines.push(`${String(chunk).padStart(4)}  ${names.join(' ')}`);
  });
  return lines.join('\n');
}
