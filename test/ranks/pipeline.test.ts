// Stages of a pipeline in one process, over one device: the losses, norms, weights, moments and texts of one rank with as many
// micro-batches, to the bit, in every grid and within any budget; the memory that was predicted, and the bytes that the plan says.

import { beforeAll, describe, expect, it } from 'vitest';
import { KernelChoices } from '../../src/engine/compile/choices.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { gridPlacesOf } from '../../src/engine/ranks/grid.ts';
import { type Sharding, ZERO_STAGES } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { GridPlace } from '../../src/graph/grid-place.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import { stageOf } from '../../src/nn/pipeline-parallel.ts';
import { checkAlike } from '../../src/train/run/ranks.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload, type WorkloadSharding } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { LLAMA } from '../families/llama.ts';
import { QWEN2 } from '../families/qwen2.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { expectSame, memoryDisk, run, type Work } from '../model/runs.ts';
import { checkTrace } from '../plan/check-trace.ts';
import { ranksInProcess } from './in-process.ts';
import { type Grid, runStages } from './pipeline.ts';
import { caseOf, trainOnRanks, verdictOf } from './reference-runs.ts';

let device: Device;
beforeAll(async () => {
  chooseVariants(1);
  device = await testDevice();
});

const gpt2 = (n_layer: number, tie_word_embeddings: boolean) =>
  makeModel(
    parseConfig(
      { model_type: 'gpt2', n_layer, n_embd: 24, n_head: 4, n_positions: 16, vocab_size: 150, tie_word_embeddings },
      'gpt2',
    ),
  );

const decoder = (config: object, num_hidden_layers: number, tie_word_embeddings: boolean) => {
  const sizes = { vocab_size: 70, max_position_embeddings: 16, hidden_size: 16, intermediate_size: 40, head_dim: 4 };
  return makeModel(parseConfig({ ...config, ...sizes, num_hidden_layers, tie_word_embeddings }, 'decoder'));
};

/** Of a stage, on paper. */
const workloadOf = (
  { model, batch, seq, accumulate, activationDtype }: Omit<Work, 'steps'>,
  place: GridPlace,
  sharding: WorkloadSharding = ALONE,
) => {
  const programs = traceStep(model, batch, seq, { place, activationDtype });
  const part = programs.stages ? stageOf(model, programs.stages) : model;
  return trainingWorkload(part, programs, accumulate, undefined, { accumulateOrder: 'batch', sharding });
};

const ALONE: Sharding = { rank: 0, size: 1, stage: 0 };
const SMALL: Work = { model: gpt2(3, false), batch: 1, seq: 8, accumulate: 3, steps: 2 };

const CASES: [string, Partial<Work>, Grid][] = [
  ['2 stages that share a table', { model: gpt2(2, true), accumulate: 1, between: true }, { size: 2, pipeline: 2 }],
  ['3 stages', { between: true, steps: 4 }, { size: 3, pipeline: 3 }],
  ['4 stages of a decoder', { model: decoder(LLAMA, 5, false), accumulate: 6 }, { size: 4, pipeline: 4 }],
  [
    'low-rank updates',
    { model: withLora(decoder(QWEN2, 2, true), { rank: 2, dropout: 0.2 }) },
    { size: 2, pipeline: 2 },
  ],
];

describe('training in stages', () => {
  it.each(EVERY_CASE ? CASES : CASES.slice(0, 1))('has the bits of one rank: %s', async (name, changes, grid) => {
    const work = { ...SMALL, ...changes };
    const alone = await run(device, work);
    const { outcome } = await runStages(device, work, grid, alone.choices);
    const { evaluations, texts } = alone.outcome;
    const expected = work.between
      ? { evaluations: [...evaluations.slice(-1), ...outcome.evaluations.slice(1)], texts: texts.slice(-1) }
      : { evaluations: outcome.evaluations };
    expectSame(outcome, { ...alone.outcome, between: [], ...expected }, name);
  });

  it('has the same bits within any budget and tier, whatever copies of the model shard', async () => {
    const work = { ...SMALL, accumulate: 2, model: gpt2(2, true) };
    const copies = { size: 4, pipeline: 2 };
    const whole = await runStages(device, work, copies, {});
    for (const zero of EVERY_CASE ? ZERO_STAGES : ([3] as const)) {
      const tight = (rank: number): MemoryOptions => {
        const { data, pipeline } = gridPlacesOf({ rank, size: 4 }, copies);
        const workload = workloadOf({ ...work, accumulate: 1 }, pipeline, { ...data, stage: zero });
        const least = smallestBudget(workload, limitsOf(device), { recovery: 'checkpoint' });
        return { gpu: least + 40_000 * rank, host: 400_000, disk: memoryDisk() };
      };
      const { outcome } = await runStages(device, work, { ...copies, zero }, {}, tight);
      expectSame(outcome, whole.outcome, `ZeRO ${zero}`);
    }
  });

  it.runIf(EVERY_CASE)('has the bits of ranks that share its layers, where they do so in stages', async () => {
    const work = { ...SMALL, model: gpt2(2, false), accumulate: 2 };
    const [inRow, inGrid] = [
      await runStages(device, work, { size: 2, tensor: 2 }, {}),
      await runStages(device, work, { size: 4, tensor: 2, pipeline: 2 }, {}),
    ];
    expectSame(inGrid.outcome, inRow.outcome, '2 tensor x 2 pipeline');
  });

  it('skips the same steps on all stages', async () => {
    const weights = await collect(initialWeights(SMALL.model, 3));
    weights.get('h.2.mlp.c_proj.bias')?.fill(Number.NaN);
    const { outcome } = await runStages(device, SMALL, { size: 3, pipeline: 3 }, {}, () => ({}), sourceOf(weights));
    expect(outcome.steps.map(([, , skipped]) => skipped)).toEqual([true, true]);
    expect(outcome.parameter.get('wte.weight')).toEqual(weights.get('wte.weight'));
  });
});

