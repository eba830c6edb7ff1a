// Weights on their way from files to the chunks of a session: read straight to where they lie, they have the bits of those that
// come in pieces, whatever is between the tensors of a chunk and wherever the chunk lies; and what fails leaves nothing behind.

import { describe, expect, test } from 'vitest';
import { setTensors } from '../../src/engine/run/values.ts';
import { finiteWeights, loadWeights } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { mapChunks } from '../../src/memory/layout/chunk-map.ts';
import { Backing } from '../../src/memory/tiers/backing.ts';
import { makeModel } from '../../src/nn/index.ts';
import { Random } from '../../src/util/random.ts';
import { narrowFloats } from '../../src/values/floats.ts';
import type { TensorSource } from '../../src/values/tensor-source.ts';
import { MemoryBlockFile, MemoryFiles } from '../memory-files.ts';
import { fileOf, floats, type Stored } from './raw-tensors.ts';

const fields = { model_type: 'gpt2', vocab_size: 1301, n_positions: 33, n_embd: 36, n_layer: 2, n_head: 2 };
const { parameters } = makeModel(parseConfig(fields, 'a model'));
const map = mapChunks(parameters, false, { minBytes: 32 * 1024, maxBytes: 64 * 1024 });
const random = new Random(3, 'values');

function tensor(dtype: string, shape: readonly number[], infinite: boolean): Stored {
  const size = shape.reduce((a, b) => a * b, 1);
  const values = Float32Array.from({ length: size }, () => random.normal());
  if (infinite) values[size - 2] = Number.POSITIVE_INFINITY;
  if (dtype !== 'F16' && dtype !== 'BF16') return floats(shape, values);
  const halves = new Uint16Array(size);
  narrowFloats(dtype, values, halves);
  return { dtype, shape, bytes: new Uint8Array(halves.buffer) };
}

/** Infinite in one tensor, if it is named. */
function weightsOf(dtype: string, infinite?: string) {
  const tensors = new Map(parameters.map(({ name, shape }) => [name, tensor(dtype, shape, name === infinite)]));
  return loadWeights(
    new MemoryFiles({ 'm/config.json': JSON.stringify(fields), 'm/model.safetensors': fileOf(tensors) }),
    'm',
  );
}

/** The bytes of all chunks once they are set. */
async function chunksOf(source: TensorSource, slots: number, inRooms: boolean): Promise<Buffer> {
  const { chunkBytes, count } = map;
  const disk = new MemoryBlockFile('/tier', (count + 2) * chunkBytes);
  // What was in a slot before is anything.
  const allocate = (bytes: number) => new Uint8Array(bytes).fill(0xee);
  const backing = new Backing({ chunks: count, chunkBytes, hostLimit: slots * chunkBytes, disk, allocate });
  let rooms = 0;
  const takeRoom = () => {
    const room = backing.takeRoom();
    if (room) rooms++;
    return room;
  };
  try {
    await setTensors(map, 'parameter', source, {
      get: () => expect.fail('every chunk is whole'),
      set: (chunk, bytes) => backing.putAll([{ chunk, bytes }]),
      ...(inRooms && { takeRoom, giveRoomBack: (bytes) => backing.giveRoomBack(bytes) }),
    });
    expect(rooms).toBe(inRooms ? Math.min(slots, count) : 0);
    const all: Buffer[] = [];
    for (let chunk = 0; chunk < count; chunk++) all.push(Buffer.from(await backing.fetch(chunk)));
    return Buffer.concat(all);
  } finally {
    backing.check();
    await backing.close();
  }
}

const inPieces = ({ names, read }: TensorSource): TensorSource => ({ names, read });

describe.each(['F32', 'BF16', 'F16'])('%s', (dtype) => {
  test('the same chunks, read to host memory, to disk, or in pieces', async () => {
    expect(map.count).toBeGreaterThan(4);
    const loaded = await weightsOf(dtype);
    const wanted = await chunksOf(inPieces(loaded.weights), map.count, false);
    for (const source of [loaded.weights, finiteWeights(loaded, 'm')]) {
      expect(source.reader?.('wte.weight', 'f32')?.count).toBe(1301 * 36);
      for (const [slots, inRooms] of [
        [map.count + 2, true],
        [2, true],
        [map.count, false],
      ] as const)
        expect(Buffer.compare(await chunksOf(source, slots, inRooms), wanted), `${slots} slots, ${inRooms}`).toBe(0);
    }
  });

  test('a weight that is not finite is named by its place, and its chunk is given up', async () => {
    const loaded = await weightsOf(dtype, 'wte.weight');
    const refused = `m: wte.weight is Infinity at [1300, 34]; training needs finite weights`;
    await expect(chunksOf(finiteWeights(loaded, 'm'), map.count, true)).rejects.toThrow(refused);
  });
});
