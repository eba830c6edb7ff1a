import { describe, expect, test } from 'vitest';
import { evenWindows, RandomWindows, type TokenBatch } from '../../src/data/batches.ts';
import { HoldfastError } from '../../src/util/errors.ts';

/** Tokens that are their own positions. */
const counting = (length: number) => Int32Array.from({ length }, (_, i) => i);

/** The offset of each row; checks that ids and targets are the windows at it. */
function offsets({ ids, targets, batch, seq }: TokenBatch): number[] {
  expect([ids.length, targets.length]).toEqual([batch * seq, batch * seq]);
  return Array.from({ length: batch }, (_, row) => {
    const begin = ids[row * seq]!;
    const window = Array.from({ length: seq }, (_, t) => begin + t);
    expect([...ids.subarray(row * seq, (row + 1) * seq)]).toEqual(window);
    expect([...targets.subarray(row * seq, (row + 1) * seq)]).toEqual(window.map((id) => id + 1));
    return begin;
  });
}

describe('RandomWindows', () => {
  test('draws every offset that fits, about equally often, and no other', () => {
    const windows = new RandomWindows(counting(13), 7, 3, 1);
    const counts = new Array(10).fill(0);
    for (let i = 0; i < 200; i++) for (const begin of offsets(windows.next())) counts[begin]++;
    // 1400 draws over 10 offsets: 140 each, deviation sqrt(1400 * 0.1 * 0.9) = 11.2; 5 of them.
    for (const count of counts) expect(Math.abs(count - 140)).toBeLessThan(57);
  });

  test('with a stride, draws every multiple of it that fits, and no other', () => {
    for (const [length, fitting] of [
      [13, [0, 4, 8]],
      [12, [0, 4, 8]],
      [11, [0, 4]],
    ] as const) {
      const windows = new RandomWindows(counting(length), 50, 3, 1, 4);
      expect([...new Set(offsets(windows.next()))].sort((a, b) => a - b)).toEqual(fitting);
    }
    expect(offsets(evenWindows(counting(101), 10, 4, 4))).toEqual([0, 28, 60, 88]);
  });

  test('continues from its state through JSON', () => {
    const original = new RandomWindows(counting(1000), 4, 9, 5);
    original.next();
    const state = JSON.parse(JSON.stringify(original.state()));
    const expected = [original.next(), original.next()];
    const resumed = new RandomWindows(counting(1000), 4, 9, 77);
    resumed.restore(state);
    expect([resumed.next(), resumed.next()]).toEqual(expected);
  });

  test('another seed gives other windows', () => {
    const first = (seed: number) => offsets(new RandomWindows(counting(1000), 8, 5, seed).next());
    expect(first(1)).toEqual(first(1));
    expect(first(1)).not.toEqual(first(2));
  });

  test('takes text of exactly one window, and refuses less', () => {
    expect(offsets(new RandomWindows(counting(5), 2, 4, 0).next())).toEqual([0, 0]);
    expect(() => new RandomWindows(counting(4), 2, 4, 0)).toThrow(HoldfastError);
    expect(() => new RandomWindows(counting(4), 2, 4, 0)).toThrow(
      'training text: 4 tokens, a context of 4 needs at least 5; use a longer text or a context of at most 3',
    );
  });
});

describe('evenWindows', () => {
  test('runs from the first token to the last at even distances', () => {
    expect(offsets(evenWindows(counting(101), 10, 4))).toEqual([0, 30, 60, 90]);
  });

  test('distances differ by one token at most', () => {
    const begins = offsets(evenWindows(counting(1000), 16, 37));
    const distances = begins.slice(1).map((begin, i) => begin - begins[i]!);
    expect(Math.max(...distances) - Math.min(...distances)).toBeLessThanOrEqual(1);
    expect([begins[0], begins[36]]).toEqual([0, 1000 - 16 - 1]);
  });

  test('one window is the first; few tokens overlap', () => {
    expect(offsets(evenWindows(counting(9), 3, 1))).toEqual([0]);
    expect(offsets(evenWindows(counting(5), 3, 3))).toEqual([0, 0, 1]);
  });

  test('refuses text that is too short', () => {
    expect(() => evenWindows(counting(1), 4, 2)).toThrow('validation text: 1 token, a context of 4 needs at least 5');
  });
});
