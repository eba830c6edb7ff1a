// `holdfast generate`: a conversation on the terminal with a model that was fine-tuned to it, several prompts, within a
// budget; and what is refused in one line.

import { beforeAll, describe, expect, test } from 'vitest';
import { BUILT_IN_TEMPLATES } from '../../src/data/records/chat-template.ts';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(2);

const files = new MemoryFiles({
  'text.txt': 'a rope that holds fast, holds; '.repeat(60),
  'chats.jsonl': Array.from({ length: 40 }, (_, i) =>
    JSON.stringify({
      messages: [
        { role: 'user', content: `${i}?` },
        { role: 'assistant', content: 'it holds' },
      ],
    }),
  ).join('\n'),
  'prompts.txt': 'a rope\nholds\na rope\n',
});
const QUICK = ['--eval-windows', '3', '--sample-tokens', '0'];
const GREEDY = ['--temperature', '0'];

beforeAll(async () => {
  const shape = ['--layers', '1', '--width', '32', '--heads', '2', '--context', '160', '--batch', '2', '--warmup', '0'];
  await done(files, ['train', ...shape, ...QUICK, '--data', 'text.txt', '--steps', '2', '--out', 'base']);
  const tune = ['--steps', '60', '--lr', '0.01', '--pack', 'no', '--context', '96'];
  await done(files, ['finetune', 'base', '--data', 'chats.jsonl', ...tune, ...QUICK, '--out', 'tuned']);
});

test('a conversation is answered line by line, up to the end of its turns; the context’s end is said', async () => {
  const lines = ['3?', '', '15?', '7?'];
  const { status, out, said } = await inProcess(files, ['generate', 'tuned', '--chat', ...GREEDY], lines);
  expect([status, out]).toEqual([0, 'it holds\nit holds\nit holds\n']);
  // Two exchanges of 75 bytes fit into 160 positions beside half of them for the answer; one does.
  expect(said).toBe('holdfast: the context is full: 2 older messages were left out\n'.repeat(2));
  const long = await inProcess(files, ['generate', 'tuned', '--chat', ...GREEDY], ['x'.repeat(160), '3?']);
  expect([long.status, long.out]).toEqual([0, 'it holds\n']);
  expect(long.said).toMatch(/^holdfast: the message has 210 tokens with what is around it, the context 160;.*\n$/);
});

describe('with several adapters', () => {
  // A question and its answer leave no room for another exchange: each answer is to its question alone.
  const chat = (args: string[], ...lines: string[]) => {
    const short = ['--context', '64', '--tokens', '10', '--chat-template', 'chatml'];
    return inProcess(files, ['generate', 'base', ...args, '--chat', ...short, ...GREEDY], lines);
  };
  const both = ['--lora', 'a=tuned-low/checkpoint-3', '--lora', 'b=tuned-low'];

  beforeAll(async () => {
    const lora = ['--lora-rank', '2', '--lr', '0.1', '--warmup', '0', '--pack', 'no', '--context', '96'];
    const few = ['--steps', '6', '--save-every', '3', ...lora, ...QUICK];
    await done(files, ['finetune', 'base', '--data', 'chats.jsonl', ...few, '--out', 'tuned-low']);
  });

  test('a conversation switches them: what it answers is what each writes by itself', async () => {
    const alone = await Promise.all([
      chat(['--lora', 'tuned-low/checkpoint-3'], '3?'),
      chat(['--lora', 'tuned-low'], '3?'),
      chat([], '/adapter a', '3?'),
    ]);
    const [a, b, none] = alone.map(({ out }) => out);
    expect(new Set([a, b, none]).size).toBe(3);
    expect(alone[2]?.said).toBe('holdfast: /adapter: the model has no adapters; give some with --lora NAME=DIR\n');
    const switches = ['3?', '/adapter b', '3?', '/adapter none', '3?', '/adapter', '/adapter a', '3?'];
    const { status, out, said } = await chat(both, ...switches);
    expect([status, out]).toEqual([0, `${a}${b}${none}${a}`]);
    expect(said.split('\n').filter((line) => line.startsWith('adapters: '))).toEqual([
      'adapters: a, b (in use), none',
      'adapters: a, b, none (in use)',
      'adapters: a, b, none (in use)',
      'adapters: a (in use), b, none',
    ]);
  });

  test('what is no command, and what is not there, is said; the conversation goes on', async () => {
    const { out, said } = await chat(
      ['--lora', 'none', ...both],
      '/adapter',
      '/adapter c',
      '/adaptor a',
      '/help',
      '//a',
    );
    expect(said).toMatch(/^adapters: a, b, none \(in use\)\nholdfast: the model has no adapter c; it has a, b, none\n/);
    expect(said).toContain('holdfast: /adaptor: is no command; there are /adapter and /help');
    expect(said).toMatch(/\n\/adapter NAME .*\n.*\n\/help .*\n\/\/TEXT .*\n$/);
    expect(out).toBe((await chat([], '//a')).out);
    expect(out).not.toBe('');
  });

  test('a prompt is written with each of them', async () => {
    const args = ['generate', 'base', '--prompts', 'prompts.txt', '--tokens', '6'];
    const all = [...args, ...both, '--lora', 'none'];
    const json = (await done(files, [...all, '--json', '--batch', '3'])).trim().split('\n');
    const texts = json.map((line) => JSON.parse(line));
    expect(texts.map(({ adapter }) => adapter)).toEqual(Array(3).fill(['a', 'b', 'none']).flat());
    expect(await done(files, all)).toBe(
      texts.map((each) => `[${each.adapter}]\n${each.prompt}${each.text}\n`).join(''),
    );
    const none = texts.filter(({ adapter }) => adapter === 'none');
    expect(await done(files, args)).toBe(none.map(({ prompt, text }) => `${prompt}${text}\n`).join(''));
  });
});

