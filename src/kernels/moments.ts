// Rounding by chance of moments that are kept in bf16: up in as many of 2^16 cases as the sixteen bits that go say, so that
// the mean of what is kept is the float (Gupta et al. 2015, "Deep Learning with Limited Numerical Precision"). To nearest, a
// second moment would stand still where a step changes it by less than half of a step of bf16.
//
// Invariant: chance is a hash of the step's key and of the element's number among all that train; no state, and nothing of
// chunks, tiers or threads. The hash is that of dropout (splitmix32 of util/random.ts, a bijection of 32-bit words, chained).

import { at } from '../util/at.ts';
import { splitmix32 } from '../util/random.ts';
import { ROUNDING } from './step-control.ts';

/** Words of a step's key. */
export type RoundingKey = readonly [number, number];

/** As it lies in `hyper`, sixteen bits in each number: any are a float exactly. */
export const keyNumbers = (key: RoundingKey): number[] => key.flatMap((word) => [word & 0xffff, word >>> 16]);

/** As it is read from there. */
export function keyIn(hyper: ArrayLike<number>): RoundingKey {
  const half = (i: number) => at(hyper, ROUNDING.roundingKey + i);
  return [(half(0) | (half(1) << 16)) >>> 0, (half(2) | (half(3) << 16)) >>> 0];
}

/** The chance of an element: the lower half of the word for its first moment, the upper half for its second. */
export const chanceOf = ([first, last]: RoundingKey, element: number): number =>
  splitmix32(splitmix32(splitmix32(first) ^ element) ^ last);

/** The upper sixteen bits of a float32, rounded by a chance below 2^16. A NaN stays one, and infinity what it is. */
export function roundedByChance(bits: number, chance: number): number {
  const size = bits & 0x7fffffff;
  if (size >= 0x7f800000) return (bits >>> 16) | (size > 0x7f800000 ? 0x40 : 0);
  return (bits + chance) >>> 16;
}

/** Floats of both moments to bf16, in the order of the elements from `first` on. */
export function roundMoments(
  key: RoundingKey,
  first: number,
  floats: readonly [Float32Array<ArrayBuffer>, Float32Array<ArrayBuffer>],
  into: readonly [Uint16Array<ArrayBuffer>, Uint16Array<ArrayBuffer>],
): void {
  const [m, v] = floats.map(({ buffer, byteOffset, length }) => new Uint32Array(buffer, byteOffset, length)) as [
    Uint32Array,
    Uint32Array,
  ];
  for (let i = 0; i < m.length; i++) {
    const chance = chanceOf(key, first + i);
    into[0][i] = roundedByChance(at(m, i), chance & 0xffff);
    into[1][i] = roundedByChance(at(v, i), chance >>> 16);
  }
}
