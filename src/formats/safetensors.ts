// The safetensors format: a header (safetensors-header.ts), then raw data, row-major. Whole in memory with parse
// and serialize, for small things; in pieces with TensorFile and writeTensors, for models. Both ways read and
// write the same bytes and refuse the same files.
//
// Little-endian machines only, as every one with WebGPU is. F16 and BF16 widen to float32 when read, and are made of it
// when written (values/floats.ts).

import * as v from 'valibot';
import type { Files, FolderReader, OpenFile } from '../runtime/host.ts';
import { bytes as byteArray, iterable } from '../util/arguments.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { check, list, namesTo, number, object, type Schema, text } from '../util/json.ts';
import { wholeNumber } from '../util/range.ts';
import { findNonFinite, type HalfDtype, LARGEST, narrowFloats, widen } from '../values/floats.ts';
import { bytesPerElement, type StoredElement } from '../values/stored-elements.ts';
import { noTensor, type PackedTensor, PIECE_ELEMENTS, type TensorReader } from '../values/tensor-source.ts';
import { readAhead } from './read-ahead.ts';
import { giveBack, takeBuffer } from './read-buffers.ts';
import {
  type Dtype,
  dtypeToRead,
  elementBytes,
  elements,
  entriesOf,
  type Header,
  headerLength,
  LENGTH_BYTES,
  makeHeader,
  parseHeader,
  type TensorEntry,
} from './safetensors-header.ts';

export type { Dtype, TensorEntry } from './safetensors-header.ts';

/** Widened at once: what stays in a processor's cache until it is copied on. */
const WIDENED_ELEMENTS = 2 ** 16;

type Bytes = Uint8Array<ArrayBuffer>;

/** A tensor's elements, row-major. */
export type TensorData = Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

/** A tensor as a file has it. */
export interface StoredTensor {
  /** As stored in the file: F16 and BF16 come with a Float32Array. */
  readonly dtype: Dtype;
  /** [] is a scalar. */
  readonly shape: readonly number[];
  /** Row-major. */
  readonly data: TensorData;
}

/** The tensors of a file in the order of their data; each is a copy. `name` is for messages. */
export function parse(bytes: Uint8Array, name: string): Map<string, StoredTensor> {
  check(byteArray, bytes, 'bytes');
  check(text, name, 'name');
  const { header, data } = split(bytes, name);
  return new Map(
    [...entriesOf(header, data.length, name)].map(([tensor, entry]) => {
      const { shape, begin, end } = entry;
      const dtype = dtypeToRead(entry, name, tensor);
      return [tensor, { dtype, shape, data: decode(dtype, data.slice(begin, end)) }];
    }),
  );
}

function split(bytes: Uint8Array, name: string): { header: Header; data: Uint8Array } {
  const start = LENGTH_BYTES + headerLength(bytes, bytes.length, name);
  return { header: parseHeader(bytes.subarray(LENGTH_BYTES, start), name), data: bytes.subarray(start) };
}

const namedTensor = v.tuple(
  [
    text,
    object({
      shape: list(number(wholeNumber(0))),
      data: v.union(
        [Float32Array, Int32Array, Float64Array].map((type) => v.instance(type)),
        'a Float32Array, an Int32Array or a Float64Array',
      ),
    }),
  ],
  'a list of a name and a tensor',
) as unknown as Schema<[string, { shape: number[]; data: TensorData }]>;

/**
 * A file with these tensors in this order; the data section begins at a multiple of 8 bytes. Errors: HoldfastError for data
 * that is not of its shape, or of a type that none of the format's is.
 */
