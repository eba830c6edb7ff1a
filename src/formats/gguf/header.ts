// Beginning of a GGUF file, version 3: its metadata and the list of its tensors, which says where in the file each
// lies. It is read in read-header.ts. The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
//
// Invariant: the header ends, and each tensor begins, at a multiple of ALIGNMENT bytes. Little-endian.

import { assert } from '../../util/errors.ts';
import { elements } from '../safetensors-header.ts';
import { TENSOR_TYPES, type TensorType, tensorBytes } from './tensor-types.ts';

/** The alignment of tensors in bytes, where the metadata names no other. */
export const ALIGNMENT = 32;

/** Names of tensors that are longer are refused by ggml, which ends them with a 0. */
const MOST_NAME_BYTES = 63;

/** A value with the type that it is written as. */
export type MetadataValue =
  | { readonly type: 'u32' | 'f32'; readonly value: number }
  | { readonly type: 'bool'; readonly value: boolean }
  | { readonly type: 'string'; readonly value: string }
  | { readonly type: 'strings'; readonly value: readonly string[] }
  | { readonly type: 'i32s' | 'f32s'; readonly value: readonly number[] };

/** By their keys, in the order in which they are written. */
export type Metadata = ReadonlyMap<string, MetadataValue>;

export const u32 = (value: number): MetadataValue => ({ type: 'u32', value });
export const f32 = (value: number): MetadataValue => ({ type: 'f32', value });
export const bool = (value: boolean): MetadataValue => ({ type: 'bool', value });
export const string = (value: string): MetadataValue => ({ type: 'string', value });

/** The format's numbers. */
export const VALUE_TYPES = {
  ...{ u8: 0, i8: 1, u16: 2, i16: 3, u32: 4, i32: 5, f32: 6, bool: 7, string: 8, array: 9 },
  ...{ u64: 10, i64: 11, f64: 12 },
} as const;

/** A tensor as the header lists it. */
export interface ListedTensor {
  readonly name: string;
  readonly type: TensorType;
  /** Row-major, [rows, columns]: as everywhere but in the file, which has the columns first. */
  readonly shape: readonly number[];
}

/** Bytes that are needed after so many to come to a multiple of ALIGNMENT. */
export const paddingAfter = (bytes: number): number => (ALIGNMENT - (bytes % ALIGNMENT)) % ALIGNMENT;

/** All that comes before the first tensor's data. The tensors follow in their order, each with its padding. */
export function makeGGUFHeader(metadata: Metadata, tensors: readonly ListedTensor[]): Uint8Array<ArrayBuffer> {
  const bytes = new GrowingBytes();
  bytes.text('GGUF');
  bytes.u32(3);
  bytes.u64(tensors.length);
  bytes.u64(metadata.size);
  for (const [key, value] of metadata) {
    bytes.string(key);
    writeValue(bytes, value);
  }
  let offset = 0;
  for (const { name, type, shape } of tensors) {
    assert(new TextEncoder().encode(name).length <= MOST_NAME_BYTES, `${name} is too long a name of a tensor`);
    bytes.string(name);
    bytes.u32(shape.length);
    for (const size of [...shape].reverse()) bytes.u64(size);
    bytes.u32(TENSOR_TYPES[type].id);
    bytes.u64(offset);
    const size = tensorBytes(type, elements(shape));
    offset += size + paddingAfter(size);
  }
  return bytes.padded();
}

function writeValue(bytes: GrowingBytes, value: MetadataValue): void {
  switch (value.type) {
    case 'u32':
    case 'f32':
      bytes.u32(VALUE_TYPES[value.type]);
      bytes[value.type](value.value);
      break;
    case 'bool':
      bytes.u32(VALUE_TYPES.bool);
      bytes.u8(value.value ? 1 : 0);
      break;
    case 'string':
      bytes.u32(VALUE_TYPES.string);
      bytes.string(value.value);
      break;
    case 'strings':
      bytes.list(VALUE_TYPES.string, value.value.length);
      for (const item of value.value) bytes.string(item);
      break;
    case 'i32s':
      bytes.list(VALUE_TYPES.i32, value.value.length);
      for (const item of value.value) bytes.i32(item);
      break;
    case 'f32s':
      bytes.list(VALUE_TYPES.f32, value.value.length);
      for (const item of value.value) bytes.f32(item);
      break;
    default:
      value satisfies never;
  }
}

/** Bytes that are appended to. */
class GrowingBytes {
  #bytes = new Uint8Array(2 ** 16);
  #view = new DataView(this.#bytes.buffer);
  #length = 0;

  u8(value: number): void {
    const at = this.#grow(1);
    this.#view.setUint8(at, value);
  }

  u32(value: number): void {
    const at = this.#grow(4);
    this.#view.setUint32(at, value, true);
  }

  i32(value: number): void {
    const at = this.#grow(4);
    this.#view.setInt32(at, value, true);
  }

  f32(value: number): void {
    const at = this.#grow(4);
    this.#view.setFloat32(at, value, true);
  }

  u64(value: number): void {
    const at = this.#grow(8);
    this.#view.setBigUint64(at, BigInt(value), true);
  }

  /** Its bytes alone. */
  text(value: string): void {
    this.#append(new TextEncoder().encode(value));
  }

  /** With its length. */
  string(value: string): void {
    const encoded = new TextEncoder().encode(value);
    this.u64(encoded.length);
    this.#append(encoded);
  }

  /** The beginning of an array. */
  list(type: number, length: number): void {
    this.u32(VALUE_TYPES.array);
    this.u32(type);
    this.u64(length);
  }

  padded(): Uint8Array<ArrayBuffer> {
    this.#grow(paddingAfter(this.#length));
    return this.#bytes.subarray(0, this.#length);
  }

  #append(bytes: Uint8Array): void {
    const at = this.#grow(bytes.length);
    this.#bytes.set(bytes, at);
  }

  /** The place of so many new bytes. They may lie elsewhere after it. */
  #grow(bytes: number): number {
    const at = this.#length;
    this.#length += bytes;
    if (this.#length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(this.#length, 2 * this.#bytes.length));
      larger.set(this.#bytes.subarray(0, at));
      this.#bytes = larger;
      this.#view = new DataView(larger.buffer);
    }
    return at;
  }
}
