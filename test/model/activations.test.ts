// Does it matter to a run what is kept of its activations? Not to a bit of its losses, norms and weights, whatever is
// kept and whatever the budget; and budgets work that are too small for all of them.

import { assert, beforeAll, describe, expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import type { Device } from '../../src/gpu/device.ts';
import { ACTIVATION_MODES, type ActivationMode } from '../../src/graph/activations.ts';
import { roomOf } from '../../src/memory/tiers/shares.ts';
import { makeModel } from '../../src/nn/index.ts';
import type { Model } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { HoldfastError, messageOf } from '../../src/util/errors.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { expectSame, memoryDisk, type Outcome, run, SAMPLED_MODELS, type Work } from './runs.ts';

function thrown(work: () => unknown): unknown {
  try {
    return work();
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError);
    return error;
  }
}

const isDeno = 'Deno' in globalThis;

/** All, or for each model one of them, in turn. */
const modesFor = (n: number): readonly ActivationMode[] =>
  EVERY_CASE ? ACTIVATION_MODES : ACTIVATION_MODES.filter((_, i) => (i + n) % (isDeno ? 4 : 8) === 0);

/** With windows, in some layers of one. */
const PACKED = SAMPLED_MODELS.filter(([name]) => /mistral|gemma3/.test(name)).map(
  ([name, model]) => [`${name}, in packed rows`, model, true] as const,
);
const CASES: (readonly [name: string, model: Model, packed?: boolean])[] = [...SAMPLED_MODELS, ...PACKED];

it('has the same bits with segments of two blocks (sqrt), resident and in the smallest budget', async () => {
  const shape = { family: 'gpt2', layers: 3, width: 16, heads: 2, context: 7, vocabulary: 40 } as const;
  const model = makeModel(configOfShape(shape));
  const work: Work = { model, batch: 3, seq: 7, accumulate: 2, steps: 3 };
  chooseVariants(3);
  const device = await testDevice();
  const wanted = (await run(device, work, { memory: { activations: 'keep' } })).outcome;
  const workload = trainingWorkload(model, traceStep(model, 3, 7), 2, undefined, { activations: 'sqrt' });
  const gpu = smallestBudget(workload, limitsOf(device));
  for (const memory of [{}, { gpu, host: 60_000, disk: memoryDisk() }] as const)
    expectSame((await run(device, work, { memory: { ...memory, activations: 'sqrt' } })).outcome, wanted, 'sqrt');
});

describe.each(CASES.map(([name, model, packed = false], n) => ({ name, model, packed, n })))('$name', (given) => {
  const { model, packed, n } = given;
  const work: Work = { model, batch: 3, seq: 7, accumulate: 2, steps: 3, packed };
  let device: Device;
  let wanted: Outcome;
  const workload = (activations: ActivationMode | 'auto') =>
    trainingWorkload(model, traceStep(model, work.batch, work.seq, { packed }), work.accumulate, undefined, {
      activations,
    });

  beforeAll(async () => {
    chooseVariants(3);
    device = await testDevice();
    wanted = (await run(device, work, { memory: { activations: 'keep' } })).outcome;
  });

  it.each(modesFor(n))('has the same bits with --activations %s, resident and in its smallest budget', async (mode) => {
    expectSame((await run(device, work, { memory: { activations: mode } })).outcome, wanted, `${mode}, resident`);
    const gpu = smallestBudget(workload(mode), limitsOf(device));
    const memory = { gpu, activations: mode, host: 60_000, disk: memoryDisk() };
    device.allocator.restartPeak();
    const { outcome, report } = await run(device, work, { memory });
    expectSame(outcome, wanted, `${mode}, in ${gpu} bytes`);
    expect(report.gpu.predictedPeak).toBeLessThanOrEqual(gpu);
    expect(device.allocator.peak).toBe(report.gpu.predictedPeak);
  });

  it.runIf(EVERY_CASE || n % 6 === 0)('fits activations into the budget, by itself', async () => {
    const [all, least] = (['keep', 'auto'] as const).map((mode) => smallestBudget(workload(mode), limitsOf(device)));
    assert(all !== undefined && least !== undefined);
    expect(least).toBeLessThanOrEqual(all);
    for (const gpu of [...(EVERY_CASE ? [Math.max(least, all - 1)] : []), Math.ceil((least + all) / 2), least])
      expectSame((await run(device, work, { memory: { gpu } })).outcome, wanted, `${gpu} bytes`);
    expect(() => fitMemory(workload('keep'), limitsOf(device), all - 1)).toThrow(`${all} bytes`);
    const fitBelow = (host: number) =>
      fitMemory(workload('offload'), limitsOf(device), 10 * all, { below: roomOf({ host, disk: 0 }) });
    const needed = Number(/that takes (\d+) bytes/.exec(messageOf(thrown(() => fitBelow(1))))?.[1]);
    expect(fitBelow(needed).stashes.length).toBeGreaterThan(0);
    expect(() => fitBelow(needed - 1)).toThrow(`${needed} bytes`);
    await expect(run(device, work, { memory: { gpu: least - 1 } })).rejects.toThrow(`${least} bytes`);
  });
});
