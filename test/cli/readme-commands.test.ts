// Commands of the README and of docs/: each parses, and Colossal-AI's teaching examples are runs of the published sizes on data that is drawn.

import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { run } from '../../src/cli/run.ts';
import { syntheticTokens } from '../../src/data/synthetic.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { parameterCount } from '../../src/nn/model.ts';
import { chooseVariants } from '../choose-variants.ts';
import { idsOf } from '../data/ids-of.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(5);

const root = path.resolve(import.meta.dirname, '../..');
const pages = readdirSync(path.join(root, 'docs')).filter((name) => name.endsWith('.md'));
const all = ['README.md', ...pages.map((name) => `docs/${name}`)];
const text = all.map((name) => readFileSync(path.join(root, name), 'utf8')).join('\n');
const blocks = [...text.matchAll(/^```\n([\s\S]*?)^```$/gm)].map(([, block = '']) => block);
const commands = blocks
  .flatMap((block) => block.replace(/\\\n/g, ' ').split('\n'))
  .flatMap((line) => /^(?:npx|mpiexec -n \d+ \S+\/)\s?holdfast (.*?)(?: {2,}#.*| #.*)?$/.exec(line)?.[1] ?? []);
const wordsOf = (command: string) => [...command.matchAll(/"([^"]*)"|\S+/g)].map(([word, quoted = word]) => quoted);
const examples = commands.filter((command) => /--data synthetic --batch/.test(command));

test('every command parses, and has the flags that it gives', async () => {
  expect(commands.length).toBeGreaterThan(25);
  for (const command of commands) {
    const words = wordsOf(command);
    const { status, out, said } = await inProcess(new MemoryFiles(), [...words, '--help']);
    expect(`${command}: ${status} ${said}`).toBe(`${command}: 0 `);
    for (const flag of words.filter((word) => word.startsWith('--')))
      expect(out, command).toMatch(new RegExp(`^ +(?:-\\w, )?${flag}(?![\\w-])`, 'm'));
  }
});

describe('Colossal-AI’s teaching examples', () => {
  /** As the page makes them. */
  const folders = Object.fromEntries(
    [...text.matchAll(/^echo '(.*)' > (\S+\/config\.json)$/gm)].map(([, json = '', name = '']) => [name, json]),
  );

  test('are of the published sizes', () => {
    const configs = ['gpt2-medium', 'bert-base'].map((name) => JSON.parse(folders[`${name}/config.json`] ?? ''));
    const sizes = configs.map((config) => parameterCount(makeModel(parseConfig(config, 'test'))));
    expect(sizes).toEqual([354_823_168, 109_514_298]);
    expect(examples.map((command) => wordsOf(command)[2])).toEqual(['gpt2-medium', 'bert-base', 'vit']);
  });

  test.each(examples)('%s: its settings hold, up to the device', async (command) => {
    const gpuSources = () => Promise.reject(new Error('a GPU was asked for'));
    const host = memoryHost(new MemoryFiles(folders), { args: wordsOf(command), gpuSources });
    await expect(run(host)).rejects.toThrow('a GPU was asked for');
  });

  test.runIf(EVERY_CASE)('have budgets that are between the smallest and all', async () => {
    const shapes = [
      '--layers 24 --width 1024 --heads 16 --context 1024 --batch 1 --gpu-memory 1GB',
      '--model bert --vocab-size 30522 --context 512 --batch 4 --gpu-memory 1GB',
      '--model vit --layers 12 --width 192 --heads 3 --batch 32 --gpu-memory 256MB',
    ];
    for (const shape of shapes)
      expect(await done(new MemoryFiles(), ['plan', ...shape.split(' ')])).toMatch(/peak within a budget of /);
  });

  test.each(['gpt2', 'bert'])('%s, tiny: it begins at what a model that knows nothing loses', async (model_type) => {
    const sizes =
      model_type === 'gpt2'
        ? { n_layer: 1, n_embd: 16, n_head: 2 }
        : { num_hidden_layers: 1, hidden_size: 16, intermediate_size: 32, num_attention_heads: 2 };
    const config = { model_type, vocab_size: 1000, ...sizes };
    const files = new MemoryFiles({ 'tiny/config.json': JSON.stringify(config) });
    const flags = ['--context', '16', '--batch', '4', '--steps', '2', '--warmup', '0', '--eval-windows', '4'];
    const out = await done(files, ['train', '--model', 'tiny', '--data', 'synthetic', ...flags, '--out', 'run']);
    const loss = Number(/validation ([\d.]+) nats/.exec(out)?.[1]);
    expect(Math.abs(loss - Math.log(1000))).toBeLessThan(0.1);
    // What would write its tokens is nowhere.
    expect(out).not.toContain('holdfast generate');
  });
});

test('synthetic tokens are of the whole vocabulary, and the same each time', async () => {
  const host = memoryHost(new MemoryFiles());
  const [one, two] = [await syntheticTokens(host, 300, 8), await syntheticTokens(host, 300, 8)];
  expect(await idsOf(two.train)).toEqual(await idsOf(one.train));
  expect([two.identity, await idsOf(two.validation)]).toEqual([one.identity, await idsOf(one.validation)]);
  for (const part of [one.train, one.validation]) expect(new Set(await idsOf(part)).size).toBe(300);
  expect(Math.max(...(await idsOf(one.validation)))).toBe(299);
  const long = await syntheticTokens(host, 2, 2 ** 17);
  expect([long.train.length, long.validation.length]).toEqual([2 ** 18, 2 ** 18]);
});
