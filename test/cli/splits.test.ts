// Folders of records, and of text, with files to train on, to validate on and to test with: the commands use each for what it is named
// for, as if the files were named to them, and say so.

import { beforeAll, describe, expect, test } from 'vitest';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';
import { lines, published, QUICK, STILL, TEXTS } from './published-bert.ts';

chooseVariants(3);

const SHAPE = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '16', '--batch', '2', '--warmup', '0'];
const SHORT = [...SHAPE, '--sample-tokens', '0', '--steps', '3', '--eval-every', '1'];
const pairs = (...numbers: number[]) => lines(...numbers.map((i) => ({ prompt: `${i}+1=`, completion: `${i + 1}` })));
const files = new MemoryFiles({
  'd/train.jsonl': pairs(1, 2, 3, 4, 5, 6),
  'd/valid.jsonl': pairs(7, 8),
  'd/test.jsonl': pairs(9, 10, 11),
  'held.jsonl': pairs(12),
  't/train.txt': 'a rope that holds fast, holds; '.repeat(20),
  't/valid.txt': 'another rope holds, too; '.repeat(9),
  't/test.txt': 'what is held back is left out; '.repeat(9),
});
const CUT = 'data: d: train.jsonl to train on; valid.jsonl to validate on; test.jsonl left out';

/** The steps and the validations in what a run says. */
const keptIn = (json: string) =>
  json
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>)
    .filter((object) => !('summary' in object))
    .map(({ tokensPerSecond: _, ...rest }) => rest);

/** The steps and the validations of a run, and what it says of its data. */
async function trained(out: string, ...args: string[]) {
  const { status, out: json, said } = await inProcess(files, ['train', ...SHORT, '--out', out, '--json', ...args]);
  expect(status, said).toBe(0);
  return { kept: keptIn(json), told: said.split('\n').filter((line) => line.startsWith('data: ')) };
}

const NAMED = ['--data', 'd/train.jsonl', '--validation', 'd/valid.jsonl'];

describe('train', () => {
  test('on a folder is as on its files, with a line that says so', async () => {
    const found = await trained('folder', '--data', 'd');
    const wanted = await trained('named', ...NAMED);
    expect(found.kept).toHaveLength(6);
    expect(found.kept).toEqual(wanted.kept);
    expect([found.told, wanted.told]).toEqual([[CUT], []]);
    const shown = await done(files, ['train', ...SHORT, '--out', 'shown', '--data', 'd']);
    expect(shown).toContain(`${CUT}\n`);
    expect(shown).toMatch(/^data: 6 records \(prompt\/completion\) in 1 file/m);
  });

  test('goes on with the same files, and is replayed with them', async () => {
    const whole = await trained('long', ...NAMED, '--steps', '5');
    const first = await trained('part', '--data', 'd', '--steps', '5', '--until', '3');
    const rest = await inProcess(files, ['train', '--resume', '--out', 'part', '--data', 'd', '--json']);
    expect(rest.status, rest.said).toBe(0);
    expect([...first.kept, ...keptIn(rest.out)]).toEqual(whole.kept);
    expect(await done(files, ['parity', 'part'])).toContain('part');
    expect(await done(files, ['parity', 'part', '--data', 'd'])).toContain('part');
  });

  test('validates on what it is told to', async () => {
    const found = await trained('other', '--data', 'd', '--validation', 'held.jsonl');
    expect(found.kept).toEqual(
      (await trained('other-named', '--data', 'd/train.jsonl', '--validation', 'held.jsonl')).kept,
    );
    expect(found.told).toEqual(['data: d: train.jsonl to train on; valid.jsonl, test.jsonl not trained on']);
    const share = await trained('share', '--data', 'd', '--validation', '0.5');
    expect(share.kept).toEqual((await trained('share-named', '--data', 'd/train.jsonl', '--validation', '0.5')).kept);
  });

  test('trains on all files that are named', async () => {
    const all = ['d/test.jsonl', 'd/train.jsonl', 'd/valid.jsonl'];
    const shown = await done(files, ['train', ...SHORT, '--out', 'all', '--data', ...all]);
    expect(shown).toMatch(/^data: 11 records \(prompt\/completion\) in 3 files/m);
    expect(shown).not.toContain('left out');
  });
});

test.each([
  ['t/train.txt', 'd/valid.jsonl', 'is records, and the data is text; name text to validate on'],
  ['d/train.jsonl', 't/valid.txt', 'is text, and the data is records; name records to validate on'],
])('%s is not validated on %s: what is learned is of one kind', async (data, validation, says) => {
  const { status, said } = await inProcess(files, ['train', '--data', data, '--validation', validation]);
  expect([status, said]).toEqual([2, `holdfast: --validation ${validation}: ${says}, or leave the flag out\n`]);
});

