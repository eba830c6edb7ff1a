// Parts of an arena: two ranges share one where they share a byte, and nowhere else.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { ArenaParts } from '../../src/graph/arena-parts.ts';

const ranges = fc.array(
  fc.tuple(fc.nat(60), fc.integer({ min: 1, max: 20 })).map(([from, bytes]) => ({ from, to: from + bytes })),
  { minLength: 1, maxLength: 12 },
);

it('are shared by ranges that share bytes', () => {
  fc.assert(
    fc.property(ranges, ranges, (placed, others) => {
      const parts = new ArenaParts(placed.flatMap(({ from, to }) => [from, to]));
      const within = ({ from, to }: { from: number; to: number }) => parts.within(from, to);
      for (const one of placed) {
        const { first, end } = within(one);
        expect(first).toBeLessThan(end);
        expect(end).toBeLessThanOrEqual(parts.count);
        for (const other of placed) {
          const { first: otherFirst, end: otherEnd } = within(other);
          expect(first < otherEnd && otherFirst < end).toBe(one.from < other.to && other.from < one.to);
        }
      }
      // One that begins and ends anywhere has all parts that it has a byte of.
      const bytes = [...new Set(placed.flatMap(({ from, to }) => [from, to]))].sort((a, b) => a - b);
      for (const other of others) {
        const { first, end } = within(other);
        const met = bytes.slice(1).flatMap((to, i) => ((bytes[i] ?? 0) < other.to && other.from < to ? [i] : []));
        expect(end > first ? [first, end - 1] : []).toEqual(met.length > 0 ? [met[0], met.at(-1)] : []);
      }
    }),
    { seed: 3, numRuns: 300 },
  );
});
