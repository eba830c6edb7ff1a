// Training with AdamW on the host: the same bits under every budget and tier, and the GPU's figures but for rounding.

import { afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { HostAdamW } from '../../src/kernels/host-adamw.ts';
import { initialState, LARGEST_SCALE, SCALER } from '../../src/kernels/step-control.ts';
import { gradientKind, type Kind, MOMENT_DTYPES, TRAINING_DTYPES } from '../../src/memory/layout/kinds.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { computedIn, momentsIn } from '../../src/nn/model.ts';
import type { Threads } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry, leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH, testHost } from '../host.ts';
import { UPDATE_ULP, ulpOf } from '../kernels/rounding.ts';
import {
  batchesOf,
  budgetFor,
  expectSame,
  LARGEST,
  leastBudget,
  leastHostUnder,
  type Micros,
  MODELS,
  memoryDisk,
  openTrainer,
  run,
  SMALLEST,
  type Work,
  workloadOf,
} from './runs.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});
afterEach(() => vi.restoreAllMocks());

const WORK: Work = {
  ...{ model: MODELS['gpt2, tied'], batch: 1, seq: 8, accumulate: 2, steps: 4, between: true },
  optimizerDevice: 'cpu',
};

const WIDTHS = TRAINING_DTYPES.flatMap((dtype) => MOMENT_DTYPES.map((moments) => [dtype, moments] as const));
const SAMPLED = [['f32', 'f32'] as const, ['bf16', 'f32'] as const, ['f16', 'bf16'] as const];

