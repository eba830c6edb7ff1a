// Records that were read before: their documents come from the cache, the same to the bit and so the same batches, and are
// made again where the file there is damaged or another's, and where anything is different that decides them.

import { expect, test } from 'vitest';
import type { Batch } from '../../src/data/batches.ts';
import { documentDataset } from '../../src/data/dataset.ts';
import {
  type CachedTokenizer,
  type ReadDocuments,
  type RecordSettings,
  readDocuments,
} from '../../src/data/records/read-records.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { TEMPLATES } from './chat-templates.ts';
import { listed } from './held-documents.ts';

const TRAILER = 512;
const ANSWERS: Pick<RecordSettings, 'trainOn' | 'template'> = { trainOn: 'answers', template: TEMPLATES.llama3 };

const jsonl = (records: readonly unknown[]) => `${records.map((record) => JSON.stringify(record)).join('\n')}\n`;
const random = new Random(5, 'chats');
const words = () => 'é日 word '.repeat(1 + random.below(6));
const CHATS = Array.from({ length: 30 }, (_, i) => ({
  messages: [
    { role: 'user', content: words() },
    // Two with nothing to learn.
    ...(i % 15 === 7 ? [] : [{ role: 'assistant', content: words() }]),
  ],
}));
const FILES = {
  'chats/1.jsonl': jsonl(CHATS.slice(0, 20)),
  'chats/2.json': JSON.stringify(CHATS.slice(20)),
  'copy/a.jsonl': jsonl(CHATS.slice(0, 20)),
  'copy/b.json': JSON.stringify(CHATS.slice(20)),
};

/** One token a byte, its id higher than 16 bits go with a mark. */
function counted(shift = 0) {
  const bytes = new ByteTokenizer();
  const tokenizer: { -readonly [K in keyof CachedTokenizer]: CachedTokenizer[K] } & { calls: number } = {
    calls: 0,
    ...{ specials: bytes.specials, addsBos: false, tokenBytes: 1, stream: () => bytes.stream() },
    vocabulary: 256 + shift,
    identity: { kind: 'huggingface', path: 'somewhere', sha256: `${shift}` },
    encode(text) {
      this.calls++;
      return bytes.encode(text).map((id) => id + shift);
    },
  };
  if (shift > 0) tokenizer.stream = () => ({ ...bytes.stream(), push: (id) => bytes.stream().push(id - shift) });
  return tokenizer;
}

interface Opened {
  settings?: Pick<RecordSettings, 'trainOn' | 'template'>;
  data?: string[];
  mostHeld?: number;
}

const open = (
  files: MemoryFiles,
  tokenizer: CachedTokenizer,
  { settings = ANSWERS, data = ['chats'], ...options }: Opened = {},
) => readDocuments(memoryHost(files), data, tokenizer, settings, options);

/** All that is known of them, but where they lie. */
async function facts({ documents, names: _, ...rest }: ReadDocuments) {
  const firsts = Array.from({ length: documents.count }, (_, i) => documents.firstLearned(i));
  return { ...rest, firsts, documents: await listed(documents) };
}

const cached = (files: MemoryFiles) => [...files.contents.keys()].filter((path) => path.startsWith('/cache/tokens/'));

test.each([
  ['16 bits each', 0],
  ['32 bits each', 40_000],
])('are read once, wherever they lie, with the same batches from the cache: %s', async (_, shift) => {
  const files = new MemoryFiles(FILES);
  const tokenizer = counted(shift);
  const first = await open(files, tokenizer);
  expect([first.documents.count, first.leftOut, first.longer, first.shapes]).toEqual([28, 2, 'cut', ['messages']]);
  const { calls } = tokenizer;
  expect(calls).toBeGreaterThan(28);
  const again = await open(files, tokenizer, { data: ['copy'] });
  expect(tokenizer.calls).toBe(calls);
  expect(again.names).toEqual(['copy/a.jsonl', 'copy/b.json']);
  expect(await facts(again)).toEqual(await facts(first));
  const [path = '', ...others] = cached(files);
  expect(others).toEqual([]);
  const { tokens, count } = first.documents;
  expect((await files.read(path)).length).toBe(tokens * (shift === 0 ? 2 : 4) + 8 * count + TRAILER);

  const options = { batch: 3, seq: 300, seed: 4, evalWindows: 5, validationShare: 0.2 };
  for (const pack of [true, false]) {
    const [a, b] = await Promise.all([first, again].map((train) => documentDataset({ train }, options, pack)));
    expect(b?.validation).toEqual(a?.validation);
    expect([b?.prompt, b?.rowsIn(3), b?.notes]).toEqual([a?.prompt, a?.rowsIn(3), a?.notes]);
    const batches: Batch[] = [];
    let place: number[] = [];
    for (let i = 0; i < 12; i++) {
      if (i === 7) place = a?.state() ?? [];
      batches.push(await a!.next());
      expect(await b?.next()).toEqual(batches[i]);
    }
    b?.restore(place);
    expect(await Promise.all(Array.from({ length: 5 }, () => b?.next()))).toEqual(batches.slice(7));
  }
});

