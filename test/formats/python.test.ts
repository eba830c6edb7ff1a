// What is written for others, read by Python with nothing but the format's definition: an adapter in PEFT's files, and a model
// of another family than GPT-2, in shards, loaded and saved.

import { createHash } from 'node:crypto';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { loadAdapter, loadWeights, withWeights } from '../../src/formats/checkpoint.ts';
import { exportModel } from '../../src/formats/export.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { collect } from '../../src/util/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { done } from '../cli/in-process.ts';
import { MemoryFiles } from '../memory-files.ts';
import { hasPython, readByPython } from './python-reader.ts';
import { writeRandomModel } from './random-model.ts';

chooseVariants(4);

const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-python-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Tied, with head sizes of their own. */
const QWEN3 = {
  ...{ model_type: 'qwen3', vocab_size: 40, hidden_size: 16, intermediate_size: 24, num_hidden_layers: 2 },
  ...{ num_attention_heads: 2, num_key_value_heads: 1, head_dim: 6, max_position_embeddings: 32 },
  ...{ tie_word_embeddings: true },
};

test.skipIf(!hasPython)(
  'Qwen 3, tied, BF16, in shards: loaded and saved it is what it was (skipped without python3)',
  async () => {
    const [from, one, parts] = ['published', 'one', 'parts'].map((name) => path.join(folder, name)) as [
      string,
      string,
      string,
    ];
    writeRandomModel(from, QWEN3, 1500);
    const { files } = headlessHost();
    const copy = (at: string, to: string, maxShardBytes: number) =>
      withWeights(files, at, (weights, found) =>
        exportModel(files, to, { weights, ...found }, { dtype: 'bf16', maxShardBytes }),
      );
    expect((await copy(from, one, 1e9)).shards).toEqual(['model.safetensors']);
    expect((await copy(one, parts, 1000)).shards.length).toBeGreaterThan(3);
    const before = readByPython(from);
    expect(Object.keys(before)).toHaveLength(2 * 11 + 2);
    expect(before['model.layers.1.self_attn.k_norm.weight']?.slice(0, 2)).toEqual(['BF16', [6]]);
    for (const to of [one, parts]) {
      expect(readByPython(to)).toEqual(before);
      expect(JSON.parse(readFileSync(path.join(to, 'config.json'), 'utf8'))).toMatchObject(QWEN3);
    }
  },
);

test.skipIf(!hasPython)('an adapter has PEFT’s names, shapes and fields (skipped without python3)', async () => {
  const base = path.join(folder, 'base');
  writeRandomModel(base, QWEN3, 1e6);
  const contents = readdirSync(base).map((name): [string, Uint8Array] => [
    `base/${name}`,
    readFileSync(path.join(base, name)),
  ]);
  const files = new MemoryFiles(Object.fromEntries(contents));
  const lora = [
    '--lora-rank',
    '2',
    '--lora-alpha',
    '6',
    '--lora-targets',
    'q_proj,down_proj',
    '--lora-dropout',
    '0.25',
  ];
  const quick = ['--steps', '1', '--warmup', '0', '--batch', '2', '--context', '8', '--eval-windows', '2'];
  await done(files, ['finetune', 'base', '--data', 'synthetic', ...lora, ...quick, '--out', 'run']);
  const adapter = path.join(folder, 'adapter_model.safetensors');
  writeFileSync(adapter, await files.read('run/checkpoint-1/adapter_model.safetensors'));
  const found = readByPython(folder, 'adapter_model.safetensors');
  const shapes = [0, 1].flatMap((i): [string, unknown][] => [
    [`layers.${i}.self_attn.q_proj.lora_A`, ['F32', [2, 16]]],
    [`layers.${i}.self_attn.q_proj.lora_B`, ['F32', [12, 2]]],
    [`layers.${i}.mlp.down_proj.lora_A`, ['F32', [2, 24]]],
    [`layers.${i}.mlp.down_proj.lora_B`, ['F32', [16, 2]]],
  ]);
  const listed = shapes.map(([name, facts]) => [`base_model.model.model.${name}.weight`, facts]);
  const seen = Object.entries(found).map(([name, [dtype, shape]]) => [name, [dtype, shape]]);
  expect(Object.fromEntries(seen)).toEqual(Object.fromEntries(listed));
  // Its values are those that are read here.
  const { config } = await loadWeights(files, 'base');
  const { weights } = await loadAdapter(files, 'run', config);
  const sums = [...(await collect(weights)).values()].map((values) =>
    createHash('sha256')
      .update(new Uint8Array(values.buffer, values.byteOffset, values.byteLength))
      .digest('hex'),
  );
  expect(sums.toSorted()).toEqual(
    Object.values(found)
      .map(([, , sum]) => sum)
      .toSorted(),
  );
  const fields = JSON.parse(new TextDecoder().decode(await files.read('run/checkpoint-1/adapter_config.json')));
  expect(fields).toMatchObject({
    ...{ peft_type: 'LORA', r: 2, lora_alpha: 6, lora_dropout: 0.25, target_modules: ['q_proj', 'down_proj'] },
    ...{ bias: 'none', task_type: 'CAUSAL_LM', fan_in_fan_out: false, base_model_name_or_path: 'base' },
  });
});
