// Values by tensor name, a piece at a time: how model data moves between disk, host and GPU. A whole model has
// no place in JavaScript memory: the maker of pieces holds one, the taker holds one.
//
// Invariant: the pieces of a tensor are its elements in order, each once. A piece is the taker's to read until
// the next one is taken: then the maker may use the memory again.

import { checkWholeNumber, floats, having, mapByName } from '../util/arguments.ts';
import { asText, HoldfastError, namesLike, shortened } from '../util/errors.ts';
import { check } from '../util/json.ts';
import { bytesPerElement, CODECS, type NarrowElement, type StoredElement } from './stored-elements.ts';

/** Elements of a piece, at most, where nothing else is asked for: 4 MiB of float32. */
export const PIECE_ELEMENTS = 2 ** 20;

/** Values by tensor name, a piece at a time. A piece may be read until the next is asked for. */
export interface TensorSource {
  /** In the order in which `read` is cheapest. */
  readonly names: readonly string[];
  /** The pieces of one tensor; none for a tensor without elements. Errors: HoldfastError for a name that is not among `names`. */
  read(name: string): AsyncIterable<Float32Array<ArrayBuffer>>;
  /** The elements of a tensor, where that is known before it is read; absent, and undefined: it is not. */
  count?(name: string): number | undefined;
  /** A tensor as it is stored, where that is not as float32; absent, and undefined: it is. */
  packed?(name: string): PackedTensor | undefined;
  /** Reads a tensor, in these elements, to where it goes; absent, and undefined: it comes in pieces alone. */
  reader?(name: string, element: StoredElement): TensorReader | undefined;
}

const tensorSource = having<TensorSource>('a source of tensors, as initialWeights or sourceOf gives', 'names', 'read');

/** Errors: HoldfastError naming the argument where it is no source. */
export const checkSource = (source: TensorSource, name = 'source'): void => void check(tensorSource, source, name);

/** A tensor that is read to where it goes, with no piece between. */
export interface TensorReader {
  /** What it is read from. */
  readonly stored: StoredElement;
  /** Elements of the whole tensor. */
  readonly count: number;
  /**
   * Fills `into`, from a multiple of 4 bytes of its memory on, with elements from `first` on. Several parts may be read at once.
   * `look` is called with their bytes as they are stored.
   */
  read(first: number, into: Uint8Array<ArrayBuffer>, look?: (stored: Uint8Array<ArrayBuffer>) => void): Promise<void>;
}

/** A tensor as it is stored: what takes it so saves the way to float32 and back, and has its very bits. */
export interface PackedTensor {
  readonly element: NarrowElement;
  /** Whole blocks, in the bytes of `CODECS`; each piece begins at a multiple of 4 bytes of its memory. */
  read(): AsyncIterable<Uint8Array<ArrayBuffer>>;
}

/** Elements that are widened at once: what stays in a processor's cache until it is used. */
const WIDENED_ELEMENTS = 2 ** 16;

/** The values of whole blocks, in small parts, each in the memory of the one before. */
export function* widenedParts(
  element: NarrowElement,
  bytes: Uint8Array<ArrayBuffer>,
): Generator<Float32Array<ArrayBuffer>, void> {
  const each = bytesPerElement(element);
  const most = WIDENED_ELEMENTS * each;
  const into = new Float32Array(Math.min(WIDENED_ELEMENTS, bytes.length / each));
  for (let first = 0; first < bytes.length; first += most) {
    const part = bytes.subarray(first, first + most);
    yield CODECS[element].widen(part, part.length / each, into);
  }
}

/** The values of a stored tensor. */
export async function* widenedPieces({ element, read }: PackedTensor): AsyncGenerator<Float32Array<ArrayBuffer>, void> {
  for await (const piece of read()) yield* widenedParts(element, piece);
}

/** A stored tensor of which each piece is shown to what `watch` makes, for each reading anew, before it is handed on. */
export const watched = (
  { element, read }: PackedTensor,
  watch: () => (bytes: Uint8Array<ArrayBuffer>) => void,
): PackedTensor => ({
  element,
  async *read() {
    const look = watch();
    for await (const piece of read()) {
      look(piece);
      yield piece;
    }
  },
});

