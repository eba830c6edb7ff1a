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
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { done } from '../cli/in-process.ts';
import { MemoryFiles } from '../memory-files.ts';
import { hasPython, jsonByPython, readByPython } from './python-reader.ts';
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

/** Fields of PEFT's LoraConfig that say nothing. */
const UNSET = [
  ...['auto_mapping', 'exclude_modules', 'layer_replication', 'layers_pattern', 'layers_to_transform'],
  ...['megatron_config', 'modules_to_save', 'revision', 'trainable_token_indices'],
];

test.skipIf(!hasPython)(
  'an adapter has PEFT’s names, shapes, values and fields (skipped without python3)',
  async () => {
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
    const [tensors, fields] = ['adapter_model.safetensors', 'adapter_config.json'] as const;
    for (const name of [tensors, fields])
      writeFileSync(path.join(folder, name), await files.read(`run/checkpoint-1/${name}`));
    const found = readByPython(folder, tensors);
    const shapes = [0, 1].flatMap((i): [string, unknown][] => [
      [`layers.${i}.self_attn.q_proj.lora_A`, ['F32', [2, 16]]],
      [`layers.${i}.self_attn.q_proj.lora_B`, ['F32', [12, 2]]],
      [`layers.${i}.mlp.down_proj.lora_A`, ['F32', [2, 24]]],
      [`layers.${i}.mlp.down_proj.lora_B`, ['F32', [16, 2]]],
    ]);
    const listed = shapes.map(([name, facts]) => [`base_model.model.model.${name}.weight`, facts]);
    const seen = Object.entries(found).map(([name, [dtype, shape]]) => [name, [dtype, shape]]);
    expect(Object.fromEntries(seen)).toEqual(Object.fromEntries(listed));
    // Under each name, the values are those that are read here; no two tensors have the same.
    const { config } = await loadWeights(files, 'base');
    const own = await loadAdapter(files, 'run', config);
    const read = [...(await collect(own.weights))].map(([name, values]) => {
      const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
      const sum = createHash('sha256').update(bytes).digest('hex');
      return [`base_model.model.${name}`, ['F32', own.shapes.get(name), sum]];
    });
    expect(found).toEqual(Object.fromEntries(read));
    expect(new Set(Object.values(found).map(([, , sum]) => sum)).size).toBe(8);
    expect(jsonByPython(path.join(folder, fields))).toEqual({
      ...{ peft_type: ['str', 'LORA'], task_type: ['str', 'CAUSAL_LM'], peft_version: ['str', '0.21.0'] },
      ...{ r: ['int', 2], lora_alpha: ['int', 6], lora_dropout: ['float', 0.25], bias: ['str', 'none'] },
      ...{ target_modules: ['list', ['q_proj', 'down_proj']], base_model_name_or_path: ['str', 'base'] },
      ...{ fan_in_fan_out: ['bool', false], use_rslora: ['bool', false], use_dora: ['bool', false] },
      ...{ inference_mode: ['bool', true], init_lora_weights: ['bool', true], megatron_core: ['str', 'megatron.core'] },
      ...{ alpha_pattern: ['dict', {}], rank_pattern: ['dict', {}], loftq_config: ['dict', {}] },
      ...Object.fromEntries(UNSET.map((name) => [name, ['NoneType', null]])),
    });
  },
);
