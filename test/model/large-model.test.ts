// A model whose state and activations are both many times larger than the GPU memory that it may use, trained for a step: the
// loss, the norm, every weight and every moment are those of the run that has all of it on the GPU. `npm run test:all` does
// it with GPT-2 124M in 40 MB, for which all of it is 2.2 GB.

import { createHash } from 'node:crypto';
import { beforeAll, expect, test } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf, type MemoryOptions, optionsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import type { StepMetrics } from '../../src/train/step/trainer.ts';
import type { TensorSource } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { batchesOf, memoryDisk, openTrainer, type Work, workloadOf } from './runs.ts';

const sizes = EVERY_CASE
  ? { n_positions: 256 }
  : { vocab_size: 512, n_positions: 64, n_embd: 96, n_head: 4, n_layer: 6 };
const model = makeModel(parseConfig({ model_type: 'gpt2', ...sizes }, 'test'));
const work: Work = { model, batch: 1, seq: sizes.n_positions, accumulate: 1, steps: 1 };

interface Result {
  readonly metrics: StepMetrics[];
  readonly sums: string[];
  readonly peak: number;
}

let device: Device;
let choices: ChoiceRecord;
let resident: Result;
let peak: number;

async function run(memory: MemoryOptions): Promise<Result> {
  device.allocator.restartPeak();
  const trainer = await openTrainer(device, work, { memory, choices });
  try {
    const metrics: StepMetrics[] = [];
    for (const batches of batchesOf(work)) metrics.push(await trainer.start(batches));
    await trainer.settle();
    choices = trainer.choices.record();
    const sums: string[] = [];
    for (const kind of ['parameter', 'moment1', 'moment2'] as const) sums.push(await sumOf(trainer.values(kind)));
    return { metrics, sums, peak: device.allocator.peak };
  } finally {
    await trainer.destroy();
  }
}

/** Of all tensors, a piece at a time. */
async function sumOf(source: TensorSource): Promise<string> {
  const hash = createHash('sha256');
  for (const name of source.names)
    for await (const piece of source.read(name))
      hash.update(new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength));
  return hash.digest('hex');
}

beforeAll(async () => {
  chooseVariants(1);
  device = await testDevice();
  choices = {};
  resident = await run({});
  peak = fitMemory(workloadOf(work), limitsOf(device), undefined).peak;
});

const within: [string, number, { host?: number } & MemoryOptions][] = [
  ['the smallest budget', 1, {}],
  ['a disk tier below', 1.25, { host: 0.3, disk: memoryDisk() }],
  ['recovery from checkpoints', 1.5, { recovery: 'checkpoint' }],
];

test.each(THOROUGH ? within : within.slice(1, 2))('within %s', async (_, times, { host, ...rest }) => {
  const gpu = Math.max(EVERY_CASE ? 40e6 : 0, Math.ceil(times * smallestBudget(workloadOf(work), limitsOf(device))));
  expect(gpu).toBeLessThan(peak / (EVERY_CASE ? 40 : 5));
  const memory: MemoryOptions = { gpu, ...rest, ...(host !== undefined && { host: Math.ceil(host * peak) }) };
  const { metrics, sums, peak: counted } = await run(memory);
  expect(metrics).toEqual(resident.metrics);
  expect(sums).toEqual(resident.sums);
  expect(counted).toBe(fitMemory(workloadOf(work), limitsOf(device), gpu, optionsOf(memory)).peak);
});