describe.each(EVERY_CASE ? WIDTHS : THOROUGH ? SAMPLED : SAMPLED.slice(1, 2))(
  'parameters in %s, moments in %s',
  (dtype, moments) => {
    const work: Work = { ...WORK, model: momentsIn(computedIn(WORK.model, dtype), moments) };

    /** All tiers at their least: a disk, and host memory for what an update holds. */
    const leastTiers = (memory: MemoryOptions): MemoryOptions => ({
      ...memory,
      host: leastHostUnder(device, work, memory),
      disk: memoryDisk(),
    });

    test('AdamW on the host gives the same bits whatever the budget, the tiers and the activations', async () => {
      chooseVariants(1);
      const { outcome: wanted, choices, report } = await run(device, work, { threads: testHost.threads });
      const moved = report.link;
      expect(moved.d2hBytes).toBeGreaterThan(0);
      const least = leastBudget(device, work);
      const memories: MemoryOptions[] = [
        leastTiers({ gpu: least }),
        leastTiers({ gpu: budgetFor(device, work, 0.3), prefetch: false }),
        { gpu: least },
        { gpu: budgetFor(device, work, 0.3) },
        { gpu: budgetFor(device, work, 0.3), policy: 'LRU' },
        { gpu: budgetFor(device, work, 0.5), activations: 'recompute' },
      ];
      for (const memory of EVERY_CASE ? memories : [at(memories, dtype === 'f32' ? 1 : 0)]) {
        const { outcome } = await run(device, work, { memory, choices });
        expectSame(outcome, wanted, JSON.stringify(memory));
      }
    });

    test('gradients go down once and parameters come up: what the optimizer alone uses never does', async () => {
      chooseVariants(1);
      const small: Work = {
        ...{ ...work, model: momentsIn(computedIn(SMALLEST, dtype), moments) },
        ...{ between: false, accumulate: 1, steps: 3 },
      };
      const trainer = await openTrainer(device, small, { memory: { gpu: budgetFor(device, small, 3) } });
      const { map, residents, slots } = trainer.session.fit;
      const listed = (kind: Kind) => map.list(kind).chunks;
      const [read, gradient] = [map.readKind, gradientKind(dtype)];
      if (dtype === 'f32') expect(residents).toBe(listed(read) + listed(gradient));
      else expect(residents).toBeLessThanOrEqual(listed(read) + listed(gradient) + listed('gradient'));
      expect(slots).toBe(residents);
      const [one, two] = leading(2, batchesOf(small));
      await trainer.start(one);
      await trainer.settle();
      const before = trainer.session.report().link;
      await trainer.start(two);
      await trainer.settle();
      const { h2dBytes, d2hBytes } = trainer.session.report().link;
      expect(h2dBytes - before.h2dBytes).toBe(listed(read) * map.chunkBytes);
      expect(d2hBytes - before.d2hBytes).toBe(listed(gradient) * map.chunkBytes);
      await trainer.destroy();
    });

    const small: Work = {
      ...{ ...work, model: momentsIn(computedIn(SMALLEST, dtype), moments) },
      ...{ between: false },
    };

    test('a run that goes on in another trainer, and in another budget on the way, ends in the same bits', async () => {
      chooseVariants(1);
      const { outcome: wanted, choices } = await run(device, small, { threads: testHost.threads });
      const least = leastBudget(device, small);
      const [one, two, three, four] = leading(4, batchesOf(small));
      const first = await openTrainer(device, small, { memory: { gpu: least }, choices });
      const steps = [await first.start(one), await first.start(two)];
      const state = await first.state();
      const kinds = ['parameter', 'moment1', 'moment2'] as const;
      const saved = await Promise.all(kinds.map((kind) => collect(first.values(kind))));
      await first.destroy();
      const second = await openTrainer(device, small, {
        memory: { gpu: 2 * least },
        choices,
        weights: sourceOf(at(saved, 0)),
      });
      await second.setValues('moment1', sourceOf(at(saved, 1)));
      await second.setValues('moment2', sourceOf(at(saved, 2)));
      second.restore(state);
      steps.push(await second.start(three));
      await second.setBudget(second.session.leastBudget);
      steps.push(await second.start(four));
      const [parameter, moment1, moment2] = await Promise.all(kinds.map((kind) => collect(second.values(kind))));
      await second.destroy();
      expect(steps.map(({ loss, gradNorm, skipped }) => [loss, gradNorm, skipped])).toEqual(wanted.steps);
      expect({ parameter, moment1, moment2 }).toEqual({
        parameter: wanted.parameter,
        moment1: wanted.moment1,
        moment2: wanted.moment2,
      });
    });

    test('after one step from the same state, AdamW on the host and on the GPU are as far apart as arithmetic is', async () => {
      chooseVariants(1);
      const one = { ...work, steps: 1 };
      const { outcome: onGPU, choices } = await run(device, { ...one, optimizerDevice: 'gpu' });
      const { outcome: onHost } = await run(device, one, { choices });
      expect(onHost.steps).toEqual(onGPU.steps);
      // Floats that are an ulp apart are now and then rounded to neighbours.
      const momentStep = (scale: number) => (moments === 'f32' ? 1 : 2 ** 16) * ulpOf(scale);
      const before = await collect(initialWeights(WORK.model, 3));
      for (const kind of ['parameter', 'moment1', 'moment2'] as const) {
        for (const [name, wanted] of onGPU[kind]) {
          const found = entry(onHost[kind], name);
          const was = kind === 'parameter' ? entry(before, name) : undefined;
          wanted.forEach((value, i) => {
            // Of a parameter that comes to lie near zero: of what it was, and of what was taken away from it.
            const scale = Math.max(Math.abs(value), Math.abs(was?.[i] ?? 0));
            const updated = was && !device.traits.software ? UPDATE_ULP * ulpOf(Math.abs(value - at(was, i))) : 0;
            const allowed = updated + (was ? ulpOf(scale) : momentStep(scale));
            const off = Math.abs(value - at(found, i));
            if (!(off <= allowed)) expect.fail(`${kind} ${name} ${i}: ${at(found, i)} is ${off} from ${value}`);
          });
        }
      }
    });
  },
);

test('a state that is lost with a device anyway is not asked for', async () => {
  const memory = { gpu: leastBudget(device, WORK), recovery: 'checkpoint' } as const;
  await expect(run(device, WORK, { memory })).rejects.toThrow(/recovery 'checkpoint': with the optimizer on the host/);
});

