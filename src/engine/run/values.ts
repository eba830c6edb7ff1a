// Model data by the names of its tensors: what a source brings is cut into chunks, narrowed where its kind is, dealt to
// two kinds that are halves of it, or kept beside a narrow copy, and pieces of chunks become tensors again, one at a time.
// It goes by the layout alone; where the bytes of a chunk lie is the caller's.

import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { elementBytesOf, gradientKind, KINDS, type Kind, MOMENT_KINDS } from '../../memory/layout/kinds.ts';
import type { Piece } from '../../memory/layout/layout.ts';
import type { ChunkList } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { begunAhead } from '../../util/begun-ahead.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { findNonFinite } from '../../util/floats.ts';
import { joinHalves, lowerHalves, upperHalves } from '../../util/split-floats.ts';
import { type ChunkElement, CODECS, isMade, isNarrow, STORED_BLOCKS, storedBytes } from '../../util/stored-elements.ts';
import { type TensorSource, wholeBlocks } from '../../util/tensor-source.ts';

type Bytes = Uint8Array<ArrayBuffer>;
type Floats = Float32Array<ArrayBuffer>;

/** Whole chunks; one without a value leaves the bytes that it is read into as they are. */
export interface ChunkValues {
  get(chunk: number, bytes: Bytes): Promise<void>;
  set(chunk: number, bytes: Bytes): Promise<void>;
}

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
function heldAs({ dtype, moments }: ChunkMap, kind: Kind): Kind {
  if (kind === 'gradient') return gradientKind(dtype);
  const [first, second] = MOMENT_KINDS[moments];
  return kind === 'moment1' ? first : kind === 'moment2' ? second : kind;
}

function homesOf(map: ChunkMap, kind: Kind, name: string): Homes {
  const list = map.listOf(heldAs(map, kind), name);
  const home = (list: ChunkList): Home => ({
    ...{ list, element: KINDS[list.kind].element, pieces: map.pieces(name, list.kind) },
  });
  const own = home(list);
  if (kind === 'parameter' && list.kind === 'parameterBF16') {
    const both = [own, home(map.list('parameterLow'))] as const;
    return { written: both, read: both };
  }
  if (kind === 'parameter' && list.kind === 'parameterF16') {
    const master = home(map.list('master'));
    return { written: [own, master], read: [master] };
  }
  return { written: [own], read: [own] };
}

/** Sets every tensor that the source has; what lies in the same chunks and is not in it keeps its value. */
export async function setTensors(map: ChunkMap, kind: Kind, source: TensorSource, values: ChunkValues): Promise<void> {
  const given = new Set(source.names);
  // One for each list that a tensor is dealt to.
  const open = [new OpenChunk(map, given, values), new OpenChunk(map, given, values)] as const;
  const tensors = map.names(kind).flatMap((name) => {
    return given.has(name) ? [{ name, homes: homesOf(map, kind, name).written }] : [];
  });
  let number = 0;
  for await (const parts of begunAhead(
    tensors.map(
      ({ name, homes }) =>
        () =>
          storedPieces(source, name, homes),
    ),
  )) {
    const { name, homes } = at(tensors, number++);
    await setTensor(name, homes, parts, open);
  }
  for (const each of open) await each.close();
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
      assert(piece, `${name} has fewer elements than were given`);
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
  const last = pieces.at(-1);
  assert(last && done === last.first + last.size, `${name} has more elements than the ${done} that were given`);
}

/** The chunk of a list that is being filled: set when another one follows. */
class OpenChunk {
  readonly #map: ChunkMap;
  readonly #given: ReadonlySet<string>;
  readonly #values: ChunkValues;
  #bytes: Bytes | undefined;
  #chunk = -1;

  constructor(map: ChunkMap, given: ReadonlySet<string>, values: ChunkValues) {
    this.#map = map;
    this.#given = given;
    this.#values = values;
  }

  async bytesOf(chunk: number): Promise<Bytes> {
    this.#bytes ??= new Uint8Array(this.#map.chunkBytes);
    if (chunk === this.#chunk) return this.#bytes;
    await this.close();
    this.#chunk = chunk;
    const held = heldIn(this.#map, chunk);
    if (held.every(({ name }) => this.#given.has(name))) clearBeside(held, this.#bytes);
    else {
      this.#bytes.fill(0);
      await this.#values.get(chunk, this.#bytes);
    }
    return this.#bytes;
  }

  async close(): Promise<void> {
    if (this.#bytes && this.#chunk >= 0) await this.#values.set(this.#chunk, this.#bytes);
  }
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
  if (other && list.kind === 'parameterF16') {
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

/** A part of a tensor in a chunk, in bytes. */
interface Held {
  readonly name: string;
  readonly begin: number;
  readonly end: number;
}

/** From the first byte on. */
function heldIn(map: ChunkMap, chunk: number): Held[] {
  const { kind, first } = map.holding(chunk);
  const { element } = KINDS[kind];
  const held = [...map.layoutOf(kind).pieces].flatMap(([name, all]) =>
    all.flatMap((piece): Held[] => {
      if (first + piece.chunk !== chunk) return [];
      const begin = piece.offset * elementBytesOf(kind);
      return [{ name, begin, end: begin + storedBytes(element, piece.size) }];
    }),
  );
  return held.sort((a, b) => a.begin - b.begin);
}

/** Zeros wherever no tensor lies. */
function clearBeside(held: readonly Held[], bytes: Bytes): void {
  let at = 0;
  for (const { begin, end } of held) {
    bytes.fill(0, at, begin);
    at = end;
  }
  bytes.fill(0, at);
}
