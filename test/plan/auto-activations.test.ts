// The choice of activations within a budget (`--activations auto`) against every published policy on the same machine: by the
// simulated clock it takes no longer than the best of them, on machines whose copies take turns with arithmetic and on one
// where they do not. And none of them takes less than the bound of all. Nor does it take longer than any mode that is fixed,
// nor than it takes in less memory.

import type { Highs } from 'highs';
import { beforeAll, expect, it } from 'vitest';
import { findWithin, fitMemory } from '../../src/engine/compile/fit.ts';
import type { Fit } from '../../src/engine/compile/fitted.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { knownMachine } from '../../src/engine/simulate/hardware.ts';
import { type Machine, machineLimits, machineOf } from '../../src/engine/simulate/machine.ts';
import { simulate } from '../../src/engine/simulate/simulate.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { ACTIVATION_MODES } from '../../src/graph/activations.ts';
import { loadSolver } from '../../src/memory/plan/bound.ts';
import { makeModel } from '../../src/nn/index.ts';
import { compareActivations, OWN } from '../../src/train/plan/activation-comparison.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { type TrainingPasses, trainingWorkload } from '../../src/train/step/training-workload.ts';
import { EVERY_CASE } from '../host.ts';

/** Budgets, as shares of what lies between the smallest one and everything. */
const SHARES = EVERY_CASE ? [0.02, 0.1, 0.2, 0.35, 0.5, 0.7, 0.85] : [0.35];

const MODELS = {
  'two blocks': { layers: 2, width: 64, vocabulary: 256 },
  'three blocks': { layers: 3, width: 128, vocabulary: 500 },
};
/** Where there are few blocks, a policy that goes tensor by tensor chooses in finer steps than by blocks, and may be so much better. */
const MARGIN = 1.02;

const LAPTOP = 'a laptop’s GPU';
const CELLS = (
  [
    ['two blocks', LAPTOP],
    ['three blocks', 'rtx-4090'],
    ['two blocks', 'apple-m1'],
    ['two blocks', 'rtx-4090'],
    ['three blocks', LAPTOP],
    ['three blocks', 'apple-m1'],
  ] as const
).slice(0, EVERY_CASE ? 6 : 2);

/** Where only what keeps nothing has room for larger chunks, whose dispatches are most of the step: shares by which others were once better. */
const FEW_DISPATCHES = [
  ['rtx-4090', { layers: 3, width: 128, vocabulary: 423 }, 0.08],
  ['apple-m1', { layers: 4, width: 96, vocabulary: 119 }, 0.07],
] as const;

let highs: Highs;
beforeAll(async () => {
  highs = await loadSolver();
});

it.each(EVERY_CASE ? FEW_DISPATCHES : [])('moves all where larger chunks then fit: on %s', (on, sizes, share) => {
  const model = makeModel(configOfShape({ family: 'gpt2', ...sizes, heads: 4, context: 64 }));
  const machine = knownMachine(on) as Machine;
  const compared = { model, batch: 4, context: 64, accumulate: 1, recovery: 'step' } as const;
  const within = (budget: number) => compareActivations(compared, machine, Number.POSITIVE_INFINITY, budget);
  const all = within(1).resident.bytes;
  const [first] = within(1).policies;
  const least = first?.smallest ?? all;
  const [own, ...others] = [...within(Math.floor(least + share * (all - least))).policies].map(
    ({ steps }) => steps[0]?.seconds ?? Number.POSITIVE_INFINITY,
  );
  expect(own).toBeLessThan(1.01 * Math.min(...others));
});