export function serialize(
  tensors: Iterable<readonly [string, { readonly shape: readonly number[]; readonly data: TensorData }]>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array<ArrayBuffer> {
  check(iterable, tensors, 'tensors');
  check(namesTo(text), metadata, 'metadata');
  const list = [...tensors].map((tensor) => {
    const [name, { shape, data }] = check(namedTensor, tensor, 'a tensor and its name');
    return { name, dtype: dtypeOf(data), shape, data };
  });
  for (const { name, shape, data } of list) {
    checkCount(name, shape, data.length);
  }
  const header = makeHeader(list, metadata);
  const bytes = new Uint8Array(list.reduce((sum, { data }) => sum + data.byteLength, header.length));
  bytes.set(header);
  let at = header.length;
  for (const { data } of list) {
    bytes.set(bytesOf(data), at);
    at += data.byteLength;
  }
  return bytes;
}

/** A file on disk: its header in memory, its data read when asked for. It is open only while it is read. */
export class TensorFile {
  readonly path: string;
  /** In the order of their data. */
  readonly entries: ReadonlyMap<string, TensorEntry>;
  readonly #files: FolderReader;
  readonly #start: number;
  /** Open for parts that are read to where they go, and how many of them there are. */
  #held: Promise<OpenFile | undefined> | undefined;
  #holds = 0;

  /** Reads and checks the header. Errors: HoldfastError as `parse` has them, and where the file cannot be read. */
  static async open(files: FolderReader, path: string): Promise<TensorFile> {
    const size = (await files.stat(path))?.bytes ?? 0;
    const first = await files.readRange(path, 0, Math.min(size, LENGTH_BYTES));
    const length = headerLength(first, size, path);
    const header = parseHeader(await files.readRange(path, LENGTH_BYTES, length), path);
    const start = LENGTH_BYTES + length;
    return new TensorFile(files, path, start, entriesOf(header, size - start, path));
  }

  private constructor(files: FolderReader, path: string, start: number, entries: ReadonlyMap<string, TensorEntry>) {
    this.#files = files;
    this.path = path;
    this.#start = start;
    this.entries = entries;
  }

  /** Elements `first` to `first + count - 1` of a tensor. */
  async readRange(name: string, first: number, count: number): Promise<TensorData> {
    const entry = this.#entry(name);
    const { shape } = entry;
    const dtype = dtypeToRead(entry, this.path, name);
    assert(first >= 0 && first + count <= elements(shape), `${name} has no elements ${first} to ${first + count - 1}`);
    return decode(dtype, await this.#bytes(entry, dtype, first, count));
  }

  /** A whole tensor, whatever its size. */
  read(name: string): Promise<TensorData> {
    return this.readRange(name, 0, elements(this.#entry(name).shape));
  }

  /**
   * A tensor's pieces in order, of so many elements at most; none for a tensor without elements. The next bytes are read
   * while these are used; F16 and BF16 are widened in small parts, each into the memory of the one before.
   */
  async *pieces(name: string, pieceElements = PIECE_ELEMENTS): AsyncGenerator<TensorData, void> {
    const dtype = dtypeToRead(this.#entry(name), this.path, name);
    const into = new Float32Array(
      isHalf(dtype) ? Math.min(pieceElements, WIDENED_ELEMENTS, elements(this.#entry(name).shape)) : 0,
    );
    for await (const bytes of this.#stored(name, dtype, pieceElements)) {
      if (isHalf(dtype)) yield* widenedParts(dtype, halvesOf(bytes), into);
      else yield decode(dtype, bytes);
    }
  }

  /** A tensor of 16 bits as it is stored; undefined for others. */
  packed(name: string): PackedTensor | undefined {
    const { dtype } = this.#entry(name);
    if (dtype !== 'F16' && dtype !== 'BF16') return undefined;
    return { element: ELEMENTS[dtype], read: () => this.#stored(name, dtype, PIECE_ELEMENTS) };
  }

  /**
   * Reads a tensor of floats to where it goes, as it is stored or as float32: sixteen bits are read into the end of their
   * place and widened from its beginning on. Undefined for others.
   */
  reader(name: string, element: StoredElement): TensorReader | undefined {
    const { dtype, shape, begin } = this.#entry(name);
    if (dtype !== 'F32' && dtype !== 'F16' && dtype !== 'BF16') return undefined;
    const stored = ELEMENTS[dtype];
    if (element !== stored && element !== 'f32') return undefined;
    const [size, all] = [elementBytes(dtype), elements(shape)];
    return {
      stored,
      count: all,
      read: async (first, into, look) => {
        const count = into.length / bytesPerElement(element);
        assert(first >= 0 && first + count <= all, `${name} has no elements ${first} to ${first + count - 1}`);
        const place = into.subarray(into.length - count * size);
        const bytes = await this.#readTo(this.#start + begin + first * size, place);
        if (element === stored || dtype === 'F32') {
          look?.(bytes);
          if (bytes.buffer !== place.buffer) place.set(bytes);
          return;
        }
        const aligned = bytes.byteOffset % 4 === 0 ? bytes : bytes.slice();
        look?.(aligned);
        widen(dtype, halvesOf(aligned), new Float32Array(into.buffer, into.byteOffset, count));
      },
    };
  }

  /** Bytes of the file: at `place`, or where the runtime puts them. */
  async #readTo(offset: number, place: Bytes): Promise<Bytes> {
    this.#holds++;
    this.#held ??= Promise.resolve(this.#files.open?.(this.path));
    const held = this.#held;
    try {
      const file = await held;
      if (file) return await file.readRange(offset, place.length, place);
      return await this.#files.readRange(this.path, offset, place.length, place);
    } finally {
      this.#holds--;
      if (this.#holds === 0) {
        this.#held = undefined;
        await held.then(
          (file) => file?.close(),
          () => {},
        );
      }
    }
  }

  /** Bytes of a tensor whose type is none of those that are read here. */
  async readBytes(name: string, offset: number, bytes: number): Promise<Uint8Array<ArrayBuffer>> {
    const { begin, end } = this.#entry(name);
    assert(begin + offset + bytes <= end, `${name} has no bytes ${offset} to ${offset + bytes - 1}`);
    return this.#files.readRange(this.path, this.#start + begin + offset, bytes);
  }

  /** Each piece lies where the one before the last did. */
  async *#stored(name: string, dtype: Dtype, pieceElements: number): AsyncGenerator<Bytes, void> {
    const entry = this.#entry(name);
    const step = isHalf(dtype) ? 2 * pieceElements : pieceElements;
    const count = elements(entry.shape);
    const buffers = [0, 1].map(() => takeBuffer(Math.min(step, count) * elementBytes(dtype)));
    let turn = 0;
    // One that fits into a piece is read once.
    const held = count > step ? await this.#files.open?.(this.path) : undefined;
    const size = elementBytes(dtype);
    const readAt = (first: number, count: number): Promise<Bytes> => {
      const range = [this.#start + entry.begin + first * size, count * size, buffers[turn++ % buffers.length]] as const;
      return held ? held.readRange(...range) : this.#files.readRange(this.path, ...range);
    };
    try {
      yield* readAhead(count, step, readAt);
    } finally {
      await held?.close();
      for (const buffer of buffers) giveBack(buffer);
    }
  }

  #bytes({ begin }: TensorEntry, dtype: Dtype, first: number, count: number): Promise<Bytes> {
    const size = elementBytes(dtype);
    return this.#files.readRange(this.path, this.#start + begin + first * size, count * size);
  }

  #entry(name: string): TensorEntry {
    const entry = this.entries.get(name);
    if (!entry) throw noTensor(this.path, name, this.entries.keys());
    return entry;
  }
}

/** A tensor to be written: what the header says of it, and where its pieces come from. */
export interface TensorToWrite {
  readonly name: string;
  /** The pieces of F16 and BF16 are float32. */
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  read(): AsyncIterable<TensorData>;
}

/**
 * Writes the file that `serialize` would make, a piece at a time. The path holds the old bytes or all of the new:
 * an error, of the disk or of a tensor's pieces, is passed on and leaves nothing behind. Errors: HoldfastError for a
 * finite value that a tensor's type has no finite place for, and for pieces that are not of a tensor's shape.
 */
export async function writeTensors(
  files: Pick<Files, 'writeStream'>,
  path: string,
  tensors: readonly TensorToWrite[],
  metadata: Readonly<Record<string, string>> = {},
): Promise<void> {
  const header = makeHeader(tensors, metadata);
  const stream = await files.writeStream(path);
  try {
    await stream.write(header);
    for (const tensor of tensors) {
      const { name, dtype, shape } = tensor;
      let written = 0;
      for await (const piece of tensor.read()) {
        const given = isHalf(dtype) ? 'F32' : dtype;
        assert(dtypeOf(piece) === given, `safetensors: a piece of ${name} is ${dtypeOf(piece)}, not ${given}`);
        const stored =
          isHalf(dtype) && piece instanceof Float32Array
            ? narrowed(dtype, piece, { path, name, first: written })
            : piece;
        await stream.write(bytesOf(stored));
        written += piece.length;
      }
      checkCount(name, shape, written);
    }
    await stream.commit();
  } catch (error) {
    await stream.abort();
    throw error;
  }
}

function checkCount(name: string, shape: readonly number[], given: number): void {
  const count = elements(shape);
  if (given !== count) throw new HoldfastError(`${name} has ${count} elements ([${shape}]), ${given} were given`);
}

const ELEMENTS = { F32: 'f32', F16: 'f16', BF16: 'bf16' } as const;

const isHalf = (dtype: Dtype): dtype is HalfDtype => dtype === 'F16' || dtype === 'BF16';

/** Its elements, from a multiple of their size on. */
function decode(dtype: Dtype, bytes: Bytes): TensorData {
  const { buffer, byteOffset, byteLength } = bytes;
  if (dtype === 'F32') return new Float32Array(buffer, byteOffset, byteLength / 4);
  if (dtype === 'I32') return new Int32Array(buffer, byteOffset, byteLength / 4);
  if (dtype === 'F64') return new Float64Array(buffer, byteOffset, byteLength / 8);
  const halves = halvesOf(bytes);
  const floats = new Float32Array(halves.length);
  widen(dtype, halves, floats);
  return floats;
}

const halvesOf = ({ buffer, byteOffset, byteLength }: Bytes): Uint16Array<ArrayBuffer> =>
  new Uint16Array(buffer, byteOffset, byteLength / 2);

/** One after the other in `into`. An odd number of elements at a time would leave the halves at no multiple of 4 bytes. */
function* widenedParts(
  dtype: HalfDtype,
  halves: Uint16Array<ArrayBuffer>,
  into: Float32Array<ArrayBuffer>,
): Generator<Float32Array<ArrayBuffer>> {
  const step = into.length;
  for (let first = 0; first < halves.length; first += step) {
    const part = step % 2 === 0 ? halves.subarray(first, first + step) : halves.slice(first, first + step);
    widen(dtype, part, into);
    yield into.subarray(0, part.length);
  }
}

/** Where a value lies that a message names. */
export interface ValuePlace {
  /** Of the file. */
  readonly path: string;
  /** Of the tensor. */
  readonly name: string;
  /** Of the piece's first element, in its tensor. */
  readonly first: number;
}

/** Rounded. Errors: HoldfastError for a finite value that the type has no finite place for. */
export function narrowed(
  dtype: HalfDtype,
  floats: Float32Array<ArrayBuffer>,
  { path, name, first }: ValuePlace,
): Uint16Array<ArrayBuffer> {
  const halves = new Uint16Array(floats.length);
  narrowFloats(dtype, floats, halves);
  const wide = new Float32Array(floats.length);
  widen(dtype, halves, wide);
  const place = findNonFinite(wide);
  if (place >= 0 && findNonFinite(floats) < 0) {
    throw new HoldfastError(
      `${path}: ${name} has ${floats[place]} at element ${first + place}, past the largest ${dtype}, ${LARGEST[dtype]}; save it as ${dtype === 'F16' ? 'BF16 or F32' : 'F32'}`,
    );
  }
  return halves;
}

function dtypeOf(data: TensorData): 'F32' | 'I32' | 'F64' {
  if (data instanceof Float32Array) return 'F32';
  return data instanceof Int32Array ? 'I32' : 'F64';
}

const bytesOf = ({ buffer, byteOffset, byteLength }: TensorData | Uint16Array<ArrayBuffer>): Uint8Array<ArrayBuffer> =>
  new Uint8Array(buffer, byteOffset, byteLength);
