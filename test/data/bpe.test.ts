// A byte-level BPE trained on a text: the merges of a slow, obvious trainer, and a file that Hugging Face's library reads
// with the same ids.

import { Tokenizer as Library } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { expect, test } from 'vitest';
import {
  bpeTokenizerFiles,
  END_OF_TEXT,
  LEAST_VOCABULARY,
  type Merge,
  trainMerges,
  WordCounts,
} from '../../src/data/bpe.ts';
import { openText } from '../../src/data/corpus.ts';
import { trainBpe } from '../../src/data/train-bpe.ts';
import { byteCharacters } from '../../src/util/byte-characters.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { hardTexts, made, wellFormed } from './tokenizers.ts';

const WORD =
  /'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\p{White_Space}\p{L}\p{N}]+|\p{White_Space}+(?!\P{White_Space})|\p{White_Space}+/gu;

/** Counts everything anew for each merge. Tokens are characters; ids go by the order of the file. */
function obvious(text: string, vocabulary: number): string[] {
  const words = [...text.matchAll(WORD)].map(([word]) => [...byteCharacters(word)]);
  const all = Array.from({ length: 256 }, (_, byte) => byteCharacters(String.fromCharCode(byte)).at(-1) ?? '');
  const ids = [END_OF_TEXT, ...new Set(Array.from({ length: 256 }, (_, byte) => characterOf(byte)))].sort((a, b) =>
    a === END_OF_TEXT ? -1 : b === END_OF_TEXT ? 1 : a < b ? -1 : 1,
  );
  expect(all.length).toBe(256);
  const merges: string[] = [];
  while (ids.length < vocabulary) {
    const counts = new Map<string, number>();
    for (const word of words)
      for (let i = 0; i + 1 < word.length; i++) {
        const pair = `${word[i]} ${word[i + 1]}`;
        counts.set(pair, (counts.get(pair) ?? 0) + 1);
      }
    const rank = (pair: string) => pair.split(' ').map((token) => ids.indexOf(token)) as [number, number];
    const [best] = [...counts].sort(([a, m], [b, n]) => n - m || rank(a)[0] - rank(b)[0] || rank(a)[1] - rank(b)[1]);
    if (!best || best[1] < 2) break;
    const [left = '', right = ''] = best[0].split(' ');
    merges.push(best[0]);
    ids.push(left + right);
    for (const word of words)
      for (let i = 0; i + 1 < word.length; i++)
        if (word[i] === left && word[i + 1] === right) word.splice(i, 2, left + right);
  }
  return merges;
}

/** GPT-2's character of a byte, from its definition. */
function characterOf(byte: number): string {
  const printable = (b: number) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let above = 256;
  for (let b = 0; b < byte; b++) if (!printable(b)) above++;
  return String.fromCharCode(printable(byte) ? byte : above);
}

const trained = async (text: string, vocabulary: number): Promise<Merge[]> => {
  const counts = new WordCounts();
  counts.add(text);
  return trainMerges(counts, vocabulary);
};
const written = (merges: readonly Merge[]) => JSON.parse(bpeTokenizerFiles(merges)['tokenizer.json'] ?? '');

test('the merges are those of a trainer that counts everything anew', async () => {
  const words = fc.constantFrom(
    'a',
    'aa',
    'aaa',
    'ab',
    'ba',
    ' ',
    ' the',
    'they',
    '\n',
    '  ',
    '12',
    '!!',
    'é',
    '日',
    "'s",
  );
  const texts = fc.array(words, { maxLength: 60, size: 'max' }).map((parts) => parts.join(''));
  let most = 0;
  const property = fc.asyncProperty(texts, fc.nat({ max: 40 }), async (text, more) => {
    const merges = await trained(text, LEAST_VOCABULARY + more);
    expect(written(merges).model.merges).toEqual(obvious(text, LEAST_VOCABULARY + more));
    most = Math.max(most, merges.length);
  });
  await fc.assert(property, { seed: 9, numRuns: 60 });
  expect(most).toBeGreaterThan(15);
});

test('of pairs that occur equally often, the lower ids come first', async () => {
  expect(written(await trained('zb zb ay ay', 259)).model.merges).toEqual(['a y', 'z b']);
});

test('a pair is merged as long as it occurs twice, and the token that ends a text is no text', async () => {
  expect(await trained('ab', 400)).toEqual([]);
  const ended = await trained(`${END_OF_TEXT} ab ab${END_OF_TEXT}`.repeat(3), 400);
  expect(written(ended).model.merges).toEqual(['a b', '\u0120 ab']);
});

test('one endless word takes no endless time', async () => {
  const merges = await trained('ab'.repeat(200_000), 300);
  expect(written(merges).model.merges.slice(0, 3)).toEqual(['a b', 'ab ab', 'abab abab']);
});

test.each([256, 2 ** 18 + 1, 300.5])('refuses a vocabulary of %d tokens', async (size) => {
  await expect(trained('aa', size)).rejects.toThrow(HoldfastError);
});

test('in pieces as in one: the default corpus’ kind of text, cut anywhere', async () => {
  const text = 'interface A {\n  b: string;\n}\n\n// It is 12 o’clock, isn’t it? 日本 '.repeat(9000);
  const files = new MemoryFiles({
    'all.txt': text,
    'half/a.txt': text.slice(0, 300_001),
    'half/b.txt': text.slice(300_001),
  });
  const host = memoryHost(files);
  const told: string[] = [];
  const make = async (path: string) =>
    trainBpe(await openText(host, { data: [path], seed: 0 }), 600, ({ phase }) => told.push(phase));
  const [one, two] = [await make('all.txt'), await make('half')];
  expect(two).toEqual(one);
  const whole = new WordCounts();
  whole.add(text);
  expect(one.files).toEqual(bpeTokenizerFiles(await trainMerges(whole, 600)));
  expect(new Set(told)).toEqual(new Set(['counting']));
});

test('the file is read by Hugging Face’s library, with the same ids, and brings every text back', async () => {
  const merges = await trained(hardTexts().join('\n').repeat(2), 700);
  const files = bpeTokenizerFiles(merges);
  const json = JSON.parse(files['tokenizer.json'] ?? '');
  const config = JSON.parse(files['tokenizer_config.json'] ?? '');
  const library = new Library(json, config);
  const companions = Object.fromEntries(Object.entries(files).map(([name, text]) => [name, JSON.parse(text)]));
  const tokenizer = made(json, companions);
  expect(tokenizer).toMatchObject({ vocabulary: 700, specials: { bos: 0, eos: [0] }, addsBos: false });
  for (const text of hardTexts()) {
    const ids = tokenizer.encode(text);
    expect([...ids]).toEqual(library.encode(text).ids);
    expect(tokenizer.decode(ids)).toBe(wellFormed(text));
    if (ids.length > 0) expect(library.decode([...ids])).toBe(wellFormed(text));
  }
});

test('a text of more words than are counted is refused in one line', () => {
  const counts = new WordCounts(4);
  counts.add('one two one two three');
  expect(() => counts.add(' four')).toThrow(
    new HoldfastError('the text has more than 4 different words, the most that are counted; use a part of it'),
  );
});

test.runIf(EVERY_CASE)('a text with no place to cut is refused in one line', async () => {
  const bytes = 2 ** 28 + 1;
  const endless = { bytes, files: 1, names: ['a'], skipped: 0, pieces: () => piece(bytes) };
  await expect(trainBpe(endless, 300)).rejects.toThrow(
    `the text has ${bytes} characters in which it cannot be cut; break it with spaces or lines`,
  );
});

async function* piece(bytes: number) {
  yield new Uint8Array(bytes).fill(97);
}
