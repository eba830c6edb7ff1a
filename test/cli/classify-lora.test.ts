// Low-rank updates of classifiers, whose heads train whole beside them: their files held against PEFT's layout and a
// computation in float64 of its own, read back from a bare folder of PEFT's, gone on with, and made a part of the model.

import { describe, expect, test } from 'vitest';
import { loadWeights } from '../../src/formats/checkpoint.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry } from '../entry.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { crossEntropy, logitsOf } from './bert-float64.ts';
import { done, inProcess } from './in-process.ts';
import { C, lines, published, QUICK, REVIEWS, SIZES, TEXTS } from './published-bert.ts';

chooseVariants(5);

const PREFIX = 'base_model.model.';
/** Steps large enough to tell apart what trains. */
const LORA = ['--lora-rank', '2', '--lora-alpha', '6', '--lr', '0.05', '--min-lr', '0.05'];

/** The tensors of a safetensors file in F32, read with no code of the library's. */
function tensorsOf(file: Uint8Array): Map<string, number[]> {
  const bytes = file.slice();
  const size = Number(new DataView(bytes.buffer).getBigUint64(0, true));
  const { __metadata__: _, ...header } = JSON.parse(new TextDecoder().decode(bytes.subarray(8, 8 + size)));
  return new Map(
    Object.entries(header as Record<string, { data_offsets: [number, number] }>).map(([name, { data_offsets }]) => {
      const [from, to] = data_offsets;
      return [name, [...new Float32Array(bytes.slice(8 + size + from, 8 + size + to).buffer)]];
    }),
  );
}

const read = async (files: MemoryFiles, folder: string) => ({
  tensors: tensorsOf(await files.read(`${folder}/adapter_model.safetensors`)),
  config: JSON.parse(new TextDecoder().decode(await files.read(`${folder}/adapter_config.json`))),
});

/** The loss of [CLS] the cat ##s [SEP] as class 1, with an adapter's tensors: W + alpha / r B A, and its head. */
function lossOf(values: ReadonlyMap<string, ArrayLike<number>>, adapter: ReadonlyMap<string, number[]>): number {
  const weight = (name: string): number[] => {
    const whole = adapter.get(PREFIX + name);
    if (whole) return whole;
    const own = Array.from(entry(values, values.has(name) ? name : name.replace(/^bert\./, '')));
    const low = (which: string) => adapter.get(PREFIX + name.replace(/weight$/, `lora_${which}.weight`));
    const [a, b] = [low('A'), low('B')];
    if (!a || !b) return own;
    const inputs = a.length / 2;
    return own.map((value, i) => {
      const [row, column] = [Math.floor(i / inputs), i % inputs];
      return value + 3 * (b[2 * row]! * a[column]! + b[2 * row + 1]! * a[inputs + column]!);
    });
  };
  return crossEntropy(logitsOf(SIZES, weight, [2, 4, 5, 6, 3], [0, 0, 0, 0, 0]), 1);
}
const ONE = '{"text":"the cats","label":1}';
const evaluated = async (files: MemoryFiles, folder: string, ...more: string[]) =>
  JSON.parse(await done(files, ['eval', folder, '--data', 'one.jsonl', '--json', ...more])) as { loss: number };

describe('of a classifier with a head of its own', () => {
  const { files, values } = published('BertForSequenceClassification');
  const here = new MemoryFiles({ ...files, 'r.jsonl': REVIEWS, 'one.jsonl': ONE });

  test('the head trains whole, and lies in the adapter by PEFT’s names', async () => {
    await done(here, ['finetune', 'm', '--data', 'r.jsonl', '--out', 'run', ...QUICK, ...LORA]);
    const { tensors, config } = await read(here, 'run/checkpoint-2');
    expect(config).toMatchObject({ modules_to_save: ['classifier'], task_type: 'SEQ_CLS', r: 2, lora_alpha: 6 });
    expect(config.target_modules).toEqual(['query', 'key', 'value', 'dense']);
    const whole = [...tensors.keys()].filter((name) => !/\.lora_[AB]\.weight$/.test(name));
    expect(whole).toEqual([`${PREFIX}classifier.weight`, `${PREFIX}classifier.bias`]);
    // Six linears in each of two layers, and the pooler's.
    expect(tensors.size).toBe(2 * 13 + 2);
    for (const name of whole) {
      const before = entry(values, name.slice(PREFIX.length));
      expect(entry(tensors, name).filter((value, i) => value === before[i])).toEqual([]);
    }
  });

  test('it tells what a computation in float64 tells, and without it the model tells what it did', async () => {
    const { tensors } = await read(here, 'run/checkpoint-2');
    const { loss } = await evaluated(here, 'run');
    expect(Math.abs(loss - lossOf(values, tensors))).toBeLessThan(2e-6);
    const { loss: alone } = await evaluated(here, 'm');
    expect(Math.abs(alone - loss)).toBeGreaterThan(1e-3);
    expect((await evaluated(here, 'run', '--lora', 'none')).loss).toBe(alone);
    const told = (...args: string[]) => done(here, ['generate', ...args, '--prompt', 'the cat', '--json']);
    expect(await told('run', '--lora', 'none')).toBe(await told('m'));
    expect(await told('run')).not.toBe(await told('m'));
  });

  test('it is made a part of its model, head and all', async () => {
    await done(here, ['export', 'run', '--merge', '--out', 'merged']);
    const { tensors } = await read(here, 'run/checkpoint-2');
    const merged = await collect((await loadWeights(here, 'merged')).weights);
    expect([...merged.keys()].sort()).toEqual([...values.keys()].sort());
    expect([...entry(merged, 'classifier.weight')]).toEqual(entry(tensors, `${PREFIX}classifier.weight`));
    // Products of A and B are rounded with their weight.
    expect(Math.abs((await evaluated(here, 'merged')).loss - lossOf(values, tensors))).toBeLessThan(4e-6);
  });

  test.runIf(EVERY_CASE)(
    'a folder as PEFT writes it, which names a head that other models have, is read, gone on with and resumed',
    async () => {
      const { tensors, config } = await read(here, 'run/checkpoint-2');
      const named = { ...config, modules_to_save: ['classifier', 'score'], base_model_name_or_path: 'elsewhere' };
      await here.writeAtomic('peft/adapter_config.json', JSON.stringify(named));
      await here.writeAtomic(
        'peft/adapter_model.safetensors',
        await here.read('run/checkpoint-2/adapter_model.safetensors'),
      );
      expect(await evaluated(here, 'peft', '--base', 'm')).toEqual(await evaluated(here, 'run'));
      const on = ['--data', 'r.jsonl', '--lora-from', 'peft', ...QUICK, '--lr', '1e-30', '--min-lr', '1e-30'];
      await done(here, ['finetune', 'm', ...on, '--weight-decay', '0', '--out', 'on']);
      expect((await read(here, 'on/checkpoint-2')).tensors).toEqual(tensors);
      const again = ['finetune', 'm', '--data', 'r.jsonl', ...QUICK, ...LORA, '--out', 'parts', '--until', '1'];
      await done(here, again);
      await done(here, ['train', '--resume', '--out', 'parts']);
      expect((await read(here, 'parts/checkpoint-2')).tensors).toEqual(tensors);
    },
  );
});

