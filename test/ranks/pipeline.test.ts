// Stages of a pipeline in one process, over one device: the losses, norms, weights and moments of one rank with as many
// micro-batches, to the bit.

import { beforeAll, describe, expect, it } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { testDevice } from '../harness.ts';
import { expectSame, run, type Work } from '../model/runs.ts';
import { runStages } from './pipeline.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});

const gpt2 = (n_layer: number, tie_word_embeddings: boolean) =>
  makeModel(
    parseConfig(
      { model_type: 'gpt2', n_layer, n_embd: 24, n_head: 4, n_positions: 16, vocab_size: 150, tie_word_embeddings },
      'gpt2',
    ),
  );

const workOf = (work: Partial<Work>): Work => ({
  model: gpt2(3, false),
  batch: 2,
  seq: 8,
  accumulate: 3,
  steps: 4,
  ...work,
});

describe('training in stages', () => {
  it('has the bits of one rank', async () => {
    const work = workOf({});
    const alone = await run(device, work);
    const { outcome } = await runStages(device, work, { size: 2, pipeline: 2 }, alone.choices);
    expectSame({ ...outcome, evaluations: [] }, alone.outcome, '2 stages');
    expect(outcome.steps).toHaveLength(4);
  });

  it('has them with a table that the first and the last stage share, of one micro-batch', async () => {
    const work = workOf({ model: gpt2(3, true), accumulate: 1 });
    const alone = await run(device, work);
    const { outcome } = await runStages(device, work, { size: 3, pipeline: 3 }, alone.choices);
    expectSame({ ...outcome, evaluations: [] }, alone.outcome, '3 stages');
  });
});
