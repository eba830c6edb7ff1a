// Weights in llama.cpp's order: what was done can be undone, whatever the pieces and the bands.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { arranged, arrangedShape, type TensorArrangement } from '../../../src/formats/gguf/arrange.ts';
import { sourceOf } from '../../../src/values/tensor-source.ts';

async function rearranged(
  all: Float32Array<ArrayBuffer>,
  shape: readonly number[],
  arrangement: TensorArrangement | undefined,
  pieceElements: number,
  bandElements: number,
): Promise<number[]> {
  const found: number[] = [];
  const source = sourceOf(new Map([['x', all]]), pieceElements);
  for await (const piece of arranged(source, 'x', shape, arrangement, bandElements)) found.push(...piece);
  return found;
}

const counted = (shape: readonly number[]) =>
  Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, (_, i) => i);
const small = fc.integer({ min: 1, max: 9 });
const seeded = { seed: 3, numRuns: 300 } as const;

test('transposed: element [i, j] is [j, i]', async () => {
  await fc.assert(
    fc.asyncProperty(small, small, small, fc.integer({ min: 1, max: 100 }), async (rows, columns, pieces, band) => {
      const shape = [rows, columns];
      const found = await rearranged(counted(shape), shape, { kind: 'transposed' }, pieces, band);
      expect(arrangedShape({ kind: 'transposed' }, shape)).toEqual([columns, rows]);
      expect(found).toEqual(
        Array.from({ length: rows * columns }, (_, i) => (i % rows) * columns + Math.floor(i / rows)),
      );
    }),
    seeded,
  );
});

test('paired: rows i and i + half of each head come to lie beside each other, and back', async () => {
  await fc.assert(
    fc.asyncProperty(small, small, small, fc.integer({ min: 1, max: 50 }), async (heads, half, columns, pieces) => {
      const shape = [heads * 2 * half, columns];
      const all = counted(shape);
      const found = await rearranged(all, shape, { kind: 'paired', heads }, pieces, 1);
      const undone = new Float32Array(all.length);
      for (let head = 0; head < heads; head++) {
        for (let row = 0; row < 2 * half; row++) {
          const [pair, second] = [row % half, row >= half ? 1 : 0];
          const from = (head * 2 * half + 2 * pair + second) * columns;
          undone.set(found.slice(from, from + columns), (head * 2 * half + row) * columns);
        }
      }
      expect(undone).toEqual(all);
    }),
    seeded,
  );
});

test('gains from 0, and what stays as it is', async () => {
  expect(await rearranged(counted([3]), [3], { kind: 'plus one' }, 2, 1)).toEqual([1, 2, 3]);
  expect(await rearranged(counted([3]), [3], undefined, 2, 1)).toEqual([0, 1, 2]);
});