test('several prompts are written one after the other or side by side, each as by itself', async () => {
  const alone = async (prompt: string) => done(files, ['generate', 'base', '--prompt', prompt, '--tokens', '12']);
  const [rope, holds] = [await alone('a rope'), await alone('holds')];
  expect(rope).not.toBe(holds);
  const several = ['generate', 'base', '--prompts', 'prompts.txt', '--tokens', '12'];
  expect(await done(files, several)).toBe(rope + holds + rope);
  expect(await done(files, [...several, '--batch', '2'])).toBe(rope + holds + rope);
  const json = (await done(files, [...several, '--json']))
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
  expect(json.map(({ prompt, text }) => `${prompt}${text}\n`)).toEqual([rope, holds, rope]);
});

test('within the smallest budget, the same text', async () => {
  const args = ['generate', 'base', '--prompt', 'a rope', '--tokens', '20'];
  const whole = await done(files, args);
  const { said } = await inProcess(files, [...args, '--gpu-memory', '1B']);
  const [, least = said] = /(\d+) bytes \([^)]+\) is the smallest budget that works/.exec(said) ?? [];
  expect(await done(files, [...args, '--gpu-memory', least])).toBe(whole);
});

test('in tokens of its own: its checkpoints carry the template that it was taught with', async () => {
  await done(files, ['tokenizer', 'train', '--data', 'text.txt', '--vocab-size', '270', '--out', 'bpe']);
  const shape = ['--model', 'llama', '--layers', '1', '--width', '16', '--heads', '2', '--context', '96'];
  const few = [...QUICK, '--warmup', '0', '--batch', '2', '--steps', '1', '--validation', '0.4'];
  await done(files, ['train', ...shape, ...few, '--tokenizer', 'bpe', '--data', 'text.txt', '--out', 'worded']);
  await done(files, ['finetune', 'worded', '--data', 'chats.jsonl', ...few, '--out', 'chatty']);
  const template = 'chatty/checkpoint-1/chat_template.jinja';
  expect(new TextDecoder().decode(await files.read(template))).toBe(BUILT_IN_TEMPLATES.chatml);
  const sums = new TextDecoder().decode(await files.read('chatty/checkpoint-1/SHA256SUMS'));
  expect(sums).toContain('chat_template.jinja');
  // As a model like any other, with no state of a run.
  await done(files, ['export', 'chatty', '--out', 'exported']);
  const { status, said } = await inProcess(files, ['generate', 'exported', '--chat', '--tokens', '3'], ['a']);
  expect(`${status} ${said}`).toBe('0 ');
  const without = await inProcess(files, ['generate', 'worded', '--chat']);
  expect(without.said).toBe(
    'holdfast: --chat: worded has no chat template; name one with --chat-template (chatml comes along)\n',
  );
});

