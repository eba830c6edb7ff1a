// Model data by the names of its tensors: what a source brings is cut into chunks, narrowed where its kind is, dealt to
// two kinds that are halves of it, or kept beside a narrow copy, and pieces of chunks become tensors again, one at a time.
// It goes by the layout alone; where the bytes of a chunk lie is the caller's.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import {
  COPY_KIND,
  elementBytesOf,
  gradientKind,
  KINDS,
  type Kind,
  MOMENT_KINDS,
  PARAMETER_KINDS,
} from '../../memory/layout/kinds.ts';
import type { Piece } from '../../memory/layout/layout.ts';
import type { ChunkList } from '../../memory/plan/trace.ts';
import { begunAhead } from '../../util/begun-ahead.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { findNonFinite } from '../../values/floats.ts';
import { joinHalves, lowerHalves, upperHalves } from '../../values/split-floats.ts';
import {
  type ChunkElement,
  CODECS,
  isMade,
  isNarrow,
  STORED_BLOCKS,
  storedBytes,
} from '../../values/stored-elements.ts';
import { noTensor, type TensorReader, type TensorSource, wholeBlocks } from '../../values/tensor-source.ts';
import { type ChunkValues, OpenChunk } from './open-chunk.ts';

type Bytes = Uint8Array<ArrayBuffer>;
type Floats = Float32Array<ArrayBuffer>;

/** A list in which a tensor of a kind lies, or a half of each of its elements. */
interface Home {
  readonly list: ChunkList;
  readonly element: ChunkElement;
  readonly pieces: readonly Piece[];
}

/** Lists that a tensor of a kind is written to, and that it is read from. The pieces of all are the same rows. */
interface Homes {
  /** One; the upper halves and the lower ones; or a narrow copy, and what it is of. */
  readonly written: readonly [Home] | readonly [Home, Home];
  readonly read: readonly [Home] | readonly [Home, Home];
}

/** The kind that stands for a kind of what trains: complete gradients and moments by what they are kept as. */
function heldAs({ dtype, momentDtype }: ChunkMap, kind: Kind): Kind {
  if (kind === 'gradient') return gradientKind(dtype);
  const [first, second] = MOMENT_KINDS[momentDtype];
  return kind === 'moment1' ? first : kind === 'moment2' ? second : kind;
}

function homesOf(map: ChunkMap, kind: Kind, name: string): Homes {
  const list = map.listOf(heldAs(map, kind), name);
  const home = (list: ChunkList): Home => ({
    ...{ list, element: KINDS[list.kind].element, pieces: map.pieces(name, list.kind) },
  });
  const own = home(list);
  const { read, full, low } = PARAMETER_KINDS[map.dtype];
  if (kind !== 'parameter' || list.kind !== read) return { written: [own], read: [own] };
  if (full !== read) {
    const whole = home(map.list(full));
    return { written: [own, whole], read: [whole] };
  }
  const homes = low ? ([own, home(map.list(low))] as const) : ([own] as const);
  return { written: homes, read: homes };
}

/**
 * Sets every tensor that the source has; what lies in the same chunks and is not in it keeps its value. Errors: HoldfastError
 * for a tensor of another length, before anything is changed where the source knows it beforehand.
 */
export async function setTensors(map: ChunkMap, kind: Kind, source: TensorSource, values: ChunkValues): Promise<void> {
  const given = new Set(source.names);
  const tensors = map.names(kind).flatMap((name) => {
    if (!given.has(name)) return [];
    const homes = homesOf(map, kind, name).written;
    const reader = readerOf(source, name, homes);
    const count = reader?.count ?? source.count?.(name);
    if (count !== undefined) checkCount(name, homes, count);
    return [{ name, homes, reader }];
  });
  // A chunk that is filled beside another must not keep it from its room.
  const isSingle = tensors.every(({ homes }) => homes.length === 1);
  // One for each list that a tensor is dealt to.
  const open = [new OpenChunk(map, given, values, isSingle), new OpenChunk(map, given, values, false)] as const;
  const streams = begunAhead(
    tensors.flatMap(({ name, homes, reader }) => (reader ? [] : [() => storedPieces(source, name, homes)])),
  );
  try {
    for (const { name, homes, reader } of tensors) {
      if (reader) {
        await readTensor(homes[0], reader, open[0]);
        continue;
      }
      const { value: parts } = await streams.next();
      assert(parts, 'as many streams as tensors');
      await setTensor(name, homes, parts, open);
    }
    for (const each of open) await each.close();
  } finally {
    for (const each of open) await each.abandon();
    await streams.return();
  }
}

const elementsOf = ([{ pieces }]: Homes['written']): number => pieces.reduce((sum, { size }) => sum + size, 0);

function checkCount(name: string, homes: Homes['written'], given: number): void {
  const count = elementsOf(homes);
  if (given !== count) throw new HoldfastError(`${name} has ${count} elements, ${given} were given`);
}

/** What brings a tensor to its chunks with no piece between, where one list takes it as it is read. */
function readerOf(
  source: TensorSource,
  name: string,
  [{ element }, other]: Homes['written'],
): TensorReader | undefined {
  return other || element === 'low16' ? undefined : source.reader?.(name, element);
}

/** Elements that are read at once: what stays in a processor's cache while it is widened. */
const PART_ELEMENTS = 2 ** 18;

