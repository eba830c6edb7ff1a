// Model data in pieces: initial weights are the same whatever the pieces, and what goes to the device comes back.

import { describe, expect, test } from 'vitest';
import { ModelData } from '../../src/engine/model-data.ts';
import { Storage } from '../../src/engine/storage.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { Random } from '../../src/util/random.ts';
import { collect, PIECE_ELEMENTS, sourceOf } from '../../src/util/tensor-source.ts';
import { testDevice } from '../harness.ts';

const config = { model_type: 'gpt2', vocab_size: 23, n_positions: 7, n_embd: 6, n_layer: 2, n_head: 3 };
const model = makeModel(parseConfig(config, 'test'));

describe('initial weights', () => {
  test('are drawn from a stream for each parameter, or constant', async () => {
    const weights = await collect(initialWeights(model, 5));
    expect([...weights.keys()]).toEqual(model.parameters.map(({ name }) => name));
    for (const { name, shape, initial } of model.parameters) {
      const random = new Random(5, `weights ${name}`);
      const value = () => ('constant' in initial ? initial.constant : initial.normal * random.normal());
      expect(weights.get(name), name).toEqual(Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, value));
    }
  });

  test('are the same in pieces of any size, in any order, at every read', async () => {
    const whole = await collect(initialWeights(model, 5));
    for (const size of [1, 17, 138]) {
      const source = initialWeights(model, 5, size);
      const backwards = { ...source, names: source.names.toReversed() };
      expect(await collect(backwards)).toEqual(whole);
      expect(await collect(source)).toEqual(whole);
    }
  });

  test('are drawn into the memory of one piece', async () => {
    const memory = new Set<ArrayBuffer>();
    for await (const piece of initialWeights(model, 5, 10).read('wte.weight')) {
      memory.add(piece.buffer);
    }
    expect([...memory].map(({ byteLength }) => byteLength)).toEqual([40]);
  });
});

describe('on the device', () => {
  test('what is written in pieces of any size is read back in pieces', async () => {
    const device = await testDevice();
    const storage = new Storage(device);
    const length = PIECE_ELEMENTS + 5;
    const parameters = [
      { name: 'small', shape: [3] },
      { name: 'large', shape: [length] },
      { name: 'frozen', shape: [2, 2], trainable: false },
    ];
    const data = new ModelData(device, storage, parameters, true);
    const values = new Map([
      ['small', Float32Array.of(1, 2, 3)],
      ['large', new Float32Array(length).map((_, i) => i)],
      ['frozen', Float32Array.of(4, 5, 6, 7)],
    ]);
    await data.write('parameter', sourceOf(values, 99_991));
    const source = data.source('parameter');
    const sizes: number[] = [];
    for await (const piece of source.read('large')) sizes.push(piece.length);
    expect(sizes).toEqual([PIECE_ELEMENTS, 5]);
    for (const [name, found] of await collect(source)) {
      expect(Buffer.from(found.buffer).equals(Buffer.from((values.get(name) as Float32Array).buffer)), name).toBe(true);
    }
    expect(data.source('moment1').names).toEqual(['small', 'large']);

    const wrong = (small: number) => data.write('parameter', sourceOf(new Map([['small', new Float32Array(small)]])));
    await expect(wrong(2)).rejects.toThrow('small has 3 elements, the source gives 2');
    await expect(wrong(4)).rejects.toThrow('small has 3 elements, the source gives more');
    storage.destroy();
  });
});
