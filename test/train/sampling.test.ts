import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { checkSampling, type SamplingOptions, sampleToken } from '../../src/train/inference/sampling.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';

/** How often each id comes up. */
function counts(logits: number[], options: SamplingOptions, draws: number): number[] {
  const random = new Random(1, 'sampling');
  const row = Float32Array.from(logits);
  const result = logits.map(() => 0);
  for (let i = 0; i < draws; i++) result[sampleToken(row, options, random)]!++;
  return result;
}

/** Which ids come up at all: probabilities here are at least 0.1, so 400 draws miss one with 0.9^400 = 5e-19. */
const support = (logits: number[], options: SamplingOptions) =>
  counts(logits, options, 400).flatMap((count, id) => (count > 0 ? [id] : []));

describe('sampleToken', () => {
  test('temperature 0 takes the likeliest, of equals the lowest id, and draws nothing', () => {
    const random = new Random(1, 's');
    const before = random.state();
    expect(sampleToken(Float32Array.of(1, 3, 2, 3), { temperature: 0 }, random)).toBe(1);
    expect(random.state()).toEqual(before);
  });

  test.each([0.5, 1, 2])('draws from softmax(logits / %d)', (temperature) => {
    const logits = [0, 1, 2, -1];
    const weights = logits.map((logit) => Math.exp(logit / temperature));
    const total = weights.reduce((a, b) => a + b);
    const draws = 20_000;
    for (const [id, count] of counts(logits, { temperature }, draws).entries()) {
      const p = weights[id]! / total;
      expect(Math.abs(count - draws * p)).toBeLessThan(5 * Math.sqrt(draws * p * (1 - p)));
    }
  });

  test('top-k keeps the k likeliest, of equals the lower ids', () => {
    expect(support([0, 1, 1, 0.5, 1], { topK: 2 })).toEqual([1, 2]);
    expect(support([0, 1, 1, 0.5, 1], { topK: 99 })).toEqual([0, 1, 2, 3, 4]);
  });

  test('top-p keeps the fewest that reach p, the one that reaches it included', () => {
    const logits = [0.5, 0.25, 0.125, 0.125].map(Math.log);
    expect(support(logits, { topP: 0.4 })).toEqual([0]);
    expect(support(logits, { topP: 0.6 })).toEqual([0, 1]);
    expect(support(logits, { topP: 0.8 })).toEqual([0, 1, 2]);
    expect(support(logits, { topP: 1 })).toEqual([0, 1, 2, 3]);
  });

  test('top-p counts after top-k, within what is left', () => {
    // Of 0.5 and 0.25 alone, the first has two thirds.
    const logits = [0.5, 0.25, 0.125, 0.125].map(Math.log);
    expect(support(logits, { topK: 2, topP: 0.6 })).toEqual([0]);
  });

  test('never draws what cannot occur, at any scale', () => {
    const rows = fc.array(fc.oneof(fc.float({ noNaN: true, max: Math.fround(1e38) }), fc.constant(-Infinity)), {
      minLength: 1,
    });
    const options = fc.record(
      {
        temperature: fc.double({ min: 0, max: 1e300, noNaN: true }),
        topK: fc.integer({ min: 1, max: 20 }),
        topP: fc.double({ min: 0, max: 1, minExcluded: true, noNaN: true }),
      },
      { requiredKeys: [] },
    );
    fc.assert(
      fc.property(rows, options, fc.nat(), (row, chosen, seed) => {
        fc.pre(row.some((logit) => logit > -Infinity));
        const id = sampleToken(Float32Array.from(row), chosen, new Random(seed, 's'));
        expect(row[id]).toBeGreaterThan(-Infinity);
      }),
    );
  });

  test('a diverged model is named, not sampled from', () => {
    const random = new Random(0, 's');
    for (const row of [
      [0, Number.NaN],
      [0, Infinity],
      [-Infinity, -Infinity],
    ]) {
      expect(() => sampleToken(Float32Array.from(row), {}, random)).toThrow('the model has diverged');
    }
  });
});

test('checkSampling names what is out of range', () => {
  expect(() => checkSampling({})).not.toThrow();
  expect(() => checkSampling({ temperature: 0, topK: 1, topP: 1 })).not.toThrow();
  const bad: [SamplingOptions, string][] = [
    [{ temperature: -1 }, 'temperature -1'],
    [{ temperature: Number.NaN }, 'temperature NaN'],
    [{ topK: 0 }, 'top-k 0'],
    [{ topK: 1.5 }, 'top-k 1.5'],
    [{ topP: 0 }, 'top-p 0'],
    [{ topP: 1.1 }, 'top-p 1.1'],
  ];
  for (const [options, message] of bad) {
    expect(() => checkSampling(options)).toThrow(HoldfastError);
    expect(() => checkSampling(options)).toThrow(message);
  }
});
