// Files of records: the shapes that people have, what each becomes, and every kind of damage, each refused in one line with
// its place.

import fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { encodeDocument } from '../../src/data/documents.ts';
import { linesOf, recordsOf } from '../../src/data/records/lines.ts';
import { type RecordSettings, readDocuments } from '../../src/data/records/read-records.ts';
import { exampleOf, recordShape } from '../../src/data/records/shapes.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import type { OpenFile } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { TEMPLATES } from './chat-templates.ts';
import { listed } from './held-documents.ts';
import { refusal } from './refusal.ts';
import { type Json, llama2, made } from './tokenizers.ts';

const tokenizer = new ByteTokenizer();
const jsonl = (...records: unknown[]) => `${records.map((record) => JSON.stringify(record)).join('\n')}\n`;
const ANSWERS: Pick<RecordSettings, 'trainOn' | 'template'> = { trainOn: 'answers', template: TEMPLATES.chatml };

async function read(
  content: string | Uint8Array,
  settings: Pick<RecordSettings, 'trainOn' | 'template'> = ANSWERS,
  path = 'd.jsonl',
) {
  const host = memoryHost(new MemoryFiles({ [path]: content }));
  const found = await readDocuments(host, [path], tokenizer, settings);
  const shown = (await listed(found.documents)).map(({ ids, learned }) => ({
    text: tokenizer.decode(ids),
    learned: tokenizer.decode(ids.filter((_, t) => learned[t])),
  }));
  return { ...found, shown };
}

const chat = (asked: string, answer: string) => [
  { role: 'user', content: asked },
  { role: 'assistant', content: answer },
];
const written = (asked: string, answer: string) =>
  `<|im_start|>system\nYou are helpful.<|im_end|>\n<|im_start|>user\n${asked}<|im_end|>\n<|im_start|>assistant\n${answer}<|im_end|>\n`;

