// What a run learns from, batch by batch: which part of a text is where, where windows begin, and going on.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { textDataset } from '../../src/data/dataset.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';

const identity = { bytes: 400, sha256: '0'.repeat(64) };
/** Bytes that are their own positions. */
const bytes = Uint8Array.from({ length: 240 }, (_, i) => i);
const SIZES = { batch: 3, seq: 7, seed: 5, evalWindows: 4 };
/** One token a pair of bytes: the second of them. */
const pairs = {
  tokenBytes: 2,
  encode: (text: string | Uint8Array) =>
    Int32Array.from((text as Uint8Array).filter((_, i) => i % 2 === 1)) as Int32Array<ArrayBuffer>,
};

test('nine tenths train, the rest validates, and says what it is cut from', () => {
  const dataset = textDataset({ bytes }, identity, new ByteTokenizer(), SIZES);
  expect(dataset.identity).toBe(identity);
  const { ids, targets, batch } = dataset.validation;
  expect([batch, Math.min(...ids), Math.max(...targets)]).toEqual([4, 216, 239]);
  for (let i = 0; i < 50; i++) expect(Math.max(...dataset.next().targets)).toBeLessThan(216);
});

test('windows begin with a line, whatever a token is; without lines of one length, anywhere', () => {
  const begins = (lineBytes: number | undefined, tokenizer: typeof pairs | ByteTokenizer) => {
    const corpus = { bytes, ...(lineBytes && { lineBytes }) };
    const dataset = textDataset(corpus, identity, tokenizer, SIZES);
    const rows = Array.from({ length: 60 }, () => dataset.next()).concat(dataset.validation);
    return rows.flatMap(({ ids, batch, seq }) => Array.from({ length: batch }, (_, row) => ids[row * seq]!));
  };
  expect(begins(6, new ByteTokenizer()).every((id) => id % 6 === 0)).toBe(true);
  expect(begins(6, pairs).every((id) => id % 6 === 1)).toBe(true);
  expect(new Set(begins(undefined, new ByteTokenizer()).map((id) => id % 6)).size).toBe(6);
});

test('goes on from its state', () => {
  const property = fc.property(fc.integer({ min: 0, max: 9 }), fc.integer({ min: 0, max: 99 }), (before, seed) => {
    const make = (seed: number) => textDataset({ bytes }, identity, new ByteTokenizer(), { ...SIZES, seed });
    const original = make(seed);
    for (let i = 0; i < before; i++) original.next();
    const other = make(seed + 1);
    other.restore(JSON.parse(JSON.stringify(original.state())));
    for (let i = 0; i < 3; i++) expect(other.next()).toEqual(original.next());
  });
  fc.assert(property, { seed: 2, numRuns: 20 });
});
