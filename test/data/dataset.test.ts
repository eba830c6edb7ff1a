// What a run learns from, batch by batch: which part of a text is where, where windows begin, and going on.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { split } from '../../src/data/corpus.ts';
import { textDataset } from '../../src/data/dataset.ts';
import { heldRun } from '../../src/data/token-run.ts';
import type { TokenizedText } from '../../src/data/tokenized-text.ts';

const identity = { bytes: 400, sha256: '0'.repeat(64) };
/** Bytes that are their own positions. */
const bytes = Uint8Array.from({ length: 240 }, (_, i) => i);
const SIZES = { batch: 3, seq: 7, seed: 5, evalWindows: 4 };
const textOf = ({ train, validation }: { train: Uint8Array; validation: Uint8Array }, stride: number) => ({
  ...{ identity, train: heldRun(train), validation: heldRun(validation), stride },
});
const text = (lineBytes?: number) => textOf(split({ bytes, lineBytes }), lineBytes ?? 1);
/** One token a pair of bytes: the second of them. */
const pairs = (lineBytes: number) => {
  const { train, validation } = split({ bytes, lineBytes });
  const second = (part: Uint8Array) => part.filter((_, i) => i % 2 === 1);
  return textOf({ train: second(train), validation: second(validation) }, lineBytes / 2);
};

test('nine tenths train, the rest validates, and says what it is cut from', async () => {
  const dataset = await textDataset(text(), SIZES);
  expect(dataset.identity).toBe(identity);
  const { ids, targets, batch } = dataset.validation;
  expect([batch, Math.min(...ids), Math.max(...targets)]).toEqual([4, 216, 239]);
  for (let i = 0; i < 50; i++) expect(Math.max(...(await dataset.next()).targets)).toBeLessThan(216);
});

test('of a text that is too short the context that both parts have is named', async () => {
  const of = (length: number, options: object = {}) => {
    const { train, validation } = split({ bytes: bytes.subarray(0, length) });
    return textDataset(textOf({ train, validation }, 1), { ...SIZES, ...options });
  };
  await expect(of(60)).rejects.toThrow(
    'validation text: 6 tokens, a context of 7 needs at least 8; use a longer text or',
  );
  await expect(of(10)).rejects.toThrow(
    /^validation text: 1 token, a context of 7 needs at least 8; use a longer text$/,
  );
  const { validation } = await of(60, { seq: 5 });
  expect(validation.seq).toBe(5);
});

test('windows begin with a line, whatever a token is; without lines of one length, anywhere', async () => {
  const begins = async (tokens: TokenizedText) => {
    const dataset = await textDataset(tokens, SIZES);
    const drawn = await Promise.all(Array.from({ length: 60 }, () => dataset.next()));
    const rows = drawn.concat(dataset.validation);
    return rows.flatMap(({ ids, batch, seq }) => Array.from({ length: batch }, (_, row) => ids[row * seq]!));
  };
  expect((await begins(text(6))).every((id) => id % 6 === 0)).toBe(true);
  expect((await begins(pairs(6))).every((id) => id % 6 === 1)).toBe(true);
  expect(new Set((await begins(text())).map((id) => id % 6)).size).toBe(6);
});

test('an epoch has every token as a target, once but where the last window overlaps, and each epoch another order', async () => {
  const property = fc.asyncProperty(
    fc.record({ tokens: fc.integer({ min: 9, max: 200 }), seq: fc.integer({ min: 1, max: 8 }), seed: fc.nat() }),
    async ({ tokens, seq, seed }) => {
      const train = heldRun(bytes.subarray(0, tokens));
      const options = { batch: 1, seq, seed, evalWindows: 1, epochs: 2 };
      const dataset = await textDataset({ identity, train, validation: train, stride: 1 }, options);
      const epochOf = async () => {
        const rows = Array.from({ length: dataset.rowsOf(0) }, () => dataset.next());
        return (await Promise.all(rows)).map(({ targets }) => Array.from(targets));
      };
      const [first, second] = [await epochOf(), await epochOf()];
      for (const rows of [first, second]) {
        const seen = rows.flat().sort((a, b) => a - b);
        expect([...new Set(seen)]).toEqual(Array.from({ length: tokens - 1 }, (_, i) => i + 1));
        expect(seen.length - (tokens - 1)).toBeLessThan(seq);
      }
      expect(dataset.rowsIn(3)).toBe(3 * first.length);
      if (first.length > 20) expect(first).not.toEqual(second);
    },
  );
  await fc.assert(property, { seed: 3, numRuns: 100 });
});

test('windows of an epoch begin with a line', async () => {
  const dataset = await textDataset(text(6), { ...SIZES, batch: 1, epochs: 1 });
  const rows = await Promise.all(Array.from({ length: dataset.rowsOf(0) }, () => dataset.next()));
  const begins = rows.map(({ ids }) => ids[0]!);
  expect(begins.toSorted((a, b) => a - b)).toEqual(Array.from({ length: 35 }, (_, i) => 6 * i));
});

test('a run goes on in the way that its windows were drawn, whatever its settings are now', async () => {
  for (const [before, after] of [
    [{ epochs: 1 }, {}],
    [{}, { epochs: 2 }],
  ]) {
    const original = await textDataset(text(), { ...SIZES, ...before });
    for (let i = 0; i < 15; i++) await original.next();
    const other = await textDataset(text(), { ...SIZES, ...after });
    other.restore(original.state());
    for (let i = 0; i < 30; i++) expect(await other.next()).toEqual(await original.next());
  }
});

test('a place that no epoch has is refused', async () => {
  const dataset = await textDataset(text(), { ...SIZES, epochs: 1 });
  expect(() => dataset.restore([0, 1000])).toThrow(
    'the place in the data is window 1000 of epoch 0; an epoch has 31 windows, the checkpoint is damaged',
  );
});

test('goes on from its state', async () => {
  const property = fc.asyncProperty(fc.nat({ max: 9 }), fc.nat({ max: 99 }), async (before, seed) => {
    const make = (seed: number) => textDataset(text(), { ...SIZES, seed });
    const original = await make(seed);
    for (let i = 0; i < before; i++) await original.next();
    const other = await make(seed + 1);
    other.restore(JSON.parse(JSON.stringify(original.state())));
    for (let i = 0; i < 3; i++) expect(await other.next()).toEqual(await original.next());
  });
  await fc.assert(property, { seed: 2, numRuns: 20 });
});
