// Mutants of binary files: bits and bytes changed, parts cut out, put in, doubled and exchanged, and little-endian numbers
// set to values at their edges. Not for texts with a grammar: nearly all mutants of one are no such text any more.
//
// Invariant: the same seed makes the same mutants; the bytes given are never changed.

import type { Random } from '../../src/util/random.ts';

const EDGES = [0n, 1n, 0x7fn, 0xffn, 0x7fffn, 0xffffn, 0x7fffffffn, 0xffffffffn, 2n ** 53n, 2n ** 63n, 2n ** 64n - 1n];

/** From 1 to 3 changes; half of them near one of the places `near`, if there are any. */
export function mutant(random: Random, bytes: Uint8Array, near: readonly number[] = []): Uint8Array<ArrayBuffer> {
  let made = Uint8Array.from(bytes);
  for (let i = random.below(3); i >= 0; i--) made = changed(random, made, near);
  return made;
}

/** Where `pattern` is. */
export function placesOf(bytes: Uint8Array, pattern: readonly number[]): number[] {
  const found: number[] = [];
  for (let at = 0; at + pattern.length <= bytes.length; at++) {
    if (pattern.every((byte, i) => bytes[at + i] === byte)) found.push(at);
  }
  return found;
}

function changed(random: Random, bytes: Uint8Array<ArrayBuffer>, near: readonly number[]): Uint8Array<ArrayBuffer> {
  const place = () => {
    const [from, span] =
      near.length > 0 && random.below(2) ? [near[random.below(near.length)] ?? 0, 64] : [0, Infinity];
    const at = Math.min(from, bytes.length);
    return at + random.below(Math.min(span, bytes.length - at) + 1);
  };
  const range = (most: number) => {
    const from = place();
    return [from, Math.min(bytes.length, from + 1 + random.below(most))] as const;
  };
  const at = place();
  const [from, to] = range(random.below(4) ? 16 : bytes.length + 1);
  switch (random.below(9)) {
    case 0:
      return put(bytes, at, [(bytes[at] ?? 0) ^ (1 << random.below(8))]);
    case 1:
      return put(bytes, at, [random.below(256)]);
    case 2:
      return bytes.slice(0, at);
    case 3:
      return splice(bytes, from, to, []);
    case 4:
      return splice(
        bytes,
        at,
        at,
        Array.from({ length: 1 + random.below(12) }, () => random.below(256)),
      );
    case 5:
      return splice(bytes, at, at, bytes.slice(from, to));
    case 6: {
      const [other, end] = range(to - from + 1);
      const first = bytes.slice(from, to);
      return put(put(bytes, from, bytes.slice(other, end)), other, first);
    }
    default: {
      const size = [2, 4, 8][random.below(3)] ?? 2;
      const old = BigInt(`0x${[...bytes.slice(at, at + size)].reverse().map(hex).join('') || '0'}`);
      const values = [...EDGES, old + 1n, old - 1n, old * 2n, BigInt(bytes.length), BigInt(at)];
      let value = BigInt.asUintN(64, values[random.below(values.length)] ?? 0n);
      const digits: number[] = [];
      for (; digits.length < size; value >>= 8n) digits.push(Number(value & 0xffn));
      return put(bytes, at, digits);
    }
  }
}

const hex = (byte: number) => byte.toString(16).padStart(2, '0');

/** As long as before. */
function put(bytes: Uint8Array<ArrayBuffer>, at: number, part: Iterable<number>): Uint8Array<ArrayBuffer> {
  const copy = bytes.slice();
  copy.set([...part].slice(0, Math.max(0, bytes.length - at)), Math.min(at, bytes.length));
  return copy;
}

function splice(bytes: Uint8Array, from: number, to: number, part: ArrayLike<number>): Uint8Array<ArrayBuffer> {
  const made = new Uint8Array(bytes.length - (to - from) + part.length);
  made.set(bytes.subarray(0, from));
  made.set(part, from);
  made.set(bytes.subarray(to), from + part.length);
  return made;
}
