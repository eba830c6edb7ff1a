// Many records, encoded by threads: the documents and the rows that one thread makes, in order; what cannot be used is one error
// with its place.

import { expect, test } from 'vitest';
import { BYTES_A_THREAD } from '../../src/data/encoding-threads.ts';
import { LabelledTexts } from '../../src/data/labelled-texts.ts';
import { readDocuments } from '../../src/data/records/read-records.ts';
import { labelsOf } from '../../src/formats/families/labels.ts';
import type { Threads } from '../../src/runtime/host.ts';
import { Random } from '../../src/util/random.ts';
import { testHost } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { TEMPLATES } from './chat-templates.ts';
import { bert, made, SMALL } from './tokenizers.ts';

const LABELS = labelsOf(['a', 'b', 'c']);
const random = new Random(8, 'many records');
const words = (most: number) => 'the thing is in 12 日本 lines 😀 '.repeat(1 + random.below(most));
const jsonl = (records: readonly unknown[]) => records.map((record) => JSON.stringify(record)).join('\n');
/** What is no text to encode, and is read all the same: threads are started by the bytes of the files. */
const source = '.'.repeat(4000);
const COUNT = 1000;
const chats = Array.from({ length: COUNT }, (_, i) => ({
  source,
  messages: [
    { role: 'user', content: words(20) },
    // Some with nothing to learn.
    ...(i % 15 === 7 ? [] : [{ role: 'assistant', content: words(30) }]),
  ],
}));
const reviews = Array.from({ length: COUNT }, (_, i) => ({
  source,
  text: words(30),
  text_pair: words(i % 3 === 0 ? 20 : 5),
  label: 'abc'[i % 3],
}));
const FILES = { 'chats.jsonl': jsonl(chats), 'reviews.jsonl': jsonl(reviews) };

/** Two threads of the place, counted. */
function counted() {
  const figures = { started: 0 };
  const threads: Threads = {
    count: 2,
    start: (...given) => {
      figures.started++;
      return (testHost.threads as Threads).start(...given);
    },
  };
  return { threads, figures };
}

const hostOf = (threads: Threads | undefined, files: Record<string, string> = FILES) =>
  memoryHost(new MemoryFiles(files), threads && { threads });

test('are enough for two threads', () => {
  for (const text of Object.values(FILES)) expect(text.length).toBeGreaterThan(2 * BYTES_A_THREAD);
});

test.each(['answers', 'all'] as const)('conversations, of which %s are learned', async (trainOn) => {
  const { threads, figures } = counted();
  const read = (threads: Threads | undefined) =>
    readDocuments(hostOf(threads), ['chats.jsonl'], made(SMALL), { trainOn, template: TEMPLATES.llama3 });
  const [found, expected] = [await read(threads), await read(undefined)];
  expect(figures.started).toBe(2);
  const { documents, ...facts } = found;
  const { documents: wanted, ...others } = expected;
  expect(facts).toEqual(others);
  expect([documents.count, documents.tokens]).toEqual([wanted.count, wanted.tokens]);
  const [tokens, wantedTokens] = await Promise.all([documents, wanted].map((each) => each.read([[0, each.tokens]])));
  // Millions: not for toEqual.
  expect(tokens?.[0]?.findIndex((token, i) => token !== wantedTokens?.[0]?.[i])).toBe(-1);
  for (let i = 0; i < wanted.count; i++) {
    expect(documents.range(i)).toEqual(wanted.range(i));
    expect(documents.firstLearned(i)).toBe(wanted.firstLearned(i));
  }
});

test('pairs of texts with labels', async () => {
  const { threads, figures } = counted();
  const read = (threads: Threads | undefined) =>
    LabelledTexts.read(hostOf(threads), ['reviews.jsonl'], made(bert()), { labels: LABELS, seq: 64 });
  const [found, expected] = [await read(threads), await read(undefined)];
  expect(figures.started).toBe(2);
  expect([found.count, found.note]).toEqual([expected.count, expected.note]);
  const all = Array.from({ length: found.count }, (_, i) => i);
  expect(await found.batch(all)).toEqual(await expected.batch(all));
});

test('one that cannot be used, behind many that are under way', async () => {
  const { threads } = counted();
  const damaged = `${FILES['chats.jsonl']}\n{"messages": 3}\n${FILES['chats.jsonl']}`;
  const read = readDocuments(hostOf(threads, { 'chats.jsonl': damaged }), ['chats.jsonl'], made(SMALL), {
    trainOn: 'answers',
    template: TEMPLATES.llama3,
  });
  await expect(read).rejects.toThrow(new RegExp(`^chats\\.jsonl:${COUNT + 1}`));
});
