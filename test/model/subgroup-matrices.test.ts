// Training in f16 through subgroup matrices, with WGSL in place of a GPU's units: the same bits in any memory, wherever chunks end, and
// losses close to those of other variants.

import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import { Trial } from '../../src/engine/compile/trial.ts';
import { type Device, openDevice } from '../../src/gpu/device.ts';
import { computedIn } from '../../src/nn/model.ts';
import { ADAPTER, testHost } from '../host.ts';
import { withStandIns } from '../subgroup-matrices.ts';
import { runInAny } from './narrow-runs.ts';
import { MODELS, memoryDisk, run, type Work } from './runs.ts';

let device: Device;
const wanted = { name: 'subgroupMatrix' };

beforeAll(async () => {
  device = await openDevice(testHost, { adapter: ADAPTER });
  Object.defineProperty(device, 'traits', { value: { ...device.traits, subgroupMatrices: 'fixed' } });
  const { pipelines } = device;
  const get = pipelines.get.bind(pipelines);
  vi.spyOn(pipelines, 'get').mockImplementation((label, source, ...others) =>
    get(label, withStandIns(source), ...others),
  );
  vi.spyOn(Trial.prototype, 'fastest').mockImplementation(async (variants) => {
    const quick = variants.filter(({ compilesSlowly, name }) => !compilesSlowly && !/^tiled/.test(name));
    return (variants.find(({ name }) => name === wanted.name) ?? quick[0])?.name ?? '';
  });
});

afterAll(() => {
  vi.restoreAllMocks();
  device.close();
});

// Weights stored transposed are so in the forward pass, others in the backward pass.
test.each(['llama, grouped heads', 'gpt2, tied'] as const)('%s: the same bits in any memory', async (name) => {
  const model = computedIn(MODELS[name], 'f16');
  const work: Work = { model, batch: 2, seq: 8, accumulate: 1, steps: 2, between: true };
  wanted.name = 'subgroupMatrix';
  const ran = await runInAny(device, work, 2, (least, some) => [
    { gpu: least, host: 60_000, disk: memoryDisk() },
    { gpu: some, activations: 'recompute' },
    { gpu: some, policy: 'LRU' },
    { activations: 'light' },
    { gpu: some, activations: 'offload' },
  ]);
  const chosen = Object.entries(ran.choices).filter(([, variant]) => variant === 'subgroupMatrix');
  expect(chosen.length).toBeGreaterThan(0);
  for (const [key] of chosen) expect(key).toMatch(/^matmul layout=NT /);

  wanted.name = 'block';
  const other = await run(device, work);
  expect(Object.values(other.choices)).not.toContain('subgroupMatrix');
  for (const [i, [loss]] of other.outcome.steps.entries()) {
    // Factors of 20 bits at least: as close as other orders of a sum are.
    expect(Math.abs((ran.outcome.steps[i]?.[0] ?? Number.NaN) / loss - 1)).toBeLessThan(1e-4);
  }
});
