// Texts with labels as rows of tokens, of bytes: their marks, what is cut off, what fills rows up; that a dataset goes on where
// it was; and, drawn at random, that rows are what Hugging Face's tokenizers make of a text or of a pair.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { Batch } from '../../src/data/batches.ts';
import { describeCounts } from '../../src/data/classes.ts';
import { LabelledTexts, labelledDataset } from '../../src/data/labelled-texts.ts';
import { recordClasses } from '../../src/data/records/labelled.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { labelsOf } from '../../src/formats/families/labels.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const LABELS = labelsOf(['a', 'b', 'c']);

function read(records: readonly object[], seq: number) {
  const host = memoryHost(new MemoryFiles({ 'r.json': JSON.stringify(records) }));
  return LabelledTexts.read(host, ['r.json'], new ByteTokenizer(), { labels: LABELS, seq });
}

/** As Transformers cuts: one token after the other from the longer, of two alike from the second. */
function cutOneByOne(first: number[], second: number[] | undefined, seq: number): [number[], number[] | undefined] {
  const [a, b] = [[...first], second && [...second]];
  while (a.length + (b ? b.length + 3 : 2) > seq) {
    if (b && b.length >= a.length) b.pop();
    else a.pop();
  }
  return [a, b];
}

const letters = fc.string({ unit: fc.constantFrom('x', 'y', 'z'), maxLength: 12 });

test('a row is begun, ended, cut and filled up as by the library that others use', async () => {
  const drawn = fc.asyncProperty(
    letters,
    fc.option(letters, { nil: undefined }),
    fc.integer({ min: 4, max: 30 }),
    async (text, pair, seq) => {
      const texts = await read([{ text, label: 'b', ...(pair !== undefined && { text_pair: pair }) }], seq);
      const bytes = (of: string) => [...new TextEncoder().encode(of)];
      const [first, second] = cutOneByOne(bytes(text), pair === undefined ? undefined : bytes(pair), seq);
      const [one, two] = [[0, ...first, 0], second ? [...second, 0] : []];
      const fill = Array.from({ length: seq - one.length - two.length }, () => 0);
      const { ids, tokenTypes, attentionMask, targets } = (await texts.batch([0])) as unknown as Record<
        string,
        Int32Array
      >;
      expect([...ids!]).toEqual([...one, ...two, ...fill]);
      expect([...tokenTypes!]).toEqual([...one.map(() => 0), ...two.map(() => 1), ...fill]);
      expect([...attentionMask!]).toEqual([...one.map(() => 1), ...two.map(() => 1), ...fill]);
      expect([...targets!]).toEqual([1]);
    },
  );
  await fc.assert(drawn, { seed: 5, numRuns: 200 });
});

test('each epoch has every text once, none of which is held back, and goes on where it was', async () => {
  const texts = await read(
    Array.from({ length: 30 }, (_, i) => ({ text: String.fromCharCode(65 + i), label: i % 3 })),
    5,
  );
  const dataset = () => labelledDataset({ train: texts, validation: undefined }, { batch: 4, seed: 2, evalWindows: 9 });
  const seen = (batch: Batch) => {
    const { ids, targets } = batch as unknown as { ids: Int32Array; targets: Int32Array };
    return Array.from(targets, (target, row) => {
      const text = ids[5 * row + 1]! - 65;
      expect(target).toBe(text % 3);
      return text;
    });
  };
  const one = await dataset();
  const heldBack = seen(one.validation);
  expect(heldBack).toHaveLength(3);
  const rows = (await Promise.all(Array.from({ length: 27 }, () => one.next()))).flatMap(seen);
  for (let epoch = 0; epoch < 4; epoch++) {
    const all = [...rows.slice(27 * epoch, 27 * (epoch + 1)), ...heldBack].sort((a, b) => a - b);
    expect(all).toEqual(Array.from({ length: 30 }, (_, i) => i));
  }
  const other = await dataset();
  other.restore(one.state());
  expect(await other.next()).toEqual(await one.next());
  expect(() => other.restore([0, 28])).toThrow('place 28 of epoch 0: is none in 27 texts');
});

test('one text at least is learned from, however large the share that is held back', async () => {
  const texts = (count: number) =>
    read(
      Array.from({ length: count }, (_, i) => ({ text: 'x', label: i % 3 })),
      5,
    );
  const options = { batch: 1, seed: 2, evalWindows: 9, validationShare: 0.9 };
  const dataset = await labelledDataset({ train: await texts(4), validation: undefined }, options);
  expect([dataset.rowsOf(0), dataset.validation.targets]).toEqual([1, expect.objectContaining({ length: 3 })]);
  const one = await texts(1);
  await expect(labelledDataset({ train: one, validation: undefined }, options)).rejects.toThrow(
    'the data is one text: nothing',
  );
});

test('the classes of records are their names in order, or as many numbers as the highest says', async () => {
  const classes = (...labels: (string | number)[]) =>
    recordClasses(
      memoryHost(new MemoryFiles({ r: labels.map((label) => JSON.stringify({ sentence: '', label })).join('\n') })),
      ['r'],
    );
  expect(await classes('b', 'a', 'b', 'B')).toMatchObject({ kind: 'named', names: ['B', 'a', 'b'] });
  expect(await classes(0, 4, 2)).toEqual({ kind: 'numbered', count: 5 });
  expect(await classes(65535)).toEqual({ kind: 'numbered', count: 65536 });
  await expect(classes(0, 1732400000000)).rejects.toThrow(
    'r:2: label is 1732400000000, and classes are numbered from 0 on; 65536 at most are told apart',
  );
  const names = Array.from({ length: 65537 }, (_, i) => `class ${i}`);
  await expect(classes(...names)).rejects.toThrow('r:65537: one class more; 65536 at most are told apart');
});

test('it is said how many texts each class has, most first; a name that a slip of the hand has made is seen', async () => {
  const labels = labelsOf(['neg', 'pos', ' pos', 'of two words', 'none']);
  const records = ['pos', 'neg', 'pos', ' pos', 'pos', 'of two words', 'neg'].map((label) => ({ text: 'x', label }));
  const host = memoryHost(new MemoryFiles({ 'r.json': JSON.stringify(records) }));
  const { note } = await LabelledTexts.read(host, ['r.json'], new ByteTokenizer(), { labels, seq: 8 });
  expect(note).toBe(
    '7 texts with labels in r.json (3 pos, 2 neg, 1 " pos", 1 "of two words", 0 none), of 3 tokens at most',
  );
  expect(describeCounts(labelsOf(Array.from({ length: 10 }, (_, i) => `n${i}`)), [...'0123456789'].map(Number))).toBe(
    '9 n9, 8 n8, 7 n7, 6 n6, 5 n5, 4 n4, 3 n3, 2 n2 and 2 classes more',
  );
});
