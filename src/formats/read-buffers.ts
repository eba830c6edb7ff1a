// Memory that pieces of files are read into, used again from tensor to tensor and file to file: memory that is new for each piece
// costs more than reading it, in pages that the system brings and in the collector's work. Not a cache: it keeps no values.
//
// Invariant: a buffer is lent to one reader at a time, and no more than KEPT are kept while none reads.

type Bytes = Uint8Array<ArrayBuffer>;

/** Those of two readers that read ahead, of which one begins while the other ends. */
const KEPT = 4;
/** Smaller ones are not worth keeping. */
const LEAST_BYTES = 2 ** 16;

const kept: Bytes[] = [];

/** A buffer of so many bytes at least, with anything in it. */
export function takeBuffer(bytes: number): Bytes {
  const found = kept.findIndex(({ length }) => length >= bytes);
  const [buffer] = found >= 0 ? kept.splice(found, 1) : [];
  return buffer ?? new Uint8Array(bytes);
}

/** Nothing reads it any more. The larger ones stay. */
export function giveBack(buffer: Bytes): void {
  if (buffer.length < LEAST_BYTES) return;
  kept.push(buffer);
  kept.sort((a, b) => b.length - a.length);
  kept.length = Math.min(kept.length, KEPT);
}
