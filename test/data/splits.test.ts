// Splits of folders of records, and of text: which of their files train, validate and test, by their names.

import { describe, expect, it } from 'vitest';
import {
  recordsToTest,
  recordsToTrain,
  textToTest,
  textToTrain,
  type ValidationChoice,
} from '../../src/data/records/splits.ts';
import { MemoryFiles } from '../memory-files.ts';

const filesIn = (folder: string, names: readonly string[]) =>
  new MemoryFiles(Object.fromEntries(names.map((name) => [`${folder}/${name}`, '{"text": "x"}\n'])));
const trained = (names: readonly string[], choice?: ValidationChoice) =>
  recordsToTrain(filesIn('d', names), ['d'], choice);

const MLX = ['test.jsonl', 'train.jsonl', 'valid.jsonl'];

describe('a folder with files to train on and others', () => {
  it.each<[string, string[], string[], string[] | undefined]>([
    ['mlx-lm’s', MLX, ['train.jsonl'], ['valid.jsonl']],
    ['the datasets library’s', ['test.json', 'train.json', 'validation.json'], ['train.json'], ['validation.json']],
    ['with eval', ['eval.jsonl', 'train.jsonl'], ['train.jsonl'], ['eval.jsonl']],
    ['with dev', ['dev.ndjson', 'train.ndjson'], ['train.ndjson'], ['dev.ndjson']],
    ['with val', ['Train.JSONL', 'Val.jsonl'], ['Train.JSONL'], ['Val.jsonl']],
    [
      'in shards',
      ['train-00000-of-00002.jsonl', 'train-00001-of-00002.jsonl', 'train3.jsonl', 'valid_1.jsonl', 'validset.jsonl'],
      ['train-00000-of-00002.jsonl', 'train-00001-of-00002.jsonl', 'train3.jsonl'],
      ['valid_1.jsonl', 'validset.jsonl'],
    ],
    ['with a name in front', ['gsm8k_test.jsonl', 'gsm8k_train.jsonl'], ['gsm8k_train.jsonl'], undefined],
    ['without files to validate on', ['test.jsonl', 'train.jsonl'], ['train.jsonl'], undefined],
    [
      'in folders',
      ['test/1.jsonl', 'train/1.jsonl', 'train/below/2.jsonl', 'validation/1.jsonl'],
      ['train/1.jsonl', 'train/below/2.jsonl'],
      ['validation/1.jsonl'],
    ],
    ['with a name that is for none', ['all.jsonl', ...MLX], ['train.jsonl'], ['valid.jsonl']],
    [
      'with what describes it',
      ['README.md', 'dataset_info.json', '.git/train', ...MLX],
      ['train.jsonl'],
      ['valid.jsonl'],
    ],
  ])('%s', async (_, names, train, validation) => {
    const { sources, validation: found } = await trained(names);
    const inside = (names: readonly string[] | undefined) => names?.map((name) => `d/${name}`);
    expect([sources, found]).toEqual([inside(train), inside(validation)]);
  });

  it('says which file is for what', async () => {
    const notesOf = async (names: readonly string[], choice?: ValidationChoice) => (await trained(names, choice)).notes;
    expect(await notesOf(MLX)).toEqual(['d: train.jsonl to train on; valid.jsonl to validate on; test.jsonl left out']);
    expect(await notesOf(['train/1.jsonl', 'dev/1.jsonl', 'x.jsonl'])).toEqual([
      'd: train/1.jsonl to train on; dev/1.jsonl to validate on; x.jsonl left out',
    ]);
    expect(await notesOf(MLX, { validationShare: 0.2 })).toEqual([
      'd: train.jsonl to train on; valid.jsonl, test.jsonl not trained on',
    ]);
  });

  it('validates on what is said, and trains on no more for it', async () => {
    const files = filesIn('d', MLX);
    files.contents.set('held.jsonl', new Uint8Array([0x7b]));
    for (const [choice, validation] of [
      [{ validationFile: 'held.jsonl' }, ['held.jsonl']],
      [{ validationFile: 'd/test.jsonl' }, ['d/test.jsonl']],
      [{ validationFile: 'd' }, ['d/valid.jsonl']],
      [{ validationShare: 0.2 }, undefined],
    ] as const)
      expect(await recordsToTrain(files, ['d'], choice)).toMatchObject({ sources: ['d/train.jsonl'], validation });
  });
});

