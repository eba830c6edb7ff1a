// The token that ends an answer, of a model that is taught to chat: the files of the run, of its adapter and of what is exported
// name it among those that end a text. A run that learns no conversations leaves the files as they were.

import { beforeAll, describe, expect, test } from 'vitest';
import { BUILT_IN_TEMPLATES } from '../../src/data/records/chat-template.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { chooseVariants } from '../choose-variants.ts';
import { readGGUF } from '../formats/gguf/reader.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(4);

const records = (each: (i: number) => object) =>
  Array.from({ length: 30 }, (_, i) => JSON.stringify(each(i))).join('\n');
const chat = (i: number) => [
  { role: 'user', content: `${i}?` },
  { role: 'assistant', content: 'it holds' },
];
const files = new MemoryFiles({
  'text.txt': 'a rope that holds fast, holds; '.repeat(60),
  'chats.jsonl': records((i) => ({ messages: chat(i) })),
  'alpaca.jsonl': records((i) => ({ instruction: `${i}?`, output: 'it holds' })),
  'turns.jsonl': records((i) => ({ prompt: chat(i).slice(0, 1), completion: chat(i).slice(1) })),
  'texts.jsonl': records((i) => ({ text: `a rope ${i}` })),
  'pairs.jsonl': records((i) => ({ prompt: `${i}?`, completion: ' it holds' })),
});
const FEW = ['--eval-windows', '2', '--sample-tokens', '0', '--warmup', '0', '--batch', '2', '--steps', '1'];

type Json = Record<string, unknown>;
const textIn = async (path: string) => new TextDecoder().decode(await files.read(path));
const jsonIn = async (path: string): Promise<Json> => JSON.parse(await textIn(path));
const endsIn = async (path: string) => (await jsonIn(path))['eos_token_id'];
const writeJson = (path: string, json: unknown) => files.writeAtomic(path, JSON.stringify(json));

/** The ids of what ends a text of the base, and of <|im_end|>. */
const [EOS, IM_END] = [0, 265];
const COMPANIONS = ['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json', 'generation_config.json'];

/** A copy of the base, with other fields; null: without that file. */
async function baseLike(name: string, changes: Readonly<Record<string, Json | null>>): Promise<void> {
  for (const [path, bytes] of [...files.contents])
    if (path.startsWith('base/')) files.contents.set(path.replace('base/', `${name}/`), bytes);
  for (const [file, change] of Object.entries(changes)) {
    const path = `${name}/${file}`;
    if (change) await writeJson(path, { ...(await jsonIn(path)), ...change });
    else files.contents.delete(path);
  }
}

beforeAll(async () => {
  await done(files, ['tokenizer', 'train', '--data', 'text.txt', '--vocab-size', '264', '--out', 'bpe']);
  const json = await jsonIn('bpe/tokenizer.json');
  const added = ['<|im_start|>', '<|im_end|>', '<|turn_ends|>'].map((content, i) => {
    return { ...(json['added_tokens'] as Json[])[0], id: 264 + i, content };
  });
  await writeJson('bpe/tokenizer.json', { ...json, added_tokens: [...(json['added_tokens'] as Json[]), ...added] });
  const shape = ['--model', 'llama', '--layers', '1', '--width', '16', '--heads', '2', '--context', '96'];
  await done(files, ['train', ...shape, ...FEW, '--tokenizer', 'bpe', '--data', 'text.txt', '--out', 'run']);
  await done(files, ['export', 'run', '--out', 'base']);
  await files.writeAtomic('base/chat_template.jinja', BUILT_IN_TEMPLATES.chatml);
  const config = { ...(await jsonIn('base/config.json')), bos_token_id: EOS, eos_token_id: EOS };
  await writeJson('base/config.json', config);
});

const KINDS = [
  ['the whole model', 'whole', [], []],
  ['an adapter', 'low', ['--lora-rank', '2'], ['--merge']],
] as const;

