// Strided windows: every token but the first is a target once, in order, with the text before it that the stride leaves.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { stridedWindows, windowCount } from '../../src/data/strided-windows.ts';
import { IGNORE_INDEX } from '../../src/graph/operators/cross-entropy.ts';

test('every token but the first is a target once, behind at least context - stride others of its window', () => {
  const options = fc
    .integer({ min: 1, max: 9 })
    .chain((context) => fc.tuple(fc.constant(context), fc.integer({ min: 1, max: context })));
  const property = fc.property(
    ...[fc.integer({ min: 2, max: 60 }), options, fc.integer({ min: 1, max: 4 })],
    (length, [context, stride], batch) => {
      // Each token tells where it stands.
      const tokens = Uint16Array.from({ length }, (_, i) => 100 + i);
      const batches = [...stridedWindows(tokens, { context, stride, batch })];
      const scored: number[] = [];
      for (const [n, { ids, targets, batch: rows, seq }] of batches.entries()) {
        expect(seq).toBe(context);
        expect(rows === batch || (n === batches.length - 1 && rows < batch)).toBe(true);
        for (const [at, target] of targets.entries()) {
          if (target === IGNORE_INDEX) continue;
          scored.push(target);
          // What it is predicted from is what stands before it in the text, from the window's beginning.
          const place = at % context;
          const row = ids.subarray(at - place, at + 1);
          expect([...row]).toEqual(Array.from({ length: place + 1 }, (_, i) => target - 1 - place + i));
          const isFirst = n === 0 && at < context;
          if (!isFirst) expect(place).toBeGreaterThanOrEqual(context - stride);
        }
      }
      expect(scored).toEqual([...tokens.subarray(1)]);
      expect(batches.reduce((sum, { batch: rows }) => sum + rows, 0)).toBe(windowCount(length, { context, stride }));
    },
  );
  fc.assert(property, { seed: 5, numRuns: 300 });
});

test('what leaves tokens out, or has none to predict, is refused', () => {
  const cut = (length: number, stride: number) => [
    ...stridedWindows(new Uint8Array(length), { context: 4, stride, batch: 1 }),
  ];
  expect(() => cut(9, 5)).toThrow('a stride of 5 tokens: it must be from 1 to the context, 4');
  expect(() => cut(9, 0)).toThrow('a stride of 0 tokens');
  expect(() => cut(1, 1)).toThrow('the text has 1 token; there is nothing to predict');
});
