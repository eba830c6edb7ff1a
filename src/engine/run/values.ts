// Model data by the names of its tensors: what a source brings is cut into chunks, narrowed where its kind is, and pieces
// of chunks become tensors again, one at a time. Knows the layout alone; where the bytes of a chunk lie is its caller's
// affair.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { elementBytesOf, KINDS, type Kind } from '../../memory/layout/kinds.ts';
import { assert } from '../../util/errors.ts';
import { CODECS, isNarrow, STORED_BLOCKS, type StoredElement, storedBytes } from '../../util/stored-elements.ts';
import { type TensorSource, wholeBlocks } from '../../util/tensor-source.ts';

/** Whole chunks; one without a value leaves the bytes that it is read into as they are. */
export interface ChunkValues {
  get(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
  set(chunk: number, bytes: Uint8Array<ArrayBuffer>): Promise<void>;
}

/** Sets every tensor that the source has; what lies in the same chunks and is not in it keeps its value. */
export async function setTensors(map: ChunkMap, kind: Kind, source: TensorSource, values: ChunkValues): Promise<void> {
  const given = new Set(source.names);
  const bytes = new Uint8Array(map.chunkBytes);
  let open = -1;
  const finish = async () => {
    if (open >= 0) await values.set(open, bytes);
  };
  for (const name of map.names(kind)) {
    if (!given.has(name)) continue;
    const list = map.listOf(kind, name);
    let at = 0;
    const pieces = map.pieces(name);
    let next = 0;
    const { element } = KINDS[list.kind];
    const each = elementBytesOf(list.kind);
    for await (const stored of storedPieces(source, name, element)) {
      const brought = stored.length / each;
      for (let taken = 0; taken < brought; ) {
        while (at === (pieces[next]?.first ?? 0) + (pieces[next]?.size ?? 0)) next++;
        const piece = pieces[next];
        assert(piece, `${name} has fewer elements than were given`);
        const chunk = list.first + piece.chunk;
        if (chunk !== open) {
          await finish();
          open = chunk;
          bytes.fill(0);
          if (!namesIn(map, chunk).every((other) => given.has(other))) await values.get(chunk, bytes);
        }
        const count = Math.min(brought - taken, piece.first + piece.size - at);
        bytes.set(stored.subarray(taken * each, (taken + count) * each), (piece.offset + at - piece.first) * each);
        taken += count;
        at += count;
      }
    }
    const last = pieces.at(-1);
    assert(last && at === last.first + last.size, `${name} has more elements than the ${at} that were given`);
  }
  await finish();
}

/** The tensors of a kind, as they are when they are read; `read` brings bytes of a chunk from a byte on. */
export function tensorsOf(
  map: ChunkMap,
  kind: Kind,
  read: (chunk: number, offset: number, into: Uint8Array<ArrayBuffer>) => Promise<void>,
): TensorSource {
  return {
    names: map.names(kind),
    async *read(name) {
      const list = map.listOf(kind, name);
      const { element } = KINDS[list.kind];
      for (const piece of map.pieces(name)) {
        const bytes = new Uint8Array(storedBytes(element, piece.size));
        await read(list.first + piece.chunk, piece.offset * elementBytesOf(list.kind), bytes);
        yield floatsIn(element, bytes, piece.size);
      }
    },
  };
}

/** The bytes of a tensor in such elements: as the source has them, or made of its values. Whole blocks. */
async function* storedPieces(
  source: TensorSource,
  name: string,
  element: StoredElement,
): AsyncGenerator<Uint8Array<ArrayBuffer>, void> {
  const packed = source.packed?.(name);
  if (packed?.element === element) yield* packed.read();
  else if (isNarrow(element))
    for await (const piece of wholeBlocks(source.read(name), STORED_BLOCKS[element].elements))
      yield CODECS[element].narrow(piece);
  else
    for await (const { buffer, byteOffset, byteLength } of source.read(name))
      yield new Uint8Array(buffer, byteOffset, byteLength);
}

const floatsIn = (element: StoredElement, bytes: Uint8Array<ArrayBuffer>, count: number): Float32Array<ArrayBuffer> =>
  isNarrow(element) ? CODECS[element].widen(bytes, count) : new Float32Array(bytes.buffer, 0, count);

function namesIn(map: ChunkMap, chunk: number): string[] {
  const { kind, first } = map.holding(chunk);
  const { pieces } = map.layoutOf(kind);
  return [...pieces].filter(([, all]) => all.some((piece) => first + piece.chunk === chunk)).map(([name]) => name);
}
