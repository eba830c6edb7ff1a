// Where things lie on a report's chunk map, whatever part of the step is in view.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ChunkHistory } from '../../src/engine/observe/chunk-codes.ts';
import type { ChunkList } from '../../src/memory/plan/trace.ts';
import { contentsOf, kindOf } from '../../src/report/chunk-words.ts';
import { Geometry, GUTTER } from '../../src/report/page/geometry.ts';
import { at } from '../../src/util/at.ts';

const historyOf = (kinds: readonly number[], moments: number, activations = 0): ChunkHistory => {
  let first = 0;
  const lists = kinds.map((chunks, i): ChunkList => {
    const list = { kind: at(['parameter', 'gradient', 'moment1', 'moment2'] as const, i), first, chunks };
    first += chunks;
    return list;
  });
  return {
    chunkBytes: 1,
    tensors: Array.from({ length: first }, (_, chunk) => Array.from({ length: chunk }, (__, i) => `t${i}`)),
    lists,
    phases: [{ name: 'forward', first: 0 }],
    operators: Array<number>(moments).fill(0),
    labels: ['linear'],
    chunks: Array.from({ length: first }, () => [7, moments]),
    staged: [0, moments],
    slots: first,
    staging: 0,
    stagingBytes: 0,
    activations: {
      tensors: Array.from({ length: activations }, (_, i) => ({ name: `a${i}`, bytes: 1 })),
      codes: Array.from({ length: activations }, () => [27, moments]),
      working: [0, moments],
    },
    activationBytes: 0,
    otherBytes: 0,
  };
};

const histories = fc
  .tuple(
    fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 1, maxLength: 4 }),
    fc.integer({ min: 1, max: 400 }),
    fc.nat(200),
  )
  .map(([kinds, moments, activations]) => historyOf(kinds, moments, activations));

test('zoomed anywhere: what is in view is of the step, ends at the edges, and each point is the moment drawn there', () => {
  const part = fc.double({ min: -500, max: 900, noNaN: true });
  fc.assert(
    fc.property(
      histories,
      fc.integer({ min: 200, max: 2000 }),
      fc.array(fc.tuple(part, part)),
      (history, width, looks) => {
        const geometry = new Geometry(history);
        geometry.right = width;
        for (const [from, to] of [[0, geometry.moments] as const, ...looks]) {
          geometry.look(from, to);
          expect(geometry.from).toBeGreaterThanOrEqual(0);
          expect(geometry.to).toBeLessThanOrEqual(geometry.moments + 1e-9);
          expect(geometry.to - geometry.from).toBeGreaterThanOrEqual(Math.min(8, geometry.moments) - 1e-9);
          expect(geometry.x(geometry.from)).toBeCloseTo(GUTTER);
          expect(geometry.x(geometry.to)).toBeCloseTo(width);
          const m = geometry.held(Math.ceil(geometry.from));
          expect(geometry.momentAt(geometry.x(m + 0.5))).toBe(m);
          expect(geometry.held(geometry.momentAt(-1e6))).toBe(geometry.momentAt(-1e6));
        }
      },
    ),
    { numRuns: 100, seed: 7 },
  );
});

test('every chunk and every activation has a row of its own, and the row that is pointed at is the one drawn there', () => {
  fc.assert(
    fc.property(histories, (history) => {
      const geometry = new Geometry(history);
      const { tops, rowHeight, height } = geometry;
      expect(tops.length).toBe(history.chunks.length + history.activations.tensors.length);
      tops.forEach((top, chunk) => {
        expect(geometry.chunkAt(top + rowHeight / 2)).toBe(chunk);
        if (chunk > 0) expect(top).toBeGreaterThanOrEqual(tops[chunk - 1]! + rowHeight);
        expect(top + rowHeight).toBeLessThan(height);
      });
    }),
    { numRuns: 40, seed: 8 },
  );
});

test('a chunk is named by its kind and number, its contents by their first names', () => {
  const history = historyOf([2, 4], 3);
  expect(kindOf(history, 1)).toEqual({ kind: 'parameter', index: 1, of: 2 });
  expect(kindOf(history, 5)).toEqual({ kind: 'gradient', index: 3, of: 4 });
  expect(kindOf(history, 6)).toBe(undefined);
  expect([0, 3, 5].map((chunk) => contentsOf(history, chunk, (name) => name.toUpperCase()))).toEqual([
    '',
    'T0; T1; T2',
    'T0; T1; T2; 2 more',
  ]);
});
