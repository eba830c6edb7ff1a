// Special tokens that a config.json names by their ids, where there is no generation_config.json: text ends at them, and a run of the
// whole model, its export and that of its adapter name them still.

import { beforeAll, expect, test } from 'vitest';
import { chooseVariants } from '../choose-variants.ts';
import { readGGUF } from '../formats/gguf/reader.ts';
import { MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(4);

const files = new MemoryFiles({ 'text.txt': 'a rope that holds fast, holds; '.repeat(60) });
const VOCABULARY = 264;
const ALL = Array.from({ length: VOCABULARY }, (_, id) => id);
const FEW = ['--eval-windows', '2', '--sample-tokens', '0', '--warmup', '0', '--batch', '2', '--steps', '1'];

type Json = Record<string, unknown>;
const jsonIn = async (path: string): Promise<Json> => JSON.parse(new TextDecoder().decode(await files.read(path)));

/** A copy of the model that names nothing but what is given. */
async function modelWith(name: string, config: Json, generation?: Json): Promise<void> {
  for (const [path, bytes] of [...files.contents])
    if (path.startsWith('plain/')) files.contents.set(path.replace('plain/', `${name}/`), bytes);
  const { bos_token_id: _, eos_token_id: __, pad_token_id: ___, ...rest } = await jsonIn('plain/config.json');
  await files.writeAtomic(`${name}/config.json`, JSON.stringify({ ...rest, ...config }));
  for (const each of ['tokenizer_config.json', 'special_tokens_map.json']) files.contents.delete(`${name}/${each}`);
  files.contents.delete(`${name}/generation_config.json`);
  if (generation) await files.writeAtomic(`${name}/generation_config.json`, JSON.stringify(generation));
}

const write = async (name: string): Promise<string> => {
  const out = await done(files, ['generate', name, '--prompt', 'hi', '--tokens', '10', '--json']);
  return (JSON.parse(out) as { text: string }).text;
};

beforeAll(async () => {
  await done(files, ['tokenizer', 'train', '--data', 'text.txt', '--vocab-size', String(VOCABULARY), '--out', 'bpe']);
  const shape = ['--model', 'llama', '--layers', '1', '--width', '16', '--heads', '2', '--context', '24'];
  await done(files, ['train', ...shape, ...FEW, '--tokenizer', 'bpe', '--data', 'text.txt', '--out', 'run']);
  await done(files, ['export', 'run', '--out', 'plain']);
});

test('text ends at them as at those of generation_config.json, which come first', async () => {
  await modelWith('neither', {});
  await modelWith('one', {}, { eos_token_id: ALL });
  await modelWith('other', { eos_token_id: ALL });
  await modelWith('outweighed', { eos_token_id: ALL }, { eos_token_id: 0 });
  const text = await write('neither');
  expect(text).not.toBe('');
  expect([await write('one'), await write('other'), await write('outweighed')]).toEqual(['', '', text]);
});

test('what is no id is refused in one line, what is no token is passed over, and so is -1', async () => {
  for (const [value, shown] of [
    ['x', '"x"'],
    [1.5, '1.5'],
    [[0, -2], '-2'],
  ] as const) {
    await modelWith('hostile', { eos_token_id: value });
    const { status, said } = await inProcess(files, ['generate', 'hostile', '--tokens', '2']);
    expect([status, said]).toEqual([
      2,
      `holdfast: hostile: config.json: eos_token_id is ${shown}; it must be an id, or a list of ids\n`,
    ]);
  }
  await modelWith('beyond', { eos_token_id: VOCABULARY, pad_token_id: -1 });
  expect(await write('beyond')).not.toBe('');
});

test.each([
  ['the whole model', [], []],
  ['an adapter', ['--lora-rank', '2'], ['--merge']],
] as const)('a run of %s, and what is exported of it, names them still', async (_, lora, merge) => {
  const ids = { bos_token_id: 5, eos_token_id: [6, 7], pad_token_id: 8 };
  await modelWith('named', ids);
  const out = `tuned${lora.length}`;
  await done(files, ['finetune', 'named', '--data', 'text.txt', ...FEW, ...lora, '--out', out]);
  expect(await jsonIn(`${out}/checkpoint-1/config.json`)).toMatchObject(ids);
  const until = ['--steps', '2', '--until', '2', '--sample-tokens', '0'];
  await done(files, ['finetune', '--resume', ...until, '--out', out]);
  await done(files, ['export', out, ...merge, '--out', `${out}-model`]);
  expect(await jsonIn(`${out}-model/config.json`)).toMatchObject(ids);
  await done(files, ['export', out, ...merge, '--gguf', 'F16', '--out', `${out}.gguf`]);
  expect((await readGGUF(await files.read(`${out}.gguf`))).metadata).toMatchObject({
    ...{ 'tokenizer.ggml.bos_token_id': 5, 'tokenizer.ggml.eos_token_id': 6, 'tokenizer.ggml.padding_token_id': 8 },
  });
});

test('what a tokenizer_config.json adds to its tokenizer.json is kept with a run; one of an earlier version goes on without', async () => {
  for (const [path, bytes] of [...files.contents])
    if (path.startsWith('bpe/')) files.contents.set(path.replace('bpe/', 'more/'), bytes);
  const added = { [VOCABULARY]: { content: 'holds', special: false, normalized: true } };
  const config = { ...(await jsonIn('bpe/tokenizer_config.json')), added_tokens_decoder: added };
  await files.writeAtomic('more/tokenizer_config.json', JSON.stringify(config));
  const shape = ['--model', 'llama', '--layers', '1', '--width', '16', '--heads', '2', '--context', '24'];
  const train = (out: string, ...more: string[]) =>
    done(files, [
      'train',
      ...shape,
      ...FEW,
      '--steps',
      '2',
      '--tokenizer',
      'more',
      '--data',
      'text.txt',
      '--out',
      out,
      ...more,
    ]);
  const whole = await train('whole');
  expect(whole).not.toBe(
    await done(files, ['train', ...shape, ...FEW, '--tokenizer', 'bpe', '--data', 'text.txt', '--out', 'less']),
  );
  await train('parts', '--until', '1');
  const state = 'parts/checkpoint-1/holdfast_state.json';
  const json = await jsonIn(state);
  expect(json).toMatchObject({
    settings: {
      tokenizer: { kind: 'huggingface', overrides: `added ${VOCABULARY} "holds"` },
      config: { vocab_size: VOCABULARY + 1 },
    },
  });
  for (const [path, bytes] of [...files.contents])
    if (path.startsWith('parts/')) files.contents.set(path.replace('parts/', 'earlier/'), bytes);
  await done(files, ['train', '--resume', '--out', 'parts']);
  const weights = 'checkpoint-2/model.safetensors';
  expect(await files.read(`parts/${weights}`)).toEqual(await files.read(`whole/${weights}`));
  const { settings } = json as { settings: { tokenizer: Json } };
  delete settings.tokenizer['overrides'];
  await files.writeAtomic('earlier/checkpoint-1/holdfast_state.json', JSON.stringify(json));
  await files.remove('earlier/checkpoint-1/SHA256SUMS');
  await done(files, ['train', '--resume', '--out', 'earlier']);
  expect(await files.read(`earlier/${weights}`)).not.toEqual(await files.read(`whole/${weights}`));
  expect((await jsonIn('earlier/checkpoint-2/holdfast_state.json'))['settings']).toEqual(settings);
});
