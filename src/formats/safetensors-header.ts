// The header of the safetensors format: u64 little-endian N | N bytes of JSON, padded with spaces. What follows
// it, the data section, is described here and read elsewhere.
//
// Invariant: entriesOf() either returns tensors that tile the data section exactly, with no gap, overlap or
// stray byte, or throws a HoldfastError naming the file and the tensor.

import { assert, HoldfastError } from '../util/errors.ts';

const BYTES_PER_ELEMENT = { F32: 4, I32: 4, F64: 8, F16: 2, BF16: 2 } as const;

export type Dtype = keyof typeof BYTES_PER_ELEMENT;

/** Where a tensor lies: bytes from the start of the data section. */
export interface Entry {
  /** Any that the file says: one that is not known here may lie beside what is read. */
  readonly dtype: string;
  /** [] is a scalar. */
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

export type Header = Readonly<Record<string, unknown>>;

/** Bytes of the length before the header. */
export const LENGTH_BYTES = 8;

/** The format's own limit: what claims more is something else. */
const MAX_HEADER_BYTES = 100_000_000;

const DAMAGED = 'the file is damaged or cut short, copy it again';

/** N, from the first LENGTH_BYTES of a file of `fileBytes`, or from all of a shorter one. */
export function headerLength(first: Uint8Array, fileBytes: number, name: string): number {
  if (first.length < LENGTH_BYTES) {
    throw new HoldfastError(`${name}: ${first.length} bytes, too short for a safetensors file; ${DAMAGED}`);
  }
  const length = Number(new DataView(first.buffer, first.byteOffset, LENGTH_BYTES).getBigUint64(0, true));
  const rest = fileBytes - LENGTH_BYTES;
  if (length > rest || length > MAX_HEADER_BYTES) {
    const limit = length > rest ? `the file has ${rest} after its length` : `at most ${MAX_HEADER_BYTES} are allowed`;
    throw new HoldfastError(
      `${name}: the header claims ${length} bytes, ${limit}; ` +
        'it is not a safetensors file, or it is damaged or cut short: copy it again',
    );
  }
  return length;
}

/** The header from its N bytes of JSON. */
export function parseHeader(json: Uint8Array, name: string): Header {
  const text = decodeUTF8(json);
  const header = text === undefined ? undefined : parseJSON(text);
  if (text === undefined || !isObject(header)) {
    throw new HoldfastError(`${name}: the header is not a JSON object; ${DAMAGED}`);
  }
  const twice = duplicateKey(text);
  if (twice !== undefined) {
    throw new HoldfastError(`${name}: the header has ${JSON.stringify(twice)} twice; write the file again`);
  }
  return header;
}

/** The tensors of a file with `dataBytes` of data, in the order of their data. */
export function entriesOf(header: Header, dataBytes: number, name: string): Map<string, Entry> {
  const entries = Object.entries(header)
    .filter(([tensor]) => tensor !== '__metadata__')
    .map(([tensor, value]) => [tensor, readEntry(value, label(name, tensor), dataBytes)] as const)
    .sort(([, a], [, b]) => a.begin - b.begin || a.end - b.end);
  let covered = 0;
  for (const [tensor, { begin, end }] of entries) {
    if (begin !== covered) {
      const what = begin < covered ? 'overlaps the tensor before it' : 'leaves a gap before it';
      throw new HoldfastError(
        `${label(name, tensor)} begins at data byte ${begin} and ${what}, which ends at ${covered}; ${DAMAGED}`,
      );
    }
    covered = end;
  }
  if (covered !== dataBytes) {
    throw new HoldfastError(`${name}: ${dataBytes} bytes of data, but the tensors cover ${covered}; ${DAMAGED}`);
  }
  return new Map(entries);
}

/** `__metadata__`: strings by name, empty where the header has none. */
export function metadataOf(header: Header, name: string): Map<string, string> {
  const metadata = header['__metadata__'] ?? {};
  if (!isObject(metadata) || !Object.values(metadata).every((value) => typeof value === 'string')) {
    throw new HoldfastError(`${name}: __metadata__ must map names to strings; ${DAMAGED}`);
  }
  return new Map(Object.entries(metadata as Record<string, string>));
}

/** The bytes before the data of these tensors in this order: length, header, spaces up to a multiple of 8. */
export function makeHeader(
  tensors: readonly { readonly name: string; readonly dtype: Dtype; readonly shape: readonly number[] }[],
  metadata: Readonly<Record<string, string>>,
): Uint8Array<ArrayBuffer> {
  const names = new Set(tensors.map(({ name }) => name));
  assert(names.size === tensors.length && !names.has('__metadata__'), 'safetensors: tensor names must be distinct');
  // Members are joined by hand: an object would move names such as "0" to the front.
  const members: string[] = [];
  if (Object.keys(metadata).length > 0) members.push(`"__metadata__":${JSON.stringify(metadata)}`);
  let offset = 0;
  for (const { name, dtype, shape } of tensors) {
    const end = offset + elements(shape) * BYTES_PER_ELEMENT[dtype];
    members.push(`${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets: [offset, end] })}`);
    offset = end;
  }
  const json = new TextEncoder().encode(`{${members.join(',')}}`);
  const start = Math.ceil((LENGTH_BYTES + json.length) / 8) * 8;
  const bytes = new Uint8Array(start).fill(0x20, LENGTH_BYTES);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(start - LENGTH_BYTES), true);
  bytes.set(json, LENGTH_BYTES);
  return bytes;
}

export const elements = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);

export const elementBytes = (dtype: Dtype): number => BYTES_PER_ELEMENT[dtype];

const isKnown = (dtype: string): dtype is Dtype => Object.hasOwn(BYTES_PER_ELEMENT, dtype);

/** The element type of a tensor to be read. Errors: HoldfastError for one that cannot be. */
export function dtypeToRead({ dtype }: Entry, name: string, tensor: string): Dtype {
  if (isKnown(dtype)) return dtype;
  const known = Object.keys(BYTES_PER_ELEMENT).join(', ');
  throw new HoldfastError(`${label(name, tensor)} has dtype ${JSON.stringify(dtype)}; supported: ${known}`);
}

function readEntry(value: unknown, where: string, dataBytes: number): Entry {
  const { dtype, shape, data_offsets: offsets } = isObject(value) ? value : {};
  if (typeof dtype !== 'string') throw new HoldfastError(`${where} has no dtype; ${DAMAGED}`);
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
  const needed = isKnown(dtype) ? elements(shape) * BYTES_PER_ELEMENT[dtype] : end - begin;
  if (end - begin !== needed) {
    throw new HoldfastError(
      `${where} has ${end - begin} bytes, ${dtype} of shape [${shape.join(', ')}] needs ${needed}; ${DAMAGED}`,
    );
  }
  return { dtype, shape, begin, end };
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

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isListOfCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}
