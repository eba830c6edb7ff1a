// Order of a weight's values for llama.cpp where it is another than Hugging Face's: transposed, the rows of rotated
// heads taken by pairs, gains counted from 0. Streams: a band of rows is in memory, never a whole tensor.

import { assert } from '../../util/errors.ts';
import { mapped, PIECE_ELEMENTS, type TensorSource } from '../../values/tensor-source.ts';

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

export type TensorArrangement =
  /** [in, out] -> [out, in]: GPT-2's projections, which multiply from the other side. */
  | { readonly kind: 'transposed' }
  /**
   * Rows of q or k, for so many heads. Hugging Face rotates row i of a head with row i + size / 2, llama.cpp's Llama row 2i with
   * row 2i + 1: the two halves are interleaved.
   */
  | { readonly kind: 'paired'; readonly heads: number }
  /** Gains that are stored as differences from 1. */
  | { readonly kind: 'plus one' };

/** Elements of a band, at most, where a row has no more: 16 MiB. */
const BAND_ELEMENTS = 4 * PIECE_ELEMENTS;

/** The shape of what an arrangement makes. */
export const arrangedShape = (
  arrangement: TensorArrangement | undefined,
  shape: readonly number[],
): readonly number[] => (arrangement?.kind === 'transposed' ? [...shape].reverse() : shape);

/** The values of a weight of this shape, rearranged. */
export function arranged(
  source: TensorSource,
  name: string,
  shape: readonly number[],
  arrangement: TensorArrangement | undefined,
  bandElements = BAND_ELEMENTS,
): AsyncIterable<Floats> {
  if (!arrangement) return source.read(name);
  const [rows = 1, columns = 1] = shape;
  switch (arrangement.kind) {
    case 'transposed':
      return transposed(source, name, rows, columns, bandElements);
    case 'paired':
      return paired(source.read(name), rows / arrangement.heads, columns);
    case 'plus one':
      return mapped(source.read(name), (piece) => piece.map((gain) => gain + 1));
    default:
      return arrangement satisfies never;
  }
}

/** Reads the weight once a band of columns. */
async function* transposed(
  source: TensorSource,
  name: string,
  rows: number,
  columns: number,
  bandElements: number,
): AsyncGenerator<Floats, void> {
  const most = Math.max(1, Math.floor(bandElements / rows));
  for (let begin = 0; begin < columns; begin += most) {
    const width = Math.min(most, columns - begin);
    const band = new Float32Array(width * rows);
    let at = 0;
    for await (const piece of source.read(name)) {
      for (let i = 0; i < piece.length; ) {
        const [row, column] = [Math.floor((at + i) / columns), (at + i) % columns];
        const end = Math.min(piece.length - i, columns - column) + column;
        for (let c = Math.max(column, begin); c < Math.min(end, begin + width); c++) {
          band[(c - begin) * rows + row] = piece[i + c - column] ?? 0;
        }
        i += end - column;
      }
      at += piece.length;
    }
    yield band;
  }
}

/** Rows of heads in llama.cpp's order, a head at a time. */
function paired(pieces: AsyncIterable<Floats>, headSize: number, columns: number): AsyncIterable<Floats> {
  assert(headSize % 2 === 0, `a head of ${headSize} rows has no pairs`);
  const half = headSize / 2;
  const bytes = mapped(pieces, ({ buffer, byteOffset, byteLength }) => new Uint8Array(buffer, byteOffset, byteLength));
  const heads = headsMoved(bytes, headSize, 4 * columns, (row) => (row < half ? 2 * row : 2 * (row - half) + 1));
  return mapped(heads, ({ buffer }) => new Float32Array(buffer));
}

/** Rows of so many bytes in Hugging Face's order again, whatever they hold: a head at a time. */
export function unpaired(
  pieces: AsyncIterable<Bytes>,
  headRows: number,
  rowBytes: number,
): AsyncGenerator<Bytes, void> {
  return headsMoved(pieces, headRows, rowBytes, (row) => Math.floor(row / 2) + (row % 2) * (headRows / 2));
}

/** Heads of so many rows, one at a time, with each row of a head at the place in it that `to` gives. */
async function* headsMoved(
  pieces: AsyncIterable<Bytes>,
  headRows: number,
  rowBytes: number,
  to: (row: number) => number,
): AsyncGenerator<Bytes, void> {
  const head = new Uint8Array(headRows * rowBytes);
  let filled = 0;
  for await (const piece of pieces) {
    for (let i = 0; i < piece.length; ) {
      const part = piece.subarray(i, i + head.length - filled);
      head.set(part, filled);
      filled += part.length;
      i += part.length;
      if (filled < head.length) continue;
      const made = new Uint8Array(head.length);
      for (let row = 0; row < headRows; row++) {
        made.set(head.subarray(row * rowBytes, (row + 1) * rowBytes), to(row) * rowBytes);
      }
      yield made;
      filled = 0;
    }
  }
  assert(filled === 0, 'rows that are no whole heads');
}
