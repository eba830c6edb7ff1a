// Chunks of a run without a budget: as large as any adapter binds, which cuts fewer tensors, while values go through staging in
// pieces. What is trained in them is what is trained in small ones.

import { expect, test } from 'vitest';
import { LARGEST_CHUNK } from '../../src/engine/compile/chunk-sizes.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { dispatchesOf } from '../../src/engine/compile/pass-figures.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { expectSame, run, type Work, workloadOf } from './runs.ts';

const workOf = (sizes: object, seq: number): Work => {
  const config = parseConfig({ model_type: 'gpt2', n_head: 4, n_positions: seq, ...sizes }, 'gpt2');
  return { model: makeModel(config), batch: 1, seq, accumulate: 1, steps: 2 };
};

/** Its table alone is larger than a piece. */
const WIDE = workOf({ n_layer: 1, n_embd: 192, vocab_size: 50_000 }, 8);

test('a model in a chunk a kind, set and read in pieces, has the bits of many chunks, and the peak that was predicted', async () => {
  chooseVariants(0);
  const device = await testDevice();
  const { map, peak, stagingBytes } = fitMemory(workloadOf(WIDE), limitsOf(device), undefined);
  expect(map.lists.map(({ chunks }) => chunks)).toEqual([1, 1, 1, 1]);
  expect(stagingBytes).toBe(LARGEST_CHUNK);
  expect(map.chunkBytes).toBeGreaterThan(stagingBytes);
  device.allocator.restartPeak();
  const resident = await run(device, WIDE);
  expect(device.allocator.peak - device.allocator.bytes).toBe(peak);
  expect(resident.report.gpu.predictedPeak).toBe(peak);
  const gpu = Math.round(0.4 * peak);
  const confined = await run(device, WIDE, { memory: { gpu }, choices: resident.choices });
  expect(confined.report.link.h2dBytes).toBeGreaterThan(4 * map.chunkBytes);
  expectSame(confined.outcome, resident.outcome, 'within 0.4 of it');
});

test('GPT-2 124M takes a sixth fewer dispatches than in the chunks that move, in about the same memory', () => {
  const workload = workloadOf(workOf({ n_layer: 12, n_embd: 768, n_head: 12, vocab_size: 50_257 }, 256));
  const all = fitMemory(workload, DEFAULT_LIMITS, undefined);
  // Ranks own chunks of the sizes that move.
  const movable = fitMemory({ ...workload, isShared: true }, DEFAULT_LIMITS, undefined);
  const [count, before] = [all, movable].map(({ passes }) => dispatchesOf({ step: passes.step }).length) as [
    number,
    number,
  ];
  expect(count).toBeLessThan(0.85 * before);
  // Their padding takes at most an eightieth more.
  expect(all.peak).toBeLessThan(1.015 * movable.peak);
  expect(all.map.chunkBytes).toBeLessThanOrEqual(DEFAULT_LIMITS.binding);
});

test.each([
  ['124M', 12, 768, 256],
  ['medium', 24, 1024, 1024],
  ['XL', 48, 1600, 1024],
])('of GPT-2 %s no weight is cut but the one that no chunk can hold', (_, n_layer, n_embd, seq) => {
  const workload = workloadOf(workOf({ n_layer, n_embd, n_head: n_embd / 64, vocab_size: 50_257 }, seq));
  const { map } = fitMemory(workload, DEFAULT_LIMITS, undefined);
  const cut = workload.parameters.filter(({ name }) => map.pieces(name).length > 1);
  expect(cut.map(({ name }) => name)).toEqual(['wte.weight']);
  const { padding, held } = map.layoutOf('parameter');
  expect(padding / held).toBeLessThanOrEqual(0.0125);
});
