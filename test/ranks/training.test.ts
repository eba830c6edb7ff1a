// Training on several ranks of one process, over one device: the reference cases pass as on one rank, with the same bits
// under every stage of ZeRO and every budget, the memory that was predicted, and the bytes that the plan says.

import { beforeAll, describe, expect, it } from 'vitest';
import type { Batch, BatchArray } from '../../src/data/batches.ts';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { bytesBelow } from '../../src/memory/tiers/shares.ts';
import type { ReferenceCase } from '../../src/parity/reference-case.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { memoryDisk } from '../model/runs.ts';
import { caseOf, type Outcome, trainOnRanks, verdictOf } from './reference-runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});

// The second has micro-batches of very different numbers of valid targets.
describe.each(EVERY_CASE ? ['gpt2-accum4', 'gpt2-accum4-ignore'] : ['gpt2-accum4-ignore'])('%s', (name) => {
  it.each(EVERY_CASE ? [2, 4] : [2])('passes on %i ranks, whatever is sharded, within any budget', async (size) => {
    const reference = await caseOf(name);
    const { choices, ...whole } = await trainOnRanks(device, reference, size, 0);
    const { metrics, worst } = verdictOf(reference, whole);
    expect(worst, [...metrics].map(([metric, { multiple }]) => `${metric} ${multiple}`).join('\n')).toBeLessThanOrEqual(
      1,
    );

    const { model, batch, seq, accumulate } = reference;
    const limits = limitsOf(device);
    const recovery = 'checkpoint';
    const workloadOf = (stage: ZeroStage, rank: number) => {
      const sharding = { rank, size, stage };
      const accumulateOrder = 'batch';
      return trainingWorkload(model, traceStep(model, batch, seq), accumulate / size, undefined, {
        accumulateOrder,
        sharding,
      });
    };
    const least = (stage: ZeroStage) => smallestBudget(workloadOf(stage, 0), limits, { recovery });
    /** The first has host memory for what it has at once and no byte more, and no disk. */
    const first = (stage: ZeroStage): MemoryOptions => {
      const gpu = least(stage) + 65_536;
      const fit = fitMemory(workloadOf(stage, 0), limits, gpu, { recovery });
      if (stage > 0) expect(fit.residents).toBeLessThan(fit.map.count);
      return { gpu, host: bytesBelow(needBelow(fit)) };
    };
    const steps = EVERY_CASE ? reference.batches.length : 2;
    const { choices: _, ...short } = await trainOnRanks(device, reference, size, 0, { choices, steps });
    for (const stage of ZERO_STAGES) {
      const tight = (rank: number): MemoryOptions =>
        rank === 0 ? first(stage) : { gpu: 2 * least(stage), host: 400_000, disk: memoryDisk() };
      // Without a budget stage 0 is the run before, again.
      for (const memory of EVERY_CASE ? [() => ({}), tight] : ([[], [tight], [() => ({})], [tight]][stage] ?? [])) {
        const { choices: _, ...found } = await trainOnRanks(device, reference, size, stage, { choices, steps, memory });
        expect({ ...found, gradients: undefined }, `ZeRO ${stage}`).toEqual({ ...short, gradients: undefined });
      }
    }
  });
});

/** Micro-batches as so many of fewer rows. */
function split(reference: ReferenceCase, parts: number): ReferenceCase {
  const { batch, accumulate, batches } = reference;
  const rows = batch / parts;
  const partOf = (whole: Batch, part: number): Batch => {
    const arrays = Object.entries(whole).map(([name, values]): [string, BatchArray | number] => {
      if (typeof values === 'number') return [name, values];
      const size = values.length / parts;
      return [name, values.slice(part * size, (part + 1) * size)];
    });
    return { ...Object.fromEntries(arrays), batch: rows, seq: whole.seq };
  };
  const micros = batches.map((step) =>
    step.flatMap((whole) => Array.from({ length: parts }, (_, part) => partOf(whole, part))),
  );
  return { ...reference, batch: rows, accumulate: parts * accumulate, batches: micros };
}

describe.runIf(EVERY_CASE)('cases whose rows several ranks share', () => {
  it.each([
    ['gpt2-tiny', 3],
    ['gpt2-small-odd', 2],
    ['llama-tiny', 2],
    ['llama-tied-mqa', 2],
    ['qwen3', 2],
    ['gemma3-text', 2],
    ['bert-mlm', 4],
    ['chat-mask', 2],
    ['llama-lora-all', 2],
  ] as const)('%s on %i', async (name, size) => {
    const whole = await caseOf(name);
    const reference = { ...split(whole, size), gradients: new Map() };
    const outcomes: Outcome[] = [];
    let choices: ChoiceRecord = {};
    for (const stage of [2, 3] as const) {
      const { choices: made, ...outcome } = await trainOnRanks(device, reference, size, stage, { choices });
      choices = made;
      outcomes.push(outcome);
    }
    const { metrics, worst } = verdictOf(reference, at(outcomes, 0));
    expect(worst, [...metrics].map(([metric, { multiple }]) => `${metric} ${multiple}`).join('\n')).toBeLessThanOrEqual(
      1,
    );
    expect(outcomes[1]).toEqual(outcomes[0]);
  });
});

it('goes on where a rank owns no chunk, and has nothing to update', async () => {
  const reference = split(await caseOf('gpt2-accum4-ignore'), 2);
  const { model, batch, seq } = reference;
  const sharding = { rank: 7, size: 8, stage: 3 } as const;
  const workload = trainingWorkload(model, traceStep(model, batch, seq), 1, undefined, { sharding });
  const { operations, update } = fitMemory(workload, limitsOf(device), undefined).passes.step;
  expect(update?.decided).toBe(operations.length);
  const { choices, ...kept } = await trainOnRanks(device, reference, 8, 2, { steps: 1 });
  const { choices: _, ...sharded } = await trainOnRanks(device, reference, 8, 3, { steps: 1, choices });
  expect(sharded).toEqual(kept);
});
