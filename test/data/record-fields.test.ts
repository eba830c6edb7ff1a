// Fields of records beside those of their shape: those that say what is learned are followed, or refused with their line and
// name; what is known to say nothing of it is not looked at.

import { describe, expect, it } from 'vitest';
import type { ChatTemplate } from '../../src/data/records/chat-template.ts';
import { readDocuments, type TrainOn } from '../../src/data/records/read-records.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { TEMPLATES, template } from './chat-templates.ts';
import { listed } from './held-documents.ts';
import { refusal } from './refusal.ts';

const tokenizer = new ByteTokenizer();

/** Writes tools, and calls of them, as JSON. */
const TOOLS = template(
  `{% if tools %}{{ 'T' + tools | tojson + '\n' }}{% endif %}{% for m in messages %}{{ m.role + ':' + m.content }}{% for call in m.tool_calls or [] %}{{ call.function | tojson }}{% endfor %}{{ '|\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}`,
);
/** Each message on a line. */
const PLAIN = template(
  `{% for m in messages %}{{ m.role + ':' + m.content + '|\n' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}`,
);

async function read(record: unknown, chosen: ChatTemplate | undefined = PLAIN, trainOn: TrainOn = 'answers') {
  const host = memoryHost(new MemoryFiles({ 'd.jsonl': `\n${JSON.stringify(record)}\n` }));
  const settings = { trainOn, ...(chosen && { template: chosen }) };
  const { documents } = await readDocuments(host, ['d.jsonl'], tokenizer, settings);
  const [found] = await listed(documents);
  const ids = found?.ids ?? [];
  return { text: tokenizer.decode(ids), learned: tokenizer.decode(ids.filter((_, t) => found?.learned[t])) };
}

/** Without a template. */
async function readBare(record: unknown) {
  const host = memoryHost(new MemoryFiles({ 'd.jsonl': `\n${JSON.stringify(record)}\n` }));
  const { documents } = await readDocuments(host, ['d.jsonl'], tokenizer, { trainOn: 'answers' });
  return tokenizer.decode((await listed(documents))[0]?.ids ?? []);
}

const messages = [
  { role: 'user', content: 'a' },
  { role: 'assistant', content: 'b' },
];
const conversations = [
  { from: 'human', value: 'a' },
  { from: 'gpt', value: 'b' },
];
const SHAPES = {
  messages: { messages },
  sharegpt: { conversations },
  'prompt and completion': { prompt: 'a', completion: 'b' },
  'prompt and completion, of messages': { prompt: messages.slice(0, 1), completion: messages.slice(1) },
  alpaca: { instruction: 'a', output: 'b' },
};
type Shape = keyof typeof SHAPES;
const CHATS = ['messages', 'sharegpt', 'prompt and completion, of messages', 'alpaca'] as const;
const rain = { name: 'rain', description: 'whether it rains', parameters: { type: 'object' } };

