// LoRA on the command line: flags to runs, adapters to text, and what is refused in one line. In process, on the adapter
// under test.

import { beforeAll, describe, expect, test } from 'vitest';
import { loadAdapter, loadWeights } from '../../src/formats/checkpoint.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { MemoryFiles } from '../memory-files.ts';
import { inProcess } from './in-process.ts';

chooseVariants(5);

const files = new MemoryFiles({ 'text.txt': 'hold fast, and then hold on; '.repeat(100) });

const holdfast = (...args: string[]) => inProcess(files, args);
const train = (...args: string[]) =>
  holdfast('train', '--data', 'text.txt', '--eval-windows', '2', '--sample-tokens', '0', '--warmup', '0', ...args);
const write = async (...args: string[]) => {
  const { status, out, said } = await holdfast('generate', ...args, '--tokens', '24', '--temperature', '1');
  expect(`${status} ${said}`).toBe('0 ');
  return out;
};

beforeAll(async () => {
  const shape = ['--layers', '1', '--width', '16', '--heads', '2', '--context', '12', '--batch', '2'];
  expect((await train(...shape, '--steps', '4', '--out', 'base')).status).toBe(0);
  const lora = ['--model', 'base', '--lora-rank', '3', '--lora-targets', 'c_attn,mlp.c_proj', '--lora-dropout', '0.1'];
  const { status, out, said } = await train(...lora, '--batch', '2', '--steps', '30', '--lr', '0.05', '--out', 'tuned');
  expect(`${status} ${said}`).toBe('0 ');
  // A of c_attn and of c_proj, B of both.
  expect(out).toContain(`${3 * (16 + 48 + 64 + 16)} of them train`);
});

test('a run of it keeps the model as it was, and its adapter beside', async () => {
  const { weights } = await loadWeights(files, 'base');
  const { config } = await loadWeights(files, 'base');
  expect((await collect(weights)).size).toBeGreaterThan(10);
  const { options, base } = await loadAdapter(files, 'tuned', config);
  expect(options).toEqual({ rank: 3, alpha: 6, targets: ['c_attn', 'mlp.c_proj'], dropout: 0.1, rslora: false });
  expect(base).toBe('base/checkpoint-4');
  const prompt = ['--prompt', 'hold'];
  const [alone, tuned] = [await write('base', ...prompt), await write('tuned', ...prompt)];
  expect(tuned).not.toBe(alone);
  expect(await write('tuned', ...prompt, '--lora', 'none')).toBe(alone);
  expect(await write('base', ...prompt, '--lora', 'tuned')).toBe(tuned);
  expect(await write('tuned', ...prompt, '--base', 'base')).toBe(tuned);
});

test('an adapter of another model says so, where that is plain', async () => {
  for (const path of await files.list('base/checkpoint-4'))
    await files.writeAtomic(`other/${path}`, await files.read(`base/checkpoint-4/${path}`));
  const said = async (...args: string[]) => (await holdfast('generate', ...args, '--tokens', '2')).said;
  const other = 'tuned: an adapter of base/checkpoint-4 by what it says; it is used with other\n';
  expect(await said('other', '--lora', 'tuned')).toBe(other);
  expect(await said('tuned', '--base', 'other')).toBe(other);
  for (const same of ['base', 'base/checkpoint-4']) expect(await said('tuned', '--base', same)).toBe('');
  // A name on the hub is compared with such a name alone.
  await files.writeAtomic(
    'peft/adapter_model.safetensors',
    await files.read('tuned/checkpoint-30/adapter_model.safetensors'),
  );
  const config = JSON.parse(new TextDecoder().decode(await files.read('tuned/checkpoint-30/adapter_config.json')));
  const named = { ...config, base_model_name_or_path: 'org/base' };
  await files.writeAtomic('peft/adapter_config.json', JSON.stringify(named));
  expect(await said('other', '--lora', 'peft')).toBe('');
});

test('it goes on, and another run goes on from its adapter', async () => {
  const { status, said } = await train('--resume', '--out', 'tuned', '--steps', '31', '--lora-rank', '3');
  expect(`${status} ${said}`).toBe('0 ');
  const on = await train('--model', 'base', '--lora-from', 'tuned', '--batch', '2', '--steps', '1', '--out', 'on');
  expect(`${on.status} ${on.said}`).toBe('0 ');
  const { config } = await loadWeights(files, 'base');
  expect((await loadAdapter(files, 'on', config)).options).toEqual((await loadAdapter(files, 'tuned', config)).options);
});

