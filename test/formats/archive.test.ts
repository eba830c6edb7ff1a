// A zip as a folder: what is in it is what was put into it, or an error that says what is wrong.

import { zipSync } from 'fflate';
import { describe, expect, test } from 'vitest';
import { loadWeights, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect } from '../../src/util/tensor-source.ts';
import { MemoryFiles } from '../memory-files.ts';

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 5, n_positions: 3, n_embd: 4, n_layer: 1, n_head: 2 },
  'test',
);
const model = makeModel(config);
const weights = initialWeights(model, 1);
const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
const files = new MemoryFiles();
await saveCheckpoint(files, 'run', 2, { config, weights, shapes, moment1: weights, moment2: weights, state: {} });
const names = (await files.list('run/checkpoint-2')).filter((name) => !/optimizer|SHA256SUMS/.test(name));
const folder = Object.fromEntries(
  await Promise.all(names.map(async (name) => [name, await files.read(`run/checkpoint-2/${name}`)] as const)),
);
const expected = await collect(weights);

/** The weights in a zip of these bytes; what an error says. */
async function load(bytes: Uint8Array): Promise<unknown> {
  try {
    return await collect((await loadWeights(new MemoryFiles({ 'a/my.zip': bytes }), 'a/my.zip')).weights);
  } catch (error) {
    if (error instanceof HoldfastError) return error.message;
    throw error;
  }
}

describe.each([
  ['stored', 0],
  ['compressed', 9],
] as const)('%s', (_, level) => {
  const zip = zipSync(folder, { level });
  const nested = zipSync({ 'my run': folder }, { level });

  test('the weights are those of the folder, also where the zip has a folder in it', async () => {
    expect(await load(zip)).toEqual(expected);
    expect(await load(nested)).toEqual(expected);
  });

  test('wherever a byte of it is another, or it ends: the same weights, or an error of one line that names it', async () => {
    const said = new Set<string>();
    for (let at = 0; at < zip.length; at += at < zip.length - 400 ? 11 : 1) {
      const damaged = zip.slice();
      damaged[at] = (damaged[at] as number) ^ 0x55;
      for (const found of [await load(damaged), await load(zip.slice(0, at))]) {
        if (typeof found !== 'string') expect(found).toEqual(expected);
        else {
          expect(found).toMatch(/^a\/my\.zip[^\n]*$/);
          said.add(found);
        }
      }
    }
    for (const part of ['is no zip file, or it is cut short', 'its checksum is another', 'its table of contents']) {
      expect(
        [...said].some((message) => message.includes(part)),
        part,
      ).toBe(true);
    }
  });
});

test('a zip without weights says what is missing', async () => {
  const { 'model.safetensors': _, ...rest } = folder;
  expect(await load(zipSync(rest as typeof folder))).toMatch(
    /^a\/my\.zip has no model\.safetensors in it; give the zip/,
  );
  expect(await load(new Uint8Array())).toMatch(/^a\/my\.zip is no zip file/);
});