test('the host updates while the GPU goes on: a step is told before its parameters have changed, and the next waits for them', async () => {
  chooseVariants(1);
  const work: Work = { ...WORK, accumulate: 1, steps: 2, between: false };
  const { outcome: wanted, choices } = await run(device, work, { threads: testHost.threads });
  const own = testHost.threads as Threads;
  const held: (() => void)[] = [];
  let isHeld = true;
  const threads: Threads = {
    count: 1,
    start: async (worker, told) => {
      const thread = await own.start(worker, told);
      const post = (message: unknown) => (isHeld ? void held.push(() => thread.post(message)) : thread.post(message));
      return { ...thread, post };
    },
  };
  const [one, two] = leading(2, batchesOf(work));
  const trainer = await openTrainer(device, work, { choices, threads });
  const first = await trainer.start(one);
  const next = trainer.start(two);
  await expect.poll(() => held.length).toBeGreaterThan(0);
  isHeld = false;
  for (const post of held) post();
  const steps = [first, await next];
  const parameter = await collect(trainer.values('parameter'));
  await trainer.destroy();
  expect(steps.map(({ loss, gradNorm, skipped }) => [loss, gradNorm, skipped])).toEqual(wanted.steps);
  expect(parameter).toEqual(wanted.parameter);
});

/** Each update takes so long, from now on. */
function slowUpdates(milliseconds: number): void {
  const update = HostAdamW.prototype.update;
  vi.spyOn(HostAdamW.prototype, 'update').mockImplementation(async function (this: HostAdamW, ...work) {
    await new Promise((resolve) => setTimeout(resolve, milliseconds));
    await update.apply(this, work);
  });
}

test.each(['at-end', 'in-backward'] as const)('gradients last until their step is told, updated %s', async (update) => {
  chooseVariants(1);
  const work: Work = { ...WORK, accumulate: 1, steps: 1, clip: 0, update };
  const trainer = await openTrainer(device, work, {});
  slowUpdates(20);
  await trainer.start(entry(new Map(batchesOf(work).entries()), 0));
  await expect(collect(trainer.values('gradient'))).rejects.toThrow('there are no gradient values now');
  await trainer.destroy();
});

test('what updates wait for stays in host memory: a step reads what that has no room for, and little more', async () => {
  chooseVariants(1);
  const work: Work = { ...WORK, model: LARGEST, accumulate: 1, steps: 6, between: false };
  const gpu = budgetFor(device, work, 0.05);
  const { held, chunkBytes, updates } = needBelow(fitMemory(workloadOf(work), limitsOf(device), gpu));
  const slots = Math.floor(held / 2);
  const trainer = await openTrainer(device, work, { memory: { gpu, host: slots * chunkBytes, disk: memoryDisk() } });
  const readBytes = async (batches: Micros[]) => {
    for (const micros of batches) await trainer.start(micros);
    await trainer.settle();
    return trainer.session.report().below.diskReadBytes;
  };
  const batches = batchesOf(work);
  const before = await readBytes(batches.slice(0, 2));
  const read = ((await readBytes(batches.slice(2))) - before) / chunkBytes / 4;
  await trainer.destroy();
  // Once around all values, in an order that is known: Belady's optimum misses those without room, and what two updates hold.
  expect(read).toBeGreaterThanOrEqual(held - slots);
  expect(read).toBeLessThanOrEqual(held - slots + 2 * updates + 1);
});

test('in f16 a step that is skipped changes nothing, and the next one trains, as on the GPU', async () => {
  chooseVariants(1);
  const small: Work = {
    ...WORK,
    model: computedIn(SMALLEST, 'f16'),
    batch: 2,
    accumulate: 1,
    steps: 9,
    between: false,
  };
  const { choices } = await run(device, small);
  const outcomeOn = async (optimizerDevice: 'gpu' | 'cpu', memory: MemoryOptions = {}) => {
    const trainer = await openTrainer(device, { ...small, optimizerDevice }, { choices, memory });
    try {
      const first = await collect(trainer.values('parameter'));
      trainer.restore({ step: 0, control: [...initialState(SCALER.size, LARGEST_SCALE)] });
      const steps: boolean[] = [];
      for (const micros of batchesOf(small)) {
        steps.push((await trainer.start(micros)).skipped);
        if (steps.length === 1) expect(await collect(trainer.values('parameter'))).toEqual(first);
      }
      return { steps, parameters: await collect(trainer.values('parameter')) };
    } finally {
      await trainer.destroy();
    }
  };
  const onHost = await outcomeOn('cpu');
  expect(onHost.steps[0]).toBe(true);
  expect(onHost.steps.at(-1)).toBe(false);
  expect((await outcomeOn('gpu')).steps).toEqual(onHost.steps);
  expect(await outcomeOn('cpu', { gpu: leastBudget(device, small) })).toEqual(onHost);
});
