// The records of the model families: what one says agrees with the model that its family makes.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { checkWeights, loadWeights, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import { type ModelConfig, parseConfig } from '../../src/formats/config.ts';
import { FAMILIES, FAMILY_NAMES, familyOf, shapeOf } from '../../src/formats/families/index.ts';
import { configOfShape, type ShapeOptions } from '../../src/formats/shape.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { observedNames } from '../../src/nn/model.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { messageOf } from '../../src/util/errors.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { expectMistake } from '../expect-mistake.ts';
import { SMALL_MODELS } from '../families.ts';
import { MemoryFiles } from '../memory-files.ts';
import { PUBLISHED } from './published-configs.ts';

/** Whether its family has a head of this kind. */
function isAccepted(config: object): boolean {
  try {
    return Boolean(parseConfig(config, 'test'));
  } catch (error) {
    expect(messageOf(error)).toContain('tie_word_embeddings');
    return false;
  }
}

describe.each(FAMILY_NAMES)('%s', (family) => {
  const { groupedHeads, stored, label } = FAMILIES[family];
  const shapes = fc.record({
    layers: fc.integer({ min: 1, max: 5 }),
    kvHeads: fc.integer({ min: 1, max: 3 }),
    groups: fc.integer({ min: 1, max: 3 }),
    headSize: fc.integer({ min: 1, max: 5 }).map((half) => 2 * half),
    context: fc.integer({ min: 1, max: 33 }),
    vocabulary: fc.integer({ min: 2, max: 300 }),
    tied: fc.boolean(),
  });
  const seesImages = shapeOf(configOfShape({ family })).vocabulary === 0;

  it('gives a new model the shape that was asked for', () => {
    const made = fc.property(shapes, ({ kvHeads, groups, headSize, ...rest }) => {
      const heads = kvHeads * groups;
      const asked = { ...rest, heads, width: heads * headSize, ...(groupedHeads && { kvHeads }) };
      const config = configOfShape({ family, ...asked });
      expect(parseConfig(config, 'again')).toEqual(config);
      const { tied: _, ...sizes } = asked;
      // Without a word on its images, one of 32 x 32 in patches of 4 x 4, and ten classes.
      const own = seesImages ? { vocabulary: 0, context: 65, classes: 10 } : { classes: sizes.vocabulary };
      expect(shapeOf(config)).toEqual({ kvHeads: heads, headSize, ...sizes, ...own });
      expect(familyOf(config).label).toBe(label);
      const model = makeModel(config);
      expect(model.shape).toEqual(shapeOf(config));
      const parameters = model.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
      expect(sizeOf(config)).toEqual({ tensors: model.parameters.length, parameters });
      // The embedding, each block and the last norm.
      expect(observedNames(model)).toHaveLength(rest.layers + 2);
    });
    fc.assert(made, { seed: 7, numRuns: 25 });
  });

  it('names its tensors as its parameters are', () => {
    // Of some, the head is always the embedding, or never: the configuration says nothing else, or nothing of it.
    const made = configOfShape({ family });
    const said = [true, false].map((tie_word_embeddings) => ({ ...made, tie_word_embeddings })).filter(isAccepted);
    for (const config of said.length > 0 ? said : [made]) {
      const parsed = parseConfig(config, 'test');
      const names = makeModel(parsed).parameters.map(({ name }) => name);
      expect(names).toContain(stored.embedding);
      const isTied = 'tie_word_embeddings' in parsed && parsed.tie_word_embeddings;
      expect(names.includes(stored.head)).toBe(!isTied);
      expect(names.filter((name) => stored.buffers.test(name))).toEqual([]);
      if (stored.prefix !== '') expect(names.filter((name) => name.startsWith(stored.prefix))).toEqual([]);
    }
  });

  it('is loaded as it was saved: its configuration, and each tensor by its name', async () => {
    const config = configOfShape({ family, layers: 2, width: 8, heads: 2, context: 5, vocabulary: 7, tied: false });
    const { parameters, ...model } = makeModel(config);
    const shapes = new Map(parameters.map(({ name, shape }) => [name, shape]));
    const weights = initialWeights({ parameters, ...model }, 3);
    const files = new MemoryFiles();
    const moments = { moment1: weights, moment2: weights };
    const folder = await saveCheckpoint(files, 'run', 1, { config, weights, shapes, ...moments, state: {} });
    const loaded = await loadWeights(files, folder);
    expect(loaded.config).toEqual(config);
    checkWeights(loaded.shapes, parameters, folder);
    expect(await collect(loaded.weights)).toEqual(await collect(weights));
    const written = JSON.parse(new TextDecoder().decode(await files.read(`${folder}/config.json`)));
    expect(written).toMatchObject({ model_type: family, architectures: [familyOf(config).architecture(config)] });
  });
});