/** The error of a tensor that is asked for where there is none of its name. */
export const noTensor = (holder: string, given: string, names: Iterable<string>): HoldfastError =>
  new HoldfastError(`no tensor ${shortened(asText(given))} in ${holder}; ${namesLike(asText(given), names)}`);

/** Values by tensor name, in memory: small models, reference cases, tests. */
export type Values = Map<string, Float32Array<ArrayBuffer>>;

/**
 * A source of values that are in memory: small models, reference cases, tests. Copies nothing. Errors: HoldfastError for no Map, for what
 * is no Float32Array in it, and for pieces of no elements.
 */
export function sourceOf(
  values: ReadonlyMap<string, Float32Array<ArrayBuffer>>,
  pieceElements = PIECE_ELEMENTS,
): TensorSource {
  check(mapByName, values, 'values');
  for (const [name, all] of values) check(floats, all, `values: ${shortened(String(name))}`);
  checkWholeNumber(pieceElements, 'pieceElements', 1);
  return {
    names: [...values.keys()],
    count: (name) => values.get(name)?.length,
    async *read(name) {
      const all = values.get(name);
      if (!all) throw noTensor('the source', name, values.keys());
      for (let first = 0; first < all.length; first += pieceElements) yield all.subarray(first, first + pieceElements);
    },
  };
}

/** Those of a source's tensors that have such names. */
export const restricted = (source: TensorSource, isWanted: (name: string) => boolean): TensorSource => ({
  names: source.names.filter(isWanted),
  read: (name) => source.read(name),
  count: (name) => source.count?.(name),
  packed: (name) => source.packed?.(name),
  reader: (name, element) => source.reader?.(name, element),
});

/** The tensors of several sources; of those that have one name, the first one's. */
export function joined(...sources: readonly TensorSource[]): TensorSource {
  const owners = new Map(sources.toReversed().flatMap((source) => source.names.map((name) => [name, source] as const)));
  const ownerOf = (name: string): TensorSource => {
    const owner = owners.get(name);
    if (!owner) throw noTensor('the source', name, owners.keys());
    return owner;
  };
  return {
    names: [...new Set(sources.flatMap(({ names }) => names))],
    read: (name) => ownerOf(name).read(name),
    count: (name) => ownerOf(name).count?.(name),
    packed: (name) => ownerOf(name).packed?.(name),
    reader: (name, element) => ownerOf(name).reader?.(name, element),
  };
}

/** What each piece becomes, one at a time. */
export async function* mapped<P, Q>(pieces: AsyncIterable<P>, change: (piece: P) => Q): AsyncGenerator<Q, void> {
  for await (const piece of pieces) yield change(piece);
}

/** The values of `pieces` in pieces of whole blocks. Their number is a multiple of a block's. */
export async function* wholeBlocks(
  pieces: AsyncIterable<Float32Array<ArrayBuffer>>,
  blockElements: number,
): AsyncGenerator<Float32Array<ArrayBuffer>, void> {
  let rest = new Float32Array();
  for await (const piece of pieces) {
    let all = piece;
    if (rest.length > 0) {
      all = new Float32Array(rest.length + piece.length);
      all.set(rest);
      all.set(piece, rest.length);
    }
    const whole = all.length - (all.length % blockElements);
    if (whole > 0) yield all.subarray(0, whole);
    rest = all.slice(whole);
  }
}

/** All values of a source in memory, whatever their size. */
export async function collect(source: TensorSource): Promise<Values> {
  checkSource(source);
  const values: Values = new Map();
  for (const name of source.names) {
    const pieces: Float32Array<ArrayBuffer>[] = [];
    for await (const piece of source.read(name)) pieces.push(piece.slice());
    const all = new Float32Array(pieces.reduce((sum, { length }) => sum + length, 0));
    let at = 0;
    for (const piece of pieces) {
      all.set(piece, at);
      at += piece.length;
    }
    values.set(name, all);
  }
  return values;
}
