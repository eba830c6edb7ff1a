// Records that no model which writes text learns, chosen on a page: what it says is what `train` says of the same files, word for word.

import { expect, test } from 'vitest';
import { unreadRecords } from '../../src/browser/index.ts';
import { inProcess } from '../cli/in-process.ts';
import { MemoryFiles } from '../memory-files.ts';

const TRAIN = ['train', '--model', 'gpt2', '--layers', '1', '--width', '16', '--heads', '2', '--context', '16'];

const REFUSED: Readonly<Record<string, readonly [files: Record<string, string>, says: RegExp]>> = {
  'pairs with labels': [
    { 'pairs.jsonl': '{"sentence1": "a", "sentence2": "b", "label": 1}\n' },
    /^pairs\.jsonl:1 has fields "sentence1, sentence2, label": a classifier learns .* BERT; a model that writes text learns/,
  ],
  'a sentence with a label, in a list': [
    { 'a.json': '[{"sentence": "a", "label": 1}]' },
    /^a\.json\[0\] has .* classifier/,
  ],
  'no record that is known': [{ 'a.jsonl': '{"question": "a"}\n' }, /^a\.jsonl:1 has fields "question": no record/],
  'a damaged record': [{ 'a.jsonl': '{"text": "a" "b"}\n' }, /^a\.jsonl:1: not JSON \(.*\); each line is one record$/],
  'no record at all': [{ 'a.jsonl': '\n' }, /^a\.jsonl: no records; name a file of records$/],
  'records in a field': [{ 'a.json': '{"data": [{"text": "a"}]}' }, /^a\.json: its records are in the field "data"/],
  'records and text': [
    { 'a.jsonl': '{"text": "a"}\n', 'b.txt': 'a text' },
    /^the data is records in a\.jsonl and text in b\.txt; name the files of the one or the other$/,
  ],
};

const chosen = (files: Record<string, string>) => Object.entries(files).map(([name, text]) => new File([text], name));

test.each(Object.entries(REFUSED))('%s', async (_, [files, says]) => {
  const problem = await unreadRecords(chosen(files));
  expect(problem).toMatch(says);
  const data = ['--data', ...Object.keys(files), '--epochs', '1', '--out', 'run'];
  const { status, said } = await inProcess(new MemoryFiles(files), [...TRAIN, ...data]);
  expect([status, said]).toEqual([2, `holdfast: ${problem}\n`]);
});

test.each<[string, Record<string, string>]>([
  ['text', { 'a.txt': 'a text', 'b.csv': 'year,price\n' }],
  ['texts with labels, of which it learns the texts', { 'a.jsonl': '{"text": "a", "label": 1}\n' }],
  ['conversations', { 'a.jsonl': '{"messages": []}\n', 'b.json': '[{"messages": []}]' }],
])('%s: nothing', async (_, files) => {
  expect(await unreadRecords(chosen(files))).toBeUndefined();
});
