// Model data by the names of its tensors: what a source brings is cut into chunks, and pieces of chunks become
// tensors again, one at a time. Knows the layout alone; where the bytes of a chunk lie is its caller's affair.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { KINDS, type Kind } from '../../memory/layout/kinds.ts';
import { assert } from '../../util/errors.ts';
import type { TensorSource } from '../../util/tensor-source.ts';

/** Whole chunks; one without a value leaves the words that it is read into as they are. */
export interface ChunkValues {
  get(chunk: number, words: Float32Array<ArrayBuffer>): Promise<void>;
  set(chunk: number, words: Float32Array<ArrayBuffer>): Promise<void>;
}

/** Sets every tensor that the source has; what lies in the same chunks and is not in it keeps its value. */
export async function setTensors(map: ChunkMap, kind: Kind, source: TensorSource, values: ChunkValues): Promise<void> {
  const given = new Set(source.names);
  const words = new Float32Array(map.chunkElements);
  let open = -1;
  const finish = async () => {
    if (open >= 0) await values.set(open, words);
  };
  for (const name of tensorNames(map, kind)) {
    if (!given.has(name)) continue;
    const list = map.listOf(kind, name);
    let at = 0;
    const pieces = map.pieces(name);
    let next = 0;
    for await (const elements of source.read(name)) {
      for (let taken = 0; taken < elements.length; ) {
        while (at === (pieces[next]?.first ?? 0) + (pieces[next]?.size ?? 0)) next++;
        const piece = pieces[next];
        assert(piece, `${name} has fewer elements than were given`);
        const chunk = list.first + piece.chunk;
        if (chunk !== open) {
          await finish();
          open = chunk;
          words.fill(0);
          if (!namesIn(map, chunk).every((other) => given.has(other))) await values.get(chunk, words);
        }
        const count = Math.min(elements.length - taken, piece.first + piece.size - at);
        words.set(elements.subarray(taken, taken + count), piece.offset + at - piece.first);
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
  read: (chunk: number, offset: number, into: Uint8Array) => Promise<void>,
): TensorSource {
  return {
    names: tensorNames(map, kind),
    async *read(name) {
      const list = map.listOf(kind, name);
      for (const piece of map.pieces(name)) {
        const elements = new Float32Array(piece.size);
        await read(list.first + piece.chunk, piece.offset * KINDS[kind].elementBytes, new Uint8Array(elements.buffer));
        yield elements;
      }
    },
  };
}

/** The tensors of a kind. */
export function tensorNames({ trainable, frozen }: ChunkMap, kind: Kind): string[] {
  return [...trainable.pieces.keys(), ...(kind === 'parameter' ? frozen.pieces.keys() : [])];
}

function namesIn(map: ChunkMap, chunk: number): string[] {
  const { kind, first } = map.holding(chunk);
  const { pieces } = map.layoutOf(kind);
  return [...pieces].filter(([, all]) => all.some((piece) => first + piece.chunk === chunk)).map(([name]) => name);
}
