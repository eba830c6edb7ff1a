// `holdfast eval`: its loss beside a float64 computation of the same windows and the trainer's own evaluation; the same bits
// within every budget; records; and what is refused in one line.

import { beforeAll, describe, expect, test } from 'vitest';
import { evenWindows } from '../../src/data/batches.ts';
import { loadWeights, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { Graph } from '../../src/graph/graph.ts';
import { logits } from '../../src/graph/operators/cross-entropy.ts';
import { makeTokens } from '../../src/graph/operators/embedding.ts';
import { makeTensor } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { onlyTokens } from '../../src/nn/inputs.ts';
import { lookup, parameterTensors } from '../../src/nn/model.ts';
import { Evaluator } from '../../src/train/step/evaluator.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { Memory } from '../interpret.ts';
import { MemoryBlockFile, MemoryFiles } from '../memory-files.ts';
import { done, inProcess } from './in-process.ts';

chooseVariants(3);

const CONTEXT = 11;
const TEXT = 'hold fast; hold on, héld 日 to the last. '.repeat(2);
const files = new MemoryFiles({
  'text.txt': 'hold fast, and hold on. '.repeat(60),
  'other.txt': TEXT,
  'pairs.jsonl': Array.from({ length: 9 }, (_, i) => JSON.stringify({ prompt: `${i}:`, completion: 'on' })).join('\n'),
});
const evaluate = async (...args: string[]) =>
  JSON.parse(await done(files, ['eval', 'base', '--json', ...args])) as Record<string, number>;

beforeAll(async () => {
  const shape = ['--model', 'llama', '--layers', '2', '--width', '16', '--heads', '2', '--context', `${CONTEXT}`];
  const few = ['--eval-windows', '2', '--sample-tokens', '0', '--warmup', '0', '--steps', '12', '--batch', '4'];
  await done(files, ['train', ...shape, ...few, '--data', 'text.txt', '--out', 'base']);
});

/** Nats of the token behind a text, in float64. */
async function reference(folder: string) {
  const { config, weights } = await loadWeights(files, folder);
  const model = makeModel(config);
  const { vocabulary } = model.shape;
  const values = await collect(weights);
  const g = new Graph('whole');
  const tokens = makeTokens(1, CONTEXT);
  const parameters = parameterTensors(model, false);
  const { hidden, head } = model.forward(g, onlyTokens(tokens), lookup(parameters));
  const all = makeTensor('all logits', [CONTEXT, vocabulary], 'persistent');
  logits(g, hidden, head, all);
  const memory = new Memory();
  for (const [name, tensor] of parameters) memory.set(tensor, entry(values, name));
  memory.set(tokens.position, [0]);
  const program = g.program();
  return (window: readonly number[], target: number): number => {
    memory.set(
      tokens.ids,
      Array.from({ length: CONTEXT }, (_, i) => window[i] ?? 0),
    );
    memory.run(program);
    const row = memory.of(all).subarray((window.length - 1) * vocabulary, window.length * vocabulary);
    const most = row.reduce((a, b) => Math.max(a, b));
    return Math.log(row.reduce((sum, value) => sum + Math.exp(value - most), 0)) + most - (row[target] ?? 0);
  };
}

test('the loss of text is that of a float64 computation, token by token, for any stride', async () => {
  const nats = await reference('base');
  const bytes = new TextEncoder().encode(TEXT);
  for (const stride of [1, 4, CONTEXT]) {
    // Which window a token is scored in: the first one that has it.
    const begins = [0];
    while ((begins.at(-1) ?? 0) + CONTEXT + 1 < bytes.length) begins.push((begins.at(-1) ?? 0) + stride);
    let sum = 0;
    for (let token = 1; token < bytes.length; token++) {
      const begin = begins.find((begin) => token <= begin + CONTEXT) ?? 0;
      sum += nats([...bytes.subarray(begin, token)], bytes[token]!);
    }
    const found = await evaluate('--data', 'other.txt', '--stride', `${stride}`, '--batch', '3');
    const loss = sum / (bytes.length - 1);
    expect(Math.abs((found['loss'] ?? 0) - loss)).toBeLessThan(1e-5);
    expect(found).toMatchObject({
      ...{ tokens: bytes.length - 1, bytes: bytes.length, windows: begins.length, context: CONTEXT, stride },
      ...{ perplexity: Math.exp(found['loss']!), bitsPerByte: found['loss']! / Math.LN2 },
    });
  }
});

test('within the smallest budget, the same bits', async () => {
  const whole = await evaluate('--data', 'other.txt');
  const { status, said } = await inProcess(files, ['eval', 'base', '--data', 'other.txt', '--gpu-memory', '1B']);
  expect(status).toBe(2);
  const [, least = said] = /(\d+) bytes \([^)]+\) is the smallest budget that works/.exec(said) ?? [];
  const below = ['--host-memory', '33KB', '--disk', 'tier'];
  expect(await evaluate('--data', 'other.txt', '--gpu-memory', least, ...below)).toEqual(whole);
});