it.each(CELLS)('takes no longer than any policy does: %s on %s', (name, on) => {
  const model = makeModel(configOfShape({ family: 'gpt2', ...MODELS[name], heads: 4, context: 64 }));
  const machine = on === LAPTOP ? machineOf(DEFAULT_LIMITS) : (knownMachine(on) as Machine);
  const limits = on === LAPTOP ? DEFAULT_LIMITS : machineLimits(machine);
  const within = (budget: number) => {
    const compared = { model, batch: 8, context: 64, accumulate: 1, recovery: 'step' } as const;
    return compareActivations(compared, machine, Number.POSITIVE_INFINITY, budget, limits);
  };
  const all = within(1).resident.bytes;
  const [own] = within(all).policies;
  const least = own?.smallest ?? all;
  for (const share of SHARES) {
    const { policies, bounds } = within(Math.floor(least + share * (all - least)));
    const [bound = Number.POSITIVE_INFINITY] = bounds(highs);
    const seconds = new Map(
      [...policies].map(({ name, steps }) => [name, steps[0]?.seconds ?? Number.POSITIVE_INFINITY]),
    );
    const own = seconds.get(OWN) ?? Number.POSITIVE_INFINITY;
    expect(own).toBeLessThan(Number.POSITIVE_INFINITY);
    for (const [policy, other] of seconds) {
      expect(own / other, `${policy} at ${share}`).toBeLessThan(MARGIN);
      // Near the least, ours may go in slices of rows.
      if (policy !== OWN || share > 0.1)
        expect(other, `${policy} at ${share}`).toBeGreaterThanOrEqual((1 - 1e-9) * bound);
    }
  }
});

it('none is below the bound where the head goes in slices', () => {
  const sizes = { layers: EVERY_CASE ? 2 : 1, width: 64, heads: 2, context: 256, vocabulary: 50257 };
  const model = makeModel(configOfShape({ family: 'gpt2', ...sizes }));
  const training = { model, batch: 16, context: 256, accumulate: 1, recovery: 'step' } as const;
  for (const on of EVERY_CASE ? ['apple-m1', 'rtx-4090'] : ['apple-m1']) {
    const machine = knownMachine(on) as Machine;
    const within = (budget: number) => compareActivations(training, machine, Number.POSITIVE_INFINITY, budget);
    const all = within(2 ** 40).resident.bytes;
    for (const share of EVERY_CASE ? [0.3, 0.6, 1] : [0.5]) {
      const { policies, bounds } = within(Math.floor(share * all));
      const [bound = Number.POSITIVE_INFINITY] = bounds(highs);
      const found = [...policies].flatMap(({ name, steps: [step] }) => (step ? [[name, step.seconds] as const] : []));
      expect(found.length, `${on} at ${share}`).toBeGreaterThan(2);
      for (const [name, seconds] of found)
        expect(seconds, `${name} on ${on} at ${share}`).toBeGreaterThanOrEqual((1 - 1e-9) * bound);
    }
  }
});

/** Models and machines for which every fixed mode is tried, too, within budgets from the smallest to all. */
const TABLE = (
  [
    ['default', 'rtx-4090', { layers: 2, width: 64, vocabulary: 256 }],
    ['default', 'apple-m1', { layers: 2, width: 64, vocabulary: 256 }],
    ['three blocks', 'rtx-4090', { layers: 3, width: 128, vocabulary: 500 }],
    ['three blocks', 'raspberry-pi-5', { layers: 3, width: 128, vocabulary: 500 }],
  ] as const
).slice(0, EVERY_CASE ? 4 : 1);
const TABLE_SHARES = EVERY_CASE
  ? Array.from({ length: 16 }, (_, i) => i / 15)
  : [0, 0.15, 0.3, 0.33, 0.36, 0.5, 0.7, 1];