test.each([
  ['the whole model', [], []],
  ['an adapter', ['--lora-rank', '2'], ['--merge']],
] as const)(
  'a run of %s on bytes is exported with the template that it was taught with, and its stops',
  async (_, lora, merge) => {
    const text = async (path: string) => new TextDecoder().decode(await files.read(path));
    const out = `bytes${lora.length}`;
    const few = [...QUICK, '--warmup', '0', '--batch', '2', '--steps', '1', '--pack', 'no', '--context', '96'];
    const tune = ['finetune', 'base', '--data', 'chats.jsonl', '--chat-template', 'chatml'];
    await done(files, [...tune, ...few, ...lora, '--out', out]);
    await done(files, ['export', out, ...merge, '--out', `${out}-model`]);
    expect(await text(`${out}-model/chat_template.jinja`)).toBe(BUILT_IN_TEMPLATES.chatml);
    // The folder has no state of a run: its file says it.
    for (const [from, more] of [
      [out, merge],
      [`${out}-model`, []],
    ] as const) {
      await files.makeFolder(`${from}-gguf`);
      await done(files, ['export', from, ...more, '--gguf', 'F16', '--modelfile', '--out', `${from}-gguf/m.gguf`]);
      const modelfile = await text(`${from}-gguf/Modelfile`);
      expect(modelfile).toContain('<|im_start|>assistant\n{{ else if eq .Role "assistant" }}{{ .Content }}<|im_end|>');
      expect(modelfile).toMatch(/"""\nPARAMETER stop "<\|im_start\|>"\nPARAMETER stop "<\|im_end\|>"\n$/);
      for (const model of [`${out}-model`, `${from}-gguf/m.gguf`]) {
        const { status, said } = await inProcess(files, ['generate', model, '--chat', '--tokens', '3'], ['a']);
        expect(`${status} ${said}`).toBe('0 ');
      }
    }
  },
);

test('a template that writes tokens of a tokenizer is not said to be that of bytes', async () => {
  const eos = "{% for message in messages %}{{ message['content'] + eos_token }}{% endfor %}";
  await files.writeAtomic('marked/chat_template.jinja', eos);
  await files.writeAtomic('marked/tokenizer_config.json', '{ "eos_token": "</s>" }');
  const few = [...QUICK, '--warmup', '0', '--batch', '2', '--steps', '1', '--pack', 'no', '--context', '96'];
  await done(files, [
    'finetune',
    'base',
    '--data',
    'chats.jsonl',
    '--chat-template',
    'marked',
    ...few,
    '--out',
    'ends',
  ]);
  await done(files, ['export', 'ends', '--out', 'ends-model']);
  expect(await files.stat('ends-model/chat_template.jinja')).toBeUndefined();
});

describe('refused in one line', () => {
  test.each<[string[], string]>([
    [['--chat', '--prompt', 'x'], '--chat: takes lines from the terminal; leave --prompt out'],
    [['--chat', '--json'], '--chat: takes lines from the terminal; leave --json out'],
    [['--prompts', 'prompts.txt', '--prompt', 'x'], '--prompts: is instead of --prompt'],
    [['--batch', '2'], '--batch: is of several texts; give --prompts, too'],
    [['--prompts', 'nothing.txt'], '--prompts nothing.txt: there is no line in it'],
    [['--prompts', 'blank.txt'], 'blank.txt: line 2 is empty, and no token begins a text of this model'],
    [['--system', 'x'], '--system: is for a conversation; give --chat, too'],
    [['--chat-template', 'chatml'], '--chat-template: is for a conversation'],
    [['--chat'], '--chat: base has no chat template'],
    [['--lora', 'tuned', '--lora', 'default=tuned'], '--lora: two adapters are called default; give each a name'],
    [['--lora', 'none=tuned'], '--lora none=tuned: none is the model without an adapter'],
    [['--context', '161'], '--context 161: the model in base has at most 160 positions'],
    [['--host-memory', '1MB'], '--host-memory: without --gpu-memory'],
  ])('%j', async (args, message) => {
    await files.writeAtomic('nothing.txt', '');
    await files.writeAtomic('blank.txt', 'a\n\nb');
    const { status, said } = await inProcess(files, ['generate', 'base', ...args]);
    expect(said).toContain(message);
    expect(said).toMatch(/^holdfast: [^\n]+\n$/);
    expect(status).toBe(2);
  });
});