test.each([
  ['16 bits each', 0],
  ['32 bits each', 40_000],
])('that are too many to be held are read from the cache, with the same batches: %s', async (_, shift) => {
  const held = await open(new MemoryFiles(FILES), counted(shift));
  const files = new MemoryFiles(FILES);
  const tokenizer = counted(shift);
  const written = await open(files, tokenizer, { mostHeld: 0 });
  const { calls } = tokenizer;
  const again = await open(files, tokenizer, { mostHeld: 0 });
  expect(tokenizer.calls).toBe(calls);
  for (const pack of [true, false])
    for (const longer of ['cut', 'split'] as const) {
      const seq = longer === 'cut' ? 300 : 50;
      const options = { batch: 3, seq, seed: 4, evalWindows: 5, validationShare: 0.2 };
      const make = (read: ReadDocuments) => documentDataset({ train: { ...read, longer } }, options, pack);
      const wanted = await make(held);
      for (const stored of [await make(written), await make(again)]) {
        expect([stored.validation, stored.prompt, stored.notes]).toEqual([
          wanted.validation,
          wanted.prompt,
          wanted.notes,
        ]);
        wanted.restore([0, 0]);
        // Drawn in order, also where all are asked for at once.
        const batches = await Promise.all(Array.from({ length: 9 }, () => stored.next()));
        for (const batch of batches) expect(batch).toEqual(await wanted.next());
        expect(stored.state()).toEqual(wanted.state());
      }
    }
  const dataset = await documentDataset({ train: again }, { batch: 3, seq: 300, seed: 4, evalWindows: 5 }, true);
  const [next, place] = [await dataset.next(), dataset.state()];
  dataset.restore([0, 0]);
  // It is open: another process may remove its name.
  files.contents.clear();
  expect(await dataset.next()).toEqual(next);
  expect(dataset.state()).toEqual(place);
});

test('that are too many to be held, and cannot be written, are held all the same', async () => {
  const files = new MemoryFiles(FILES);
  let writes = 0;
  files.writeStream = async (path) => {
    const stream = await MemoryFiles.prototype.writeStream.call(files, path);
    const write = async (bytes: Uint8Array) => {
      if (writes++ > 1) throw new HoldfastError('the disk is full');
      await stream.write(bytes);
    };
    return { ...stream, write };
  };
  const found = await open(files, counted(), { mostHeld: 0 });
  expect(writes).toBeGreaterThan(1);
  expect(cached(files)).toEqual([]);
  expect(await facts(found)).toEqual(await facts(await open(new MemoryFiles(FILES), counted())));
});

test('are made again where the file there is damaged, or another’s', async () => {
  const files = new MemoryFiles(FILES);
  const tokenizer = counted();
  const first = await open(files, tokenizer);
  const [path = ''] = cached(files);
  await open(files, tokenizer, { settings: { ...ANSWERS, trainOn: 'all' } });
  const foreign = await files.read(cached(files)[1] ?? '');
  const whole = await files.read(path);
  const figures = (change: (line: string) => string) => (bytes: Uint8Array<ArrayBuffer>) => {
    const line = new TextDecoder().decode(bytes.subarray(-TRAILER));
    const other = new TextEncoder().encode(change(line));
    expect([other.length, change(line) === line]).toEqual([TRAILER, false]);
    bytes.set(other, bytes.length - TRAILER);
    return bytes;
  };
  const damages: [string, (bytes: Uint8Array<ArrayBuffer>) => Uint8Array<ArrayBuffer>][] = [
    ['a bit of a token', (bytes) => bytes.map((byte, i) => (i === 1000 ? byte ^ 1 : byte))],
    ['where a document ends', (bytes) => bytes.map((byte, i) => (i === bytes.length - TRAILER - 8 ? byte ^ 1 : byte))],
    ['how many were left out', figures((line) => line.replace('"leftOut":2', '"leftOut":3'))],
    ['the shape', figures((line) => line.replace('["messages"]', '["sharegpt"]'))],
    [
      'where the ends begin',
      figures((line) => line.replace(/"tokenBytes":(\d+)/, '"tokenBytes":1$1').replace('  ', ' ')),
    ],
    ['the checksum', (bytes) => bytes.map((byte, i) => (i === bytes.length - 9 ? byte ^ 1 : byte))],
    ['cut off', (bytes) => bytes.slice(0, -40)],
    ['its last line alone', (bytes) => bytes.slice(-TRAILER)],
    ['empty', () => new Uint8Array()],
    ['another’s', () => foreign.slice()],
  ];
  for (const [what, damage] of damages) {
    files.contents.set(path, damage(whole.slice()));
    const { calls } = tokenizer;
    expect(await facts(await open(files, tokenizer)), what).toEqual(await facts(first));
    expect(tokenizer.calls, what).toBeGreaterThan(calls);
    expect(await files.read(path), what).toEqual(whole);
  }
  expect(cached(files)).toHaveLength(2);
});

