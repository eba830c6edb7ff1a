// Text from a GGUF file: the weights that are read from one generate what the model itself does, and what llama.cpp's graph makes
// of the file.

import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { ruleOf } from '../../src/formats/gguf/families/family.ts';
import { ggufFamilyOf } from '../../src/formats/gguf/families/index.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import { Random } from '../../src/util/random.ts';
import { collect, sourceOf, type Values } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { logitsOf } from '../formats/gguf/llama-cpp.ts';
import { modelOf, written } from '../formats/gguf/models.ts';
import type { ReadGGUF, ReadTensor } from '../formats/gguf/reader.ts';
import { testDevice } from '../harness.ts';

chooseVariants(8);

const configs = {
  gpt2: { vocab_size: 61, n_positions: 24, n_embd: 24, n_layer: 2, n_head: 3 },
  llama: {
    ...{ vocab_size: 61, max_position_embeddings: 24, hidden_size: 24, intermediate_size: 40, num_hidden_layers: 2 },
    ...{ num_attention_heads: 4, num_key_value_heads: 2, head_dim: 8 },
  },
};
const PROMPT = [5, 17, 3];

async function generated(config: ReturnType<typeof parseConfig>, values: Values): Promise<number[]> {
  const generator = await Generator.open(await testDevice(), makeModel(config), sourceOf(values));
  const ids: number[] = [];
  const random = new Random(1, 'samples');
  for await (const id of generator.generate(Int32Array.from(PROMPT), 12, { temperature: 0, topP: 1 }, random))
    ids.push(id);
  await generator.close();
  return ids;
}

/** A tensor as Hugging Face's files have it. */
function restored({ dims, values }: ReadTensor, kind: string | undefined, heads: number): Float32Array<ArrayBuffer> {
  const [columns = 1, rows = 1] = dims;
  const size = rows / heads;
  return Float32Array.from(values, (_, i) => {
    // [in, out] has as many columns as the file has rows.
    if (kind === 'transposed') return values[(i % rows) * columns + Math.floor(i / rows)] ?? Number.NaN;
    if (kind !== 'paired') return values[i] ?? Number.NaN;
    const [row, column] = [Math.floor(i / columns), i % columns];
    const [head, inside] = [Math.floor(row / size), row % size];
    const from = head * size + (inside < size / 2 ? 2 * inside : 2 * inside - size + 1);
    return values[from * columns + column] ?? Number.NaN;
  });
}

function greedy(file: ReadGGUF): number[] {
  const ids = [...PROMPT];
  for (let i = 0; i < 12; i++) {
    const last = logitsOf(file, ids).at(-1) ?? [];
    ids.push(last.indexOf(Math.max(...last)));
  }
  return ids.slice(PROMPT.length);
}

describe.each(Object.entries(configs))('%s', (model_type, fields) => {
  test('generates the same', async () => {
    const config = parseConfig({ model_type, ...fields, initializer_range: 0.5 }, 'test');
    const model = makeModel(config);
    const values = await collect(initialWeights(model, 3));
    const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
    const file = await written(modelOf(config, values, shapes));
    const again: Values = new Map(
      [...values.keys()].map((weight) => {
        const { name, arrangement } = ruleOf(ggufFamilyOf(config, 'm'), config, weight);
        const tensor = file.tensors.get(name);
        if (!tensor) throw new Error(name);
        return [weight, restored(tensor, arrangement?.kind, arrangement?.kind === 'paired' ? arrangement.heads : 1)];
      }),
    );
    expect(again).toEqual(values);
    const text = await generated(config, values);
    expect(await generated(config, again)).toEqual(text);
    expect(greedy(file)).toEqual(text);
    expect(new Set(text).size).toBeGreaterThan(3);
  });
});
