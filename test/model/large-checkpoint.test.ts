// A checkpoint that is larger than the memory it may take, on its way from its files into the tiers: no more of it is in
// memory than the budget and a few pieces, and every tensor arrives. `npm run test:all` loads 14 GB within 1 GB.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { afterAll, expect, test } from 'vitest';
import { setTensors } from '../../src/engine/run/values.ts';
import { finiteWeights, loadWeights } from '../../src/formats/checkpoint.ts';
import { mapChunks } from '../../src/memory/layout/chunk-map.ts';
import { Backing } from '../../src/memory/tiers/backing.ts';
import { makeModel } from '../../src/nn/index.ts';
import { parameterCount } from '../../src/nn/model.ts';
import type { BlockFile } from '../../src/runtime/host.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import { formatBytes } from '../../src/util/bytes.ts';
import type { TensorSource } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { writeSparseModel } from '../formats/sparse-model.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, testHost, VERBOSE } from '../host.ts';

const MB = 2 ** 20;
const folder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-large-'));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** The most resident memory beyond what there was. */
class ResidentMemory {
  readonly #before = process.memoryUsage().rss;
  #most = this.#before;

  look(): void {
    this.#most = Math.max(this.#most, process.memoryUsage().rss);
  }

  get grown(): number {
    return this.#most - this.#before;
  }
}

/** What an allocator and a collector of garbage hold back for a while. */
const SLACK = 192 * MB;

const [fields, host] = EVERY_CASE
  ? ([{ vocab_size: 32000, hidden_size: 4096, intermediate_size: 11008, num_hidden_layers: 34 }, 1024 * MB] as const)
  : ([{ vocab_size: 32000, hidden_size: 1024, intermediate_size: 2816, num_hidden_layers: 18 }, 64 * MB] as const);

test('from shards to host memory and disk, whole models larger than both', { timeout: 3_600_000 }, async () => {
  const at = path.join(folder, 'tiers');
  const heads = { num_attention_heads: 16, num_key_value_heads: 16 };
  const { config, bytes, lastOf } = writeSparseModel(at, { ...fields, ...heads }, bytesOfShards(5));
  const { parameters } = makeModel(config);
  const map = mapChunks(parameters, false, { minBytes: 4 * MB, maxBytes: 16 * MB });
  // What the disk is given is looked at, not kept: the file of a real one would have 28 GB.
  const written = new Set<number>();
  const disk: BlockFile = {
    path: 'nowhere',
    bytes: (map.count + 4) * map.chunkBytes,
    read: () => Promise.reject(new Error('nothing is read back')),
    async write(offset, from) {
      written.add(offset / map.chunkBytes);
      return from.length;
    },
    remove: async () => {},
  };
  const backing = new Backing({ chunks: map.count, chunkBytes: map.chunkBytes, hostLimit: host, disk });
  const resident = new ResidentMemory();
  const found = await loadWeights(testHost.files, at);
  const lasts = new Map(
    parameters.map(({ name }) => {
      const piece = map.pieces(name).at(-1);
      return [
        name,
        piece && { chunk: map.listOf('parameter', name).first + piece.chunk, at: piece.offset + piece.size - 1 },
      ];
    }),
  );
  const arrived = new Map<string, number | undefined>();
  let rooms = 0;
  await setTensors(map, 'parameter', finiteWeights(found, at), {
    get: async () => expect.fail('every chunk is filled by what is read'),
    // As a session does it: see ModelValues.
    takeRoom() {
      const room = backing.takeRoom();
      if (room) rooms++;
      return room;
    },
    giveRoomBack: (bytes) => backing.giveRoomBack(bytes),
    async set(chunk, bytes) {
      const words = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
      for (const [name, last] of lasts) if (last?.chunk === chunk) arrived.set(name, words[last.at]);
      await backing.putAll([{ chunk, bytes }]);
      resident.look();
    },
  });
  expect(arrived).toEqual(new Map(parameters.map(({ name }) => [name, lastOf(name)])));
  // Chunks are read straight into host memory as long as it has room; then what lies there gives way to copies.
  expect(rooms).toBe(Math.floor(host / map.chunkBytes));
  expect(backing.ledger.hostPeak).toBeLessThanOrEqual(host);
  expect(written.size * map.chunkBytes).toBeGreaterThanOrEqual(map.count * map.chunkBytes - host);
  // A loader of whole files has the file's bytes and its float32 in memory.
  const whole = 3 * bytes;
  if (VERBOSE || EVERY_CASE) {
    console.log(
      `${formatBytes(bytes)} of bfloat16 within ${formatBytes(host)} of host memory: ${formatBytes(resident.grown)} resident, whole files would take ${formatBytes(whole)}`,
    );
  }
  expect(resident.grown).toBeLessThan(host + SLACK);
  expect(whole).toBeGreaterThan(3 * (host + SLACK));
});

test('from shards to a generator within a GPU budget, host memory and a file', async () => {
  chooseVariants(3);
  const at = path.join(folder, 'generator');
  const sizes = { vocab_size: 96, hidden_size: 512, intermediate_size: 1536, num_hidden_layers: 24 };
  const rest = { num_attention_heads: 8, num_key_value_heads: 8, max_position_embeddings: 16 };
  const { config, bytes } = writeSparseModel(at, { ...sizes, ...rest }, bytesOfShards(3));
  const model = makeModel(config);
  const device = await testDevice();
  const [gpu, hostBytes] = [32 * MB, 32 * MB];
  const resident = new ResidentMemory();
  const { weights } = await loadWeights(testHost.files, at);
  let readInPlace = 0;
  const watched: TensorSource = {
    names: weights.names,
    async *read(name) {
      resident.look();
      yield* weights.read(name);
    },
    // What a session asks for first: see setTensors.
    reader(name, element) {
      const reader = weights.reader?.(name, element);
      return (
        reader && {
          ...reader,
          async read(...part) {
            await reader.read(...part);
            readInPlace += part[1].length;
            resident.look();
          },
        }
      );
    },
  };
  const memory = { gpu, host: hostBytes, disk: { open: (size: number) => testHost.openBlockFile(folder, size) } };
  const generator = await Generator.open(device, model, watched, { memory });
  resident.look();
  const logits = await generator.next(Int32Array.of(1, 2, 3));
  resident.look();
  expect(logits.length).toBe(96);
  expect(logits.every(Number.isFinite)).toBe(true);
  if (VERBOSE) console.log(`${formatBytes(bytes)} of bfloat16: ${formatBytes(resident.grown)} resident`);
  // Every weight, as float32.
  expect(readInPlace).toBe(4 * parameterCount(model));
  expect(resident.grown).toBeLessThan(gpu + hostBytes + SLACK);
  await generator.close();
});

/** Of a model's bytes, for so many shards or a few more. */
function bytesOfShards(count: number): number {
  return Math.ceil((EVERY_CASE ? 14e9 : 0.6e9) / count);
}
