// Low-rank updates of models in sixteen bits on the command line: their files stay as narrow in memory, with every bit of
// the run on the same weights in f32, stopped and resumed, replayed, and in the text that it writes. In process.

import { assert, beforeAll, expect, test } from 'vitest';
import { loadAdapter, loadCheckpoint, loadWeights } from '../../src/formats/checkpoint.ts';
import type { StoredElement } from '../../src/kernels/stored.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import type { Model } from '../../src/nn/model.ts';
import { roundedWeights } from '../../src/train/run/base-dtype.ts';
import { withModel } from '../../src/train/run/open-model.ts';
import type { RunSettings } from '../../src/train/run/run-settings.ts';
import { stateOf } from '../../src/train/run/saved-state.ts';
import { startWeights } from '../../src/train/run/start-weights.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { inProcess, done as succeed } from './in-process.ts';

chooseVariants(1);

const files = new MemoryFiles({ 'text.txt': 'hold fast, and then hold on; '.repeat(100) });

const holdfast = (...args: string[]) => inProcess(files, args);
const done = (...args: string[]) => succeed(files, args);

const train = (...args: string[]) =>
  done('train', '--data', 'text.txt', '--eval-windows', '2', '--sample-tokens', '4', '--warmup', '0', ...args);
const tune = (model: string, out: string, ...args: string[]) =>
  train('--model', model, '--lora-rank', '3', '--batch', '2', '--steps', '4', '--lr', '0.02', '--out', out, ...args);

const prompt = ['--prompt', 'hold', '--tokens', '20', '--temperature', '1'];

/** All that a run says and keeps, as text; numbers are written in full. */
async function resultOf(folder: string): Promise<unknown> {
  const checkpoint = await loadCheckpoint(files, folder);
  const { steps, validations, samples } = stateOf(checkpoint).history;
  const values = await Promise.all(
    [checkpoint.weights, checkpoint.moment1, checkpoint.moment2].map((source) => collect(source)),
  );
  const tensors = values.map((tensors) => [...tensors].map(([name, data]) => `${name} ${data.join()}`));
  return { steps: steps.map(({ loss, gradNorm }) => [loss, gradNorm]), validations, samples, tensors };
}

/** Base in f32; rounded, in 16 bits; and the rounded values in f32 again. */
beforeAll(async () => {
  const shape = ['--layers', '1', '--width', '18', '--heads', '3', '--kv-heads', '1', '--context', '12'];
  await train('--model', 'llama', ...shape, '--batch', '2', '--steps', '2', '--out', 'base');
  for (const dtype of ['bf16', 'f16']) {
    await done('export', 'base', '--dtype', dtype, '--out', dtype);
    await done('export', dtype, '--dtype', 'f32', '--out', `${dtype}-wide`);
  }
  await tune('bf16-wide', 'wanted-bf16');
});

test('a base in bf16 has the losses, the adapter and the texts of the same one in f32', async () => {
  const wanted = await resultOf('wanted-bf16');
  await tune('bf16', 'tuned');
  expect(await resultOf('tuned')).toEqual(wanted);
  // Rounded by the run as the export rounds; replayed in f32.
  await tune('base', 'rounded', '--base-dtype', 'bf16');
  expect(await resultOf('rounded')).toEqual(wanted);
  expect(await done('parity', 'rounded')).toContain('the same bits');
  if (!EVERY_CASE) return;
  await tune('bf16', 'widened', '--base-dtype', 'f32');
  expect(await resultOf('widened')).toEqual(wanted);
  expect(await done('generate', 'tuned', ...prompt)).toBe(await done('generate', 'wanted-bf16', ...prompt));
});

test('text is written with a model in bf16 as with the same one in f32', async () => {
  expect(await done('generate', 'bf16', ...prompt)).toBe(await done('generate', 'bf16-wide', ...prompt));
});

test('it lies in memory as in its files, or as it was asked for', async () => {
  const model = makeModel((await loadWeights(files, 'bf16')).config);
  const storedIn = ({ parameters }: Model) => new Set(parameters.map(({ stored = 'f32' }) => stored));
  const { settings } = stateOf(await loadCheckpoint(files, 'wanted-bf16'));
  const lora = settings.lora && withLora(model, settings.lora);
  const started = async (from: string, baseDtype?: StoredElement) => {
    const changed = { ...settings, from, ...(settings.lora && { lora: { ...settings.lora, baseDtype } }) };
    return startWeights(memoryHost(files), changed as RunSettings, lora ?? model);
  };
  for (const [from, dtype, found] of [
    ['bf16', undefined, 'bf16'],
    ['f16', undefined, 'f16'],
    ['bf16-wide', undefined, 'f32'],
    ['bf16', 'f32', 'f32'],
    ['base', 'bf16', 'bf16'],
  ] as const) {
    const { parameters } = (await started(from, dtype)).model;
    for (const { name, stored = 'f32', trainable } of parameters) {
      const adapts = name.includes('lora_');
      expect({ stored, trainable }, name).toEqual({ stored: adapts ? 'f32' : found, trainable: adapts });
    }
  }
  await withModel(files, 'f16', {}, async (opened) => expect(storedIn(opened.model)).toEqual(new Set(['f16'])));
});

test.runIf(EVERY_CASE)('a base in f16 has them, too', async () => {
  await tune('f16-wide', 'wanted-f16');
  await tune('f16', 'tuned-f16');
  expect(await resultOf('tuned-f16')).toEqual(await resultOf('wanted-f16'));
});

