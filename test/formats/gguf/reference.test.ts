// GGUF files of PyTorch's cases: what llama.cpp's graphs make of the file alone are PyTorch's logits. So names, metadata, the order of
// rows and the shapes are right, in no words of our own.

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../../src/formats/config.ts';
import type { AnyConfig } from '../../../src/formats/gguf/families/index.ts';
import { parse } from '../../../src/formats/safetensors.ts';
import type { Values } from '../../../src/values/tensor-source.ts';
import { logitsOf } from './llama-cpp.ts';
import { modelOf, written } from './models.ts';
import type { ReadGGUF } from './reader.ts';

const everything = process.env['HOLDFAST_TESTS'] === 'all';
const root = path.resolve('test/fixtures/reference');
const json = (file: string) => JSON.parse(readFileSync(path.join(root, file), 'utf8'));
const DECODERS = ['gpt2', 'llama', 'mistral', 'qwen2', 'qwen3', 'gemma3_text'];
const cases: string[] = json('index.json')
  .cases.filter(({ kind }: { kind: string }) => !kind.includes('lora'))
  .map(({ name }: { name: string }) => name)
  .filter((name: string) => DECODERS.includes(json(`${name}/config.json`).model_type))
  // What llama-cpp.ts computes is one text a row.
  .filter((name: string) => !(json(`${name}/ref.json`).inputs ?? []).includes('document_ids'));

const tensors = (file: string) => parse(new Uint8Array(readFileSync(path.join(root, file))), file);

function caseOf(name: string) {
  const config = parseConfig(json(`${name}/config.json`), name);
  const weights = tensors(`${name}/weights.safetensors`);
  const values = new Map([...weights].map(([tensor, { data }]) => [tensor, data as Float32Array<ArrayBuffer>]));
  const shapes = new Map([...weights].map(([tensor, { shape }]) => [tensor, shape]));
  const batches = tensors(`${name}/batches.safetensors`);
  const ids = batches.get('input_ids');
  const [, , batch = 0, seq = 0] = ids?.shape ?? [];
  // Of the first micro-batch.
  const sequences = Array.from({ length: everything ? batch : 1 }, (_, i) => [
    ...(ids?.data.slice(i * seq, (i + 1) * seq) ?? []),
  ]);
  const logits = tensors(`${name}/activations.safetensors`).get('logits')?.data ?? [];
  return { ...withOwnScale(config, values), shapes, sequences, logits };
}

/** llama.cpp has one scale of scores for Gemma: where the case has another, the gains of q's norm take it in. */
function withOwnScale<C extends AnyConfig>(config: C, values: Values): { config: C; values: Values } {
  const { query_pre_attn_scalar: scalar, head_dim } = config as { query_pre_attn_scalar?: number; head_dim?: number };
  if (scalar === undefined || head_dim === undefined) return { config, values };
  const scaled = [...values].map(([name, all]) => {
    const by = name.endsWith('q_norm.weight') ? Math.sqrt(head_dim / scalar) : 1;
    return [name, all.map((gain) => (1 + gain) * by - 1)] as const;
  });
  return {
    config: { ...config, query_pre_attn_scalar: head_dim },
    values: new Map([...values, ...scaled.filter(([name]) => name.endsWith('q_norm.weight'))]),
  };
}

/** As long as the file says that a text may be: of Mistral's, no longer than the window that llama.cpp has not. */
const contextOf = ({ metadata }: ReadGGUF): number =>
  metadata[`${metadata['general.architecture']}.context_length`] as number;

/** The metadata's eps and bases of rotations are float32, of relative errors up to 6e-8, and so are PyTorch's logits. */
function farthest(file: ReadGGUF, sequences: readonly number[][], logits: ArrayLike<number>): number {
  let most = 0;
  for (const [i, ids] of sequences.entries()) {
    for (const [t, row] of logitsOf(file, ids.slice(0, contextOf(file))).entries()) {
      const begin = (i * ids.length + t) * row.length;
      for (const [v, z] of row.entries()) most = Math.max(most, Math.abs(z - (logits[begin + v] ?? Number.NaN)));
    }
  }
  return most;
}

describe.each(cases)('%s', (name) => {
  test('as F32 has PyTorch’s logits, in pieces of any size', async () => {
    const { config, values, shapes, sequences, logits } = caseOf(name);
    const file = await written(modelOf(config, values, shapes));
    expect(farthest(file, sequences, logits)).toBeLessThan(1e-5);
    const pieces = await written(modelOf(config, values, shapes, 13));
    expect(pieces.tensors).toEqual(file.tensors);
  });

  test.each(['F16', 'BF16', 'Q8_0'] as const)(
    'as %s has values no further from it than the type must be',
    async (type) => {
      const { config, values, shapes } = caseOf(name);
      const exact = await written(modelOf(config, values, shapes));
      const { tensors } = await written(modelOf(config, values, shapes), { type });
      expect([...tensors.keys()]).toEqual([...exact.tensors.keys()]);
      for (const [tensor, { type: id, dims, values: found }] of tensors) {
        const { dims: wanted, values: all } = exact.tensors.get(tensor) ?? { dims: [], values: [] };
        expect(dims).toEqual(wanted);
        expect(id).toBe(idOf(type, tensor, dims));
        for (const [i, value] of found.entries()) {
          const x = all[i] ?? Number.NaN;
          const block = all.slice(i - (i % 32), i - (i % 32) + 32);
          if (Math.abs(value - x) > errorOf(id, x, block)) expect.fail(`${tensor}[${i}] is ${value}, not ${x}`);
        }
      }
    },
  );
});

function idOf(type: 'F16' | 'BF16' | 'Q8_0', tensor: string, dims: readonly number[]): number {
  if (dims.length === 1 || tensor === 'position_embd.weight') return 0;
  if (type === 'Q8_0') return (dims[0] ?? 0) % 32 === 0 ? 8 : 1;
  return type === 'F16' ? 1 : 30;
}

/** Half of the distance of a type's values; of Q8_0, half a step and what rounding the scale takes from 127 of them. */
function errorOf(id: number, x: number, block: Iterable<number>): number {
  if (id === 0) return 0;
  if (id === 1) return Math.max(Math.abs(x) * 2 ** -11, 2 ** -25);
  if (id === 30) return Math.abs(x) * 2 ** -8;
  const largest = Math.max(...[...block].map(Math.abs));
  return 1.0001 * (largest / 254 + Math.max(largest * 2 ** -11, 127 * 2 ** -25));
}

test('a q or k in Hugging Face’s order would be seen', async () => {
  const { config, values, shapes, sequences, logits } = caseOf('llama-tiny');
  const file = await written(modelOf(config, values, shapes));
  for (const proj of ['q', 'k']) {
    const name = `blk.0.attn_${proj}.weight`;
    const tensor = file.tensors.get(name);
    const source = values.get(`model.layers.0.self_attn.${proj}_proj.weight`);
    if (!tensor || !source) throw new Error(name);
    const wrong = new Map(file.tensors).set(name, { ...tensor, values: Float64Array.from(source) });
    expect(farthest({ ...file, tensors: wrong }, sequences, logits)).toBeGreaterThan(1e-3);
  }
});