describe('the shapes', () => {
  it('text: every token but the first is learned', async () => {
    const { shown, longer } = await read(jsonl({ text: 'abc', id: 1 }, { text: 'de' }));
    expect(shown).toEqual([
      { text: 'abc', learned: 'bc' },
      { text: 'de', learned: 'e' },
    ]);
    expect(longer).toBe('split');
  });

  it('prompt and completion: the completion', async () => {
    const content = jsonl({ prompt: '2+2=', completion: ' 4', other: [] });
    expect((await read(content)).shown).toEqual([{ text: '2+2= 4', learned: ' 4' }]);
    expect((await read(content, { trainOn: 'all' })).shown).toEqual([{ text: '2+2= 4', learned: '+2= 4' }]);
  });

  const learned = 'yes<|im_end|>';
  it.each([
    ['messages', { messages: chat('so?', 'yes') }],
    [
      'messages of parts',
      {
        messages: [
          {
            role: 'user',
            content: [
              { type: 'text', text: 's' },
              { type: 'text', text: 'o?' },
            ],
          },
          { role: 'assistant', content: 'yes' },
        ],
      },
    ],
    [
      'messages beside a prompt, as UltraChat has them',
      { prompt: 'so?', messages: chat('so?', 'yes'), prompt_id: 'x' },
    ],
    [
      'prompt and completion, of messages',
      { prompt: chat('so?', 'yes').slice(0, 1), completion: chat('so?', 'yes').slice(1) },
    ],
    [
      'sharegpt',
      {
        conversations: [
          { from: 'human', value: 'so?' },
          { from: 'gpt', value: 'yes' },
        ],
      },
    ],
    ['alpaca', { instruction: 'so?', input: '', output: 'yes' }],
  ])('%s: the answers, through the ends of their turns', async (_, record) => {
    expect((await read(jsonl(record))).shown).toEqual([{ text: written('so?', 'yes'), learned }]);
  });

  it('answers in the prompt are not learned', async () => {
    const prompt = [...chat('a', 'b'), { role: 'user', content: 'c' }];
    const { shown } = await read(jsonl({ prompt, completion: [{ role: 'assistant', content: 'd' }] }));
    expect(shown.map(({ learned }) => learned)).toEqual(['d<|im_end|>']);
  });

  const weighted = (weight: unknown) => [...chat('a', 'b').slice(0, 1), { role: 'assistant', content: 'b', weight }];
  it('answers of weight 0 are not learned, whatever else is; those of 1, or without a weight, are', async () => {
    const content = jsonl({ messages: [...weighted(0), ...chat('c', 'd')] }, { messages: weighted(1) });
    const { shown } = await read(content);
    expect(shown.map(({ learned }) => learned)).toEqual(['d<|im_end|>', 'b<|im_end|>']);
    const all = (await read(content, { ...ANSWERS, trainOn: 'all' })).shown;
    expect(all.map(({ text, learned }) => [text.length - learned.length, learned.includes('assistant\nb')])).toEqual([
      ['<'.length + 'b<|im_end|>'.length, false],
      [1, true],
    ]);
    const only = await read(jsonl({ messages: weighted(0) }, { messages: weighted(null) }));
    expect([only.leftOut, only.shown.map(({ learned }) => learned)]).toEqual([1, ['b<|im_end|>']]);
    const conversations = [0, 1].flatMap((weight) => [
      { from: 'human', value: 'a', weight: 0 },
      { from: 'gpt', value: `b${weight}`, weight },
    ]);
    expect((await read(jsonl({ conversations }))).shown[0]?.learned).toBe('b1<|im_end|>');
  });

  it.each([0.5, 2, -1, '0', true])('a weight of %o is refused', async (weight) => {
    const message = await refusal(read(jsonl({ messages: chat('a', 'b') }, { messages: weighted(weight) })));
    expect(message).toBe(`d.jsonl:2: messages[1].weight is ${JSON.stringify(weight)}; it must be one of 0, 1`);
  });

  it('alpaca: an input stands below the instruction; without a template it is the prompt that it was published with', async () => {
    const record = { instruction: 'Add.', input: '2 3', output: '5' };
    expect((await read(jsonl(record))).shown[0]?.text).toBe(written('Add.\n2 3', '5'));
    const [plain] = (await read(jsonl(record), { trainOn: 'answers' })).shown;
    expect(plain).toEqual({
      learned: '5',
      text: expect.stringContaining('### Instruction:\nAdd.\n\n### Input:\n2 3\n\n### Response:\n5'),
    });
  });

  it('one JSON list is the same as lines', async () => {
    const records = [{ messages: chat('a', 'b') }, { messages: chat('c', 'd') }];
    const list = await read(`\n ${JSON.stringify(records, null, 2)}`, ANSWERS, 'd.json');
    expect(list.shown).toEqual((await read(jsonl(...records))).shown);
  });

  it('space, a byte order mark and lines that end in \\r\\n are no records', async () => {
    const bytes = new TextEncoder().encode(
      `\ufeff\r\n${JSON.stringify({ text: 'é1' })}\r\n\r\n  \n${JSON.stringify({ text: 'b2' })}`,
    );
    expect((await read(bytes)).shown.map(({ text }) => text)).toEqual(['é1', 'b2']);
  });

  it('records with nothing to learn are left out and counted', async () => {
    const found = await read(jsonl({ messages: chat('a', 'b').slice(0, 1) }, { messages: chat('a', 'b') }));
    expect([found.leftOut, found.shown.length]).toEqual([1, 1]);
  });
});