test('it is merged into its model, which is then a model like any other', async () => {
  const { status, said } = await holdfast('export', 'tuned', '--merge', '--out', 'merged');
  expect(`${status} ${said}`).toBe('0 ');
  const [alone, merged] = [await loadWeights(files, 'base'), await loadWeights(files, 'merged')];
  expect([...merged.shapes]).toEqual([...alone.shapes]);
  const [before, after] = [await collect(alone.weights), await collect(merged.weights)];
  const changed = [...before].filter(([name, values]) => values.join() !== after.get(name)?.join());
  expect(changed.map(([name]) => name)).toEqual(['h.0.attn.c_attn.weight', 'h.0.mlp.c_proj.weight']);
});

test('a run’s adapter is used with the base that it was trained on, whatever has the name that its files give', async () => {
  for (const [path, bytes] of [...files.contents])
    if (path.startsWith('tuned/') && !path.endsWith('SHA256SUMS'))
      files.contents.set(path.replace('tuned/', 'renamed/'), bytes);
  const path = 'renamed/checkpoint-31/adapter_config.json';
  const fields = JSON.parse(new TextDecoder().decode(await files.read(path)));
  await files.writeAtomic(path, JSON.stringify({ ...fields, base_model_name_or_path: 'merged' }));
  const prompt = ['--prompt', 'hold'];
  expect(await write('renamed', ...prompt)).toBe(await write('tuned', ...prompt));
  expect(await write('renamed', ...prompt, '--base', 'merged')).not.toBe(await write('tuned', ...prompt));
});

test('a model is sampled as its generation_config.json has it, and as flags have it before that', async () => {
  const done = async (...args: string[]) => expect((await holdfast(...args)).said).toBe('');
  await done('tokenizer', 'train', '--data', 'text.txt', '--vocab-size', '264', '--out', 'pieces');
  const shape = [
    ...['--model', 'llama', '--layers', '1', '--width', '16', '--heads', '2'],
    ...['--context', '24', '--steps', '2'],
  ];
  await done(
    ...['train', ...shape, '--tokenizer', 'pieces', '--data', 'text.txt', '--eval-windows', '2', '--out', 'cold'],
  );
  await done('export', 'cold', '--out', 'cool');
  const few = ['generate', 'cool', '--tokens', '24'];
  const write = async (...flags: string[]) => (await holdfast(...few, '--seed', '7', ...flags)).out;
  const usual = await write();
  await files.writeAtomic(
    'cool/generation_config.json',
    '{ "do_sample": true, "temperature": 0.0001, "top_k": 0, "repetition_penalty": 1.2 }',
  );
  expect(await write()).toBe(await write('--temperature', '0'));
  expect(await write('--temperature', '0.8')).toBe(usual);
  expect(usual).not.toBe(await write());
  expect((await holdfast(...few)).said).toBe(
    'holdfast: generation_config.json: not applied here: repetition_penalty 1.2\n',
  );
});

test('of records, packed, in tokens of its own: its checkpoints carry the tokenizer, and it writes with it', async () => {
  const done = async (...args: string[]) => {
    const { status, said, out } = await holdfast(...args);
    expect(`${status} ${said}`).toBe('0 ');
    return out;
  };
  const records = Array.from({ length: 40 }, (_, i) => ({
    prompt: `hold ${i}: `,
    completion: `then hold on ${i * i}`,
  }));
  await files.writeAtomic('pairs.jsonl', records.map((record) => `${JSON.stringify(record)}\n`).join(''));
  await done('tokenizer', 'train', '--data', 'text.txt', '--vocab-size', '270', '--out', 'bpe');
  const few = ['--batch', '2', '--eval-windows', '2', '--sample-tokens', '0', '--warmup', '0', '--steps', '2'];
  const shape = ['--model', 'llama', '--layers', '1', '--width', '16', '--heads', '2', '--context', '24'];
  await done('train', ...shape, ...few, '--tokenizer', 'bpe', '--data', 'text.txt', '--out', 'worded');
  const lora = ['--model', 'worded', '--lora-rank', '2', '--data', 'pairs.jsonl', '--out', 'answers'];
  await done('train', ...lora, ...few, '--until', '1');
  await done('train', '--resume', '--out', 'answers');
  const kept = ['SHA256SUMS', 'adapter_config.json', 'adapter_model.safetensors', 'config.json'];
  const rest = [
    'generation_config.json',
    'holdfast_state.json',
    'optimizer.safetensors',
    'special_tokens_map.json',
    'tokenizer.json',
    'tokenizer_config.json',
    'trainer_state.json',
  ];
  expect((await files.list('answers/checkpoint-2')).toSorted()).toEqual([...kept, ...rest]);
  const sums = new TextDecoder().decode(await files.read('answers/checkpoint-2/SHA256SUMS'));
  expect([...sums.matchAll(/ {2}(.+)\n/g)].map(([, name]) => name)).toEqual([...kept, ...rest].slice(1));
  const prompt = ['--prompt', 'hold 3: '];
  const text = await write('answers', ...prompt);
  for (const path of rest.filter((name) => name.startsWith('tokenizer')))
    await files.remove(`worded/checkpoint-2/${path}`);
  await files.remove('worded/checkpoint-2/SHA256SUMS');
  expect(await write('answers', ...prompt)).toBe(text);
  const stop = text.slice(12, 14);
  expect(await write('answers', ...prompt, '--stop', stop)).toBe(`${text.slice(0, text.indexOf(stop, 8))}\n`);
  await files.writeAtomic('answers/checkpoint-2/tokenizer.json', '{}');
  expect((await holdfast('generate', 'answers')).said).toContain(
    'answers/checkpoint-2/tokenizer.json: its SHA-256 is not the one in SHA256SUMS',
  );
});

