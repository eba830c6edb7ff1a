// Reader of the beginning of a GGUF file, version 2 or 3: metadata by their keys, and where each tensor lies. The file
// is a claim like any other: every length is held against what is there before room is made for it.
//
// Invariant: a tensor of a header that was read lies within the file, and no two overlap.

import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import type { ByteSource } from '../byte-source.ts';
import { ALIGNMENT, VALUE_TYPES } from './header.ts';
import { GGML_TYPES, READ_TYPE_NAMES, READ_TYPES, type ReadType } from './tensor-types.ts';

/** A value of the metadata: lists are of one kind. */
export type GGUFValue = number | boolean | string | readonly number[] | readonly boolean[] | readonly string[];

export interface PlacedTensor {
  readonly type: ReadType;
  /** Row-major, [rows, columns]: the file has the columns first. */
  readonly shape: readonly number[];
  /** From the file's beginning. */
  readonly begin: number;
  readonly bytes: number;
}

export interface ReadHeader {
  readonly metadata: ReadonlyMap<string, GGUFValue>;
  /** In the order of the header. */
  readonly tensors: ReadonlyMap<string, PlacedTensor>;
}

const FIRST_BYTES = 2 ** 20;
/** The largest vocabularies that there are take a tenth of it. */
const MOST_BYTES = 2 ** 28;
const MOST_DIMENSIONS = 4;
const AGAIN = 'the file is damaged or cut short, get it again';

/** More of the file is needed than was read. */
class Short extends Error {}

/** `path`: for messages. Errors: HoldfastError for what is no such file, and for tensors of a type that is not read. */
export async function readHeader(source: ByteSource, path: string): Promise<ReadHeader> {
  for (let bytes = FIRST_BYTES; ; bytes *= 4) {
    const given = Math.min(bytes, source.size);
    try {
      return new HeaderReader(await source.read(0, given), source.size, path).header();
    } catch (error) {
      if (!(error instanceof Short)) throw error;
      if (given === source.size) throw new HoldfastError(`${path}: ends within its header; ${AGAIN}`);
      if (bytes >= MOST_BYTES)
        throw new HoldfastError(`${path}: its header has more than ${formatBytes(MOST_BYTES)}; ${AGAIN}`);
    }
  }
}

