// Files to train on among those that are dropped on a page: as the command line has them of folders.

import { expect, test } from 'vitest';
import { filesToTrain } from '../../src/browser/index.ts';

const of = (...paths: string[]) => {
  const found = filesToTrain(paths.map((path) => ({ path, file: new File(['x'], path) })));
  const shown = (files: readonly { path: string; file: File }[]) =>
    files.map(({ path, file, ...rest }) => {
      expect([file.name, Object.keys(rest)]).toEqual([path, []]);
      return path;
    });
  return [shown(found.files), shown(found.leftOut)];
};

test('of a folder with splits those to train on', () => {
  const beside = ['d/README.md', 'd/.gitattributes', 'd/dataset_info.json'];
  expect(of('d/test.jsonl', 'd/train.jsonl', 'd/valid.jsonl', ...beside)).toEqual([
    ['d/train.jsonl'],
    ['d/valid.jsonl', 'd/test.jsonl'],
  ]);
  expect(of('d/test/1.jsonl', 'd/train/1.jsonl')).toEqual([['d/train/1.jsonl'], ['d/test/1.jsonl']]);
});

test('of a folder of records none in another form', () => {
  expect(of('d/a.jsonl', 'd/a.csv', 'd/a.parquet')).toEqual([['d/a.jsonl'], ['d/a.csv', 'd/a.parquet']]);
  expect(of('d/a.txt', 'd/a.csv')).toEqual([['d/a.txt', 'd/a.csv'], []]);
});

test('of a folder of text whose files are all named for a split, too', () => {
  expect(of('d/test.txt', 'd/train.txt', 'd/valid.txt', 'd/README.md', 'd/.DS_Store')).toEqual([
    ['d/train.txt'],
    ['d/valid.txt', 'd/test.txt', 'd/README.md'],
  ]);
});

test('of a folder of records all, without what lies beside them', () => {
  expect(of('d/a.jsonl', 'd/b.jsonl', 'd/README.md', 'd/.git/HEAD')).toEqual([['d/a.jsonl', 'd/b.jsonl'], []]);
});

test('of a folder of text, and of what is chosen by itself, all', () => {
  for (const paths of [
    ['test.jsonl', 'train.jsonl', 'valid.jsonl', 'README.md'],
    ['d/train.txt', 'd/test.txt', 'd/notes.md'],
    ['d/train.txt', 'd/more.txt', 'd/README.md'],
    ['d/train.json', 'd/test.ts'],
  ])
    expect(of(...paths)).toEqual([paths, []]);
  expect(of('more.jsonl', 'd/train.jsonl', 'd/test.jsonl')).toEqual([
    ['more.jsonl', 'd/train.jsonl'],
    ['d/test.jsonl'],
  ]);
});