describe('a broken record is refused with its place', () => {
  const good = { messages: chat('a', 'b') };
  it.each<[string, unknown, string]>([
    [
      'another shape',
      { text: 'x' },
      'd.jsonl:2 is a record of the shape text, those before it are of messages; a file has one shape',
    ],
    [
      'a role that is none',
      { messages: [{ role: 7, content: 'x' }] },
      'd.jsonl:2: messages[0].role is 7; it must be a text',
    ],
    [
      'content that is none',
      { messages: [{ role: 'user', content: { a: 1 } }] },
      'd.jsonl:2: messages[0].content is an object; it must be a text, or a list',
    ],
    [
      'an image',
      { messages: [{ role: 'user', content: [{ type: 'image_url' }] }] },
      'd.jsonl:2: messages[0].content is a list of 1; it must be a text',
    ],
    ['no messages', { messages: [] }, 'd.jsonl:2: messages is a list of 0; it must be a list of at least one message'],
    ['messages that are a text', { messages: 'x' }, 'd.jsonl:2: messages is "x"; it must be a list'],
    ['a number', 5, 'd.jsonl:2 is 5; it must be an object with messages'],
    ['nothing that is known', { a: 1 }, 'd.jsonl:2: messages is missing; it must be a list'],
    ['tools that are none', { messages: chat('a', 'b'), tools: 'x' }, 'd.jsonl:2: tools is "x"; it must be a list'],
  ])('%s', async (_, record, wanted) => {
    expect(await refusal(read(jsonl(good, record)))).toContain(wanted);
  });

  it.each<[string, unknown, string]>([
    [
      'of no shape',
      { question: 'x' },
      'd.jsonl:1 has fields "question": no record that is known; it must have messages, or',
    ],
    [
      'of a classifier',
      { sentence1: 'x', sentence2: 'y', label: 1 },
      'd.jsonl:1 has fields "sentence1, sentence2, label": a classifier learns such records, which finetune makes of a BERT; a model that writes text learns those with messages, or conversations, or',
    ],
    [
      'a speaker that is none',
      { conversations: [{ from: 'dog', value: 'x' }] },
      'd.jsonl:1: conversations[0].from is "dog"; it must be one of',
    ],
    ['a completion that is none', { prompt: 'x', completion: 3 }, 'd.jsonl:1: completion is 3; it must be a text'],
    ['an output that is none', { instruction: 'x', output: null }, 'd.jsonl:1: output is null; it must be a text'],
  ])('the first: %s', async (_, record, wanted) => {
    expect(await refusal(read(jsonl(record)))).toContain(wanted);
  });

  it('what is no JSON, or no UTF-8, by its line', async () => {
    expect(await refusal(read(`${jsonl(good)}\n{"messages": [}`))).toContain('d.jsonl:3: not JSON');
    const latin = [0x7b, 0x22, 0xff, 0x22, 0x7d];
    const mend = 'iconv -f WINDOWS-1252 -t UTF-8 "d.jsonl" > "d-utf-8.jsonl"';
    expect(await refusal(read(Uint8Array.from(latin)))).toContain(
      `d.jsonl:1: is not in UTF-8, as JSON is; write the file in that: ${mend}, or as what it is`,
    );
    expect(await refusal(read(Uint8Array.of(0x5b, ...latin, 0x5d)))).toContain(
      `d.jsonl: is not in UTF-8, as JSON is; write the file in that: ${mend}`,
    );
    expect(await refusal(read('['.repeat(100_000)))).toContain('d.jsonl: not JSON');
    expect(await refusal(read(`{"text":${'['.repeat(1_000_000)}`))).toContain('d.jsonl:1: not JSON');
    expect(await refusal(read(''))).toContain('d.jsonl: no records');
  });

  it('a conversation, where there is no template, and one that the template refuses', async () => {
    expect(await refusal(read(jsonl(good), { trainOn: 'all' }))).toContain(
      'd.jsonl:1: a conversation is written down by a chat template',
    );
    const twice = { messages: [...chat('a', 'b'), { role: 'assistant', content: 'c' }] };
    expect(await refusal(read(jsonl(twice), { trainOn: 'answers', template: TEMPLATES.mistral }))).toBe(
      'd.jsonl:1: chat template mistral: it refuses: roles must alternate user/assistant/...',
    );
  });
});

test('lines are those of the text, whatever the size of the pieces, and all bytes are told of', async () => {
  const property = fc.asyncProperty(
    fc.array(fc.string({ maxLength: 9 })),
    fc.integer({ min: 1, max: 12 }),
    async (lines, pieceBytes) => {
      const text = lines.map((line) => line.replaceAll('\n', '')).join('\n');
      const told: number[] = [];
      const found: string[] = [];
      const files = new MemoryFiles({ f: text });
      for await (const { number, bytes } of linesOf(files, 'f', {
        pieceBytes,
        onBytes: (bytes) => told.push(...bytes),
      })) {
        expect(number).toBe(found.length + 1);
        found.push(new TextDecoder('utf-8', { ignoreBOM: true }).decode(bytes));
      }
      const wanted = new TextDecoder('utf-8', { ignoreBOM: true }).decode(new TextEncoder().encode(text)).split('\n');
      // A last line without an end is one only if something stands in it.
      if (wanted.at(-1) === '') wanted.pop();
      expect(found).toEqual(wanted);
      expect(told).toEqual([...new TextEncoder().encode(text)]);
    },
  );
  await fc.assert(property, { seed: 8, numRuns: 200 });
});