/** A place in the bytes of a header, from which its values are read one after the other. */
class HeaderReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #fileBytes: number;
  readonly #path: string;
  readonly #decoder = new TextDecoder();
  #at = 0;

  constructor(bytes: Uint8Array<ArrayBuffer>, fileBytes: number, path: string) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
    this.#fileBytes = fileBytes;
    this.#path = path;
  }

  header(): ReadHeader {
    if (this.#fileBytes < 4 || this.#decoder.decode(this.#take(4)) !== 'GGUF')
      this.#fail('is no GGUF file: it does not begin with "GGUF"; name a .gguf file');
    const version = this.#u32();
    if (version !== 2 && version !== 3)
      this.#fail(`is a GGUF file of version ${version}; 2 and 3 are read, of little-endian numbers: convert it again`);
    const tensors = this.#count('tensors');
    const keys = this.#count('keys');
    const metadata = new Map<string, GGUFValue>();
    for (let i = 0; i < keys; i++) {
      const key = this.#string();
      if (metadata.has(key)) this.#fail(`has ${shortened(key)} twice; ${AGAIN}`);
      metadata.set(key, this.#value(this.#u32(), key));
    }
    const listed = new Map<string, Omit<PlacedTensor, 'bytes'>>();
    for (let i = 0; i < tensors; i++) {
      const name = this.#string();
      if (listed.has(name)) this.#fail(`has the tensor ${shortened(name)} twice; ${AGAIN}`);
      listed.set(name, this.#tensor(name));
    }
    const alignment = metadata.get('general.alignment') ?? ALIGNMENT;
    if (typeof alignment !== 'number' || !Number.isSafeInteger(alignment) || alignment < 8 || alignment > 2 ** 20)
      return this.#fail(`has a general.alignment of ${shortened(String(alignment))}; ${AGAIN}`);
    return { metadata, tensors: this.#placed(listed, Math.ceil(this.#at / alignment) * alignment) };
  }

  /** `start`: of the data. */
  #placed(listed: ReadonlyMap<string, Omit<PlacedTensor, 'bytes'>>, start: number): Map<string, PlacedTensor> {
    const placed = new Map<string, PlacedTensor>();
    for (const [name, { type, shape, begin }] of listed) {
      const { blockElements, blockBytes } = READ_TYPES[type];
      const elements = shape.reduce((a, b) => a * b, 1);
      if ((shape.at(-1) ?? 1) % blockElements !== 0)
        this.#fail(`${shortened(name)} has rows of ${shape.at(-1)}, no whole blocks of ${type}; ${AGAIN}`);
      const bytes = (elements / blockElements) * blockBytes;
      if (!(start + begin + bytes <= this.#fileBytes))
        this.#fail(
          `${shortened(name)} lies at bytes ${start + begin} to ${start + begin + bytes} of ${this.#fileBytes}; ${AGAIN}`,
        );
      placed.set(name, { type, shape, begin: start + begin, bytes });
    }
    let end = 0;
    for (const [name, { begin, bytes }] of [...placed].sort(([, a], [, b]) => a.begin - b.begin)) {
      if (begin < end) this.#fail(`${shortened(name)} overlaps the tensor before it; ${AGAIN}`);
      end = begin + bytes;
    }
    return placed;
  }

  #tensor(name: string): Omit<PlacedTensor, 'bytes'> {
    const dimensions = this.#u32();
    if (dimensions > MOST_DIMENSIONS) this.#fail(`${shortened(name)} has ${dimensions} dimensions; ${AGAIN}`);
    const shape = Array.from({ length: dimensions }, () => this.#u64()).reverse();
    const id = this.#u32();
    const type = READ_TYPE_NAMES.find((type) => READ_TYPES[type].id === id);
    if (!type) {
      const known = GGML_TYPES[id] ?? `type ${id}`;
      return this.#fail(
        `${shortened(name)} is ${known}; ${READ_TYPE_NAMES.join(', ')} are read: take a file in one of these`,
      );
    }
    return { type, shape, begin: this.#u64() };
  }

  #value(type: number, key: string): GGUFValue {
    if (type !== VALUE_TYPES.array) return this.#scalar(type, key);
    const item = this.#u32();
    const length = this.#count('items');
    if (item === VALUE_TYPES.array) this.#fail(`${shortened(key)} is a list of lists; ${AGAIN}`);
    const items: (number | boolean | string)[] = [];
    for (let i = 0; i < length; i++) items.push(this.#scalar(item, key));
    return items as readonly number[] | readonly boolean[] | readonly string[];
  }

  #scalar(type: number, key: string): number | boolean | string {
    switch (type) {
      case VALUE_TYPES.u8:
        return this.#view.getUint8(this.#skip(1));
      case VALUE_TYPES.i8:
        return this.#view.getInt8(this.#skip(1));
      case VALUE_TYPES.u16:
        return this.#view.getUint16(this.#skip(2), true);
      case VALUE_TYPES.i16:
        return this.#view.getInt16(this.#skip(2), true);
      case VALUE_TYPES.u32:
        return this.#u32();
      case VALUE_TYPES.i32:
        return this.#view.getInt32(this.#skip(4), true);
      case VALUE_TYPES.f32:
        return this.#view.getFloat32(this.#skip(4), true);
      case VALUE_TYPES.bool:
        return this.#view.getUint8(this.#skip(1)) !== 0;
      case VALUE_TYPES.string:
        return this.#string();
      case VALUE_TYPES.u64:
        return Number(this.#view.getBigUint64(this.#skip(8), true));
      case VALUE_TYPES.i64:
        return Number(this.#view.getBigInt64(this.#skip(8), true));
      case VALUE_TYPES.f64:
        return this.#view.getFloat64(this.#skip(8), true);
      default:
        return this.#fail(`${shortened(key)} is of type ${type}, which the format does not have; ${AGAIN}`);
    }
  }

  /** Each of them takes a byte at least. */
  #count(what: string): number {
    const count = this.#u64();
    if (count > this.#fileBytes) this.#fail(`claims ${count} ${what} in ${this.#fileBytes} bytes; ${AGAIN}`);
    return count;
  }

  #string(): string {
    const length = this.#u64();
    if (length > this.#fileBytes) this.#fail(`claims a text of ${length} bytes in ${this.#fileBytes}; ${AGAIN}`);
    return this.#decoder.decode(this.#take(length));
  }

  #u32(): number {
    return this.#view.getUint32(this.#skip(4), true);
  }

  #u64(): number {
    return Number(this.#view.getBigUint64(this.#skip(8), true));
  }

  #take(bytes: number): Uint8Array {
    const at = this.#skip(bytes);
    return this.#bytes.subarray(at, at + bytes);
  }

  /** The place of the next bytes. */
  #skip(bytes: number): number {
    const at = this.#at;
    if (at + bytes > this.#bytes.length) throw new Short();
    this.#at += bytes;
    return at;
  }

  #fail(problem: string): never {
    throw new HoldfastError(`${this.#path}: ${problem}`);
  }
}
