// Models for the tests of GGUF: weights of a configuration, in memory, and a tokenizer.json for any number of tokens.

import { exportGGUF, type GGUFModel, type GGUFOptions } from '../../../src/formats/gguf/export.ts';
import type { AnyConfig } from '../../../src/formats/gguf/families/index.ts';
import { Random } from '../../../src/util/random.ts';
import { sourceOf, type Values } from '../../../src/values/tensor-source.ts';
import { MemoryFiles } from '../../memory-files.ts';
import { type ReadGGUF, readGGUF } from './reader.ts';

export type ShapesByName = ReadonlyMap<string, readonly number[]>;

export const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };

/** A tokenizer.json of so many tokens, all of them words. */
export const wordsTokenizer = (count: number) => ({
  pre_tokenizer: byteLevel,
  model: { type: 'BPE', vocab: Object.fromEntries(Array.from({ length: count }, (_, i) => [`t${i}`, i])), merges: [] },
});

export function randomValues(shapes: ShapesByName, seed = 1): Values {
  const random = new Random(seed, 'weights');
  return new Map(
    [...shapes].map(([name, shape]) => [
      name,
      Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => random.normal()),
    ]),
  );
}

/** In a folder with a tokenizer.json for its rows. */
export function modelOf(config: AnyConfig, values: Values, shapes: ShapesByName, pieceElements?: number): GGUFModel {
  const files = new MemoryFiles({ 'm/tokenizer.json': JSON.stringify(wordsTokenizer(config.vocab_size ?? 0)) });
  return { name: 'm', config, weights: sourceOf(values, pieceElements), shapes, files, folder: 'm' };
}

export async function written(model: GGUFModel, options: Partial<GGUFOptions> = {}): Promise<ReadGGUF> {
  const files = new MemoryFiles();
  await exportGGUF(files, 'out.gguf', model, { type: 'F32', modelfile: false, ...options });
  return readGGUF(await files.read('out.gguf'));
}