test('a run that was stopped goes on in the same bits, in a budget and without, and from either base', async () => {
  await tune('bf16', 'parts', '--until', '1');
  await train('--resume', '--out', 'parts', '--until', '2', '--gpu-memory', '2MB');
  // The same weights elsewhere, in another type, are the same base.
  await train('--resume', '--out', 'parts', '--model', 'bf16-wide', '--until', '3');
  await train('--resume', '--out', 'parts', '--model', 'bf16');
  expect(await resultOf('parts')).toEqual(await resultOf('wanted-bf16'));
});

const QUANTISED = ['nf4', 'q8_0', 'q4_0'] as const;

test.each(EVERY_CASE ? QUANTISED : [QUANTISED[0]])(
  'a base that is quantised to %s as it is read goes on and is replayed in the same bits',
  async (dtype) => {
    const shape = ['--layers', '1', '--width', '64', '--heads', '2', '--context', '12'];
    const [even, whole, parts, unrounded] = ['even', 'quantised', 'parts', 'unrounded'].map(
      (name) => `${dtype}-${name}`,
    );
    assert(even && whole && parts && unrounded);
    await train('--model', 'llama', ...shape, '--batch', '2', '--steps', '2', '--out', even);
    await tune(even, whole, '--base-dtype', dtype);
    // In f32, with the rounded weights.
    expect(await done('parity', whole)).toContain('the same bits');
    await tune(even, unrounded);
    expect(await resultOf(unrounded)).not.toEqual(await resultOf(whole));
    if (!EVERY_CASE) return;
    await tune(even, parts, '--base-dtype', dtype, '--until', '2');
    await train('--resume', '--out', parts, '--gpu-memory', '2MB');
    expect(await resultOf(parts)).toEqual(await resultOf(whole));
  },
);

test.runIf(EVERY_CASE)('merged and exported it is what the f32 one is', async () => {
  await tune('bf16', 'merging');
  for (const [run, out] of [
    ['merging', 'merged'],
    ['wanted-bf16', 'merged-wide'],
  ] as const)
    await done('export', run, '--merge', '--out', out);
  const values = async (folder: string) => {
    const { weights, stored } = await loadWeights(files, folder);
    expect(new Set(stored?.values())).toEqual(new Set(['f32']));
    return collect(weights);
  };
  expect(await values('merged')).toEqual(await values('merged-wide'));
  const { config } = await loadWeights(files, 'merged');
  expect((await loadAdapter(files, 'merging', config)).base).toBe('bf16');
});

test('plan counts the bytes that the frozen model has', async () => {
  const size = ['--model', 'gpt2', '--layers', '4', '--width', '128', '--heads', '4', '--vocab-size', '999'];
  const plan = async (...args: string[]) =>
    JSON.parse(
      await done('plan', ...size, '--lora-rank', '4', '--sample-tokens', '0', '--gpu-memory', '3MB', '--json', ...args),
    );
  const [wide, bf16, f16, q8, nf4] = await Promise.all(
    [[], ['bf16'], ['f16'], ['q8_0'], ['nf4']].map((dtype) => plan(...dtype.flatMap((type) => ['--base-dtype', type]))),
  );
  const frozen = ({ chunks }: { chunks: { frozen: number; bytes: number } }) => chunks.frozen * chunks.bytes;
  expect(frozen(bf16) / frozen(wide)).toBeLessThan(0.55);
  expect(frozen(f16)).toBe(frozen(bf16));
  // 17 / 64, and a chunk of what is no matrix.
  expect((frozen(q8) - q8.chunks.bytes) / frozen(wide)).toBeLessThan(0.3);
  // Where activations are treated alike.
  const alike = (...type: string[]) => plan('--activations', 'recompute', ...type);
  const [moved, moved16, moved8] = await Promise.all([
    alike(),
    alike('--base-dtype', 'bf16'),
    alike('--base-dtype', 'q8_0'),
  ]);
  expect(moved16.bytesPerStep.h2d / moved.bytesPerStep.h2d).toBeLessThan(0.6);
  expect(moved8.bytesPerStep.h2d).toBeLessThan(moved16.bytesPerStep.h2d);
  // Of the linears' 786,432, of 931,072 elements in all; a chunk for each of two widths is not full.
  expect((frozen(nf4) - 2 * nf4.chunks.bytes) / frozen(wide)).toBeLessThan((0.844 * 9) / 64 + 0.156);
  expect(bf16.trained).toBe(wide.trained);
});

test('what is past the largest f16 is refused by name', async () => {
  const source = sourceOf(new Map([['w', Float32Array.of(1, 65504, 65519, 70000)]]));
  const rounded = async (dtype: StoredElement, from = source) => collect(roundedWeights(from, () => dtype, 'base'));
  await expect(rounded('f16')).rejects.toThrow(
    'base: w has 70000, past the largest f16, 65504; leave its weights as they are in the files (auto), or take bf16 or f32',
  );
  const large = sourceOf(new Map([['w', new Float32Array(64).fill(9e6, 40, 41)]]));
  await expect(rounded('q8_0', large)).rejects.toThrow('base: w has 9000000, past the largest q8_0, 8319008; leave');
  expect((await rounded('bf16')).get('w')).toEqual(Float32Array.of(1, 65536, 65536, 70144));
});

test.each<[string[], string]>([
  [
    ['train', '--model', 'base', '--base-dtype', 'bf16'],
    '--base-dtype: is of a low-rank update; give --lora-rank, too',
  ],
  [['plan', '--base-dtype', 'bf16'], '--base-dtype: is of a low-rank update; give --lora-rank, too'],
  [
    ['train', '--resume', '--out', 'wanted-bf16', '--base-dtype', 'f16'],
    '--base-dtype f16: the checkpoint in wanted-bf16 was made with auto',
  ],
])('%j is refused in one line', async (args, message) => {
  const { status, said } = await holdfast(...args);
  expect(said).toContain(message);
  expect(said).toMatch(/^holdfast: [^\n]+\n$/);
  expect(status).toBe(2);
});