test('what a tokenizer would learn as U+FFFD is refused: text in another encoding than UTF-8', async () => {
  const latin = Uint8Array.from(Buffer.from('Die Straße läuft über die Brücke. '.repeat(20), 'latin1'));
  const own = new MemoryFiles({ 'a.txt': latin, 'b.txt': 'Die Straße läuft über die Brücke. '.repeat(20) });
  const says =
    'holdfast: a.txt: is not in UTF-8, which a tokenizer reads; write that: iconv -f WINDOWS-1252 -t UTF-8 "a.txt" > ' +
    '"a-utf-8.txt", or as what it is; or train in bytes: --tokenizer bytes\n';
  const make = (data: string) => ['tokenizer', 'train', '--vocab-size', '270', '--data', data, '--out', `bpe-${data}`];
  expect(await inProcess(own, make('a.txt'))).toMatchObject({ status: 2, said: says });
  expect((await inProcess(own, make('b.txt'))).status).toBe(0);
  const train = (...args: string[]) => inProcess(own, ['train', ...SHORT, '--data', 'a.txt', ...args]);
  expect(await train('--tokenizer', 'bpe-b.txt')).toMatchObject({ status: 2, said: says });
  expect((await train('--out', 'of-bytes')).status).toBe(0);
});

describe('eval', () => {
  beforeAll(async () => void (await trained('base', '--data', 'd')));

  test('measures with the files to test with', async () => {
    const [found, wanted] = await Promise.all(
      ['d', 'd/test.jsonl'].map((data) => inProcess(files, ['eval', 'base', '--data', data, '--json'])),
    );
    expect(found?.out).toBe(wanted?.out);
    expect(JSON.parse(found?.out ?? '').records).toBe(3);
    const note = 'data: d: test.jsonl to test with; train.jsonl, valid.jsonl left out\n';
    expect([found?.said, wanted?.said]).toEqual([note, '']);
    expect(await done(files, ['eval', 'base', '--data', 'd'])).toContain(note);
  });
});

describe('text', () => {
  const FOLDER = ['t/test.txt', 't/train.txt', 't/valid.txt'];
  const NOTE = 'data: t: train.txt to train on; valid.txt to validate on; test.txt left out';
  test('is trained, validated and measured with as on its files', async () => {
    const found = await trained('a', '--data', 't');
    const wanted = await trained('b', '--data', 't/train.txt', '--validation', 't/valid.txt');
    expect([found.kept, found.told, wanted.told]).toEqual([wanted.kept, [NOTE], []]);
    expect(found.kept).toHaveLength(6);
    const rest = await inProcess(files, ['train', '--resume', '--out', 'a', '--data', 't', '--steps', '4', '--json']);
    expect(rest.status, rest.said).toBe(0);
    const measured = async (data: string) => (await inProcess(files, ['eval', 'a', '--data', data, '--json'])).out;
    expect(await measured('t')).toBe(await measured('t/test.txt'));
    const shown = await done(files, ['tokenizer', 'train', '--vocab-size', '270', '--data', 't', '--out', 'bpe']);
    expect(shown).toContain('data: t: train.txt to train on; valid.txt, test.txt not trained on\ntext: 620 bytes\n');
  });

  test('a run that was trained on the whole folder goes on with its files named, as the error says', async () => {
    const whole = await trained('whole', '--data', ...FOLDER);
    await trained('old', '--data', ...FOLDER, '--until', '2');
    const resume = (...data: string[]) =>
      inProcess(files, ['train', '--resume', '--out', 'old', '--json', '--data', ...data]);
    const refused = await resume('t');
    expect(refused.status).toBe(2);
    expect(refused.said).toContain(
      `old: trained on a corpus of 1124 bytes, this one has 620 or other text; give the same --data; of a run of an earlier version, which trained on all files of a folder, name them: --data ${FOLDER.join(' ')}\n`,
    );
    const rest = await resume(...FOLDER);
    expect(rest.status, rest.said).toBe(0);
    expect(keptIn(rest.out)).toEqual(whole.kept.slice(-keptIn(rest.out).length));
    const other = await resume('t/train.txt');
    expect(other.said).toMatch(/give the same --data\n$/);
  });
});

describe('a classifier', () => {
  const labelled = (from: number, to: number) =>
    lines(...TEXTS.slice(from, to).map((text, i) => ({ text, label: i % 2 === 0 ? 'good' : 'bad' })));
  const here = () =>
    new MemoryFiles({
      ...published('BertForMaskedLM').files,
      'd/train.jsonl': labelled(0, 3),
      'd/dev.jsonl': labelled(3, 5),
      // Of a class that is nowhere else.
      'd/test.jsonl': lines({ text: 'the cat', label: 'odd' }),
    });

  test('learns from the folder as from its files', async () => {
    const files = here();
    const tune = async (out: string, ...data: string[]) =>
      done(files, ['finetune', 'm', ...data, '--out', out, ...QUICK, ...STILL]);
    const found = await tune('folder', '--data', 'd');
    const wanted = await tune('named', '--data', 'd/train.jsonl', '--validation', 'd/dev.jsonl');
    expect(found).toContain('data: d: train.jsonl to train on; dev.jsonl to validate on; test.jsonl left out\n');
    expect(found).toContain('learns to tell bad, good apart');
    const validation = /^step .* validation loss .*$/gm;
    expect(found.match(validation)).toEqual(wanted.match(validation));
    expect(found.match(validation)?.length).toBeGreaterThan(0);
    const said = await inProcess(files, ['eval', 'folder', '--data', 'd']);
    expect([said.status, said.said]).toEqual([
      2,
      'holdfast: d/test.jsonl:1: the class "odd" is none of the model\'s; it tells bad, good apart\n',
    ]);
  });
});
