// Four ranks at once in every way that a run may take: which share each layer, what the others shard, the width, the budget and its
// tiers. For a grid and a width the bits are the same under every stage of ZeRO and every budget, with the memory that was
// predicted and the bytes that the plan says (reference-runs.ts).

import { beforeAll, expect, it } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { ACTIVATION_MODES } from '../../src/graph/activations.ts';
import { computedIn } from '../../src/nn/model.ts';
import { splitModel } from '../../src/nn/tensor-parallel.ts';
import type { ReferenceCase } from '../../src/parity/reference-case.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { memoryDisk } from '../model/runs.ts';
import { caseOf, trainOnRanks } from './reference-runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});

const [SIZE, STEPS] = [4, 2];

/** The least budget with which all ranks of such a grid work. */
function leastOf({ model, batch, seq, accumulate }: ReferenceCase, tensor: number, stage: ZeroStage): number {
  const data = SIZE / tensor;
  const leastOn = (share: number, rank: number, activations: 'auto' | 'recompute') => {
    const part = tensor > 1 ? splitModel(model, { rank: share, size: tensor }) : model;
    const options = { activations, accumulateOrder: 'batch', sharding: { rank, size: data, stage } } as const;
    const workload = trainingWorkload(part, traceStep(part, batch, seq), accumulate / data, undefined, options);
    return smallestBudget(workload, limitsOf(device), { recovery: 'checkpoint' });
  };
  const ranks = Array.from({ length: SIZE }, (_, i) => i);
  const modes = ['auto', 'recompute'] as const;
  return Math.max(...ranks.flatMap((i) => modes.map((mode) => leastOn(i % tensor, Math.floor(i / tensor), mode))));
}

/** Budgets and tiers differ from rank to rank; so does what becomes of activations, but where gathers follow it. */
const confined =
  (least: number, stage: ZeroStage) =>
  (rank: number): MemoryOptions => {
    const isOdd = rank % 2 === 1;
    const made: MemoryOptions = isOdd || stage === 3 ? { activations: 'recompute' } : {};
    return { ...made, gpu: least + 32_768 * rank, ...(isOdd && { host: 400_000, disk: memoryDisk() }) };
  };

const WAYS = [1, 2, 4].flatMap((tensor) => (['f32', 'bf16', 'f16'] as const).map((dtype) => ({ tensor, dtype })));

it.each(EVERY_CASE ? WAYS : WAYS.filter(({ tensor, dtype }) => tensor === 2 && dtype === 'bf16'))(
  'has the same bits under every stage of ZeRO and within any budget: $tensor share each layer, $dtype',
  async ({ tensor, dtype }) => {
    const found = await caseOf('gpt2-accum4');
    const reference = { ...found, gradients: new Map(), model: computedIn(found.model, dtype) };
    const { choices, ...whole } = await trainOnRanks(device, reference, SIZE, 0, { tensor, steps: STEPS });
    for (const stage of EVERY_CASE ? ZERO_STAGES : ([1, 3] as const)) {
      const tight = confined(leastOf(reference, tensor, stage), stage);
      for (const memory of EVERY_CASE && stage > 0 ? [() => ({}), tight] : [tight]) {
        const how = { choices, memory, tensor, steps: STEPS };
        const { choices: _, ...outcome } = await trainOnRanks(device, reference, SIZE, stage, how);
        expect(outcome, `ZeRO ${stage}, ${memory === tight ? 'within a budget' : 'without one'}`).toEqual(whole);
      }
    }
  },
);

it.each(EVERY_CASE ? ACTIVATION_MODES : (['spill', 'slice'] as const))(
  'has the same bits with ZeRO 3 whatever becomes of activations: %s',
  async (activations) => {
    const reference = { ...(await caseOf('gpt2-accum4')), gradients: new Map() };
    const { choices, ...whole } = await trainOnRanks(device, reference, 2, 0, { steps: STEPS });
    const how = { choices, steps: STEPS, memory: () => ({ activations }) };
    const { choices: _, ...outcome } = await trainOnRanks(device, reference, 2, 3, how);
    expect(outcome).toEqual(whole);
  },
);
