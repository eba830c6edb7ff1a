// Streams begun ahead: what they bring, in order; how many are open at once; and that none is left open, however it ends.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { begunAhead } from '../../src/util/begun-ahead.ts';

/** Streams of so many parts each, that count those of them which are open. `fails`: the part, of all of them, that is an error. */
function streamsOf(lengths: readonly number[], fails = Number.POSITIVE_INFINITY) {
  const seen = { open: 0, most: 0, made: 0 };
  const streams = lengths.map(
    (length, i) =>
      async function* () {
        seen.most = Math.max(seen.most, ++seen.open);
        try {
          for (let part = 0; part < length; part++) {
            await Promise.resolve();
            if (seen.made++ === fails) throw new Error('no more');
            yield `${i}.${part}`;
          }
        } finally {
          seen.open--;
        }
      },
  );
  return { streams, seen };
}

const lengths = fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 6 });

it('brings all parts in order, with two streams open at most', async () => {
  await fc.assert(
    fc.asyncProperty(lengths, async (lengths) => {
      const { streams, seen } = streamsOf(lengths);
      const found: string[][] = [];
      for await (const stream of begunAhead(streams)) {
        const parts: string[] = [];
        for await (const part of stream) parts.push(part);
        found.push(parts);
      }
      expect(found).toEqual(lengths.map((length, i) => Array.from({ length }, (_, part) => `${i}.${part}`)));
      expect(seen.open).toBe(0);
      expect(seen.most).toBeLessThanOrEqual(2);
    }),
    { seed: 7, numRuns: 50 },
  );
});

it('has the next stream begun while one is taken', async () => {
  const { streams, seen } = streamsOf([2, 2]);
  const all = begunAhead(streams);
  const first = (await all.next()).value;
  await first?.next();
  expect(seen.open).toBe(2);
  await first?.return();
  await all.return();
  expect(seen.open).toBe(0);
});

it('leaves none open where a stream fails or its taker stops, at any part', async () => {
  const cases = fc.record({ lengths, at: fc.integer({ min: 0, max: 12 }), stops: fc.boolean() });
  await fc.assert(
    fc.asyncProperty(cases, async ({ lengths, at, stops }) => {
      const all = lengths.reduce((a, b) => a + b, 0);
      const { streams, seen } = streamsOf(lengths, stops ? undefined : at);
      let taken = 0;
      const take = async () => {
        for await (const stream of begunAhead(streams)) {
          for await (const _ of stream) if (taken++ === at && stops) throw new Error('enough');
        }
      };
      if (at >= all) await take();
      else await expect(take()).rejects.toThrow(stops ? 'enough' : 'no more');
      expect(seen.open).toBe(0);
    }),
    { seed: 8, numRuns: 80 },
  );
});
