// The number under which a dispatch's bind group is kept: other slots have another number, or none, however many there are.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { slotKey } from '../../src/engine/run/binding.ts';

/** The slot of a chunk is its number. */
const keyOf = (chunks: readonly number[], slots: number) =>
  slotKey(
    chunks.map((chunk) => ['x', { chunk }] as const),
    (chunk) => chunk,
    slots,
  );

test('two that differ in one slot have different numbers, or none', () => {
  const drawn = fc
    .tuple(fc.integer({ min: 2, max: 100_000 }), fc.integer({ min: 1, max: 6 }))
    .chain(([slots, operands]) => {
      const slot = fc.integer({ min: 0, max: slots - 1 });
      const all = fc.array(slot, { minLength: operands, maxLength: operands });
      return fc.tuple(fc.constant(slots), all, fc.nat(operands - 1), slot);
    });
  fc.assert(
    fc.property(drawn, ([slots, chunks, which, other]) => {
      fc.pre(chunks[which] !== other);
      const key = keyOf(chunks, slots);
      const changed = keyOf(chunks.with(which, other), slots);
      if (key !== undefined) expect(changed).not.toBe(key);
    }),
    { seed: 1, numRuns: 1000 },
  );
});

test('five operands over 2,000 slots are more than a float64 tells apart', () => {
  const last = [1999, 1999, 1999, 1999, 1999];
  expect(keyOf(last, 2000)).toBeUndefined();
  expect(keyOf([0, 0, 0, 0, 7], 2000)).toBe(7);
});
