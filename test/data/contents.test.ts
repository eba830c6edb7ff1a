// A tokenizer made of records: of what their fields say, as of a text that says the same, and of nothing of JSON's syntax. What
// cannot be used is refused as where records are learned from.

import { describe, expect, it, test } from 'vitest';
import { countedIn } from '../../src/browser/conversations.ts';
import { END_OF_TEXT } from '../../src/data/bpe.ts';
import { recordContents } from '../../src/data/records/contents.ts';
import { readDocuments } from '../../src/data/records/read-records.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { trainBpe } from '../../src/data/train-bpe.ts';
import { done, inProcess } from '../cli/in-process.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { TEMPLATES } from './chat-templates.ts';
import { refusal } from './refusal.ts';

const lines = (records: readonly unknown[]) => `${records.map((record) => JSON.stringify(record)).join('\n')}\n`;
const SAYINGS = ['the rope that\nholds', 'holds "the" rope', 'rope 12 é 日本', 'then the others hold', '\\n the rope'];
const said = (i: number) => SAYINGS[i % SAYINGS.length]!;
const numbers = Array.from({ length: 30 }, (_, i) => i);

/** Records, and the texts in them. */
const SHAPES: Readonly<Record<string, readonly [records: readonly unknown[], texts: readonly string[]]>> = {
  text: [numbers.map((i) => ({ text: said(i), id: `source-${i}` })), numbers.map(said)],
  'prompt/completion': [
    numbers.map((i) => ({ prompt: said(i), completion: said(i + 1) })),
    numbers.map((i) => said(i) + said(i + 1)),
  ],
  messages: [
    numbers.map((i) => ({
      messages: [
        { role: 'user', content: said(i) },
        { role: 'assistant', content: [{ type: 'text', text: said(i + 1) }], reasoning_content: said(i + 2) },
      ],
    })),
    numbers.flatMap((i) => [said(i), said(i + 1), said(i + 2)]),
  ],
  sharegpt: [
    numbers.map((i) => ({
      system: said(i),
      conversations: [
        { from: 'human', value: said(i + 1) },
        { from: 'gpt', value: said(i + 2) },
      ],
    })),
    numbers.flatMap((i) => [said(i), said(i + 1), said(i + 2)]),
  ],
  alpaca: [
    numbers.map((i) => ({ instruction: said(i), input: said(i + 1), output: said(i + 2) })),
    numbers.flatMap((i) => [`${said(i)}\n${said(i + 1)}`, said(i + 2)]),
  ],
};

const train = (...args: string[]) => ['tokenizer', 'train', '--vocab-size', '330', ...args];

describe('a tokenizer of records is that of a text that says the same', () => {
  it.each(Object.entries(SHAPES))('%s', async (_, [records, texts]) => {
    const files = new MemoryFiles({
      'd.jsonl': lines(records),
      'list.json': JSON.stringify(records, null, 1),
      'd/train.jsonl': lines(records),
      'd/test.jsonl': lines([{ text: 'otherwise '.repeat(99) }]),
      'said.txt': texts.join(END_OF_TEXT),
    });
    await done(files, train('--data', 'said.txt', '--out', 'wanted'));
    for (const source of ['d.jsonl', 'list.json', 'd']) {
      const out = `of-${source}`;
      const shown = await done(files, train('--data', source, '--out', out));
      expect(shown).toMatch(/^records: [\d,]+ bytes$/m);
      expect(shown.includes('data: d: train.jsonl to train on; test.jsonl not trained on\n')).toBe(source === 'd');
      for (const name of await files.list('wanted'))
        expect(files.contents.get(`${out}/${name}`)).toEqual(files.contents.get(`wanted/${name}`));
    }
    // On a page.
    const wanted = new TextDecoder().decode(files.contents.get('wanted/tokenizer.json'));
    for (const text of [lines(records), new Blob([lines(records)])])
      expect((await trainBpe(await countedIn(text), 330)).files['tokenizer.json']).toBe(wanted);
  });
});

describe('what cannot be used is refused as where it is learned, and nothing is written', () => {
  it.each([
    ['{"text": "x"}\n{"text": 3}\n', 'd.jsonl:2: text is 3'],
    ['{"text": "x"}\n\n{"text": "y"\n', 'd.jsonl:3: not JSON'],
    ['{"messages": [{"role": "user"}, {"content": "x"}]}', 'd.jsonl:1: messages[1].role is missing'],
    ['{"text": "x"}\n{"prompt": "x", "completion": "y"}', 'd.jsonl:2 is a record of the shape prompt/completion'],
    ['{"prompt": "x", "chosen": "y", "rejected": "z"}', 'd.jsonl:1: chosen'],
    ['\n', 'd.jsonl: no records; name a file of records'],
  ])('%j', async (content, wanted) => {
    const files = new MemoryFiles({ 'd.jsonl': content });
    const settings = { trainOn: 'answers', template: TEMPLATES.chatml } as const;
    const line = await refusal(readDocuments(memoryHost(files), ['d.jsonl'], new ByteTokenizer(), settings));
    expect(line).toContain(wanted);
    const { status, said } = await inProcess(files, train('--data', 'd.jsonl', '--out', 'to'));
    expect([status, said]).toEqual([2, `holdfast: ${line}\n`]);
    expect([...files.contents.keys()].filter((path) => path.startsWith('to'))).toEqual([]);
  });

  it('on a page, too', async () => {
    const made = async (text: string | Blob) => trainBpe(await countedIn(text), 300);
    expect(await refusal(made('{"text": "x"}\n{"text": 3}\n'))).toContain('the text:2: text is 3');
    expect(await refusal(made(new File(['{"messages": [}\n'], 'a.jsonl')))).toContain('the text:1: not JSON');
    expect(await refusal(made(''))).toContain('the text is empty');
  });
});

test('records are read in pieces, and how far they are is told', async () => {
  const [records] = SHAPES['messages']!;
  const whole = new TextEncoder().encode(lines(Array.from({ length: 400 }, () => records).flat()));
  let [most, count] = [0, 0];
  class Pieces extends MemoryFiles {
    override read = async () => expect.unreachable('the file is read whole');
    override async open(path: string) {
      const file = { bytes: whole.length, close: async () => {} };
      const readRange = async (offset: number, bytes: number) => {
        most = Math.max(most, bytes);
        count++;
        return whole.slice(offset, offset + bytes);
      };
      expect(path).toBe('a.jsonl');
      return { ...file, readRange };
    }
  }
  const told: number[] = [];
  const { bytes, texts } = recordContents(new Pieces(), [{ path: 'a.jsonl', bytes: whole.length }]);
  await trainBpe({ bytes, texts }, 300, ({ phase, done, total }) => {
    if (phase === 'counting') told.push(done / total);
  });
  expect(most).toBe(2 ** 20);
  expect(count).toBeGreaterThan(2);
  expect(told.length).toBeGreaterThan(2);
  expect(told).toEqual([...told].sort((a, b) => a - b));
  expect(told.at(-1)).toBeLessThanOrEqual(1);
});
