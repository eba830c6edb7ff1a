// Blocks of four bits: the nearest of the values that a block has, its levels and whole numbers in the places where ggml and
// bitsandbytes have them, and that widened values are narrowed to themselves again.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { at } from '../../src/util/at.ts';
import { NF4_LEVELS, narrowNF4, widenNF4 } from '../../src/values/nf4.ts';
import { narrowQ4, widenQ4 } from '../../src/values/q4.ts';
import { CODECS, STORED_BLOCKS } from '../../src/values/stored-elements.ts';
import { EVERY_CASE } from '../host.ts';
import { decoded, GGML_BLOCKS, GGML_ELEMENTS, randomBlocks } from './ggml-decoder.ts';

const runs = { seed: 29, numRuns: EVERY_CASE ? 2000 : 200 };
const block = fc
  .tuple(
    fc.float32Array({ minLength: 64, maxLength: 64, noNaN: true, min: -1, max: 1 }),
    fc.integer({ min: -130, max: 15 }),
  )
  .map(([values, exponent]) => Float32Array.from(values, (value) => value * 2 ** exponent));
const some = fc.array(block, { minLength: 1, maxLength: 4 }).map((blocks) => {
  const all = new Float32Array(64 * blocks.length);
  for (const [i, values] of blocks.entries()) all.set(values, 64 * i);
  return all;
});

const bits = ({ buffer, byteOffset, length }: Float32Array) => [...new Uint32Array(buffer, byteOffset, length)];

test.each(['q8_0', 'q4_0', 'nf4'] as const)('what was widened from %s is narrowed to the same bits', (element) => {
  const { narrow, widen } = CODECS[element];
  fc.assert(
    fc.property(some, (values) => {
      const bytes = narrow(values);
      expect(bytes).toHaveLength((values.length / STORED_BLOCKS[element].elements) * STORED_BLOCKS[element].bytes);
      const wide = widen(bytes, values.length);
      // The sign of a zero is no matter in Q8_0, whose scales are positive.
      const again = widen(narrow(wide), values.length);
      if (element === 'q8_0') expect(again).toEqual(wide);
      else expect(bits(again)).toEqual(bits(wide));
    }),
    runs,
  );
});

test('of NF4 each value is the nearest level, times the largest size of its block', () => {
  const levels = Float32Array.from(NF4_LEVELS);
  expect([...levels]).toEqual(NF4_LEVELS);
  fc.assert(
    fc.property(some, (values) => {
      const wide = widenNF4(narrowNF4(values));
      for (const [i, value] of values.entries()) {
        const first = 64 * Math.floor(i / 64);
        const scale = Math.max(...values.subarray(first, first + 64).map(Math.abs));
        if (scale < 2 ** -120) {
          expect(wide[i]).toBe(0);
          continue;
        }
        const distance = Math.min(...levels.map((level) => Math.abs(level * scale - value)));
        expect(Math.abs(at(wide, i) - value)).toBeLessThanOrEqual(distance + scale * 2 ** -22);
        expect(levels.some((level) => Math.fround(level * scale) === wide[i])).toBe(true);
      }
    }),
    runs,
  );
});

test('of NF4 the first value of a pair is in the upper half, and none of its products is subnormal', () => {
  const values = new Float32Array(64);
  values.set([-3, 3, 0, 0.6]);
  const bytes = narrowNF4(values);
  expect([...bytes.subarray(4, 7)]).toEqual([0x0f, 0x79, 0x77]);
  expect(new DataView(bytes.buffer).getFloat32(0, true)).toBe(3);
  expect([...widenNF4(bytes).subarray(0, 4)]).toEqual([-3, 3, 0, Math.fround(3 * Math.fround(0.16093020141124725))]);
  expect(Math.min(...NF4_LEVELS.map(Math.abs).filter((level) => level > 0)) * 2 ** -120).toBeGreaterThan(2 ** -126);
});

test('of Q4_0 the largest value is 8 steps below zero, and the second half of a block in the upper halves', () => {
  const values = new Float32Array(32);
  // Halves of steps are rounded up, as ggml has it; above 7 there is nothing.
  values.set([4, -4, 1, -0.25, 0.24], 0);
  values.set([-2, 0.75], 16);
  const bytes = narrowQ4(values);
  // 4 / -8 as a binary16.
  expect([...bytes.subarray(0, 2)]).toEqual([0x00, 0xb8]);
  expect([...bytes.subarray(2, 8)]).toEqual([0xc0, 0x7f, 0x86, 0x89, 0x88, 0x88]);
  expect([...widenQ4(bytes).subarray(0, 5)]).toEqual([4, -3.5, 1, -0.5, -0]);
});

test.each(GGML_ELEMENTS)('%s is decoded as ggml’s reference does, block by block and in parts', (element) => {
  const { elements, bytes: size } = GGML_BLOCKS[element];
  expect(STORED_BLOCKS[element]).toEqual({ elements, bytes: size });
  const { widen, isFinite: isWhole } = CODECS[element];
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 20 }), fc.nat(), (count, seed) => {
      const bytes = randomBlocks(element, count, seed);
      const values = decoded(element, bytes);
      expect(bits(widen(bytes, values.length))).toEqual(bits(values));
      expect(isWhole(bytes)).toBe(true);
      const last = bytes.slice(-size);
      expect(bits(widen(last, elements - 5))).toEqual(bits(values.slice(-elements).subarray(0, -5)));
      // The highest exponent in any of its scales.
      for (const at of GGML_BLOCKS[element].scales) {
        const bad = bytes.slice();
        bad[(count - 1) * size + at + 1] = 0x7c;
        expect(isWhole(bad)).toBe(false);
      }
    }),
    { seed: 3, numRuns: EVERY_CASE ? 300 : 15 },
  );
});