test('what decides them is known: the files and where each ends, the tokenizer with its marks, the template, what is learned', async () => {
  const files = new MemoryFiles({
    ...FILES,
    // The same bytes, in one file: the list is a line of it.
    'joined.jsonl': FILES['chats/1.jsonl'] + FILES['chats/2.json'],
    'less.jsonl': jsonl(CHATS.slice(0, 20)),
  });
  const tokenizer = counted();
  const { llama3 } = TEMPLATES;
  await open(files, tokenizer);
  await expect(open(files, tokenizer, { data: ['joined.jsonl'] })).rejects.toThrow('joined.jsonl:21');
  const others: [string, Parameters<typeof open>[2], Partial<CachedTokenizer>][] = [
    ['the text', { data: ['less.jsonl'] }, {}],
    ['what is learned', { settings: { ...ANSWERS, trainOn: 'all' } }, {}],
    ['the template', { settings: { ...ANSWERS, template: TEMPLATES.chatml } }, {}],
    ['the day', { settings: { ...ANSWERS, template: { ...llama3, date: '1999-12-31' } } }, {}],
    ['its mark', { settings: { ...ANSWERS, template: { ...llama3, bos: '<x>' } } }, {}],
    ['the tokenizer', {}, { identity: { kind: 'huggingface', path: '', sha256: 'another' } }],
    ['the end of a text', {}, { specials: { eos: [3] } }],
    ['whether texts begin with a mark', {}, { addsBos: true }],
  ];
  for (const [i, [what, options, changes]] of others.entries()) {
    await open(files, Object.assign(counted(), changes), options);
    expect(cached(files), what).toHaveLength(i + 2);
  }
  // Not where they or the tokenizer lie, nor what the template is called.
  const { calls } = tokenizer;
  tokenizer.identity = { kind: 'huggingface', path: 'elsewhere', sha256: '0' };
  await open(files, tokenizer, { settings: { ...ANSWERS, template: { ...llama3, name: 'mine' } }, data: ['copy'] });
  expect([tokenizer.calls, cached(files).length]).toEqual([calls, others.length + 1]);
});

test('nothing is left behind by reading that fails, is ended, or finds other bytes than before', async () => {
  const long = jsonl(Array.from({ length: 40 }, () => ({ text: 'long '.repeat(2000) })));
  const tokenizer = counted();
  const read = async (files: MemoryFiles, options = {}) => {
    const before = [...files.contents.keys()];
    const { trainOn } = ANSWERS;
    await expect(readDocuments(memoryHost(files), ['d.jsonl'], tokenizer, { trainOn }, options)).rejects.toThrow(
      HoldfastError,
    );
    expect([...files.contents.keys()]).toEqual(before);
  };
  await read(new MemoryFiles({ 'd.jsonl': `${long}{"text": 3}\n` }));
  const abort = new AbortController();
  await read(new MemoryFiles({ 'd.jsonl': long }), { signal: abort.signal, onProgress: () => abort.abort() });
  const files = new MemoryFiles({ 'd.jsonl': long });
  const changed = () => void files.contents.set('d.jsonl', new TextEncoder().encode(long.replaceAll('long', 'wide')));
  files.open = async function (path) {
    changed();
    return await MemoryFiles.prototype.open.call(this, path);
  };
  await read(files);
});
