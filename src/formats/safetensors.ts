// The safetensors format: u64 little-endian N | N bytes of JSON, padded with spaces | raw data, row-major.
//
// Whole files in memory, not a stream. Little-endian machines only, as every one with WebGPU is.
// Invariant: parse() either returns tensors that tile the data section exactly, with no gap, overlap or
// stray byte, or throws a HoldfastError naming the file and the tensor. F16 and BF16 widen to float32.

import { assert, HoldfastError } from '../util/errors.ts';

const BYTES_PER_ELEMENT = { F32: 4, I32: 4, F64: 8, F16: 2, BF16: 2 } as const;

export type Dtype = keyof typeof BYTES_PER_ELEMENT;

export type TensorData = Float32Array<ArrayBuffer> | Int32Array<ArrayBuffer> | Float64Array<ArrayBuffer>;

export interface Tensor {
  /** As stored in the file: F16 and BF16 come with a Float32Array. */
  readonly dtype: Dtype;
  /** [] is a scalar. */
  readonly shape: readonly number[];
  readonly data: TensorData;
}

const DAMAGED = 'the file is damaged or cut short, copy it again';

interface Entry {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

/** The tensors of a file in the order of their data; each is a copy. `name` is for messages. */
export function parse(bytes: Uint8Array, name: string): Map<string, Tensor> {
  const { header, data } = readHeader(bytes, name);
  const entries = Object.entries(header)
    .filter(([tensor]) => tensor !== '__metadata__')
    .map(([tensor, value]) => readEntry(value, tensor, name, data.length))
    .sort((a, b) => a.begin - b.begin || a.end - b.end);
  let covered = 0;
  for (const entry of entries) {
    if (entry.begin !== covered) {
      const what = entry.begin < covered ? 'overlaps the tensor before it' : 'leaves a gap before it';
      throw new HoldfastError(
        `${label(name, entry.name)} begins at data byte ${entry.begin} and ${what}, which ends at ${covered}; ${DAMAGED}`,
      );
    }
    covered = entry.end;
  }
  if (covered !== data.length) {
    throw new HoldfastError(`${name}: ${data.length} bytes of data, but the tensors cover ${covered}; ${DAMAGED}`);
  }
  return new Map(
    entries.map(({ name: tensor, dtype, shape, begin, end }) => [
      tensor,
      { dtype, shape, data: decode(dtype, data.slice(begin, end).buffer) },
    ]),
  );
}

/** The file's `__metadata__`: strings by name, empty where the file has none. */
export function parseMetadata(bytes: Uint8Array, name: string): Map<string, string> {
  const metadata = readHeader(bytes, name).header.__metadata__ ?? {};
  if (!isObject(metadata) || !Object.values(metadata).every((value) => typeof value === 'string')) {
    throw new HoldfastError(`${name}: __metadata__ must map names to strings; ${DAMAGED}`);
  }
  return new Map(Object.entries(metadata as Record<string, string>));
}

/** A file with these tensors in this order; the data section begins at a multiple of 8 bytes. */
export function serialize(
  tensors: Iterable<readonly [string, { readonly shape: readonly number[]; readonly data: TensorData }]>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array<ArrayBuffer> {
  const list = [...tensors];
  const names = new Set(list.map(([name]) => name));
  assert(names.size === list.length && !names.has('__metadata__'), 'safetensors: tensor names must be distinct');
  // Members are joined by hand: an object would move names such as "0" to the front.
  const members: string[] = [];
  if (Object.keys(metadata).length > 0) members.push(`"__metadata__":${JSON.stringify(metadata)}`);
  let offset = 0;
  for (const [name, { shape, data }] of list) {
    assert(elements(shape) === data.length, `safetensors: ${name} has ${data.length} elements for [${shape}]`);
    const entry = { dtype: dtypeOf(data), shape, data_offsets: [offset, offset + data.byteLength] };
    members.push(`${JSON.stringify(name)}:${JSON.stringify(entry)}`);
    offset += data.byteLength;
  }
  const json = new TextEncoder().encode(`{${members.join(',')}}`);
  const start = Math.ceil((8 + json.length) / 8) * 8;
  const bytes = new Uint8Array(start + offset).fill(0x20, 8, start);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(start - 8), true);
  bytes.set(json, 8);
  let at = start;
  for (const [, { data }] of list) {
    bytes.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), at);
    at += data.byteLength;
  }
  return bytes;
}

