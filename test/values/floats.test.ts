// Sixteen-bit floats: every one of them widened exactly, and float32 rounded to the nearest of them, ties to even.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { findNonFinite, type HalfDtype, LARGEST, narrowFloats, widen } from '../../src/values/floats.ts';
import { widenedFast } from '../../src/values/widen.ts';
import { EVERY_CASE } from '../host.ts';

const ALL = Uint16Array.from({ length: 65536 }, (_, i) => i);

/** By the formats' definitions, in float64. */
function decoded(dtype: HalfDtype, half: number): number {
  const [exponentBits, fractionBits] = dtype === 'F16' ? [5, 10] : [8, 7];
  const bias = 2 ** (exponentBits - 1) - 1;
  const sign = half >> 15 ? -1 : 1;
  const exponent = (half >> fractionBits) & (2 ** exponentBits - 1);
  const fraction = half & (2 ** fractionBits - 1);
  if (exponent === 2 ** exponentBits - 1) return fraction ? Number.NaN : sign * Number.POSITIVE_INFINITY;
  if (exponent === 0) return sign * fraction * 2 ** (1 - bias - fractionBits);
  return sign * (1 + fraction * 2 ** -fractionBits) * 2 ** (exponent - bias);
}

const widened = (dtype: HalfDtype, halves: Uint16Array<ArrayBuffer>) => {
  const into = new Float32Array(halves.length + 3).fill(7);
  widen(dtype, halves, into);
  expect([...into.subarray(halves.length)]).toEqual([7, 7, 7]);
  return into.subarray(0, halves.length);
};

const narrowed = (dtype: HalfDtype, floats: Float32Array<ArrayBuffer>) => {
  const into = new Uint16Array(floats.length);
  narrowFloats(dtype, floats, into);
  return into;
};

describe.each(['F16', 'BF16'] as const)('%s', (dtype) => {
  /** Finite values from 0 on, in order: the bits count them. */
  const values = [...ALL].map((half) => decoded(dtype, half)).filter((value, half) => half < 32768 && value < Infinity);

  test('each of the 65536 widens to its value, and comes back', () => {
    const wide = widened(dtype, ALL);
    for (const half of ALL) if (!Object.is(wide[half], decoded(dtype, half))) expect.fail(`${half}: ${wide[half]}`);
    const back = narrowed(dtype, wide);
    for (const half of ALL) {
      const same = Number.isNaN(decoded(dtype, half))
        ? Number.isNaN(decoded(dtype, back[half] ?? 0))
        : back[half] === half;
      if (!same) expect.fail(`${half} came back as ${back[half]}`);
    }
    expect(values.at(-1)).toBe(LARGEST[dtype]);
  });

  test.each([0, 1, 2, 3, 5])('%i of them, odd numbers too, and special ones in every place', (length) => {
    for (let special = -1; special < length; special++) {
      const halves = Uint16Array.from({ length }, (_, i) => (i === special ? 0xff80 : 0x3c01 + i));
      expect([...widened(dtype, halves)]).toEqual([...halves].map((half) => decoded(dtype, half)));
    }
  });

  test('many at once have the bits of each by itself, NaN too, in any number, and at the end of the memory that they widen into', () => {
    const one = new Float32Array(1);
    const bits = new Uint32Array(one.buffer);
    const alone = Uint32Array.from(ALL, (half) => {
      widen(dtype, Uint16Array.of(half), one);
      return bits[0] ?? 0;
    });
    expect(widenedFast(dtype === 'F16' ? 'f16' : 'bf16', ALL, new Uint32Array(ALL.length))).toBe(true);
    for (const length of [ALL.length, 40_001, 32_768 + 1, 1031, 1024, 1023, 7]) {
      const start = ALL.length - length;
      const memory = new Uint16Array(2 * length);
      // At a multiple of 4 bytes, as a reader has it.
      const halves = length % 2 === 0 ? memory.subarray(length) : new Uint16Array(length);
      halves.set(ALL.subarray(start));
      const into = new Float32Array(memory.buffer);
      widen(dtype, halves, into);
      expect(Buffer.compare(Buffer.from(memory.buffer), Buffer.from(alone.buffer, 4 * start)), `${length}`).toBe(0);
    }
  });

  test('float32 goes to the nearest, ties to the even one, and past the largest to infinity', () => {
    const at = (half: number) => values[half] ?? 2 * (values[half - 1] ?? 0) - (values[half - 2] ?? 0);
    const nearest = (value: number): number => {
      if (Number.isNaN(value)) return Number.NaN;
      const size = Math.abs(value);
      let [low, high] = [0, values.length];
      while (high - low > 1) {
        const middle = (low + high) >> 1;
        if (at(middle) <= size) low = middle;
        else high = middle;
      }
      const [below, above] = [size - at(low), at(low + 1) - size];
      const chosen = size === Infinity || above < below || (above === below && low % 2 === 1) ? low + 1 : low;
      return (value < 0 || Object.is(value, -0) ? 32768 : 0) + Math.min(chosen, values.length);
    };
    const check = (value: number) => {
      const [half = 0] = narrowed(dtype, Float32Array.of(value));
      const wanted = nearest(Math.fround(value));
      if (Number.isNaN(wanted)) expect(decoded(dtype, half)).toBeNaN();
      else if (half !== wanted) expect.fail(`${value} became ${half}, not ${wanted}`);
    };
    // Between every two neighbours: half way, and the float32 on either side of it.
    const bits = new Uint32Array(1);
    const float = new Float32Array(bits.buffer);
    for (let low = 0; low < values.length; low += EVERY_CASE ? 1 : 7) {
      const middle = (at(low) + at(low + 1)) / 2;
      float[0] = middle;
      for (const step of [-1, 0, 1]) {
        const neighbour = new Float32Array(Uint32Array.of(Math.max(0, (bits[0] ?? 0) + step)).buffer)[0] ?? 0;
        check(neighbour);
        check(-neighbour);
      }
    }
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 2 ** 32 - 1 }), (word) => {
        check(new Float32Array(Uint32Array.of(word).buffer)[0] ?? 0);
      }),
      { seed: 1, numRuns: EVERY_CASE ? 1e6 : 5000 },
    );
    for (const value of [0, -0, Infinity, -Infinity, Number.NaN, 3.4028234663852886e38]) check(value);
    // A NaN whose fraction lies in the lower half alone.
    check(new Float32Array(Uint32Array.of(0x7f800001).buffer)[0] ?? 0);
  });
});

test('the first infinite or NaN element is found, wherever it is', () => {
  for (let length = 0; length < 10; length++) {
    const finite = Float32Array.from({ length }, (_, i) => [0, -0, 1e-45, 3.4e38, -3.4e38][i % 5] ?? 0);
    expect(findNonFinite(finite)).toBe(-1);
    for (let at = 0; at < length; at++) {
      for (const value of [Infinity, -Infinity, Number.NaN]) {
        const one = finite.slice();
        one[at] = value;
        if (at + 2 < length) one[at + 2] = value;
        expect(findNonFinite(one)).toBe(at);
      }
    }
  }
});
