// What training takes at least of named models, on paper: GPU memory, and traffic within it.

import { describe, expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { offloadedBytes } from '../../src/engine/compile/pass-figures.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { ActivationMode } from '../../src/graph/activations.ts';
import type { AccumulateOrder } from '../../src/graph/layer-major.ts';
import { makeModel } from '../../src/nn/index.ts';
import { type Model, parameterCount } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { EVERY_CASE } from '../host.ts';

const GPT2 = makeModel(parseConfig({ model_type: 'gpt2' }, 'GPT-2 124M'));
const LLAMA = makeModel(
  parseConfig(
    {
      ...{ model_type: 'llama', hidden_size: 2048, intermediate_size: 5632, num_hidden_layers: 22, vocab_size: 32000 },
      ...{ num_attention_heads: 32, num_key_value_heads: 4, max_position_embeddings: 2048 },
    },
    'Llama 1.1B',
  ),
);

const workloadOf = (
  model: Model,
  [batch, seq]: readonly [number, number],
  options: { activations?: ActivationMode; accumulateOrder?: AccumulateOrder } = {},
  accumulate = 1,
) => trainingWorkload(model, traceStep(model, batch, seq), accumulate, undefined, options);

const DEFAULT = makeModel(
  parseConfig({ model_type: 'gpt2', n_layer: 2, n_embd: 64, n_head: 4, n_positions: 64, vocab_size: 256 }, 'default'),
);

describe('the smallest budget', () => {
  it.each([
    ['the default model', DEFAULT, [8, 64], 0.8e6],
    ['GPT-2 124M at 8 x 1,024', GPT2, [8, 1024], 180e6],
    ['GPT-2 124M at 1 x 1,024', GPT2, [1, 1024], 36e6],
    ['Llama 1.1B at 1 x 2,048', LLAMA, [1, 2048], 200e6],
  ] as const)('of %s', (_, model, shape, most) => {
    expect(smallestBudget(workloadOf(model, shape), DEFAULT_LIMITS)).toBeLessThanOrEqual(most);
  });

  it('of a larger batch is no smaller', () => {
    // One block: 256 rows and fewer, which came in no slices once, and more.
    const wide = makeModel(parseConfig({ model_type: 'gpt2', n_layer: 1, n_positions: 64, vocab_size: 256 }, 'wide'));
    const floors = [1, 2, 3, 4, 5, 6, 8].map((batch) => smallestBudget(workloadOf(wide, [batch, 64]), DEFAULT_LIMITS));
    expect(floors).toEqual(floors.toSorted((a, b) => a - b));
  });

  it.each([
    ['the default model', DEFAULT, [8, 64], 1.5e6],
    ['GPT-2 124M at 8 x 1,024', GPT2, [8, 1024], 270e6],
  ] as const)('of %s with no block in slices', (_, model, shape, most) => {
    const whole = workloadOf(model, shape, { activations: 'offload-all' });
    expect(smallestBudget(whole, DEFAULT_LIMITS)).toBeLessThanOrEqual(most);
  });
});

/** Bytes; in larger chunks a slot more or less is a percent of all, as much as the aims (25, 34 and 68 %) are missed by at a quarter and at three. */
const MOST_CHUNK = 8e6;

it('slots that vary over a step move less than as many that do not, and nothing from nine tenths of the model data on', () => {
  const workload = workloadOf(GPT2, [8, 1024], { activations: 'keep' });
  const within = (budget: number) =>
    fitMemory(workload, DEFAULT_LIMITS, budget, { mostChunk: MOST_CHUNK, recovery: 'step' });
  const { nonModel } = fitMemory(workload, DEFAULT_LIMITS, undefined);
  const moved = (share: number) => {
    const budget = Math.floor(nonModel.arenas + nonModel.persistent + share * 16 * parameterCount(GPT2));
    const { staging, map } = within(budget);
    const { passes, slots } = within(budget + (staging.down + staging.up) * map.chunkBytes);
    const { trace, extra } = passes.step;
    return [extra, undefined].map((varying) => {
      const { h2d, d2h } = schedule(trace, slots, 'planned', varying).moved;
      return h2d + d2h;
    });
  };
  for (const [share, fewer] of [
    [0.25, 24],
    [0.5, 34],
    [0.75, 67],
    [0.9, 100],
  ] as const) {
    const [varying = 0, constant = 0] = moved(share);
    expect(Math.round(100 * (1 - varying / constant)), `${share} of the model data`).toBeGreaterThanOrEqual(fewer);
  }
});

// The aim is 7 GB; on a slower link more activations move, since they are behind arithmetic.
it.runIf(EVERY_CASE)(
  'sixteen micro-batches in 0.4 GB, 15 % of what all takes, move 7.1 GB at most on a 4090, layer by layer',
  () => {
    const rates = { flops: 60e12, upBytes: 25e9, downBytes: 25e9, memoryBytes: 900e9, launchSeconds: 5e-6 };
    const moved = (accumulateOrder: AccumulateOrder) => {
      const workload = workloadOf(GPT2, [1, 1024], { accumulateOrder }, 16);
      const { passes, slots } = fitMemory(workload, { ...DEFAULT_LIMITS, rates }, 0.4e9);
      const { h2d, d2h } = schedule(passes.step.trace, slots, 'planned', passes.step.extra).moved;
      return h2d + d2h + 2 * offloadedBytes(passes.step);
    };
    expect(moved('layer')).toBeLessThanOrEqual(7.1e9);
    expect(moved('batch')).toBeGreaterThan(25e9);
  },
);