describe.each(KINDS)('of %s', (_, name, lora, merge) => {
  test('conversations are learned: the checkpoint, and what is exported of it, end a text by the end of a turn, too', async () => {
    await done(files, ['finetune', 'base', '--data', 'chats.jsonl', ...FEW, ...lora, '--out', name]);
    await done(files, ['export', name, ...merge, '--out', `${name}-model`]);
    for (const folder of [`${name}/checkpoint-1`, `${name}-model`]) {
      expect(await endsIn(`${folder}/generation_config.json`)).toEqual([EOS, IM_END]);
      expect(await endsIn(`${folder}/config.json`)).toEqual([EOS, IM_END]);
      // What ends a document is the same.
      for (const file of ['tokenizer_config.json', 'special_tokens_map.json', 'tokenizer.json'])
        expect(await textIn(`${folder}/${file}`)).toBe(await textIn(`base/${file}`));
    }
    expect(await jsonIn(`${name}-model/generation_config.json`)).toEqual({
      ...(await jsonIn('base/generation_config.json')),
      eos_token_id: [EOS, IM_END],
    });
  });

  test('and so does its GGUF file, and the Modelfile beside', async () => {
    await files.makeFolder(`${name}-gguf`);
    const flags = ['--gguf', 'F16', '--modelfile'];
    await done(files, ['export', name, ...merge, ...flags, '--out', `${name}-gguf/m.gguf`]);
    expect((await readGGUF(await files.read(`${name}-gguf/m.gguf`))).metadata).toMatchObject({
      ...{ 'tokenizer.ggml.eos_token_id': EOS, 'tokenizer.ggml.eot_token_id': IM_END },
    });
    expect(await textIn(`${name}-gguf/Modelfile`)).toContain('PARAMETER stop "<|im_end|>"\n');
  });

  test('where there is no generation_config.json, its config.json alone says so, and the GGUF file too', async () => {
    await baseLike('bare', { 'generation_config.json': null });
    const out = `bare-${name}`;
    await done(files, ['finetune', 'bare', '--data', 'chats.jsonl', ...FEW, ...lora, '--out', out]);
    await done(files, ['export', out, ...merge, '--out', `${out}-model`]);
    for (const folder of [`${out}/checkpoint-1`, `${out}-model`]) {
      expect(await endsIn(`${folder}/config.json`)).toEqual([EOS, IM_END]);
      expect(await files.stat(`${folder}/generation_config.json`)).toBeUndefined();
    }
    await done(files, ['export', out, ...merge, '--gguf', 'F16', '--out', `${out}.gguf`]);
    expect((await readGGUF(await files.read(`${out}.gguf`))).metadata).toMatchObject({
      'tokenizer.ggml.eot_token_id': IM_END,
    });
  });

  test.each(['texts.jsonl', 'pairs.jsonl', 'text.txt'])(
    '%s: the files stay as they were, byte for byte',
    async (data) => {
      const out = `${name}-${data}`;
      await done(files, ['finetune', 'base', '--data', data, ...FEW, ...lora, '--out', out]);
      await done(files, ['export', out, ...merge, '--out', `${out}-model`]);
      for (const folder of [`${out}/checkpoint-1`, `${out}-model`]) {
        for (const file of COMPANIONS) expect(await textIn(`${folder}/${file}`)).toBe(await textIn(`base/${file}`));
        expect(await endsIn(`${folder}/config.json`)).toBe(EOS);
      }
    },
  );
});

test.each(['alpaca.jsonl', 'turns.jsonl'])('%s are conversations, too', async (data) => {
  await done(files, ['finetune', 'base', '--data', data, ...FEW, '--out', data]);
  expect(await endsIn(`${data}/checkpoint-1/generation_config.json`)).toEqual([EOS, IM_END]);
});

test('a model that names it, as one that was taught to chat does, keeps its files byte for byte', async () => {
  await baseLike('instruct', { 'generation_config.json': { eos_token_id: [IM_END, EOS] } });
  await done(files, ['finetune', 'instruct', '--data', 'chats.jsonl', ...FEW, '--out', 'on']);
  for (const file of COMPANIONS) expect(await textIn(`on/checkpoint-1/${file}`)).toBe(await textIn(`instruct/${file}`));
  expect(await endsIn('on/checkpoint-1/config.json')).toBe(EOS);
});

