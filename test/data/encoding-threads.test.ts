// A large text, tokenized by threads: the ids of the whole, whatever becomes of the threads; in Node, Deno and browsers.

import { expect, test, vi } from 'vitest';
import { bpeTokenizerFiles, trainMerges, WordCounts } from '../../src/data/bpe.ts';
import { textIn } from '../../src/data/corpus.ts';
import { BYTES_A_THREAD } from '../../src/data/encoding-threads.ts';
import { HuggingFaceTokenizer } from '../../src/data/huggingface/tokenizer.ts';
import type { TokenIds } from '../../src/data/token-run.ts';
import { type TokenizingOptions, tokenizedText } from '../../src/data/tokenized-text.ts';
import type { Tokenizer } from '../../src/data/tokenizer.ts';
import type { Thread, Threads, ThreadWorker } from '../../src/runtime/host.ts';
import { Stopped } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { entry, field } from '../entry.ts';
import { testHost } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const WORDS = 'the of and training gradient über 日本語 😀 memory loss 3.14 it’s <|endoftext|> bytes, chunk;\n'.split(
  ' ',
);
const random = new Random(4, 'a large text');
const word = () => WORDS[random.below(WORDS.length)] ?? '';
/** Of bytes enough for two threads. */
const TEXT = Array.from({ length: BYTES_A_THREAD / 3 }, word).join(' ');

async function madeTokenizer(): Promise<HuggingFaceTokenizer> {
  const counts = new WordCounts();
  counts.add(TEXT.slice(0, 10_000));
  const json = field(bpeTokenizerFiles(await trainMerges(counts, 300)), 'tokenizer.json');
  const contents = new Map([['tokenizer.json', new TextEncoder().encode(json)]]);
  return new HuggingFaceTokenizer({ path: 'tokenizer.json', sha256: '0'.repeat(64), contents });
}
const tokenizer = await madeTokenizer();

const own = entry(new Map([['threads', testHost.threads as Threads]]), 'threads');

/** Threads of the place, with what becomes of the messages to each; how many were started, and how many ended. */
function watched(
  count: number,
  post: (thread: Thread, message: unknown) => void = (thread, message) => thread.post(message),
) {
  const figures = { started: 0, ended: 0 };
  const threads: Threads = {
    count,
    async start(worker: ThreadWorker, told) {
      const thread = await own.start(worker, told);
      figures.started++;
      return {
        post: (message) => post(thread, message),
        keepAlive: (busy) => thread.keepAlive(busy),
        async end() {
          figures.ended++;
          await thread.end();
        },
      };
    },
  };
  return { threads, figures };
}

async function tokenizedBy(
  threads: Threads | undefined,
  by: Tokenizer = tokenizer,
  text = TEXT,
  options?: TokenizingOptions,
): Promise<TokenIds[]> {
  const host = memoryHost(new MemoryFiles(), threads && { threads });
  const { train, validation } = await tokenizedText(host, textIn(text), by, options);
  return [...(await train.read([[0, train.length]])), ...(await validation.read([[0, validation.length]]))];
}
const expected = await tokenizedBy(undefined);

/** Millions of ids: compared here, since a matcher would take seconds. */
function expectExpected(found: readonly TokenIds[]): void {
  expect(found.map(({ length }) => length)).toEqual(expected.map(({ length }) => length));
  expect(found.map((ids, i) => ids.findIndex((id, at) => id !== expected[i]?.[at]))).toEqual([-1, -1]);
}

test.each([2, 3])('the ids are those that one thread makes, in order: with %i at hand', async (count) => {
  const { threads, figures } = watched(count);
  const here = vi.spyOn(tokenizer, 'encode');
  const told: number[] = [];
  const found = await tokenizedBy(threads, tokenizer, TEXT, { onProgress: (done) => told.push(done) });
  expect(here).not.toHaveBeenCalled();
  here.mockRestore();
  expectExpected(found);
  expect(figures).toEqual({
    started: Math.min(count, Math.floor(textIn(TEXT).bytes / BYTES_A_THREAD)),
    ended: figures.started,
  });
  expect(told).toEqual(told.toSorted((a, b) => a - b));
  expect(told.at(-1)).toBe(textIn(TEXT).bytes);
});

test('a text that is soon done starts no thread', async () => {
  const { threads, figures } = watched(2);
  await tokenizedBy(threads, tokenizer, TEXT.slice(0, BYTES_A_THREAD));
  expect(figures.started).toBe(0);
});

/** Of a message to a thread. */
const isText = (message: unknown): boolean => typeof message === 'object' && message !== null && 'task' in message;

// A browser does not tell of a worker that ends.
const inBrowser = !/^(Node|Deno)/.test(testHost.name);

test.runIf(!inBrowser).each([1, 2])(
  '%i of two threads die while they encode: what they had is encoded here',
  async (dying) => {
    let texts = 0;
    const doomed = new Set<Thread>();
    const { threads } = watched(2, (thread, message) => {
      thread.post(message);
      if (!isText(message) || ++texts < 9) return;
      if (doomed.size < dying) doomed.add(thread);
      if (doomed.has(thread)) void thread.end();
    });
    expectExpected(await tokenizedBy(threads));
    expect(doomed.size).toBe(dying);
  },
);

test('threads that cannot be started, or that cannot make the tokenizer, cost time alone', async () => {
  const none: Threads = { count: 2, start: () => Promise.reject(new Error('no threads today')) };
  expectExpected(await tokenizedBy(none));
  const { threads } = watched(2, (thread, message) => {
    const damaged = { files: { path: 'tokenizer.json', sha256: '', contents: new Map() } };
    thread.post(isText(message) ? message : damaged);
  });
  expectExpected(await tokenizedBy(threads));
});

test('a text that cannot be encoded is one error, and its threads end', async () => {
  const failing: Tokenizer = Object.create(tokenizer, {
    encode: {
      value: () => {
        throw new Error('no ids for this');
      },
    },
    nextCut: { value: (text: string, from: number) => tokenizer.nextCut(text, from) },
  });
  const { threads, figures } = watched(2, (thread, message) => {
    thread.post(isText(message) ? { ...(message as object), task: { texts: [1] } } : message);
  });
  await expect(tokenizedBy(threads, failing)).rejects.toThrow('no ids for this');
  expect(figures).toEqual({ started: 2, ended: 2 });
});

test('stopped, it stops, and its threads end', async () => {
  const stop = new AbortController();
  const { threads, figures } = watched(2);
  const onProgress = (done: number) => done > BYTES_A_THREAD / 2 && stop.abort();
  await expect(tokenizedBy(threads, tokenizer, TEXT, { signal: stop.signal, onProgress })).rejects.toThrow(Stopped);
  expect(figures).toEqual({ started: 2, ended: 2 });
});
