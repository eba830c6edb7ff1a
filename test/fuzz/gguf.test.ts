// Mutants of GGUF files: each is an error of one line that names the file, or a model of which each weight has as many values
// as its shape says, and a tokenizer; and no reader takes more bytes than a few times what the file has.

import { expect, test } from 'vitest';
import { tokenizerFrom } from '../../src/data/open-tokenizer.ts';
import { checkWeights, loadWeights } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { exportGGUF } from '../../src/formats/gguf/export.ts';
import type { AnyConfig } from '../../src/formats/gguf/families/index.ts';
import type { TensorType } from '../../src/formats/gguf/tensor-types.ts';
import { makeModel } from '../../src/nn/index.ts';
import { BYTE_CHARACTERS } from '../../src/util/byte-characters.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { modelOf, randomValues } from '../formats/gguf/models.ts';
import { bytesTokenizer } from '../formats/random-model.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { mutant } from './bytes.ts';

const MUTANTS = EVERY_CASE ? 20_000 : 500;

const SIZES = {
  ...{ vocab_size: 260, max_position_embeddings: 8, hidden_size: 32, intermediate_size: 32, num_hidden_layers: 1 },
  ...{ num_attention_heads: 2, num_key_value_heads: 1 },
};

/** Counts what is read of the file. */
class CountedFiles extends MemoryFiles {
  bytes = 0;

  override async readRange(path: string, offset: number, bytes: number) {
    this.bytes += bytes;
    return super.readRange(path, offset, bytes);
  }
}

test.each<[string, TensorType]>([
  ['llama', 'Q8_0'],
  ['gemma3_text', 'Q4_0'],
  ['qwen2', 'F16'],
])('a mutant of a file of a %s in %s is one line that names it, or a whole model', async (type, written) => {
  const config = parseConfig({ model_type: type, ...SIZES, head_dim: 16, query_pre_attn_scalar: 16 }, 'test');
  const shapes = new Map(makeModel(config).parameters.map(({ name, shape }) => [name, shape]));
  const files = new MemoryFiles();
  const tokens = new MemoryFiles({ 'm/tokenizer.json': JSON.stringify(bytesTokenizer(260, BYTE_CHARACTERS)) });
  const model = { ...modelOf(config as AnyConfig, randomValues(shapes), shapes), files: tokens };
  await exportGGUF(files, 'm.gguf', model, { type: written, modelfile: false });
  const bytes = await files.read('m.gguf');
  const header = Array.from({ length: 60 }, (_, i) => 50 * i);
  const random = new Random(1, `gguf ${type}`);
  const count = { made: 0, refused: 0 };
  for (let i = 0; i < MUTANTS; i++) {
    const made = mutant(random, bytes, header);
    const disk = new CountedFiles({ 'm.gguf': made });
    try {
      const { config, weights, shapes, tokenizer } = await loadWeights(disk, 'm.gguf');
      checkWeights(shapes, makeModel(config).parameters, 'm.gguf');
      if (tokenizer) await tokenizerFrom(tokenizer);
      const values = await collect(weights);
      for (const [name, shape] of shapes) {
        expect(values.get(name)?.length, `mutant ${i}: ${name}`).toBe(shape.reduce((a, b) => a * b, 1));
      }
      count.made++;
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw new Error(`mutant ${i}`, { cause: error });
      expect(error.message, `mutant ${i}`).toMatch(/^(m\.gguf|a \w+ model of ).{1,1200}$/);
      count.refused++;
    }
    expect(disk.bytes, `mutant ${i}`).toBeLessThan(12 * made.length + 20_000);
  }
  expect(Math.min(count.made, count.refused)).toBeGreaterThan(MUTANTS / 20);
});
