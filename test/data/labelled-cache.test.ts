// Texts with labels that were read before: their rows come from the cache, the same to the bit, and are made again where the file
// there is damaged or another's, and where anything is different that decides them. What cannot be used is refused with the same
// words whatever the cache has.

import { expect, test } from 'vitest';
import { arrayOf } from '../../src/data/batches.ts';
import { LabelledTexts, type LabelledTokenizer } from '../../src/data/labelled-texts.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { labelsOf } from '../../src/formats/families/labels.ts';
import { HoldfastError, messageOf } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const TRAILER = 512;
const LABELS = labelsOf(['a', 'b', 'c']);

const jsonl = (records: readonly unknown[]) => `${records.map((record) => JSON.stringify(record)).join('\n')}\n`;
const random = new Random(5, 'texts');
const words = () => 'é日 x'.repeat(random.below(4));
const PAIRS = Array.from({ length: 30 }, (_, i) => ({ text: words(), text_pair: words(), label: 'abc'[i % 3] }));
const FILES = {
  'pairs/1.jsonl': jsonl(PAIRS.slice(0, 20)),
  'pairs/2.json': JSON.stringify(PAIRS.slice(20)),
  'copy/a.jsonl': jsonl(PAIRS.slice(0, 20)),
  'copy/b.json': JSON.stringify(PAIRS.slice(20)),
};
const FEW = jsonl(PAIRS.slice(3, 6));

/** One token a byte, counted; `shift` makes ids that 16 bits do not hold with a mark. */
function counted({ shift = 0, begin = 1, sha256 = '', path = 'somewhere' } = {}) {
  const bytes = new ByteTokenizer();
  const marks: Record<string, number> = { '[CLS]': begin, '[SEP]': 2, '[PAD]': 3 };
  const tokenizer: LabelledTokenizer & { calls: number } = {
    calls: 0,
    ...{ specials: bytes.specials, addsBos: false, stream: () => bytes.stream() },
    vocabulary: 256 + shift,
    identity: { kind: 'huggingface', path, sha256: `${shift}${sha256}` },
    encode(text) {
      const mark = typeof text === 'string' ? marks[text] : undefined;
      if (mark !== undefined) return Int32Array.of(mark);
      this.calls++;
      return bytes.encode(text).map((id) => id + shift);
    },
  };
  return tokenizer;
}

interface Opened {
  data?: string[];
  seq?: number;
  labels?: typeof LABELS;
}

const open = (
  files: MemoryFiles,
  tokenizer: LabelledTokenizer,
  { data = ['pairs'], seq = 24, labels = LABELS }: Opened = {},
) => LabelledTexts.read(memoryHost(files), data, tokenizer, { labels, seq });

/** All that is known of them, but where they lie. */
const facts = async (texts: LabelledTexts) => ({
  ...{ identity: texts.identity, seq: texts.seq, note: texts.note.replace(/ in .*, of/, ', of') },
  rows: await texts.batch(Array.from({ length: texts.count }, (_, i) => i)),
});

const cached = (files: MemoryFiles) => [...files.contents.keys()].filter((path) => path.startsWith('/cache/'));

test.each([
  ['16 bits each', 0],
  ['32 bits each', 40_000],
])('are read once, wherever they lie, with the same rows from the cache: %s', async (_, shift) => {
  const files = new MemoryFiles(FILES);
  const tokenizer = counted({ shift });
  const first = await open(files, tokenizer);
  expect([first.count, first.note]).toEqual([
    30,
    '30 texts with labels in 2 files (10 a, 10 b, 10 c), of 45 tokens at most, 12 longer than 24 and cut off',
  ]);
  expect(tokenizer.calls).toBe(60);
  const again = await open(files, tokenizer, { data: ['copy'] });
  expect(tokenizer.calls).toBe(60);
  expect(again.names).toEqual(['copy/a.jsonl', 'copy/b.json']);
  expect(await facts(again)).toEqual(await facts(first));
  const { rows } = await facts(first);
  const [path = '', ...others] = cached(files);
  expect(others).toEqual([]);
  const tokens = [...arrayOf(rows, 'attentionMask', 'i32')].reduce((sum, one) => sum + one, 0);
  expect((await files.read(path)).length).toBe(tokens * (shift === 0 ? 2 : 4) + 8 * 30 + TRAILER);
});

test('are made again where a bit of the file there is another, where it is cut off, and where it is another’s', async () => {
  const files = new MemoryFiles({ 'few.jsonl': FEW });
  const tokenizer = counted();
  const read = () => open(files, tokenizer, { data: ['few.jsonl'] });
  const first = await read();
  const [path = ''] = cached(files);
  const whole = await files.read(path);
  await open(files, tokenizer, { data: ['few.jsonl'], seq: 25 });
  const foreign = await files.read(cached(files)[1] ?? '');
  const isMadeAgain = async (bytes: Uint8Array<ArrayBuffer>, what: string) => {
    files.contents.set(path, bytes);
    tokenizer.calls = 0;
    const found = await read();
    expect(tokenizer.calls, what).toBe(6);
    expect(await facts(found), what).toEqual(await facts(first));
    expect(await files.read(path), what).toEqual(whole);
  };
  // An odd step: each of the eight bits comes.
  for (let at = 0; at < whole.length; at += EVERY_CASE ? 1 : 9) {
    await isMadeAgain(
      whole.map((byte, i) => (i === at ? byte ^ (1 << (at % 8)) : byte)),
      `a bit of byte ${at}`,
    );
    await isMadeAgain(whole.slice(0, at), `its first ${at} bytes`);
  }
  await isMadeAgain(whole.slice(-TRAILER), 'its last line alone');
  await isMadeAgain(foreign, 'another’s');
});