test.each<[string, Readonly<Record<string, Json>>, Json]>([
  [
    'each file keeps its own',
    { 'generation_config.json': { eos_token_id: [7, 8] } },
    { generation: [7, 8], config: [EOS] },
  ],
  [
    'a file that names none has those of the other',
    { 'generation_config.json': { eos_token_id: undefined }, 'config.json': { eos_token_id: [5] } },
    { generation: [5], config: [5] },
  ],
  [
    'where neither names one, that of the tokenizer',
    { 'generation_config.json': { eos_token_id: undefined }, 'config.json': { eos_token_id: -1 } },
    { generation: [EOS], config: [EOS] },
  ],
])('what was named stays in front: %s', async (_, changes, { generation, config }) => {
  await baseLike('named', changes);
  await files.remove('named-run');
  await done(files, ['finetune', 'named', '--data', 'chats.jsonl', ...FEW, '--out', 'named-run']);
  const ends = [await endsIn('named-run/checkpoint-1/generation_config.json')];
  ends.push(await endsIn('named-run/checkpoint-1/config.json'));
  expect(ends).toEqual([generation, config].map((ids) => [...(ids as number[]), IM_END]));
});

test('the end is what the template writes, whatever it is called; a line’s end, or text of several tokens, ends no text', async () => {
  const template = (end: string) =>
    `{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '${end}' }}{% endfor %}{% if add_generation_prompt %}{{ 'assistant: ' }}{% endif %}`;
  const tuned = async (name: string, end: string) => {
    await baseLike(name, {});
    await files.writeAtomic(`${name}/chat_template.jinja`, template(end));
    await done(files, ['finetune', name, '--data', 'chats.jsonl', ...FEW, '--out', `${name}-run`]);
    await done(files, ['export', `${name}-run`, '--gguf', 'F16', '--out', `${name}.gguf`]);
    const { metadata } = await readGGUF(await files.read(`${name}.gguf`));
    const ids = await endsIn(`${name}-run/checkpoint-1/generation_config.json`);
    return [ids, metadata['tokenizer.ggml.eot_token_id']];
  };
  expect(await tuned('own', '<|turn_ends|>\\n')).toEqual([[EOS, 266], 266]);
  expect(await tuned('line', '\\n')).toEqual([EOS, undefined]);
  expect(await tuned('words', ' The end.')).toEqual([EOS, undefined]);
});

test('a run that was stopped goes on with the same samples: they end where they would have', async () => {
  // All that is learned is to end a turn.
  const silent = (i: number) => ({ messages: [...chat(i).slice(0, 1), { role: 'assistant', content: '' }] });
  await files.writeAtomic('silent.jsonl', records(silent));
  const samples = ['--sample-every', '1', '--sample-tokens', '12', '--lr', '0.3'];
  const tune = ['finetune', 'base', '--data', 'silent.jsonl', ...FEW, ...samples, '--steps', '4'];
  await done(files, [...tune, '--out', 'at-once']);
  await done(files, [...tune, '--until', '2', '--out', 'parts']);
  await done(files, ['finetune', '--resume', '--out', 'parts']);
  const stateOf = async (out: string) => {
    const { history, sampling } = await savedState(memoryHost(files), out);
    return { samples: history.samples, sampling };
  };
  const whole = await stateOf('at-once');
  expect(whole.samples.length).toBeGreaterThan(3);
  for (const { text } of whole.samples.slice(-3)) expect(text).toMatch(/assistant\n$/);
  expect(await stateOf('parts')).toEqual(whole);
  for (const file of [...COMPANIONS, 'config.json'])
    expect(await textIn(`parts/checkpoint-4/${file}`)).toBe(await textIn(`at-once/checkpoint-4/${file}`));
});

test('records that cannot be used are told of with their line, as before', async () => {
  await files.writeAtomic('bad.jsonl', '{"messages": [{"role": "user"}, 3]}');
  const { status, said } = await inProcess(files, ['finetune', 'base', '--data', 'bad.jsonl', ...FEW, '--out', 'bad']);
  expect(said).toMatch(/^holdfast: bad\.jsonl:1[^\n]+\n$/);
  expect(status).toBe(2);
});