test('plan counts what trains, what is frozen, and the arithmetic', async () => {
  const size = [
    '--model',
    'llama',
    '--layers',
    '2',
    '--width',
    '64',
    '--heads',
    '4',
    '--vocab-size',
    '256',
    '--activations',
    'keep',
  ];
  const plan = async (...args: string[]) => JSON.parse((await holdfast('plan', ...size, '--json', ...args)).out);
  const [full, lora] = [await plan(), await plan('--lora-rank', '4')];
  expect(lora.flops.fullStep).toBe(full.flops.step);
  // Without weight gradients two of three products are left, and what the updates add.
  expect(lora.flops.step / full.flops.step).toBeGreaterThan(2 / 3);
  expect(lora.flops.step / full.flops.step).toBeLessThan(0.9);
  expect(lora.trained).toBe(lora.parameters - full.parameters);
  expect(lora.modelDataBytes).toBeLessThan(full.modelDataBytes);
  expect(lora.chunks.frozen).toBeGreaterThan(0);
});

describe('refused in one line', () => {
  const base = ['--model', 'base', '--out', 'other'];
  test.each<[string[], string]>([
    [[...base, '--lora-alpha', '4'], '--lora-alpha: is of a low-rank update; give --lora-rank, too'],
    [
      ['--lora-rank', '4', '--out', 'other'],
      '--lora-rank: --model gpt2 has no weights to update; name a folder that has',
    ],
    [[...base, '--lora-rank', '4', '--lora-targets', 'q_proj'], 'q_proj is no linear of this model; it has c_attn'],
    [[...base, '--lora-rank', '1000'], 'the rank is 1000; it must be a whole number from 1 to 64'],
    [[...base, '--lora-rank', '4', '--lora-dropout', '1'], '--lora-dropout'],
    [[...base, '--lora-from', 'text.txt'], 'text.txt: there is no adapter'],
    [[...base, '--lora-from', 'tuned', '--lora-rank', '4'], 'tuned/checkpoint-31: its rank is 3, and 4 was asked for'],
    [['--model', 'tuned', '--out', 'other'], 'tuned/checkpoint-31: holds an adapter and not its model'],
    [['--resume', '--out', 'tuned', '--lora-rank', '4'], '--lora-rank 4: the checkpoint in tuned was made with 3'],
    [
      ['--resume', '--out', 'base', '--lora-rank', '4'],
      '--lora-rank 4: the checkpoint in base was made with no low-rank',
    ],
    [['--resume', '--out', 'tuned', '--steps', '33', '--model', 'on'], 'on/checkpoint-1: holds an adapter'],
  ])('%j', async (args, message) => {
    const { status, said } = await train(...args);
    expect(said).toContain(message);
    expect(said).toMatch(/^holdfast: [^\n]+\n$/);
    expect(status).toBe(2);
  });

  test.each<[string[], string]>([
    [['nowhere'], 'nowhere: no such folder'],
    [['base', '--base', 'base'], 'base: is a model and has no base; leave out base as its base'],
    [['tuned', '--base', 'nowhere'], 'tuned: its adapter belongs to nowhere, which is not here'],
    [['base', '--lora', 'nowhere'], 'nowhere: there is no adapter'],
  ])('generate %j', async (args, message) => {
    const { status, said } = await holdfast('generate', ...args);
    expect(said).toContain(message);
    expect(said).toMatch(/^holdfast: [^\n]+\n$/);
    expect(status).toBe(2);
  });

  test.each<[string[], string]>([
    [['tuned'], 'tuned: holds an adapter, which is in PEFT’s files already; add --merge for its model'],
    [['base', '--merge'], 'base: has no adapter to merge; leave --merge out'],
  ])('export %j', async (args, message) => {
    const { status, said } = await holdfast('export', ...args, '--out', 'exported');
    expect(said).toBe(`holdfast: ${message}\n`);
    expect(status).toBe(2);
  });
});