test('what decides them is known: the files and where each ends, the tokenizer and its marks, the length of a row, the classes', async () => {
  const numbered = PAIRS.map((pair, i) => JSON.stringify({ ...pair, label: i % 2 }));
  const files = new MemoryFiles({
    ...FILES,
    'less.jsonl': jsonl(PAIRS.slice(0, 20)),
    // The same bytes: without an end of its line behind it, the first file's last record is one all the same.
    'one/1': numbered.join('\n'),
    'two/1': `${numbered.slice(0, 15).join('\n')}\n`,
    'two/2': numbered.slice(15).join('\n'),
  });
  const others: [string, Opened, Parameters<typeof counted>[0]][] = [
    ['nothing', {}, {}],
    ['the text', { data: ['less.jsonl'] }, {}],
    ['numbers for names', { data: ['one'] }, {}],
    ['where the files end', { data: ['two'] }, {}],
    ['the length of a row', { seq: 23 }, {}],
    ['the order of the classes', { labels: labelsOf(['c', 'b', 'a']) }, {}],
    ['one class more', { labels: labelsOf(['a', 'b', 'c', 'd']) }, {}],
    ['the tokenizer', {}, { sha256: 'another' }],
    ['its mark in front', {}, { begin: 9 }],
  ];
  for (const [i, [what, options, changes]] of others.entries()) {
    const found = await open(files, counted(changes), options);
    expect(cached(files), what).toHaveLength(i + 1);
    expect(await facts(found), what).toEqual(await facts(await open(withoutCache(files), counted(changes), options)));
  }
  // Not where they or the tokenizer lie.
  const tokenizer = counted({ path: 'elsewhere' });
  await open(files, tokenizer, { data: ['copy'] });
  expect([tokenizer.calls, cached(files).length]).toEqual([0, others.length]);
});

test('what cannot be used is refused in the same words, whatever the cache has, and leaves nothing there', async () => {
  const records = (changed: object) => jsonl(PAIRS.map((pair, i) => (i === 6 ? { ...pair, ...changed } : pair)));
  const refused = async (files: MemoryFiles, options: Opened = {}) => {
    const before = cached(files);
    const error = await open(files, counted(), { data: ['d.jsonl'], ...options }).catch((error: unknown) => error);
    expect(error).toBeInstanceOf(HoldfastError);
    expect(cached(files)).toEqual(before);
    return messageOf(error);
  };
  const files = new MemoryFiles({ 'd.jsonl': records({}) });
  await open(files, counted(), { data: ['d.jsonl'] });
  const wrong: [string, string, Opened][] = [
    [records({ label: 'z' }), 'd.jsonl:7: the class "z" is none of the model\'s', {}],
    [records({ label: 1 }), 'd.jsonl:7: label is 1, a number; those before it are names', {}],
    [records({ text: 3 }), 'd.jsonl:7: text', {}],
    [records({}), 'd.jsonl:3: the class "c" is none of the model\'s', { labels: labelsOf(['a', 'b']) }],
    [records({}), 'rows of 3 tokens', { seq: 3 }],
    ['', 'd.jsonl: no records', {}],
  ];
  for (const [text, message, options] of wrong) {
    files.contents.set('d.jsonl', new TextEncoder().encode(text));
    const first = await refused(files, options);
    expect(first).toContain(message);
    expect(await refused(files, options)).toBe(first);
    expect(await refused(withoutCache(files), options)).toBe(first);
  }
});

test('nothing is left behind by reading that is ended, or finds other bytes than before', async () => {
  const long = jsonl(Array.from({ length: 40 }, () => ({ text: 'long '.repeat(2000), label: 'a' })));
  const fails = async (files: MemoryFiles, message: string, options = {}) => {
    const read = LabelledTexts.read(memoryHost(files), ['d.jsonl'], counted(), { labels: LABELS, seq: 9 }, options);
    await expect(read).rejects.toThrow(message);
    expect(cached(files)).toEqual([]);
  };
  const abort = new AbortController();
  const ended = { signal: abort.signal, onProgress: () => abort.abort() };
  await fails(new MemoryFiles({ 'd.jsonl': long }), 'stopped while the text was tokenized', ended);
  const files = new MemoryFiles({ 'd.jsonl': long });
  const changed = () => void files.contents.set('d.jsonl', new TextEncoder().encode(long.replaceAll('long', 'wide')));
  files.open = async function (path) {
    changed();
    return await MemoryFiles.prototype.open.call(this, path);
  };
  await fails(files, 'were changed while they were read');
});

test.each(['opened', 'written', 'committed'])('a cache that cannot be %s costs time only', async (what) => {
  const files = new MemoryFiles(FILES);
  const full = () => Promise.reject(new Error('full'));
  files.writeStream = async function (path) {
    if (what === 'opened') return await full();
    const stream = await MemoryFiles.prototype.writeStream.call(this, path);
    return { ...stream, ...(what === 'written' ? { write: full } : { commit: full }) };
  };
  const wanted = await facts(await open(new MemoryFiles(FILES), counted()));
  const tokenizer = counted();
  for (const calls of [60, 120]) {
    expect(await facts(await open(files, tokenizer))).toEqual(wanted);
    expect([tokenizer.calls, cached(files)]).toEqual([calls, []]);
  }
});

/** The same files, and nothing cached. */
function withoutCache(files: MemoryFiles): MemoryFiles {
  return new MemoryFiles(Object.fromEntries([...files.contents].filter(([path]) => !path.startsWith('/cache/'))));
}
