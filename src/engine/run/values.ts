// Model data by the names of its tensors: what a source brings is cut into chunks, narrowed where its kind is, and pieces
// of chunks become tensors again, one at a time. Knows the layout alone; where the bytes of a chunk lie is its caller's
// affair.

import { isNarrow, type StoredElement, storedBytes } from '../../kernels/stored.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { elementBytesOf, KINDS, type Kind } from '../../memory/layout/kinds.ts';
import { assert } from '../../util/errors.ts';
import { narrow, widen } from '../../util/floats.ts';
import { narrowQ8, wholeBlocks, widenQ8 } from '../../util/q8.ts';
import type { TensorSource } from '../../util/tensor-source.ts';

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
    for await (const elements of element === 'q8_0' ? wholeBlocks(source.read(name)) : source.read(name)) {
      for (let taken = 0; taken < elements.length; ) {
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
        const count = Math.min(elements.length - taken, piece.first + piece.size - at);
        store(list.kind, elements.subarray(taken, taken + count), bytes, piece.offset + at - piece.first);
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

/** Puts elements into a chunk, from an element on; whole blocks, where its kind has them. */
function store(kind: Kind, elements: Float32Array<ArrayBuffer>, chunk: Uint8Array<ArrayBuffer>, first: number): void {
  const { element } = KINDS[kind];
  const at = first * elementBytesOf(kind);
  if (element === 'q8_0') chunk.set(narrowQ8(elements), at);
  else if (isNarrow(element)) narrow(DTYPES[element], elements, new Uint16Array(chunk.buffer, at, elements.length));
  else new Float32Array(chunk.buffer, at, elements.length).set(elements);
}

function floatsIn(element: StoredElement, bytes: Uint8Array<ArrayBuffer>, count: number): Float32Array<ArrayBuffer> {
  if (element === 'q8_0') return widenQ8(bytes);
  if (!isNarrow(element)) return new Float32Array(bytes.buffer, 0, count);
  const floats = new Float32Array(count);
  widen(DTYPES[element], new Uint16Array(bytes.buffer, 0, count), floats);
  return floats;
}

const DTYPES = { bf16: 'BF16', f16: 'F16' } as const;

function namesIn(map: ChunkMap, chunk: number): string[] {
  const { kind, first } = map.holding(chunk);
  const { pieces } = map.layoutOf(kind);
  return [...pieces].filter(([, all]) => all.some((piece) => first + piece.chunk === chunk)).map(([name]) => name);
}
