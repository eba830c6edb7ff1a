// Training on several ranks in sixteen bits: gradients are added up in f32 and rounded once, and the bits are the same under every
// stage of ZeRO and every budget, with the memory that was predicted and the bytes that the plan says (reference-runs.ts).

import { beforeAll, expect, it } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { ActivationDtype } from '../../src/graph/narrow-activations.ts';
import type { MomentDtype, TrainingDtype } from '../../src/memory/layout/kinds.ts';
import { computedIn, momentsIn } from '../../src/nn/model.ts';
import type { ReferenceCase } from '../../src/parity/reference-case.ts';
import { traceStep } from '../../src/train/step-programs.ts';
import { trainingWorkload } from '../../src/train/training-workload.ts';
import { CODECS } from '../../src/util/stored-elements.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { memoryDisk } from '../model/runs.ts';
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

const rounded = (values: Float32Array<ArrayBuffer>) =>
  CODECS.bf16.widen(CODECS.bf16.narrow(Float32Array.from(values)), values.length);

const [SIZE, STEPS] = [2, 2];

it('adds gradients up in f32, in the order of the ranks, and rounds the sums once', async () => {
  const reference = await caseOf('gpt2-accum4-ignore');
  // Weights that bf16 has exactly: the first step computes with the same numbers in both widths.
  const weights = new Map([...reference.weights].map(([name, values]) => [name, rounded(values)]));
  const exact = { ...reference, weights };
  const { choices, gradients: sums } = await trainOnRanks(device, exact, SIZE, 0, { steps: 1 });
  const { gradients } = await trainOnRanks(device, narrowed(exact, 'bf16', 'f32'), SIZE, 0, { steps: 1, choices });
  const wanted = new Map([...(sums.get(0) ?? [])].map(([name, values]) => [name, rounded(values)]));
  expect(wanted.size).toBeGreaterThan(0);
  expect(gradients.get(0)).toEqual(wanted);
});

type Widths = readonly [dtype: TrainingDtype, moments: MomentDtype, activationDtype: ActivationDtype];
const WIDTHS: Widths[] = [
  ['bf16', 'bf16', 'bf16'],
  ['bf16', 'f32', 'f32'],
  ['f32', 'bf16', 'f32'],
  ['f32', 'f32', 'bf16'],
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
    for (const stage of ZERO_STAGES) {
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

it.runIf(EVERY_CASE)(
  'has the bits of one rank on the stages of a pipeline, and those of any stage of ZeRO in a grid',
  async () => {
    const tiny = narrowed(await caseOf('gpt2-tiny'), 'bf16', 'f32');
    const { choices, ...one } = await trainOnRanks(device, tiny, 1, 0, { steps: STEPS });
    const { choices: _, ...stages } = await trainOnRanks(device, tiny, 2, 0, { choices, steps: STEPS, pipeline: 2 });
    expect(stages).toEqual(one);

    const shared = narrowed(await caseOf('gpt2-accum4'), 'bf16', 'bf16');
    const outcomes = [];
    for (const stage of ZERO_STAGES) {
      const {
        choices: _,
        gradients: __,
        ...found
      } = await trainOnRanks(device, shared, 4, stage, {
        ...{ choices: {}, steps: STEPS, tensor: 2 },
      });
      outcomes.push(found);
    }
    for (const found of outcomes) expect(found).toEqual(outcomes[0]);
  },
);