test('a line of 10 GB is refused when as much of it was read as a line may have', async () => {
  let most = 0;
  const endless: OpenFile = {
    bytes: 10e9,
    readRange: async (offset, bytes) => {
      most = Math.max(most, offset + bytes);
      return new Uint8Array(bytes).fill(0x20);
    },
    close: async () => {},
  };
  const files = { open: async () => endless, read: async () => Promise.reject(new Error('read whole')) };
  const all = async () => {
    for await (const _ of recordsOf(files, 'huge.jsonl'));
  };
  expect(await refusal(all())).toContain('huge.jsonl:1: longer than 16');
  expect(most).toBeLessThan(20e6);
});

test('random values where a record is expected are examples, or refused in one line', () => {
  const fields = [
    'messages',
    'conversations',
    'prompt',
    'completion',
    'instruction',
    'input',
    'output',
    'text',
    'tools',
    'system',
    'history',
    'chat_template_kwargs',
    'images',
    'label',
    'chosen',
  ];
  const value = fc.letrec((tie) => ({
    any: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom('x', '', 'user', 'assistant', 'gpt', 3, null, true),
      fc.array(tie('any')),
      tie('record'),
    ),
    record: fc.dictionary(
      fc.constantFrom(...fields, 'role', 'content', 'from', 'value', 'type', '__proto__'),
      tie('any'),
    ),
  })).record;
  let read = 0;
  const property = fc.property(value, (value) => {
    const shape = recordShape(value);
    if (!shape) return;
    try {
      const example = exampleOf({ at: 'x:1', value }, shape, true);
      read++;
      if (example.kind !== 'conversation') return;
      for (const { role, content } of example.messages)
        expect([typeof role, typeof content]).toEqual(['string', 'string']);
    } catch (error) {
      expect(error).toBeInstanceOf(HoldfastError);
      expect((error as Error).message).toMatch(/^x:1[^\n]*$/);
    }
  });
  fc.assert(property, { seed: 3, numRuns: EVERY_CASE ? 10_000 : 2000 });
  expect(read).toBeGreaterThan(20);
});

test('long files say how far they are, and can be ended', async () => {
  const content = jsonl(...Array.from({ length: 40 }, () => ({ text: 'long '.repeat(2000) })));
  const host = memoryHost(new MemoryFiles({ 'd.jsonl': content }));
  const told: [number, number][] = [];
  const abort = new AbortController();
  const onProgress = (done: number, total: number) => {
    told.push([done, total]);
    if (told.length === 3) abort.abort();
  };
  const reading = readDocuments(host, ['d.jsonl'], tokenizer, ANSWERS, { onProgress, signal: abort.signal });
  expect(await refusal(reading)).toContain('stopped while the text was tokenized');
  expect(told).toHaveLength(3);
  expect(told.every(([done, total]) => done <= total && total === content.length)).toBe(true);
});