describe('is used as it is', () => {
  it.each([
    [['1.jsonl', '2.jsonl']],
    [['test.jsonl', 'valid.jsonl']],
    [['train.jsonl', 'more.jsonl']],
    [['testimonials.jsonl', 'trainers.jsonl', 'developers.jsonl', 'evaluate.jsonl']],
    [['latest.jsonl', 'train.jsonl', 'pretrained.jsonl']],
  ])('a folder of %j', async (names) => {
    expect(await trained(names)).toEqual({ sources: ['d'], validation: undefined, notes: [] });
    expect(await recordsToTest(filesIn('d', names), ['d'])).toEqual({ sources: ['d'], notes: [] });
  });

  it('what is named itself, beside a folder with splits, too', async () => {
    const files = filesIn('d', MLX);
    const all = MLX.map((name) => `d/${name}`);
    expect(await recordsToTrain(files, all)).toEqual({ sources: all, validation: undefined, notes: [] });
    expect((await recordsToTrain(files, ['d', 'd/test.jsonl'])).sources).toEqual(['d/train.jsonl', 'd/test.jsonl']);
    expect((await recordsToTrain(files, ['-'])).sources).toEqual(['-']);
  });
});

it('a model is measured with the files to test with, or else with those to validate on', async () => {
  expect(await recordsToTest(filesIn('d', MLX), ['d'])).toEqual({
    sources: ['d/test.jsonl'],
    notes: ['d: test.jsonl to test with; train.jsonl, valid.jsonl left out'],
  });
  expect(await recordsToTest(filesIn('d', MLX.slice(1)), ['d'])).toEqual({
    sources: ['d/valid.jsonl'],
    notes: ['d: valid.jsonl to test with; train.jsonl left out'],
  });
});

describe('of text', () => {
  const PLAIN = ['test.txt', 'train.txt', 'valid.txt'];
  const inside = (names: readonly string[] | undefined) => names?.map((name) => `d/${name}`);

  it.each<[string, string[], string[], string[] | undefined]>([
    ['plain', PLAIN, ['train.txt'], ['valid.txt']],
    ['validation', ['train.txt', 'validation.txt'], ['train.txt'], ['validation.txt']],
    ['dev', ['dev.txt', 'train.txt'], ['train.txt'], ['dev.txt']],
    ['a test set alone', ['TinyStories-test.txt', 'TinyStories-train.txt'], ['TinyStories-train.txt'], undefined],
    ['WikiText’s', ['wiki.test.raw', 'wiki.train.raw', 'wiki.valid.raw'], ['wiki.train.raw'], ['wiki.valid.raw']],
    [
      'in shards and folders',
      ['dev/1.txt', 'train/1.txt', 'train/2.txt', 'train/README.txt'],
      ['train/1.txt', 'train/2.txt'],
      ['dev/1.txt'],
    ],
    ['with what describes it', ['.gitattributes', 'LICENSE', 'README.md', ...PLAIN], ['train.txt'], ['valid.txt']],
  ])('%s', async (_, names, train, validation) => {
    const { sources, validation: found } = await textToTrain(filesIn('d', names), ['d']);
    expect([sources, found]).toEqual([inside(train), inside(validation)]);
  });

  it.each([
    [['1.txt', '2.txt']],
    [['test.txt', 'valid.txt']],
    [['more.txt', ...PLAIN]],
    [['notes.md', ...PLAIN]],
    [['train.py', 'test.py', 'eval.py']],
    [['data.csv', ...PLAIN]],
    [['trainers.txt', 'testimonials.txt']],
  ])('as it is: a folder of %j', async (names) => {
    expect(await textToTrain(filesIn('d', names), ['d'])).toEqual({ sources: ['d'], validation: undefined, notes: [] });
    expect(await textToTest(filesIn('d', names), ['d'])).toEqual({ sources: ['d'], notes: [] });
  });

  it('a line says which file is for what', async () => {
    const files = filesIn('d', ['README.md', ...PLAIN]);
    expect(await textToTrain(files, ['d', '-'])).toEqual({
      sources: ['d/train.txt', '-'],
      validation: ['d/valid.txt'],
      notes: ['d: train.txt to train on; valid.txt to validate on; test.txt, README.md left out'],
    });
    expect(await textToTest(files, ['d'])).toEqual({
      sources: ['d/test.txt'],
      notes: ['d: test.txt to test with; train.txt, valid.txt, README.md left out'],
    });
    expect(await textToTrain(files, inside(PLAIN) ?? [])).toMatchObject({ sources: inside(PLAIN), notes: [] });
  });

  it('an empty file is of no split', async () => {
    const files = filesIn('d', PLAIN);
    files.contents.set('d/valid.txt', new Uint8Array());
    expect(await textToTrain(files, ['d'])).toMatchObject({ sources: ['d/train.txt'], validation: undefined });
  });
});