test.each([
  ['eval', ['--data', 'other.txt']],
  ['generate', ['--prompt', 'hold', '--tokens', '30']],
])('%s leaves no tier behind when its disk fails', async (command, own) => {
  const below = ['--host-memory', '33KB', '--disk', 'tier'];
  const { said } = await inProcess(files, [command, 'base', ...own, '--gpu-memory', '1B', ...below]);
  const [, least = said] = /(\d+) bytes \([^)]+\) is the smallest budget that works/.exec(said) ?? [];
  const budget = ['--gpu-memory', least, ...below];
  const tiers: MemoryBlockFile[] = [];
  const openBlockFile = async (folder: string, bytes: number) => {
    const tier = new MemoryBlockFile(`${folder}/tier`, bytes);
    tier.read = () => Promise.reject(Object.assign(new Error('broken'), { code: 'EIO' }));
    tiers.push(tier);
    return tier;
  };
  const ended = await inProcess(files, [command, 'base', ...own, ...budget], [], { openBlockFile });
  expect(ended.said).toMatch(/^holdfast: cannot read chunk \d+ \(block \d+ of tier\/tier\): broken;/);
  expect(ended.status).toBe(2);
  expect(tiers.map(({ removed }) => removed)).toEqual([true]);
});

test('a batch has the loss that the trainer’s own evaluation gives, to the bit', async () => {
  const { config, weights } = await loadWeights(files, 'base');
  const model = makeModel(config);
  const device = await testDevice();
  const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 1 } as const;
  const trainer = await Trainer.create(device, model, { batch: 3, seq: CONTEXT, schedule });
  await trainer.setWeights(weights);
  const windows = evenWindows(new TextEncoder().encode(TEXT), CONTEXT, 3);
  const wanted = await trainer.evaluate(windows);
  const options = { batch: 3, seq: CONTEXT, choices: trainer.choices.record() };
  const evaluator = await Evaluator.open(device, model, weights, options);
  const { nats, targets } = await evaluator.lossOf(windows);
  expect(targets).toBe(3 * CONTEXT);
  expect(nats / targets).toBe(wanted);
  await evaluator.close();
  await trainer.destroy();
});

test('of records, the answers count, or all of them', async () => {
  const answers = await evaluate('--data', 'pairs.jsonl');
  expect(answers).toMatchObject({ tokens: 9 * 2, records: 9, trainOn: 'answers' });
  expect(answers['bitsPerByte']).toBeUndefined();
  const all = await evaluate('--data', 'pairs.jsonl', '--train-on', 'all');
  expect(all['tokens']).toBe(9 * 3);
  expect(await done(files, ['eval', 'base', '--data', 'other.txt'])).toMatch(
    /^\d+ tokens of \d+ bytes, in \d+ windows of 11\nloss [\d.]+ nats per token, perplexity [\d.]+\n[\d.]+ bits per byte\n$/,
  );
});

test('of records longer than the context, it is said what was cut off and which have nothing left', async () => {
  const record = (prompt: string, completion: string) => JSON.stringify({ prompt, completion });
  const lines = [record('1:', 'on'), record('2:', 'on and on, on'), record('a prompt that fills it', 'on')];
  await files.writeAtomic('long.jsonl', lines.join('\n'));
  const { status, out, said } = await inProcess(files, ['eval', 'base', '--json', '--data', 'long.jsonl']);
  expect([status, said]).toEqual([
    0,
    'data: of the records 2 longer than 11 tokens, cut off behind them (17 tokens); 1 left out, whose answers begin behind that\n',
  ]);
  // Of 11 tokens the first two are the prompt's.
  expect(JSON.parse(out)).toMatchObject({ tokens: 2 + 9, records: 3, longer: 2, tokensCut: 17, leftOut: 1 });
  expect(await evaluate('--data', 'pairs.jsonl')).toMatchObject({ longer: 0, tokensCut: 0, leftOut: 0 });
});

/** A model of its initial weights, as a folder. */
async function save(folder: string, json: object, change = (_: Map<string, Float32Array>) => {}): Promise<void> {
  const config = parseConfig(json, 'test');
  const model = makeModel(config);
  const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
  const values = await collect(initialWeights(model, 1));
  change(values);
  const weights = sourceOf(values);
  await saveCheckpoint(files, folder, 1, { config, weights, shapes, moment1: weights, moment2: weights, state: {} });
}