describe('followed', () => {
  it.each(CHATS)('system, as the first message: %s', async (shape) => {
    const { text, learned } = await read({ ...SHAPES[shape], system: 'Be brief.' });
    expect([text, learned]).toEqual(['system:Be brief.|\nuser:a|\nassistant:b|\n', 'b|']);
    for (const system of [null, '']) expect((await read({ ...SHAPES[shape], system })).text).not.toContain('system');
  });

  it('system, where the first message is the same, once', async () => {
    const first = { role: 'system', content: 'Be brief.' };
    const record = { system: 'Be brief.', messages: [first, ...messages] };
    expect((await read(record)).text).toBe('system:Be brief.|\nuser:a|\nassistant:b|\n');
    expect(await refusal(read({ ...record, system: 'Be long.' }))).toBe(
      'd.jsonl:2: system is "Be long.", and the first message another; leave one of them out',
    );
  });

  it.each(CHATS)('tools, as a list or in JSON: %s', async (shape) => {
    const wanted = `T${JSON.stringify([{ type: 'function', function: rain }])}\n`.replace(/([,:])(?=\S)/g, '$1 ');
    for (const tools of [[{ type: 'function', function: rain }], [rain]]) {
      if (shape !== 'sharegpt' && tools[0] === rain) continue;
      for (const given of [tools, JSON.stringify(tools)]) {
        const { text, learned } = await read({ ...SHAPES[shape], tools: given }, TOOLS);
        expect([text, learned]).toEqual([`${wanted}user:a|\nassistant:b|\n`, 'b|']);
      }
    }
    for (const tools of [null, '', '[]', []])
      expect((await read({ ...SHAPES[shape], tools }, TOOLS)).text).toBe('user:a|\nassistant:b|\n');
  });

  it('calls and their results in turns of ShareGPT, as LLaMA-Factory has them', async () => {
    const called = { name: 'rain', arguments: { city: 'Bonn' } };
    const turns = (value: string) => [
      { from: 'human', value: 'Rain?' },
      { from: 'function_call', value },
      { from: 'observation', value: 'yes' },
      { from: 'gpt', value: 'It rains.' },
    ];
    for (const [value, count] of [
      [JSON.stringify(called), 1],
      [JSON.stringify([called, called]), 2],
    ] as const) {
      const { text, learned } = await read({ conversations: turns(value), tools: JSON.stringify([rain]) }, TOOLS);
      const written = '{"name": "rain", "arguments": {"city": "Bonn"}}'.repeat(count);
      expect(text).toMatch(/^T\[/);
      expect(text).toContain(`user:Rain?|\nassistant:${written}|\ntool:yes|\nassistant:It rains.|\n`);
      expect(learned).toBe(`${written}|It rains.|`);
    }
    for (const value of ['rain()', '[]', '{"arguments": {}}'])
      expect(await refusal(read({ conversations: turns(value) }, TOOLS))).toContain(
        `d.jsonl:2: conversations[1].value is ${JSON.stringify(value)}; it must be a call in JSON`,
      );
  });

  it('what else a template looks at in turns of ShareGPT', async () => {
    const call = { type: 'function', function: { name: 'rain', arguments: { city: 'Bonn' } } };
    const answer = { from: 'gpt', value: 'Look:', tool_calls: [call], id: 7 };
    const { learned } = await read({ conversations: [conversations[0], answer] }, TOOLS);
    expect(learned).toBe('Look:{"name": "rain", "arguments": {"city": "Bonn"}}|');
    const thought = template(PLAIN.text.replace("':'", "':' + (m.thinking or '')"));
    expect(
      (await read({ conversations: [conversations[0], { ...conversations[1], thinking: 'c' }] }, thought)).text,
    ).toBe('user:a|\nassistant:cb|\n');
  });

  it('history, as earlier turns, whose answers are learned, too', async () => {
    const record = { instruction: 'c?', input: '', output: 'c' };
    const history = [
      ['a?', 'a'],
      ['b?', 'b'],
    ];
    const { text, learned } = await read({ ...record, history, system: 'Be brief.' });
    expect(text).toBe('system:Be brief.|\nuser:a?|\nassistant:a|\nuser:b?|\nassistant:b|\nuser:c?|\nassistant:c|\n');
    expect(learned).toBe('a|b|c|');
    for (const none of [[], null])
      expect((await read({ ...record, history: none })).text).toBe('user:c?|\nassistant:c|\n');
    expect(await refusal(read({ ...record, history: [['a?']] }))).toContain(
      'd.jsonl:2: history[0] is a list of 1; it must be an instruction and its response',
    );
  });

  it('input that is null, as none', async () => {
    const record = { instruction: 'a', input: null, output: 'b' };
    expect((await read(record)).text).toBe('user:a|\nassistant:b|\n');
    expect(await readBare(record)).toBe(await readBare({ ...record, input: '' }));
  });

  const THINKS = { chat_template_kwargs: { enable_thinking: false } };
  it('chat_template_kwargs, as variables of the template', async () => {
    const asks = template(
      `{% set tone = tone or ':' %}${PLAIN.text.replace("':'", 'tone').replace("'assistant:'", "'assistant' + tone")}`,
    );
    expect((await read({ messages, chat_template_kwargs: { tone: '!' } }, asks)).text).toBe('user!a|\nassistant!b|\n');
    for (const none of [null, {}])
      expect((await read({ messages, chat_template_kwargs: none }, asks)).text).toBe('user:a|\nassistant:b|\n');
    const header = '<|im_start|>assistant\n';
    const blank = '<think>\n\n</think>\n\n';
    const one = await read({ messages }, TEMPLATES.qwen3);
    expect(one.learned).toBe(`${blank}b<|im_end|>`);
    const other = await read({ messages, ...THINKS }, TEMPLATES.qwen3);
    expect([other.text, other.learned]).toEqual([one.text, 'b<|im_end|>']);
    // Earlier answers have no such block, whatever a model would go on from.
    const two = await read({ messages: [...messages, ...messages], ...THINKS }, TEMPLATES.qwen3);
    expect(two.learned).toBe('b<|im_end|>b<|im_end|>');
    expect(two.text).toContain(`${header}b<|im_end|>`);
    expect(two.text).toContain(`${header}${blank}b<|im_end|>`);
  });

  it('chat_template_kwargs of a name that templates are given, or that are none, are refused', async () => {
    for (const name of ['messages', 'tools', 'bos_token', 'add_generation_prompt', 'raise_exception', 'range'])
      expect(await refusal(read({ messages, chat_template_kwargs: { [name]: [] } }))).toBe(
        `d.jsonl:2: chat_template_kwargs.${name}: a template has its own; leave it out`,
      );
    expect(await refusal(read({ messages, chat_template_kwargs: { namespace: 1 } }))).toContain(
      'd.jsonl:2: chat template',
    );
    expect(await refusal(read({ messages, chat_template_kwargs: 'x' }))).toBe(
      'd.jsonl:2: chat_template_kwargs is "x"; it must be an object',
    );
  });
});

describe('refused with the line and the field', () => {
  const every = Object.keys(SHAPES) as Shape[];
  const nowhere: Shape[] = ['prompt and completion'];
  const media = ['image', 'images', 'video', 'videos', 'audio', 'audios'];
  it.each<[string, unknown, readonly Shape[], string]>([
    ['chosen', 'x', every, 'preferences are not learned'],
    ['rejected', [{ role: 'assistant', content: 'x' }], every, 'preferences are not learned'],
    ['label', false, every, 'an answer that is not to be learned; leave the record out'],
    ['label', 0, every, 'an answer that is not to be learned; leave the record out'],
    ['kto_tag', false, every, 'an answer that is not to be learned'],
    ['train', false, every, 'an answer that is not to be learned'],
    ['masked', true, every, 'an answer that is not to be learned'],
    ['weight', 0.5, every, 'records are learned alike'],
    ['functions', [rain], every, 'give them as tools'],
    ['system_prompt', 'Be brief.', every, 'give it as system'],
    ...media.map((field) => [field, ['1.png'], every, 'text alone is learned'] as [string, unknown, Shape[], string]),
    ['system', 'Be brief.', nowhere, 'a prompt of text is all that is in front; give it as messages'],
    ['tools', [rain], nowhere, 'a prompt of text is all that is in front; give it as messages'],
    ['suffix', 'x', nowhere, 'give it as a part of the prompt'],
    ['history', [['a', 'b']], every.filter((shape) => shape !== 'alpaca'), 'give'],
  ])('%s %j', async (field, value, shapes, why) => {
    for (const shape of shapes) {
      const message = await refusal(read({ ...SHAPES[shape], [field]: value }));
      expect(message).toMatch(new RegExp(`^d\\.jsonl:2: ${field} is [^;]+; `));
      expect(message).toContain(why);
    }
  });

  it('a prompt with the answers that are preferred, and not', async () => {
    expect(await refusal(read({ prompt: 'a', chosen: 'b', rejected: 'c' }))).toBe(
      'd.jsonl:2: chosen is "b"; preferences are not learned; give records with the answer to learn alone',
    );
  });

  it('what the prompt of Alpaca has no place for, where there is no template', async () => {
    for (const [field, value] of Object.entries({ system: 'Be brief.', history: [['a?', 'a']], tools: [rain] })) {
      expect(await refusal(readBare({ ...SHAPES.alpaca, [field]: value }))).toMatch(
        new RegExp(`^d\\.jsonl:2: ${field} is [^;]+; the prompt of Alpaca has no place for it; name a chat template`),
      );
    }
  });

  it('tools that the template leaves out, unless a message names them', async () => {
    for (const trainOn of ['answers', 'all'] as const)
      expect(await refusal(read({ messages, tools: [rain] }, PLAIN, trainOn))).toBe(
        'd.jsonl:2: the chat template leaves out the tools; use one that writes them, or name them in a system message',
      );
    expect((await read({ messages, tools: [rain], system: 'You may call rain.' })).learned).toBe('b|');
  });

  /** Of an answer, and of a question. */
  const OF_ANSWERS: [string, unknown][] = [
    ...['train', 'training', 'trainable', 'loss'].map((field): [string, unknown] => [field, false]),
    ...['masked', 'mask'].map((field): [string, unknown] => [field, true]),
    ['train_detail', [{ begin_offset: 0, end_offset: 1, train: false }]],
    ['loss_scale', 0.5],
    ['refusal', 'I will not.'],
    ['images', ['1.png']],
  ];
  const OF_QUESTIONS: [string, unknown][] = [
    ['train', true],
    ['loss', true],
    ['images', ['1.png']],
  ];
  it.each([
    ...OF_ANSWERS.map(([field, value]) => [field, value, 1] as const),
    ...OF_QUESTIONS.map(([field, value]) => [field, value, 0] as const),
  ])('%s %j of message %i', async (field, value, place) => {
    const changed = <T>(list: readonly T[]) => list.map((one, i) => (i === place ? { ...one, [field]: value } : one));
    const where: [string, unknown][] = [
      [`messages[${place}]`, { messages: changed(messages) }],
      [`conversations[${place}]`, { conversations: changed(conversations) }],
    ];
    for (const [at, record] of where)
      expect(await refusal(read(record))).toMatch(
        `d.jsonl:2: ${at}.${field} is ${typeof value === 'object' ? 'a list of 1' : JSON.stringify(value)}; `,
      );
  });
});

describe('not looked at', () => {
  const METADATA = {
    ...{ id: 7, source: 'x', score: 0.5, split: 'test', category: null, language: 'en', url: 'https://x', topic: [] },
    ...{ label: true, weight: 1, train: true, masked: false, images: [], image: null, videos: null, audio: '' },
    ...{ chosen: null, rejected: '', functions: [], system_prompt: '', parallel_tool_calls: false },
  };
  it.each(Object.entries(SHAPES))('what is known to say nothing, and what is not known: %s', async (_, record) => {
    expect(await read({ ...record, ...METADATA })).toEqual(await read(record));
  });

  it('classes of texts', async () => {
    for (const label of [0, false, 'a']) expect((await read({ text: 'xyz', label })).learned).toBe('yz');
  });

  it('of messages', async () => {
    const fields = { id: 'x', name: 'Ann', images: [], refusal: null, train_detail: null, loss_scale: 1 };
    const answers = { ...fields, train: true, loss: true, masked: false };
    const others = { ...fields, train: false, loss: false, masked: true };
    const all = messages.map((message) => ({ ...message, ...(message.role === 'user' ? others : answers) }));
    expect(await read({ messages: all })).toEqual(await read({ messages }));
  });
});
