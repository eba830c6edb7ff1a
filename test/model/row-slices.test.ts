// Does it matter to a run whether its blocks go some rows at a time? Not to a bit of its losses, norms, evaluations and weights,
// with any variant of the kernels; and it takes the memory that was predicted.

import { beforeAll, describe, expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { backwardPassesOf } from '../../src/graph/operators/optimizer.ts';
import { makeModel } from '../../src/nn/index.ts';
import type { Model } from '../../src/nn/model.ts';
import { traceGeneration } from '../../src/train/inference/generation-workload.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { chooseVariants } from '../choose-variants.ts';
import { LLAMA } from '../families/llama.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { expectSame, memoryDisk, type Outcome, run, type Work } from './runs.ts';

const GPT2 = { model_type: 'gpt2', vocab_size: 90, n_positions: 300, n_embd: 24, n_head: 4, n_layer: 2 };
const SMALL_LLAMA = {
  ...LLAMA,
  ...{
    vocab_size: 80,
    max_position_embeddings: 300,
    hidden_size: 32,
    intermediate_size: 52,
    num_hidden_layers: 1,
    head_dim: 8,
  },
};

/**
 * 288 rows in slices of 192 and 96; 300 in slices of 64 and 44, of which attention has all at once; of 299, rows of logits (45) are
 * loaded by ones, of its slices of 64 they could be by fours.
 */
const CASES: readonly (readonly [string, Model, batch: number, seq: number, more: Partial<Work>])[] = [
  ['gpt2, sequence by sequence', makeModel(parseConfig(GPT2, 'gpt2')), 3, 96, {}],
  ['gpt2, rows of a sequence, odd', makeModel(parseConfig(GPT2, 'gpt2')), 1, 299, {}],
  ['llama, rows of a sequence', makeModel(parseConfig(SMALL_LLAMA, 'llama')), 1, 300, {}],
  ['llama, sequence by sequence', makeModel(parseConfig(SMALL_LLAMA, 'llama')), 3, 96, {}],
  ['gpt2, activations in bf16', makeModel(parseConfig(GPT2, 'gpt2')), 3, 96, { activationDtype: 'bf16' }],
  ['gpt2, activations in f16', makeModel(parseConfig(GPT2, 'gpt2')), 3, 96, { activationDtype: 'f16' }],
  ['gpt2, updated in its backward pass', makeModel(parseConfig(GPT2, 'gpt2')), 3, 96, { update: 'in-backward' }],
];

describe.each(CASES.slice(0, EVERY_CASE ? undefined : THOROUGH ? 2 : 1))('%s', (_, model, batch, seq, more) => {
  const work: Work = { model, batch, seq, accumulate: 2, steps: 2, between: true, ...more };
  let device: Device;
  let wanted: Outcome;

  beforeAll(async () => {
    chooseVariants(3);
    device = await testDevice();
    wanted = (await run(device, work, { memory: { activations: 'keep' } })).outcome;
  });

  it('has the same bits in the smallest budget of slices, which is met to the byte', async () => {
    const generation = traceGeneration(model, seq);
    const { activationDtype, update = 'at-end' } = more;
    const programs = traceStep(model, batch, seq, {
      activationDtype,
      passes: backwardPassesOf(update, { clip: 1, dtype: 'f32' }),
    });
    const workload = trainingWorkload(model, programs, work.accumulate, generation, { activations: 'slice' });
    const gpu = smallestBudget(workload, limitsOf(device));
    const memory = { gpu, activations: 'slice', host: 100_000, disk: memoryDisk() } as const;
    device.allocator.restartPeak();
    expectSame((await run(device, work, { memory })).outcome, wanted, `in ${gpu} bytes`);
    expect(device.allocator.peak).toBe(fitMemory(workload, limitsOf(device), gpu).peak);
  });
});
