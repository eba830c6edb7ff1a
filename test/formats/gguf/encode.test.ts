// Values as the bytes of GGUF tensors: exact where the type holds them, Q8_0 as a slow reference has it block by block; what has no
// place is refused.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { encoded } from '../../../src/formats/gguf/encode.ts';
import { type TensorType, tensorBytes, typeFor } from '../../../src/formats/gguf/tensor-types.ts';
import { sourceOf } from '../../../src/values/tensor-source.ts';
import { halfAt } from './reader.ts';

async function bytesOf(type: TensorType, floats: Float32Array<ArrayBuffer>, pieceElements = 1000): Promise<Uint8Array> {
  const pieces = sourceOf(new Map([['x', floats]]), pieceElements).read('x');
  const all: number[] = [];
  for await (const part of encoded(type, pieces, { path: 'f', name: 'x' })) all.push(...part);
  return Uint8Array.from(all);
}

/** All binary16, in order: the nearest is searched for, ties to the even one. */
const halves = Array.from({ length: 0x7c00 }, (_, bits) => {
  const view = new DataView(new ArrayBuffer(2));
  view.setUint16(0, bits, true);
  return halfAt(view, 0);
});

function nearestHalf(x: number): number {
  let [low, high] = [0, halves.length - 1];
  while (high - low > 1) {
    const middle = Math.floor((low + high) / 2);
    if ((halves[middle] ?? 0) <= x) low = middle;
    else high = middle;
  }
  const [a, b] = [halves[low] ?? 0, halves[high] ?? 0];
  if (x - a === b - x) return low % 2 === 0 ? low : high;
  return x - a < b - x ? low : high;
}

/** As ggml's quantize_row_q8_0_ref, one value after the other in float32. */
function slowQ8(floats: Float32Array): number[] {
  const bytes: number[] = [];
  for (let begin = 0; begin < floats.length; begin += 32) {
    const block = [...floats.subarray(begin, begin + 32)];
    const scale = Math.fround(Math.max(...block.map(Math.abs)) / 127);
    const inverse = scale ? Math.fround(1 / scale) : 0;
    const half = nearestHalf(scale);
    bytes.push(half & 255, half >> 8);
    for (const x of block) {
      const product = Math.fround(x * inverse);
      // C's roundf.
      const rounded = product < 0 ? -Math.floor(-product + 0.5) : Math.floor(product + 0.5);
      bytes.push(rounded & 255);
    }
  }
  return bytes;
}

const blocks = fc
  .array(fc.array(fc.float({ noNaN: true, min: -8e6, max: 8e6 }), { minLength: 32, maxLength: 32 }), {
    minLength: 1,
    maxLength: 5,
  })
  .map((all) => Float32Array.from(all.flat()));

describe('Q8_0', () => {
  test('is ggml’s, of any values in pieces of any size', async () => {
    await fc.assert(
      fc.asyncProperty(
        blocks,
        fc.integer({ min: 1, max: 100 }),
        fc.integer({ min: -40, max: 0 }),
        async (all, pieces, power) => {
          const floats = all.map((x) => x * 2 ** power);
          expect([...(await bytesOf('Q8_0', floats, pieces))]).toEqual(slowQ8(floats));
        },
      ),
      { seed: 7, numRuns: 200 },
    );
  });

  test('of zeros, of halves of steps, of values too small for a scale', async () => {
    expect([...(await bytesOf('Q8_0', new Float32Array(32)))]).toEqual(new Array(34).fill(0));
    const steps = Float32Array.from({ length: 32 }, (_, i) => (i === 0 ? 127 : i - 16.5));
    const view = new DataView((await bytesOf('Q8_0', steps)).buffer);
    expect(halfAt(view, 0)).toBe(1);
    // Away from 0.
    expect(view.getInt8(2 + 1)).toBe(-16);
    expect(view.getInt8(2 + 31)).toBe(15);
    expect([...(await bytesOf('Q8_0', new Float32Array(32).fill(1e-30))).subarray(0, 2)]).toEqual([0, 0]);
  });

  test('has no place for what its scale cannot reach', async () => {
    const floats = new Float32Array(96).fill(1);
    floats[70] = -8.4e6;
    await expect(bytesOf('Q8_0', floats, 40)).rejects.toThrow(
      'f: x has -8400000 at element 70, past the largest of Q8_0, 8319008; save it as BF16 or F32',
    );
  });
});

test('F32 is what it was; F16 is the nearest, and refuses what is past its largest', async () => {
  const floats = Float32Array.from({ length: 77 }, (_, i) => (i - 30) * 1.1 ** i);
  expect(new Float32Array((await bytesOf('F32', floats, 9)).buffer)).toEqual(floats);
  const found = new Uint16Array((await bytesOf('F16', floats, 9)).buffer);
  for (const [i, x] of floats.entries()) {
    expect((found[i] ?? 0) & 0x7fff).toBe(nearestHalf(Math.abs(x)));
  }
  await expect(bytesOf('F16', Float32Array.from([1, 65520]))).rejects.toThrow(
    'x has 65520 at element 1, past the largest F16',
  );
});

test('which type a tensor has', () => {
  const cases = [
    ['Q8_0', 'blk.0.ffn_up.weight', [7, 64], 'Q8_0'],
    ['Q8_0', 'blk.0.ffn_up.weight', [64, 33], 'F16'],
    ['Q8_0', 'blk.0.ffn_up.weight', [1, 1], 'F16'],
    ['Q8_0', 'blk.0.ffn_up.bias', [64], 'F32'],
    ['F16', 'blk.0.attn_norm.weight', [64], 'F32'],
    ['BF16', 'position_embd.weight', [64, 64], 'F32'],
    ['BF16', 'output.weight', [5, 3], 'BF16'],
  ] as const;
  for (const [type, name, shape, wanted] of cases) expect(typeFor(type, name, shape), name).toBe(wanted);
  expect(tensorBytes('Q8_0', 64)).toBe(68);
});