const configurations: [string, object][] = [
  ...Object.entries(SMALL_MODELS).map(([name, { config }]): [string, object] => [name, config]),
  ...Object.entries(PUBLISHED).map(([name, { json }]): [string, object] => [name, json]),
];

it.each(configurations)('a configuration that was parsed is parsed to itself: %s', (_, json) => {
  const config = parseConfig(json, 'once');
  expect(parseConfig(config, 'again')).toStrictEqual(config);
});

it('every family has such a configuration', () => {
  const found = new Set(configurations.map(([, json]) => parseConfig(json, 'test').model_type));
  expect([...found].sort()).toEqual([...FAMILY_NAMES].sort());
});

describe('of a program, where a configuration is made by hand', () => {
  const config = configOfShape({ layers: 1, width: 32, heads: 2, context: 32 });

  it('what is left out has its default', () => {
    const fields = { model_type: 'gpt2', vocab_size: 256, n_positions: 32, n_embd: 32, n_layer: 1, n_head: 2 };
    const model = makeModel(fields as ModelConfig);
    expect(model.config).toEqual(config);
    expect(model.parameters).toEqual(makeModel(config).parameters);
  });

  it.each<[unknown, RegExp]>([
    [undefined, /^the configuration: is missing, not an object/],
    [{ model_type: 'foo' }, /^the configuration: model_type is "foo"; supported: "gpt2", /],
    [{ ...config, n_head: 3 }, /^the configuration: n_embd is 32, not a multiple of n_head \(3\); 33 would work$/],
    [{ ...config, n_embd: 33 }, /^the configuration: n_embd is 33, not a multiple of n_head \(2\)/],
    [{ ...config, n_layer: -1 }, /^the configuration: n_layer is -1; it must be a whole number above 0$/],
    [{ ...config, n_inner: Number.NaN }, /^the configuration: n_inner is NaN; it must be/],
    [{ ...config, layer_norm_epsilon: 'small' }, /^the configuration: layer_norm_epsilon is "small"; it must be/],
    [{ ...config, window: 4 }, /^the configuration: window is 4; this field is not known here/],
  ])('no model is made of what is none: %j', async (given, says) => {
    await expectMistake(() => makeModel(given as ModelConfig), says);
  });

  it.each<[unknown, RegExp]>([
    ['gpt2', /^this shape is "gpt2"; it must be an object$/],
    [{ family: 'foo' }, /^this shape: family is "foo"; it must be one of "gpt2", /],
    [{ family: 'constructor' }, /^this shape: family is "constructor"; it must be one of/],
    [{ layers: 1.5 }, /^this shape: n_layer is 1.5; it must be/],
    [{ width: Number.NaN }, /^this shape: n_embd is NaN; it must be/],
    [{ family: 'llama', tied: 'no' }, /^this shape: tie_word_embeddings is "no"; supported: true, false$/],
    [{ family: 'vit', images: 32 }, /^this shape: images is 32; it must be an object$/],
    [
      { family: 'vit', images: { image: 32, patch: 4, channels: 3, classes: 1e12 } },
      /^this shape: images.classes is 1000000000000; it must be a whole number from 1 to 65536$/,
    ],
  ])('no configuration is made of a shape that is none: %j', async (given, says) => {
    await expectMistake(() => configOfShape(given as ShapeOptions), says);
  });
});
