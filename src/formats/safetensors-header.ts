// The header of the safetensors format: u64 little-endian N | N bytes of JSON, padded with spaces. What follows
// it, the data section, is described here and read elsewhere.
//
// Invariant: entriesOf() either returns tensors that tile the data section exactly, with no gap, overlap or
// stray byte, or throws a HoldfastError naming the file and the tensor.

import { HoldfastError, shortened } from '../util/errors.ts';

const BYTES_PER_ELEMENT = { F32: 4, I32: 4, F64: 8, F16: 2, BF16: 2 } as const;

/** Element types by the format's names. */
export type Dtype = keyof typeof BYTES_PER_ELEMENT;

/** Where a tensor lies: bytes from the start of the data section. */
export interface TensorEntry {
  /** Any that the file says: one that is not known here may lie beside what is read. */
  readonly dtype: string;
  /** [] is a scalar. */
  readonly shape: readonly number[];
  readonly begin: number;
  readonly end: number;
}

type Fields = ReadonlyMap<string, unknown>;

/** What it says of each tensor, and `__metadata__`, in its order; undefined where that is no object. */
export type Header = ReadonlyMap<string, Fields | undefined>;

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
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(json);
    const header = new Map<string, Fields | undefined>();
    for (const [member, value] of membersOf(text, name)) {
      if (value.startsWith('{')) header.set(member, fieldsOf(membersOf(value, name)));
      else header.set(member, JSON.parse(value) && undefined);
    }
    return header;
  } catch (error) {
    if (error instanceof HoldfastError) throw error;
    throw new HoldfastError(`${name}: the header is not a JSON object; ${DAMAGED}`);
  }
}

const fieldsOf = (members: ReadonlyMap<string, string>): Fields =>
  new Map([...members].map(([field, value]) => [field, JSON.parse(value)]));

/** The tensors of a file with `dataBytes` of data, in the order of their data. */
export function entriesOf(header: Header, dataBytes: number, name: string): Map<string, TensorEntry> {
  const entries = [...header]
    .filter(([tensor]) => tensor !== '__metadata__')
    .map(([tensor, fields]) => [tensor, readEntry(fields, label(name, tensor), dataBytes)] as const)
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

/** The bytes before the data of these tensors in this order: length, header, spaces up to a multiple of 8. */
export function makeHeader(
  tensors: readonly { readonly name: string; readonly dtype: Dtype; readonly shape: readonly number[] }[],
  metadata: Readonly<Record<string, string>>,
): Uint8Array<ArrayBuffer> {
  const names = new Set(tensors.map(({ name }) => name));
  if (names.size !== tensors.length || names.has('__metadata__'))
    throw new HoldfastError('a safetensors file has one tensor of a name, and none named __metadata__; rename them');
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
export function dtypeToRead({ dtype }: TensorEntry, name: string, tensor: string): Dtype {
  if (isKnown(dtype)) return dtype;
  const known = Object.keys(BYTES_PER_ELEMENT).join(', ');
  throw new HoldfastError(`${label(name, tensor)} has dtype ${shortened(JSON.stringify(dtype))}; supported: ${known}`);
}

function readEntry(fields: Fields | undefined, where: string, dataBytes: number): TensorEntry {
  const [dtype, shape, offsets] = ['dtype', 'shape', 'data_offsets'].map((field) => fields?.get(field));
  if (typeof dtype !== 'string') throw new HoldfastError(`${where} has no dtype; ${DAMAGED}`);
  if (!isListOfCounts(shape)) {
    throw new HoldfastError(`${where} has no shape that is a list of whole numbers; ${DAMAGED}`);
  }
  const [begin, end, ...more] = isListOfCounts(offsets) ? offsets : [];
  if (begin === undefined || end === undefined || more.length > 0) {
    throw new HoldfastError(`${where} has no data_offsets that are two whole numbers; ${DAMAGED}`);
  }
  if (begin > end || end > dataBytes) {
    throw new HoldfastError(`${where} lies at bytes ${begin} to ${end} of ${dataBytes} bytes of data; ${DAMAGED}`);
  }
  const needed = isKnown(dtype) ? elements(shape) * BYTES_PER_ELEMENT[dtype] : end - begin;
  if (end - begin !== needed) {
    throw new HoldfastError(
      `${where} has ${end - begin} bytes, ${dtype} of shape [${shortened(shape.slice(0, 50).join(', '))}] needs ${needed}; ${DAMAGED}`,
    );
  }
  return { dtype, shape, begin, end };
}

/**
 * The members of the JSON object in `text`, in their order, each with the text of its value, of which only brackets and
 * strings were looked at. One pass: an object of V8's takes ever longer for each of very many keys, and keeps the last
 * of two equal ones silently. Errors: SyntaxError where it is no object; HoldfastError for a key that is there twice.
 */
function membersOf(text: string, name: string): Map<string, string> {
  const members = new Map<string, string>();
  let at = afterSpace(text, 0);
  const take = (character: number) => {
    if (text.charCodeAt(at) !== character) throw new SyntaxError(`there is no ${String.fromCharCode(character)}`);
    at = afterSpace(text, at + 1);
  };
  take(OPEN);
  while (text.charCodeAt(at) !== CLOSE) {
    if (members.size > 0) take(COMMA);
    if (text.charCodeAt(at) !== QUOTE) throw new SyntaxError('a key is no string');
    const written = text.slice(at, afterString(text, at));
    const key = JSON.parse(written) as string;
    if (members.has(key)) {
      throw new HoldfastError(`${name}: the header has ${shortened(JSON.stringify(key))} twice; write the file again`);
    }
    at = afterSpace(text, at + written.length);
    take(COLON);
    const end = afterValue(text, at);
    members.set(key, text.slice(at, end));
    at = end;
  }
  take(CLOSE);
  if (at !== text.length) throw new SyntaxError('something follows');
  return members;
}

const [OPEN, CLOSE, OPEN_LIST, CLOSE_LIST] = [0x7b, 0x7d, 0x5b, 0x5d];
const [QUOTE, BACKSLASH, COLON, COMMA] = [0x22, 0x5c, 0x3a, 0x2c];

function afterSpace(text: string, from: number): number {
  let at = from;
  while (' \t\n\r'.includes(text.charAt(at)) && at < text.length) at++;
  return at;
}

/** The place behind the string that begins at `from`. */
function afterString(text: string, from: number): number {
  let at = from + 1;
  while (at < text.length && text.charCodeAt(at) !== QUOTE) at += text.charCodeAt(at) === BACKSLASH ? 2 : 1;
  return at + 1;
}

/** Up to the comma or bracket that ends it. */
function afterValue(text: string, from: number): number {
  let depth = 0;
  let at = from;
  while (at < text.length) {
    const character = text.charCodeAt(at);
    const closes = character === CLOSE || character === CLOSE_LIST;
    if (depth === 0 && (closes || character === COMMA)) return at;
    if (closes) depth--;
    else if (character === OPEN || character === OPEN_LIST) depth++;
    at = character === QUOTE ? afterString(text, at) : at + 1;
  }
  return at;
}

const label = (name: string, tensor: string): string => `${name}: tensor ${shortened(JSON.stringify(tensor))}`;

function isListOfCounts(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}
