// Sums of float32 in WebAssembly: the bits of additions that are rounded to f32 one by one, whatever is added.

import { expect, it } from 'vitest';
import { Random } from '../../src/util/random.ts';
import { FloatSum } from '../../src/values/float-sum.ts';

const SPECIAL = [0, -0, Infinity, -Infinity, NaN, 2 ** -149, -(2 ** -149), 2 ** -126 - 2 ** -149, 2 ** -126];
SPECIAL.push(3.4028234663852886e38, -3.4028234663852886e38, 1, 2 ** -24, 2 ** -24 + 2 ** -47, 16777216, -16777217);

const floatsOf = ({ buffer, byteOffset, byteLength }: Uint8Array<ArrayBuffer>) =>
  new Float32Array(buffer, byteOffset, byteLength / 4);

/** Each NaN is one. */
const bitsOf = (floats: Float32Array<ArrayBuffer>) =>
  [...floats].map((value, i) => (Number.isNaN(value) ? 'NaN' : new Uint32Array(floats.buffer, floats.byteOffset)[i]));

function added(a: Float32Array<ArrayBuffer>, b: Float32Array<ArrayBuffer>): Float32Array<ArrayBuffer> {
  const sums = new FloatSum(4 * a.length + 8);
  floatsOf(sums.sum(4 * a.length)).set(a);
  floatsOf(sums.incoming(4 * a.length)).set(b);
  sums.add(4 * a.length);
  return floatsOf(sums.sum(4 * a.length)).slice();
}

it('has the bits of additions rounded one by one: of every pair of special values', () => {
  const pairs = SPECIAL.flatMap((a) => SPECIAL.map((b) => [a, b] as const));
  const [first, second] = [0, 1].map((i) => Float32Array.from(pairs, (pair) => pair[i] ?? 0));
  if (!first || !second) throw new Error('two lists');
  const expected = Float32Array.from(first, (value, i) => Math.fround(value + (second[i] ?? 0)));
  expect(bitsOf(added(first, second))).toEqual(bitsOf(expected));
});

it.each([0, 1, 3, 15, 16, 17, 31, 1000, 70_001])(
  'of %i floats of any bits, and changes nothing behind them',
  (count) => {
    const random = new Random(7, 'sums');
    const drawn = () => {
      const words = Uint32Array.from({ length: count }, () => random.uniform() * 2 ** 32);
      return new Float32Array(words.buffer);
    };
    const [first, second] = [drawn(), drawn()];
    const expected = first.map((value, i) => Math.fround(value + (second[i] ?? 0)));
    expect(bitsOf(added(first, second))).toEqual(bitsOf(expected));
    const sums = new FloatSum(4 * count + 4);
    for (const list of [sums.sum(4 * count + 4), sums.incoming(4 * count + 4)]) floatsOf(list).fill(1);
    sums.add(4 * count);
    const after = floatsOf(sums.sum(4 * count + 4));
    expect([...after.subarray(0, count)].every((value) => value === 2)).toBe(true);
    expect(after[count]).toBe(1);
  },
);
