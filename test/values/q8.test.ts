// Blocks of a scale and bytes: how near they are, that widened values are narrowed to themselves again, and pieces that end
// anywhere. What ggml's own reference makes of values: test/formats/gguf/encode.test.ts.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { narrowQ8, Q8_BLOCK, scalesOfQ8, widenQ8 } from '../../src/values/q8.ts';
import { wholeBlocks } from '../../src/values/tensor-source.ts';
import { EVERY_CASE } from '../host.ts';

const runs = { seed: 17, numRuns: EVERY_CASE ? 2000 : 200 };
const block = fc
  .tuple(
    fc.float32Array({ minLength: 32, maxLength: 32, noNaN: true, min: -1, max: 1 }),
    fc.integer({ min: -30, max: 15 }),
  )
  .map(([values, exponent]) => Float32Array.from(values, (value) => value * 2 ** exponent));
const some = fc.array(block, { minLength: 1, maxLength: 4 }).map((blocks) => {
  const all = new Float32Array(blocks.length * Q8_BLOCK.elements);
  for (const [i, values] of blocks.entries()) all.set(values, i * Q8_BLOCK.elements);
  return all;
});

test('a value is half a step of its block away, at most, and its scale’s rounding', () => {
  fc.assert(
    fc.property(some, (values) => {
      const bytes = narrowQ8(values);
      const [wide, scales] = [widenQ8(bytes), scalesOfQ8(bytes)];
      expect(bytes).toHaveLength((values.length / Q8_BLOCK.elements) * Q8_BLOCK.bytes);
      for (const [i, value] of values.entries()) {
        const scale = scales[Math.floor(i / Q8_BLOCK.elements)] ?? 0;
        // A normal scale is off by 2^-11 of itself, a subnormal one by 2^-25; 127 steps of it.
        const off = 0.5 * scale + 127 * Math.max(2 ** -25, scale * 2 ** -11);
        expect(Math.abs((wide[i] ?? 0) - value)).toBeLessThanOrEqual(off * (1 + 2 ** -10));
      }
    }),
    runs,
  );
});

test('what was widened is narrowed to the same values', () => {
  fc.assert(
    fc.property(some, (values) => {
      const wide = widenQ8(narrowQ8(values));
      expect(widenQ8(narrowQ8(wide))).toEqual(wide);
    }),
    runs,
  );
});

test('pieces that end anywhere come in whole blocks', async () => {
  const values = Float32Array.from({ length: 32 * 5 }, (_, i) => i);
  async function* cut(ends: readonly number[]) {
    for (const [i, end] of [...ends, values.length].entries()) yield values.slice(i === 0 ? 0 : ends[i - 1], end);
  }
  for (const ends of [[], [1], [32], [31, 33], [5, 6, 7, 120], [64, 64, 159]]) {
    const found: number[] = [];
    for await (const piece of wholeBlocks(cut(ends), Q8_BLOCK.elements)) {
      expect(piece.length % Q8_BLOCK.elements).toBe(0);
      found.push(...piece);
    }
    expect(found, ends.join()).toEqual([...values]);
  }
});