describe('of a model with another head', () => {
  const { files, values } = published(EVERY_CASE ? 'BertForPreTraining' : 'BertForMaskedLM');
  const data = lines(...TEXTS.map((text, i) => ({ text, label: i % 2 === 0 ? 'up' : 'down' })));
  const here = new MemoryFiles({ ...files, 'r.jsonl': data, 'one.jsonl': '{"text":"the cats","label":"up"}' });

  test('the head is drawn, and with the pooler, which its files may lack, all in the adapter', async () => {
    const out = await done(here, ['finetune', 'm', '--data', 'r.jsonl', '--out', 'run', ...QUICK, ...LORA]);
    expect(out).toMatch(/^head: a new one is drawn, which learns to tell down, up apart$/m);
    const { tensors, config } = await read(here, 'run/checkpoint-2');
    expect(config.modules_to_save).toEqual(['classifier', 'bert.pooler']);
    // "dense" alone would be the pooler's, too.
    expect(config.target_modules).toEqual(['query', 'key', 'value', 'output.dense', 'intermediate.dense']);
    expect([...tensors.keys()].filter((name) => !name.includes('.lora_')).sort()).toEqual(
      ['bert.pooler.dense.bias', 'bert.pooler.dense.weight', 'classifier.bias', 'classifier.weight'].map(
        (name) => PREFIX + name,
      ),
    );
    const { loss } = await evaluated(here, 'run');
    expect(Math.abs(loss - lossOf(values, tensors))).toBeLessThan(2e-6);
  });

  test('a bare folder of PEFT’s says how many classes there are; merged, it is a classifier', async () => {
    const { tensors, config } = await read(here, 'run/checkpoint-2');
    await here.writeAtomic(
      'peft/adapter_config.json',
      JSON.stringify({ ...config, modules_to_save: ['classifier', 'pooler'] }),
    );
    await here.writeAtomic(
      'peft/adapter_model.safetensors',
      await here.read('run/checkpoint-2/adapter_model.safetensors'),
    );
    await here.writeAtomic('one.jsonl', ONE);
    expect(await evaluated(here, 'peft', '--base', 'm')).toMatchObject({ loss: (await evaluated(here, 'run')).loss });
    await done(here, ['export', 'run', '--merge', '--out', 'merged']);
    const { config: merged, weights } = await loadWeights(here, 'merged');
    expect(merged).toMatchObject({
      architectures: ['BertForSequenceClassification'],
      id2label: { 0: 'down', 1: 'up' },
    });
    expect([...entry(await collect(weights), 'classifier.weight')]).toEqual(
      entry(tensors, `${PREFIX}classifier.weight`),
    );
    expect(entry(tensors, `${PREFIX}classifier.weight`)).toHaveLength(2 * C);
  });

  test.runIf(EVERY_CASE)('and goes on with more data of these classes, not with others', async () => {
    const on = ['finetune', 'm', '--lora-from', 'run', ...QUICK, '--lr', '1e-30', '--min-lr', '1e-30'];
    await done(here, [...on, '--weight-decay', '0', '--data', 'r.jsonl', '--out', 'on']);
    expect((await read(here, 'on/checkpoint-2')).tensors).toEqual((await read(here, 'run/checkpoint-2')).tensors);
    await here.writeAtomic('other.jsonl', lines({ text: 'a', label: 'x' }, { text: 'cat', label: 'y' }));
    for (const [args, message] of [
      [
        [...on, '--data', 'other.jsonl', '--out', 'no'],
        '--lora-from run: tells down, up apart, and the data has other classes',
      ],
      [['eval', 'run', '--data', 'r.jsonl', '--lora', 'none'], '--lora none: run has its head from the adapter'],
    ] as const) {
      const { status, said } = await inProcess(here, args);
      expect(said).toContain(message);
      expect(said).toMatch(/^holdfast: [^\n]+\n$/);
      expect(status).toBe(2);
    }
  });
});
