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