describe.runIf(EVERY_CASE)('reference cases in stages', () => {
  it.each([
    'gpt2-small-odd',
    'llama-tiny',
    'llama-tied-mqa',
    'gemma3-text',
    'qwen3',
    'bert-mlm',
    'chat-mask',
    'vit-classify',
    'llama-lora-all',
  ])('%s', async (name) => {
    const reference = await caseOf(name);
    const { metrics, worst } = verdictOf(reference, await trainOnRanks(device, reference, 2, 0, { pipeline: 2 }));
    expect(worst, [...metrics].map(([metric, { multiple }]) => `${metric} ${multiple}`).join('\n')).toBeLessThanOrEqual(
      1,
    );
  });
});

describe('what ranks must have alike', () => {
  /** Ranks 0 and 1 are of the first stage. */
  const compare = (facts: readonly string[]) =>
    Promise.all(
      ranksInProcess(4, 0, { pipeline: 2 }).map((ranks, rank) => checkAlike(ranks, { chunks: at(facts, rank) }, true)),
    );

  it('may differ between stages, and in none of them', async () => {
    await compare(['8', '8', '5', '5']);
    const unlike = compare(['8', '8', '5', '6']);
    await expect(unlike).rejects.toThrow('chunks: 5 on rank 2, 6 on rank 3; it must be the same on both');
  });

  it('is a choice of kernels made once, wherever it was first needed', () => {
    const choices = new KernelChoices(device, { one: 'tiled' });
    choices.learn({ one: 'rows', other: 'quads' });
    expect([choices.record(), choices.measured]).toEqual([{ one: 'tiled', other: 'quads' }, 1]);
  });
});

describe('on paper', () => {
  // Of 300 columns no number of rows fills a chunk.
  it.each([16, 300])(
    'the chunks that the first stage chooses hold what another has: the bias of a large vocabulary, width %i',
    (width) => {
      const sizes = { hidden_size: width, intermediate_size: 4 * width, num_hidden_layers: 2, num_attention_heads: 2 };
      const bert = { model_type: 'bert', vocab_size: 30522, max_position_embeddings: 512, ...sizes };
      const work = {
        model: makeModel(parseConfig(bert, 'bert')),
        batch: 1,
        seq: 16,
        accumulate: 2,
        activationDtype: 'f32',
      } as const;
      const own = workloadOf(work, { rank: 0, size: 2 });
      const options = { recovery: 'checkpoint' } as const;
      const { map: first } = fitMemory(own, DEFAULT_LIMITS, smallestBudget(own, DEFAULT_LIMITS, options), options);
      const last = workloadOf(work, { rank: 1, size: 2 }, { ...ALONE, chunkBytes: first.chunkBytes });
      const { map } = fitMemory(last, DEFAULT_LIMITS, undefined);
      expect(map.chunkBytes).toBe(first.chunkBytes);
      expect(map.chunkBytes).toBeGreaterThanOrEqual(4 * 30522);
    },
  );

  it.each([
    [true, 'f32'],
    [false, 'f32'],
    [false, 'bf16'],
  ] as const)('each stage has its part of the model and sends its rows, tied: %s, in %s', (tied, activationDtype) => {
    const model = gpt2(5, tied);
    const work = { model, batch: 2, seq: 8, accumulate: 4, activationDtype };
    const all = model.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    const blocks = traceStep(model, 2, 8).squares.size;
    const stages = [0, 1, 2].map((rank) => {
      const place = { rank, size: 3 };
      const { map, passes } = fitMemory(workloadOf(work, place), DEFAULT_LIMITS, undefined);
      const { operations, trace } = passes.step;
      checkTrace(trace);
      const ownBlocks = map.blocks - (tied && rank === 2 ? Math.ceil((150 * 24) / 256) : 0);
      return { held: map.trainable.held, bytes: networkBytes(operations, place, 'pipeline'), ownBlocks };
    });
    const twice = tied ? 150 * 24 : 0;
    expect(stages.reduce((sum, { held }) => sum + held, 0)).toBe(all + twice);
    expect(stages.reduce((sum, { ownBlocks }) => sum + ownBlocks, 0)).toBe(blocks);
    // Of each micro-batch the rows of the residual stream, as they are kept, and of its gradient, in f32; then the squares, and
    // the loss of the last.
    const elements = 4 * (2 * 8 * 24);
    const [rows, gradients] = [elements * (activationDtype === 'bf16' ? 2 : 4), elements * 4];
    stages.forEach(({ bytes, ownBlocks }, rank) => {
      const [before, behind] = [Math.min(rank, 1), Math.min(2 - rank, 1)];
      const loss = rank === 2 ? [8, 0] : [0, 4];
      expect([bytes.sent, bytes.received]).toEqual([
        behind * rows + before * gradients + 2 * 4 * ownBlocks + at(loss, 0),
        before * rows + behind * gradients + 4 * (blocks - ownBlocks) + at(loss, 1),
      ]);
    });
  });
});