describe('tokens and what is learned of them', () => {
  /** Tokens of up to three characters; a, b, c and so on by themselves where their number is 0. */
  const pairs = {
    encode: (text: string | Uint8Array) => {
      const parts = (text as string).match(/[\s\S]{1,3}/g) ?? [];
      return Int32Array.from(parts, (part) => [...part].reduce((sum, c) => sum * 128 + c.charCodeAt(0), 0));
    },
    stream: () => ({
      push: (id: number) => {
        const text: string[] = [];
        for (let rest = id; rest > 0; rest = Math.floor(rest / 128)) text.unshift(String.fromCharCode(rest % 128));
        return text.join('');
      },
      end: () => '',
    }),
    specials: { eos: [] },
    addsBos: false,
  };
  it('a token belongs to what its first character belongs to', () => {
    // abc def gh: the span is of c to e.
    const { learned } = encodeDocument(pairs, { text: 'abcdefgh', learned: [{ begin: 2, end: 5 }] });
    expect([...learned]).toEqual([0, 1, 0]);
    expect([...encodeDocument(pairs, { text: 'abcdefgh', learned: [{ begin: 3, end: 7 }] }).learned]).toEqual([
      0, 1, 1,
    ]);
  });

  it('where the tokenizer changes the text, parts are encoded by themselves', () => {
    const lower = { ...pairs, encode: (text: string | Uint8Array) => pairs.encode((text as string).toLowerCase()) };
    const { ids, learned } = encodeDocument(lower, { text: 'Abcdefgh', learned: [{ begin: 2, end: 4 }] });
    const texts = [...ids].map((id) => lower.stream().push(id));
    expect([texts, [...learned]]).toEqual([
      ['ab', 'cd', 'efg', 'h'],
      [0, 1, 0, 0],
    ]);
  });

  /** What is learned is in brackets. */
  function tokensOf(json: Json, text: string, ...answers: string[]) {
    const own = made(json);
    const learned = answers.map((answer) => {
      const begin = text.indexOf(answer);
      return { begin, end: begin + answer.length };
    });
    const found = encodeDocument(own, { text, learned });
    expect([...found.ids]).toEqual([...own.encode(text)]);
    const names = new Map<number, string>(Object.entries<number>(json.model.vocab).map(([name, id]) => [id, name]));
    return [...found.ids].map((id, i) => (found.learned[i] ? `[${names.get(id)}]` : names.get(id))).join(' ');
  }

  it.each([
    ['a normalizer', llama2()],
    ['Metaspace', { ...llama2(true), pre_tokenizer: { type: 'Metaspace', add_prefix_space: true, split: false } }],
  ])('where %s puts a space behind added tokens, the ids are those of the whole text', (_, json) => {
    // As Llama 2 has it, as Zephyr, and with the added token right before the answer.
    const two = '<s>A 12 A the </s><s>A in A a </s>';
    expect(tokensOf(json, two, ' the </s>', ' a </s>')).toBe(
      '<s> ▁ A ▁ 12 ▁ A [▁the] [▁] [</s>] <s> ▁ A ▁ in ▁ A [▁a] [▁] [</s>]',
    );
    expect(tokensOf(json, '</s>\nA\non</s>\n', 'on</s>')).toBe('</s> ▁ <0x0A> A <0x0A> [on] [</s>] ▁ <0x0A>');
    expect(tokensOf(json, '<s>the  in</s>日本', 'the  in</s>')).toBe('<s> [▁the] [▁▁] [in] [</s>] ▁ 日本');
  });

  it('a document by itself begins with BOS and ends with EOS, never twice; the end is learned', () => {
    const specials = { bos: 1, eos: [2, 6] };
    const encode = (text: string | Uint8Array) => Int32Array.from(text as string, Number);
    const digits = { encode, stream: () => ({ push: String, end: () => '' }), specials, addsBos: true };
    const all = (text: string, whole: boolean, tokenizer = digits) => {
      const { ids, learned } = encodeDocument(tokenizer, { text, whole, learned: [{ begin: 1, end: text.length }] });
      return [[...ids].join(''), [...learned].join('')];
    };
    expect(all('345', true)).toEqual(['13452', '00111']);
    expect(all('1345', true)).toEqual(['13452', '01111']);
    expect(all('3452', true)).toEqual(['13452', '00111']);
    expect(all('345', false)).toEqual(['345', '011']);
    // Any of the tokens that end a text ends a document; BOS stands only where prompts have it.
    expect(all('3456', true)).toEqual(['13456', '00111']);
    expect(all('345', true, { ...digits, addsBos: false })).toEqual(['3452', '0111']);
    // More tokens than a call takes arguments.
    const long = '345'.repeat(200_000);
    expect(all(long, true)).toEqual([`1${long}2`, `00${'1'.repeat(600_000)}`]);
  });

  it('bytes of a character are learned together', () => {
    const text = 'aé\u{1f600}b';
    const { ids, learned } = encodeDocument(tokenizer, { text, learned: [{ begin: 1, end: 4 }] });
    expect(tokenizer.decode(ids.filter((_, i) => learned[i] === 1))).toBe('é\u{1f600}');
  });
});
