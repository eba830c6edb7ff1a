// Sums over values: those of their definition, whatever the pieces, their order and how values are stored.

import { describe, expect, test } from 'vitest';
import { Random } from '../../src/util/random.ts';
import { narrowFloats, widen } from '../../src/values/floats.ts';
import { CODECS, isNarrow, STORED_BLOCKS, type StoredElement } from '../../src/values/stored-elements.ts';
import { ValueSum } from '../../src/values/value-sum.ts';

type Floats = Float32Array<ArrayBuffer>;

const bytesOf = ({ buffer, byteOffset, byteLength }: Floats | Uint16Array<ArrayBuffer>) =>
  new Uint8Array(buffer, byteOffset, byteLength);

/** By the definition. */
function defined(values: Floats): string {
  const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
  let [all, byIndex] = [0n, 0n];
  for (const [i, each] of bits.entries()) {
    all += BigInt(each);
    byIndex += BigInt(i) * BigInt(each);
  }
  return [all, byIndex].map((sum) => BigInt.asUintN(64, sum).toString(16).padStart(16, '0')).join('');
}

function sumOf(element: StoredElement, pieces: readonly (readonly [number, Uint8Array<ArrayBuffer>])[]): string {
  const sum = new ValueSum();
  for (const [first, bytes] of pieces) sum.add(first, bytes, element);
  return sum.hex();
}

const random = new Random(5, 'values');
/** Large indices times large bits: sums beyond 2^64 are met. */
const made = (count: number): Floats => Float32Array.from({ length: count }, () => random.normal() * 1e30);

describe.each([0, 1, 3, 4, 5, 8, 31, 32_768, 65_537, 200_003])('%i values', (count) => {
  test('of float32 and of sixteen bits: the same as by the definition', () => {
    const values = made(count);
    expect(sumOf('f32', [[0, bytesOf(values)]])).toBe(defined(values));
    for (const dtype of ['BF16', 'F16'] as const) {
      const [halves, floats] = [new Uint16Array(count), new Float32Array(count)];
      narrowFloats(
        dtype,
        values.map((value) => value / 1e30),
        halves,
      );
      widen(dtype, halves, floats);
      expect(sumOf(dtype === 'BF16' ? 'bf16' : 'f16', [[0, bytesOf(halves)]]), dtype).toBe(defined(floats));
    }
  });

  test('in pieces of any size and in any order', () => {
    const values = made(count);
    for (let round = 0; round < 5; round++) {
      const pieces: [number, Uint8Array<ArrayBuffer>][] = [];
      for (let at = 0; at < count; ) {
        const size = Math.min(count - at, 1 + random.below(Math.ceil(count / 2)));
        pieces.splice(random.below(pieces.length + 1), 0, [at, bytesOf(values.subarray(at, at + size))]);
        at += size;
      }
      expect(sumOf('f32', pieces)).toBe(defined(values));
    }
  });
});

test.each(Object.keys(STORED_BLOCKS).filter((name) => name !== 'f32') as StoredElement[])('blocks of %s', (element) => {
  const { elements, bytes } = STORED_BLOCKS[element];
  const blocks = 7;
  const stored = Uint8Array.from({ length: Math.ceil((blocks * bytes) / 4) * 4 }, () => random.below(256));
  const own = stored.subarray(0, blocks * bytes);
  if (!isNarrow(element)) expect.fail(element);
  const values = CODECS[element].widen(own, blocks * elements).slice();
  expect(sumOf(element, [[0, own]])).toBe(defined(values));
});

test('one value, or two that change places, make another sum', () => {
  const values = made(1000);
  const sums = new Set([sumOf('f32', [[0, bytesOf(values)]])]);
  for (let i = 0; i < 100; i++) {
    const other = values.slice();
    const at = i * 9;
    if (i % 2 === 0) new Uint32Array(other.buffer)[at]! ^= 1 << (i % 32);
    else [other[at], other[at + 1]] = [other[at + 1] ?? 0, other[at] ?? 0];
    const sum = sumOf('f32', [[0, bytesOf(other)]]);
    expect(sums.has(sum)).toBe(false);
    sums.add(sum);
  }
});
