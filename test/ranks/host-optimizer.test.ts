// Training on several ranks with AdamW on their hosts: each updates its own chunks below its GPU, with the same bits under every
// stage of ZeRO and every budget, with the memory that was predicted and the bytes that the plan says (reference-runs.ts).

import { beforeAll, expect, it } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { MomentDtype, TrainingDtype } from '../../src/memory/layout/kinds.ts';
import { bytesBelow, leastHostBytes } from '../../src/memory/tiers/shares.ts';
import { computedIn, momentsIn, optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { expectSame, MODELS, memoryDisk, run, type Work } from '../model/runs.ts';
import { runStages } from './pipeline.ts';
import { caseOf, trainOnRanks, verdictOf } from './reference-runs.ts';

let device: Device;
beforeAll(async () => {
  chooseVariants(1);
  device = await testDevice();
});

const SIZE = 2;
const optimizerDevice = 'cpu';
const recovery = 'checkpoint';

type Widths = readonly [dtype: TrainingDtype, moments: MomentDtype];
const WIDTHS: readonly Widths[] = [
  ['f32', 'f32'],
  ['f16', 'bf16'],
  ['bf16', 'f32'],
  ['f16', 'f32'],
  ['bf16', 'bf16'],
  ['f32', 'bf16'],
];

it.each(EVERY_CASE ? WIDTHS : WIDTHS.slice(0, 2))(
  'has the same bits whatever is sharded, within any budget: %s, moments %s',
  async (dtype, moments) => {
    const wide = await caseOf('gpt2-accum4-ignore');
    const reference = { ...wide, model: momentsIn(computedIn(wide.model, dtype), moments) };
    const { model, batch, seq, accumulate } = reference;
    const optimized = optimizedOn(model, optimizerDevice);
    const programs = traceStep(optimized, batch, seq);
    const limits = limitsOf(device);
    const workloadOf = (stage: ZeroStage, rank: number) =>
      trainingWorkload(optimized, programs, accumulate / SIZE, undefined, {
        accumulateOrder: 'batch',
        sharding: { rank, size: SIZE, stage },
      });
    const steps = dtype === 'f32' && moments === 'f32' ? reference.batches.length : 2;
    const how = { optimizerDevice, steps } as const;
    const { choices, ...whole } = await trainOnRanks(device, reference, SIZE, 0, how);
    if (steps === reference.batches.length) expect(verdictOf(reference, whole).worst).toBeLessThanOrEqual(1);
    const short = { ...how, steps: 2, choices };
    const { choices: _, ...wanted } = await trainOnRanks(device, reference, SIZE, 0, short);
    for (const stage of EVERY_CASE ? ZERO_STAGES : dtype === 'f32' ? ([1, 3] as const) : ([2] as const)) {
      const least = Math.max(...[0, 1].map((rank) => smallestBudget(workloadOf(stage, rank), limits, { recovery })));
      /** The first has host memory for what it has at once and no byte more; the other the fewest chunks of it, above a disk. */
      const tight = (rank: number): MemoryOptions => {
        const gpu = least + 65_536 * rank;
        const need = needBelow(fitMemory(workloadOf(stage, rank), limits, gpu, { recovery }));
        return rank === 0
          ? { gpu, host: bytesBelow(need) }
          : { gpu, host: 2 * leastHostBytes(need, true), disk: memoryDisk() };
      };
      for (const memory of EVERY_CASE || stage === 3 ? [() => ({}), tight] : [tight]) {
        const { choices: _, ...found } = await trainOnRanks(device, reference, SIZE, stage, { ...short, memory });
        expect({ ...found, gradients: undefined }, `ZeRO ${stage}`).toEqual({ ...wanted, gradients: undefined });
      }
    }
  },
);

it('has the bits of one rank on the stages of a pipeline, moments that are rounded included', async () => {
  const model = momentsIn(computedIn(MODELS['gpt2, tied'], 'bf16'), 'bf16');
  // With more micro-batches, the sum of what two stages have goes in another order.
  const work: Work = { model, batch: 1, seq: 8, accumulate: 1, steps: 2, optimizerDevice };
  const alone = await run(device, work);
  const { outcome } = await runStages(device, work, { size: 2, pipeline: 2 }, alone.choices);
  expectSame(outcome, { ...alone.outcome, between: [], evaluations: outcome.evaluations }, 'stages');
});
