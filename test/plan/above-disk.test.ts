// The choice of activations within a budget where host memory does not hold what is moved below the GPU, and a disk has the rest: its
// time counts, so that `auto` takes no longer than any mode that is fixed.

import { expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { knownMachine } from '../../src/engine/simulate/hardware.ts';
import { type Machine, machineLimits } from '../../src/engine/simulate/machine.ts';
import { simulate } from '../../src/engine/simulate/simulate.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { BLOCK_MODES } from '../../src/graph/activations.ts';
import { roomOf } from '../../src/memory/tiers/shares.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { EVERY_CASE } from '../host.ts';

/** GPU memory and host memory, as parts of what a step needs without a budget: reckoned without the disk, these once took up to 1.6 times as long. */
const CELLS = EVERY_CASE ? [0.15, 0.3, 0.5].flatMap((gpu) => [0.3, 0.6, 0.9].map((host) => [gpu, host])) : [[0.3, 0.3]];

it.each(CELLS)('is no slower than any fixed mode: %d of GPU memory, %d of host memory', (gpu = 0, host = 0) => {
  const model = makeModel(
    configOfShape({ family: 'gpt2', layers: 4, width: 1024, heads: 8, context: 128, vocabulary: 512 }),
  );
  const machine = knownMachine('rtx-3060') as Machine;
  const limits = machineLimits(machine);
  const traced = traceStep(model, 32, 128);
  const all = fitMemory(trainingWorkload(model, traced, 1), limits, undefined).peak;
  const [budget, hostBytes] = [Math.ceil(gpu * all), Math.ceil(host * all)];
  const below = roomOf({ host: hostBytes, disk: 1e12 });
  const seconds = (['auto', ...BLOCK_MODES] as const).flatMap((activations) => {
    const workload = trainingWorkload(model, traced, 1, undefined, { activations });
    if (smallestBudget(workload, limits, { below }) > budget) return [];
    const fit = fitMemory(workload, limits, budget, { below });
    const { step } = fit.passes;
    const plan = schedule(step.trace, fit.slots, 'planned', step.extra);
    return [{ activations, seconds: simulate(fit, step, plan, machine, { hostBytes }).seconds }];
  });
  const [own = { seconds: Number.POSITIVE_INFINITY }, ...others] = seconds;
  expect(others.length).toBeGreaterThan(2);
  for (const other of others) expect(own.seconds, other.activations).toBeLessThan(1.05 * other.seconds);
});