it.each(TABLE)('is no slower than any fixed mode, nor than with less memory: %s on %s', (_, on, sizes) => {
  const model = makeModel(configOfShape({ family: 'gpt2', ...sizes, heads: 4, context: 64 }));
  const machine = knownMachine(on) as Machine;
  const limits = machineLimits(machine);
  const traced = traceStep(model, 8, 64);
  const recovery = 'checkpoint';
  const workloads = (['auto', ...ACTIVATION_MODES] as const).map((activations) => {
    const workload = trainingWorkload(model, traced, 1, undefined, { activations });
    return { activations, workload, least: smallestBudget(workload, limits, { recovery }) };
  });
  const [own] = workloads;
  const least = own?.least ?? 0;
  const whole = own ? fitMemory(own.workload, limits, undefined).peak : least;
  let before = Number.POSITIVE_INFINITY;
  for (const share of TABLE_SHARES) {
    const budget = Math.ceil(least * (whole / least) ** share);
    const seconds = workloads.flatMap(({ activations, workload, least }) => {
      if (budget < least) return [];
      const fit = fitMemory(workload, limits, budget, { recovery });
      const { step } = fit.passes;
      const planned = schedule(step.trace, fit.slots, 'planned', step.extra);
      return [{ activations, seconds: simulate(fit, step, planned, machine).seconds }];
    });
    const [auto = before] = seconds.map((each) => each.seconds);
    for (const each of seconds)
      expect(auto, `${each.activations} in ${budget} bytes`).toBeLessThan(1.01 * each.seconds);
    expect(auto, `in ${budget} bytes`).toBeLessThan(1.01 * before);
    before = auto;
  }
});

it('goes in fewer and larger slices as soon as they fit', () => {
  const model = makeModel(
    configOfShape({ family: 'gpt2', layers: 2, width: 64, heads: 4, context: 64, vocabulary: 256 }),
  );
  const machine = knownMachine('rtx-4090') as Machine;
  const within = (budget: number) => {
    const fit = fitMemory(trainingWorkload(model, traceStep(model, 8, 64), 1), machineLimits(machine), budget);
    expect(fit.workload.activations?.modes).toEqual(['slice', 'slice']);
    return fit.passes.step.operations.length;
  };
  const [least, more, most] = [within(0.65e6), within(1e6), within(1.4e6)];
  expect(more).toBeLessThan(0.5 * least);
  expect(most).toBeLessThan(0.6 * more);
});

it('goes on from what keeps all activations where that is the best to begin with', () => {
  const model = makeModel(
    configOfShape({ family: 'gpt2', layers: 12, width: 768, heads: 12, context: 1024, vocabulary: 50257 }),
  );
  const traced = traceStep(model, 1, 256);
  const machine = machineOf(DEFAULT_LIMITS);
  const [auto, stream] = (['auto', 'stream'] as const).map((activations) => {
    const workload = trainingWorkload(model, traced, 1, undefined, { activations });
    const fit = fitMemory(workload, DEFAULT_LIMITS, 300e6, { recovery: 'step' });
    const { step } = fit.passes;
    return simulate(fit, step, schedule(step.trace, fit.slots, 'planned', step.extra), machine).seconds;
  });
  expect(auto).toBeLessThan(stream ?? 0);
});

it('keeps as much as has room where no chunk is to move', () => {
  const model = makeModel(
    configOfShape({ family: 'gpt2', layers: 4, width: 1024, heads: 8, context: 512, vocabulary: 8000 }),
  );
  const machine: Machine = { ...machineOf(DEFAULT_LIMITS), peakFlops: 60e12, memoryBytesPerSecond: 900e9 };
  const [limits, options] = [machineLimits(machine), { recovery: 'checkpoint' } as const];
  const workload = trainingWorkload(model, traceStep(model, 4, 512), 1);
  const { activations } = workload;
  const all = fitMemory(workload, limits, undefined).peak;
  const secondsOf = (fit: Fit<TrainingPasses>) => {
    const { step } = fit.passes;
    return simulate(fit, step, schedule(step.trace, fit.slots, 'planned', step.extra), machine).seconds;
  };
  const kept = (['attention', 'light', 'keep'] as const).flatMap((late, i, modes) =>
    [1, 2, 3, 4].map((count) => [0, 1, 2, 3].map((block) => (block < count ? (modes[i - 1] ?? late) : late))),
  );
  for (const share of [0.6, 0.75, 0.9]) {
    const budget = Math.ceil(share * all);
    const auto = fitMemory(workload, limits, budget, options);
    const find = findWithin(workload, limits, budget, options);
    for (const modes of kept) {
      const fixed = activations && find.fit(activations.with(modes), { map: auto.map });
      if (fixed) expect(secondsOf(auto), `${modes} in ${budget} bytes`).toBeLessThan(1.01 * secondsOf(fixed));
    }
  }
});