async function readTensor({ list, pieces }: Home, reader: TensorReader, open: OpenChunk): Promise<void> {
  const width = elementBytesOf(list.kind);
  for (const { chunk, offset, first, size } of pieces) {
    const bytes = await open.bytesOf(list.first + chunk);
    for (let done = 0; done < size; done += PART_ELEMENTS) {
      const count = Math.min(PART_ELEMENTS, size - done);
      const place = bytes.subarray((offset + done) * width, (offset + done + count) * width);
      await open.fill(() => reader.read(first + done, place));
    }
  }
}

/** `open`: the chunk that is being filled, for each home. */
async function setTensor(
  name: string,
  homes: Homes['written'],
  parts: AsyncIterable<readonly Bytes[]>,
  open: readonly [OpenChunk, OpenChunk],
): Promise<void> {
  const [{ list, pieces }] = homes;
  let done = 0;
  let next = 0;
  for await (const stored of parts) {
    const brought = (stored[0]?.length ?? 0) / elementBytesOf(list.kind);
    for (let taken = 0; taken < brought; ) {
      while (done === (pieces[next]?.first ?? 0) + (pieces[next]?.size ?? 0)) next++;
      const piece = pieces[next];
      if (!piece) throw new HoldfastError(`${name} has ${done} elements, more were given`);
      const count = Math.min(brought - taken, piece.first + piece.size - done);
      for (const [i, home] of homes.entries()) {
        const { chunk, offset } = home.pieces[next] ?? piece;
        const width = elementBytesOf(home.list.kind);
        const bytes = await (i === 0 ? open[0] : open[1]).bytesOf(home.list.first + chunk);
        const part = stored[i]?.subarray(taken * width, (taken + count) * width);
        assert(part, 'as many parts as lists');
        bytes.set(part, (offset + done - piece.first) * width);
      }
      taken += count;
      done += count;
    }
  }
  checkCount(name, homes, done);
}

/** The tensors of a kind, as they are when they are read; `read` brings bytes of a chunk from a byte on. */
export function tensorsOf(
  map: ChunkMap,
  kind: Kind,
  read: (chunk: number, offset: number, into: Uint8Array<ArrayBuffer>) => Promise<void>,
): TensorSource {
  const names = map.names(kind);
  const known = new Set(names);
  return {
    names,
    async *read(name) {
      if (!known.has(name)) throw noTensor(`the ${kind} values of this model`, name, names);
      const { read: homes } = homesOf(map, kind, name);
      for (const [i, { size }] of homes[0].pieces.entries()) {
        const parts: Bytes[] = [];
        for (const { list, pieces } of homes) {
          const piece = pieces[i];
          assert(piece, `${name} is cut alike in all kinds`);
          const bytes = new Uint8Array(storedBytes(KINDS[list.kind].element, size));
          await read(list.first + piece.chunk, piece.offset * elementBytesOf(list.kind), bytes);
          parts.push(bytes);
        }
        const [first, low] = parts;
        assert(first, 'a tensor lies somewhere');
        yield low ? joined(first, low, size) : floatsIn(homes[0].element, first, size);
      }
    },
  };
}

/** The bytes of a tensor in the elements of its list: as the source has them, or made of its values. Whole blocks. */
async function* storedPieces(
  source: TensorSource,
  name: string,
  [{ list, element }, other]: Homes['written'],
): AsyncGenerator<readonly Bytes[], void> {
  if (other && list.kind === COPY_KIND) {
    for await (const floats of source.read(name))
      yield [narrowed(floats, name), new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength)];
    return;
  }
  if (other) {
    for await (const floats of source.read(name)) {
      const [upper, lower] = [new Uint16Array(floats.length), new Uint16Array(floats.length)];
      upperHalves(floats, upper);
      lowerHalves(floats, lower);
      yield [new Uint8Array(upper.buffer), new Uint8Array(lower.buffer)];
    }
    return;
  }
  assert(element !== 'low16', 'halves of floats are no values by themselves');
  const packed = source.packed?.(name);
  if (packed && packed.element === element) {
    for await (const piece of packed.read()) yield [piece];
  } else if (isNarrow(element)) {
    assert(isMade(element), `${name} is stored as ${element}, which is not made of values`);
    for await (const piece of wholeBlocks(source.read(name), STORED_BLOCKS[element].elements))
      yield [CODECS[element].narrow(piece)];
  } else
    for await (const { buffer, byteOffset, byteLength } of source.read(name))
      yield [new Uint8Array(buffer, byteOffset, byteLength)];
}

/** What kernels read of parameters that train. */
function narrowed(floats: Floats, name: string): Bytes {
  const codec = CODECS.f16;
  const { most } = codec;
  const halves = codec.narrow(floats);
  if (codec.isFinite(halves) || findNonFinite(floats) >= 0) return halves;
  const large = floats.find((value) => Math.abs(value) > most);
  throw new HoldfastError(`${name} has ${large}, past the largest f16, ${most}; compute in bf16 or f32 (--dtype)`);
}

function floatsIn(element: ChunkElement, bytes: Bytes, count: number): Floats {
  assert(element !== 'low16', 'halves of floats are no values by themselves');
  return isNarrow(element) ? CODECS[element].widen(bytes, count) : new Float32Array(bytes.buffer, 0, count);
}

function joined(high: Bytes, low: Bytes, count: number): Floats {
  const floats = new Float32Array(count);
  joinHalves(new Uint16Array(high.buffer, 0, count), new Uint16Array(low.buffer, 0, count), floats);
  return floats;
}
