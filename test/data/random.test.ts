import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';

const draw = (random: Random, count: number) => Array.from({ length: count }, () => random.uint32());

describe('Random', () => {
  test("is xoshiro128**: its authors' sequence from the state 1, 2, 3, 4", () => {
    const random = new Random(0, 'test');
    random.restore([1, 2, 3, 4]);
    expect(draw(random, 10)).toEqual([
      11520, 0, 5927040, 70819200, 2031721883, 1637235492, 1287239034, 3734860849, 3729100597, 4258142804,
    ]);
  });

  test('depends on the whole seed and on the stream, and on nothing else', () => {
    const first = draw(new Random(7, 'weights'), 4);
    expect(draw(new Random(7, 'weights'), 4)).toEqual(first);
    const others = [new Random(8, 'weights'), new Random(7 + 2 ** 32, 'weights'), new Random(7, 'batches')];
    for (const other of others) expect(draw(other, 4)).not.toEqual(first);
  });

  test('neighbouring seeds start in unrelated places', () => {
    // 1000 first draws: the mean of a uniform has deviation 1/sqrt(12 * 1000); 5 deviations.
    const mean =
      Array.from({ length: 1000 }, (_, seed) => new Random(seed, 's').uniform()).reduce((a, b) => a + b) / 1000;
    expect(Math.abs(mean - 0.5)).toBeLessThan(5 / Math.sqrt(12_000));
  });

  test('continues from its state, through JSON, whatever was drawn before', () => {
    const methods = fc.constantFrom('uint32', 'uniform', 'normal');
    fc.assert(
      fc.property(fc.maxSafeNat(), fc.array(methods), fc.array(methods), (seed, before, after) => {
        const original = new Random(seed, 'a');
        for (const method of before) original[method]();
        const restored = new Random(0, 'b');
        restored.restore(JSON.parse(JSON.stringify(original.state())));
        expect(after.map((method) => restored[method]())).toEqual(after.map((method) => original[method]()));
      }),
    );
  });

  test('below(n) stays below n', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 2 ** 32 }), fc.nat(), (n, seed) => {
        const random = new Random(seed, 'below');
        for (let i = 0; i < 20; i++) {
          const value = random.below(n);
          expect(Number.isInteger(value) && value >= 0 && value < n).toBe(true);
        }
      }),
    );
  });

  test('below(n) is unbiased where a plain remainder is not', () => {
    // With n = 3 * 2^30, a remainder puts half of the draws in the lowest third instead of a third.
    const n = 3 * 2 ** 30;
    const random = new Random(1, 'bias');
    let low = 0;
    for (let i = 0; i < 10_000; i++) if (random.below(n) < n / 3) low++;
    // Binomial deviation sqrt(10000 * 1/3 * 2/3) = 47; 5 of them.
    expect(Math.abs(low - 10_000 / 3)).toBeLessThan(236);
  });

  test('uniform() and normal() have the moments of their distributions', () => {
    const random = new Random(3, 'moments');
    const count = 20_000;
    let [uniform, mean, square, fourth] = [0, 0, 0, 0];
    for (let i = 0; i < count; i++) {
      const u = random.uniform();
      expect(u >= 0 && u < 1).toBe(true);
      const z = random.normal();
      uniform += u / count;
      mean += z / count;
      square += z ** 2 / count;
      fourth += z ** 4 / count;
    }
    // Five deviations of each sample moment: variances 1/12, 1, 2 and 96 over count.
    expect(Math.abs(uniform - 0.5)).toBeLessThan(5 * Math.sqrt(1 / 12 / count));
    expect(Math.abs(mean)).toBeLessThan(5 * Math.sqrt(1 / count));
    expect(Math.abs(square - 1)).toBeLessThan(5 * Math.sqrt(2 / count));
    expect(Math.abs(fourth - 3)).toBeLessThan(5 * Math.sqrt(96 / count));
  });

  test('refuses seeds and states that are none', () => {
    for (const seed of [-1, 0.5, Number.NaN, 2 ** 53]) expect(() => new Random(seed, 's')).toThrow(HoldfastError);
    const random = new Random(0, 's');
    for (const state of [[0, 0, 0, 0], [1, 2, 3], [1, 2, 3, 2 ** 32], [1, 2, 3, -1], null]) {
      expect(() => random.restore(state as number[])).toThrow(HoldfastError);
    }
  });
});