function readHeader(bytes: Uint8Array, name: string): { header: Record<string, unknown>; data: Uint8Array } {
  if (bytes.length < 8) {
    throw new HoldfastError(`${name}: ${bytes.length} bytes, too short for a safetensors file; ${DAMAGED}`);
  }
  const length = Number(new DataView(bytes.buffer, bytes.byteOffset, 8).getBigUint64(0, true));
  if (length > bytes.length - 8) {
    throw new HoldfastError(
      `${name}: the header claims ${length} bytes, the file has ${bytes.length - 8} after its length; ` +
        'it is not a safetensors file, or it is damaged or cut short: copy it again',
    );
  }
  const text = decodeUTF8(bytes.subarray(8, 8 + length));
  const header = text === undefined ? undefined : parseJSON(text);
  if (text === undefined || !isObject(header)) {
    throw new HoldfastError(`${name}: the header is not a JSON object; ${DAMAGED}`);
  }
  const twice = duplicateKey(text);
  if (twice !== undefined) {
    throw new HoldfastError(`${name}: the header has ${JSON.stringify(twice)} twice; write the file again`);
  }
  return { header, data: bytes.subarray(8 + length) };
}

function readEntry(value: unknown, tensor: string, name: string, dataBytes: number): Entry {
  const where = label(name, tensor);
  const { dtype, shape, data_offsets: offsets } = isObject(value) ? value : {};
  if (typeof dtype !== 'string' || !Object.hasOwn(BYTES_PER_ELEMENT, dtype)) {
    const found = typeof dtype === 'string' ? `dtype ${JSON.stringify(dtype)}` : 'no dtype';
    throw new HoldfastError(`${where} has ${found}; supported: ${Object.keys(BYTES_PER_ELEMENT).join(', ')}`);
  }
  if (!isListOfCounts(shape)) {
    throw new HoldfastError(`${where} has no shape that is a list of whole numbers; ${DAMAGED}`);
  }
  if (!isListOfCounts(offsets) || offsets.length !== 2) {
    throw new HoldfastError(`${where} has no data_offsets that are two whole numbers; ${DAMAGED}`);
  }
  const [begin, end] = offsets;
  if (begin > end || end > dataBytes) {
    throw new HoldfastError(`${where} lies at bytes ${begin} to ${end} of ${dataBytes} bytes of data; ${DAMAGED}`);
  }
  const needed = elements(shape) * BYTES_PER_ELEMENT[dtype as Dtype];
  if (end - begin !== needed) {
    throw new HoldfastError(
      `${where} has ${end - begin} bytes, ${dtype} of shape [${shape.join(', ')}] needs ${needed}; ${DAMAGED}`,
    );
  }
  return { name: tensor, dtype: dtype as Dtype, shape, begin, end };
}

/** JSON.parse keeps the last of two equal keys silently. `text` is valid JSON. */
function duplicateKey(text: string): string | undefined {
  const open: Set<string>[] = [];
  for (const [token] of text.matchAll(/"(?:[^"\\]+|\\.)*"(?:\s*:)?|[{}]/g)) {
    if (token === '{') open.push(new Set());
    else if (token === '}') open.pop();
    else if (token.endsWith(':')) {
      const key = JSON.parse(token.slice(0, -1)) as string;
      if (open.at(-1)?.has(key)) return key;
      open.at(-1)?.add(key);
    }
  }
  return undefined;
}

function decode(dtype: Dtype, buffer: ArrayBuffer): TensorData {
  if (dtype === 'F32') return new Float32Array(buffer);
  if (dtype === 'I32') return new Int32Array(buffer);
  if (dtype === 'F64') return new Float64Array(buffer);
  const halves = new Uint16Array(buffer);
  if (dtype === 'F16') return Float32Array.from(halves, widenF16);
  // bfloat16 is the upper half of a float32.
  return new Float32Array(Uint32Array.from(halves, (bits) => bits << 16).buffer);
}

/** IEEE binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits. */
function widenF16(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0x1f) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}

function dtypeOf(data: TensorData): Dtype {
  if (data instanceof Float32Array) return 'F32';
  return data instanceof Int32Array ? 'I32' : 'F64';
}

function decodeUTF8(bytes: Uint8Array): string | undefined {
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

function parseJSON(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

const label = (name: string, tensor: string): string => `${name}: tensor ${JSON.stringify(tensor)}`;

const elements = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isListOfCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}