test('records in layers with windows, shorter than a record, which lie several in a row', async () => {
  await save('windowed', {
    ...{ model_type: 'gemma3_text', vocab_size: 256, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2 },
    ...{ num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8, max_position_embeddings: CONTEXT },
    ...{ sliding_window: 2, sliding_window_pattern: 2, initializer_range: 0.3 },
  });
  const nats = await reference('windowed');
  const [o, n] = new TextEncoder().encode('on') as unknown as [number, number];
  const losses = Array.from({ length: 9 }, (_, i) => {
    const prompt = [...new TextEncoder().encode(`${i}:`)];
    return (nats(prompt, o) + nats([...prompt, o], n)) / 2;
  });
  const found = JSON.parse(await done(files, ['eval', 'windowed', '--json', '--data', 'pairs.jsonl']));
  // Two records a row.
  expect(found).toMatchObject({ tokens: 18, records: 9, windows: 5 });
  expect(Math.abs(found.loss - losses.reduce((sum, loss) => sum + loss, 0) / 9)).toBeLessThan(1e-5);
  const few = ['--steps', '3', '--lr', '0.01', '--warmup', '0', '--sample-tokens', '0', '--eval-every', '0'];
  await done(files, ['finetune', 'windowed', '--data', 'pairs.jsonl', ...few, '--out', 'tuned']);
  const tuned = JSON.parse(await done(files, ['eval', 'tuned', '--json', '--data', 'pairs.jsonl']));
  expect(tuned.loss).toBeLessThan(found.loss - 0.1);
});

test('a loss that is no number is an error that names the model', async () => {
  const shape = { model_type: 'gpt2', vocab_size: 256, n_positions: CONTEXT, n_embd: 8, n_layer: 1, n_head: 2 };
  await save('diverged', shape, (values) => entry(values, 'h.0.mlp.c_fc.weight').fill(Number.NaN));
  const { status, out, said } = await inProcess(files, ['eval', 'diverged', '--json', '--data', 'other.txt']);
  expect([status, out, said]).toEqual([
    2,
    '',
    expect.stringMatching(/^holdfast: diverged: the loss is NaN: [^\n]+\n$/),
  ]);
});

test('a model that writes no text is refused', async () => {
  await save('masked', {
    ...{ model_type: 'bert', vocab_size: 256, hidden_size: 8, num_hidden_layers: 1, num_attention_heads: 2 },
    ...{ intermediate_size: 8, max_position_embeddings: 8, architectures: ['BertForMaskedLM'] },
  });
  for (const args of [['eval', '--data', 'other.txt'], ['generate']]) {
    const [command = '', ...rest] = args;
    const { status, said } = await inProcess(files, [command, 'masked', ...rest]);
    expect([status, said]).toEqual([
      2,
      expect.stringMatching(/^holdfast: masked: a bert model writes no text: .* such as gpt2 or llama\n$/),
    ]);
  }
});

describe('refused in one line', () => {
  test.each<[string[], string]>([
    [[], "required option '--data <path...>' not specified"],
    [['--data', 'nowhere'], 'corpus nowhere: nothing is there'],
    [['--data', 'other.txt', '--context', '12'], '--context 12: the model in base has at most 11 positions'],
    [['--data', 'other.txt', '--stride', '12'], '--stride 12: a window has 11 tokens'],
    [['--data', 'pairs.jsonl', '--stride', '2'], '--stride: is for text, and the data is JSON records'],
    [['--data', 'other.txt', '--chat-template', 'x'], '--chat-template: is for JSON records, and the data is text;'],
    [['--data', 'other.txt', '--train-on', 'all'], '--train-on: is for JSON records, and the data is text; leave'],
    [['--data', 'other.txt', '--train-on', 'answers'], '--train-on: is for JSON records, and the data is text; leave'],
    [['--data', 'other.txt', '--disk', 'x'], '--disk: without --gpu-memory'],
    [['--data', 'other.txt', '--policy', 'lru'], '--policy: without --gpu-memory'],
    [['--data', 'other.txt', '--no-prefetch'], '--no-prefetch: without --gpu-memory'],
    [['--data', 'other.txt', '--gpu-memory', '9MB', '--no-prefetch'], '--no-prefetch: is of a disk; give --disk'],
    [['--data', 'one.txt'], 'the text has 1 token; there is nothing to predict'],
  ])('%j', async (args, message) => {
    await files.writeAtomic('one.txt', 'x');
    const { status, said } = await inProcess(files, ['eval', 'base', ...args]);
    expect(said).toContain(message);
    expect(said).toMatch(/^holdfast: [^\n]+\n$/);
    expect(status).toBe(2);
  });
});
