// Training on several ranks in sixteen bits: gradients are added up in f32 and rounded once, and the bits are the same under every
// stage of ZeRO and every budget, with the memory that was predicted and the bytes that the plan says (reference-runs.ts).

import { beforeAll, expect, it } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { ownerOf, ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { ActivationDtype } from '../../src/graph/narrow-activations.ts';
import { FIRST_SCALE, initialState, SCALER } from '../../src/kernels/step-control.ts';
import type { MomentDtype, TrainingDtype } from '../../src/memory/layout/kinds.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { computedIn, momentsIn } from '../../src/nn/model.ts';
import type { ReferenceCase } from '../../src/parity/reference-case.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { CODECS } from '../../src/values/stored-elements.ts';
import { collect, type Values } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { expectSame, MODELS, memoryDisk, run, type Work } from '../model/runs.ts';
import { ranksInProcess } from './in-process.ts';
import { runStages } from './pipeline.ts';
import { caseOf, trainOnRanks } from './reference-runs.ts';

let device: Device;
beforeAll(async () => {
  chooseVariants(1);
  device = await testDevice();
});

const narrowed = (reference: ReferenceCase, dtype: TrainingDtype, moments: MomentDtype): ReferenceCase => ({
  ...reference,
  model: momentsIn(computedIn(reference.model, dtype), moments),
});

const [SIZE, STEPS] = [2, 2];

it.each(EVERY_CASE ? (['bf16', 'f16'] as const) : (['bf16'] as const))(
  'adds gradients up in f32, in the order of the ranks, and rounds the sums once: %s',
  async (dtype) => {
    const rounded = (values: Float32Array<ArrayBuffer>, scale = 1) => {
      const narrow = CODECS[dtype].narrow(values.map((value) => value * scale));
      return CODECS[dtype].widen(narrow, values.length).map((value) => value / scale);
    };
    const reference = await caseOf('gpt2-accum4-ignore');
    // Weights that the width has exactly: the first step computes with the same numbers in both.
    const weights = new Map([...reference.weights].map(([name, values]) => [name, rounded(values)]));
    const exact = { ...reference, weights };
    const { choices, gradients: sums } = await trainOnRanks(device, exact, SIZE, 0, { steps: 1 });
    const { gradients } = await trainOnRanks(device, narrowed(exact, dtype, 'f32'), SIZE, 0, { steps: 1, choices });
    const scale = dtype === 'f16' ? FIRST_SCALE : 1;
    const wanted = new Map([...(sums.get(0) ?? [])].map(([name, values]) => [name, rounded(values, scale)]));
    expect(wanted.size).toBeGreaterThan(0);
    expect(gradients.get(0)).toEqual(wanted);
  },
);

it('skips a step on all ranks where a gradient overflows on one of them', async () => {
  const model = computedIn(MODELS['gpt2, tied'], 'f16');
  const [batch, seq] = [1, 8];
  // No step changes a weight: its gradients are those of the one before.
  const schedule = { decay: 'constant', peak: 1e-30, min: 1e-30, warmup: 0, steps: 1 } as const;
  const trainers: Trainer[] = [];
  for (const ranks of ranksInProcess(SIZE, 2)) {
    const chunkBytes = trainers[0]?.session.map.chunkBytes;
    const options = { batch, seq, schedule, ranks: { ...ranks, chunkBytes }, optimizer: { clip: 0 } };
    trainers.push(await Trainer.create(device, model, options));
  }
  try {
    const random = new Random(1, 'tokens');
    const tokens = () => Int32Array.from({ length: batch * seq }, () => random.below(150));
    const micros = Array.from({ length: SIZE }, () => ({ ids: tokens(), targets: tokens(), batch, seq }));
    const step = () => Promise.all(trainers.map((trainer) => trainer.start(micros)));
    const scales = () => Promise.all(trainers.map(async (each) => (await each.state()).control[SCALER.gradientScale]));
    const scaleTo = (scale: number) =>
      trainers.map((trainer) => trainer.restore({ step: 0, control: [...initialState(SCALER.size, scale)] }));
    const moments = async () => {
      const found = await Promise.all(trainers.map((each) => each.collect(() => collect(each.values('moment1')))));
      return at(found, 0) ?? new Map();
    };
    await Promise.all(trainers.map((trainer) => trainer.setWeights(initialWeights(model, 1))));
    scaleTo(1);
    expect((await step()).map(({ skipped }) => skipped)).toEqual([false, false]);
    const before: Values = await moments();
    // A tenth of the gradients: the largest of what each rank owns.
    const { map } = at(trainers, 0).session;
    const largest = [0, 0];
    for (const [name, values] of before) {
      for (const { chunk, first, size } of map.pieces(name, 'moment1')) {
        const owner = ownerOf(chunk, map, { size: SIZE });
        for (const value of values.subarray(first, first + size))
          largest[owner] = Math.max(at(largest, owner), 10 * Math.abs(value));
      }
    }
    const overflows = (scale: number) => largest.map((value) => value * scale > CODECS.f16.most);
    const scale = 2 ** Math.ceil(Math.log2(CODECS.f16.most / Math.max(...largest)));
    expect(overflows(scale).toSorted()).toEqual([false, true]);
    expect(overflows(scale / 2)).toEqual([false, false]);
    scaleTo(scale);
    expect((await step()).map(({ skipped }) => skipped)).toEqual([true, true]);
    expect(await scales()).toEqual([scale / 2, scale / 2]);
    expect(await moments()).toEqual(before);
    expect((await step()).map(({ skipped }) => skipped)).toEqual([false, false]);
    expect(await scales()).toEqual([scale / 2, scale / 2]);
  } finally {
    for (const trainer of trainers) await trainer.destroy();
  }
});

type Widths = readonly [dtype: TrainingDtype, moments: MomentDtype, activationDtype: ActivationDtype];
const WIDTHS: Widths[] = [
  ['bf16', 'bf16', 'bf16'],
  ['f16', 'f32', 'f32'],
  ['f16', 'bf16', 'bf16'],
  ['bf16', 'f32', 'f32'],
  ['f32', 'bf16', 'f32'],
  ['f32', 'f32', 'bf16'],
  ['f16', 'f32', 'f16'],
];

it.each(EVERY_CASE ? WIDTHS : WIDTHS.slice(0, 1))(
  'has the same bits whatever is sharded, within any budget: %s, moments %s, activations %s',
  async (dtype, moments, activationDtype) => {
    const reference = narrowed(await caseOf('gpt2-accum4-ignore'), dtype, moments);
    const { model, batch, seq, accumulate } = reference;
    const least = (stage: ZeroStage, rank: number) => {
      const sharding = { rank, size: SIZE, stage };
      const options = { activations: 'recompute', accumulateOrder: 'batch', sharding } as const;
      const programs = traceStep(model, batch, seq, { activationDtype });
      const workload = trainingWorkload(model, programs, accumulate / SIZE, undefined, options);
      return smallestBudget(workload, limitsOf(device), { recovery: 'checkpoint' });
    };
    const how = { steps: STEPS, activationDtype };
    const { choices, ...whole } = await trainOnRanks(device, reference, SIZE, 0, how);
    for (const stage of EVERY_CASE ? ZERO_STAGES : ([1, 3] as const)) {
      const tight = (rank: number): MemoryOptions => ({
        ...{ activations: 'recompute', gpu: Math.max(least(stage, 0), least(stage, 1)) + 65_536 * rank },
        ...{ host: 400_000, disk: memoryDisk() },
      });
      for (const memory of EVERY_CASE ? [tight, () => ({})] : [tight]) {
        const { choices: _, ...found } = await trainOnRanks(device, reference, SIZE, stage, {
          ...how,
          choices,
          memory,
        });
        expect({ ...found, gradients: undefined }, `ZeRO ${stage}`).toEqual({ ...whole, gradients: undefined });
      }
    }
  },
);

const NARROW = { dtype: 'bf16', moments: 'bf16', activationDtype: 'bf16' } as const;
const small: Work = {
  ...{ model: momentsIn(computedIn(MODELS['gpt2, tied'], NARROW.dtype), NARROW.moments), batch: 1, seq: 8 },
  ...{ accumulate: 2, steps: 2, activationDtype: NARROW.activationDtype },
};

it('has the bits of one rank on the stages of a pipeline, what two of them have included', async () => {
  // With more micro-batches, the sum of what two stages have goes in another order.
  const work = { ...small, accumulate: 1 };
  const alone = await run(device, work);
  const { outcome } = await runStages(device, work, { size: 2, pipeline: 2 }, alone.choices);
  expectSame(outcome, { ...alone.outcome, between: [], evaluations: outcome.evaluations }, 'stages');
});

it('has the same bits in a grid of 2 x 2 x 2, whatever copies shard and becomes of activations', async () => {
  const grid = { size: 8, tensor: 2, pipeline: 2 };
  const whole = await runStages(device, small, grid, {}, () => ({ activations: 'keep' }));
  for (const zero of EVERY_CASE ? ZERO_STAGES : ([3] as const)) {
    const { outcome } = await runStages(device, small, { ...grid, zero }, {}, () => ({ activations: 'recompute' }));
    expectSame(outcome, whole.outcome, `ZeRO ${zero}`);
  }
});

it.runIf(EVERY_CASE).each([
  ['bf16', 'f32'],
  ['f16', 'bf16'],
] as const)(
  'has the bits of one rank in stages, and those of any ZeRO in a grid: %s, moments %s',
  async (dtype, moments) => {
    const tiny = narrowed(await caseOf('gpt2-tiny'), dtype, moments);
    const { choices, ...one } = await trainOnRanks(device, tiny, 1, 0, { steps: STEPS });
    const { choices: _, ...stages } = await trainOnRanks(device, tiny, 2, 0, { choices, steps: STEPS, pipeline: 2 });
    expect(stages).toEqual(one);

    const shared = narrowed(await caseOf('gpt2-accum4'), dtype, moments);
    const outcomes = [];
    for (const stage of ZERO_STAGES) {
      const how = { choices: {}, steps: STEPS, tensor: 2 };
      const { choices: _, gradients: __, ...found } = await trainOnRanks(device, shared, 4, stage, how);
      outcomes.push(found);
    }
    for (const found of outcomes) expect(found).toEqual(outcomes[0]);
  },
);
