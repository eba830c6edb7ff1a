// What `plan` says of where the bytes of a run lie and what a step of it moves, and its budgets: held against its chunks, and against
// each other. A run beside it is cli/plan-as-run.test.ts.

import { describe, expect, test } from 'vitest';
import { fitInTime, fitMemory } from '../../src/engine/compile/fit.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { loadSolver } from '../../src/memory/plan/bound.ts';
import { COMFORT } from '../../src/train/plan/comfortable.ts';
import { secondsWithin, secondsWithout, simulatedSeconds } from '../../src/train/plan/simulated-seconds.ts';
import { planRun } from '../../src/train/run/plan-run.ts';
import {
  DATA_KINDS,
  type PlannedMemory,
  planWithin,
  planWorkload,
  type TierPlan,
} from '../../src/train/run/run-plan.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { expectMistake } from '../expect-mistake.ts';

const highs = await loadSolver();
const settings = defaultSettings({ sampleTokens: 0 });
const limits = DEFAULT_LIMITS;

function planned(memory: PlannedMemory, changes: Partial<typeof settings> = {}) {
  const run = { settings: { ...settings, ...changes }, memory, limits };
  const workload = planWorkload(run);
  const fit =
    memory.gpu === undefined ? workload.whole : fitMemory(workload.workload, limits, memory.gpu, workload.options);
  return { workload, fit, plan: planWithin(highs, run, workload, fit) };
}

const sum = (figures: TierPlan) => DATA_KINDS.reduce((all, kind) => all + figures[kind], 0);

test('a program has the same figures by one call, and what cannot be planned is refused', async () => {
  const memory = { gpu: 2e6, host: 1e6, disk: 6e6, activations: 'offload' } as const;
  expect(await planRun(settings, { memory })).toEqual(planned(memory).plan);
  expect(await planRun(settings)).toEqual(planned({}).plan);
  // What a device moves says which budget is comfortable.
  const rates = { ...limits.rates, upBytes: 1e6, downBytes: 1e6 };
  expect((await planRun(settings, { memory, rates })).comfortable).not.toBe(planned(memory).plan.comfortable);
  const plan = planRun as (given: unknown, options: unknown) => Promise<unknown>;
  await expectMistake(
    () => plan(settings, { memory: { gpus: 2e6 } }),
    /^the options of a plan: memory: no option gpus; /,
  );
  await expectMistake(() => plan(settings, { memory: { gpu: 'auto' } }), /memory\.gpu is "auto"; it must be a number/);
  await expectMistake(() => plan(settings, { memory: { policy: 'lry' } }), /policy is "lry"; it must be one of/);
  await expectMistake(
    () => plan(settings, { memory: { gpu: 1e4 } }),
    /^10.0 KB of GPU memory are too little: \d+ bytes .* is the smallest/,
  );
  await expectMistake(() => plan({ ...settings, minLr: 1 }, {}), /^minimum learning rate 1: /);
});

test('too little below the GPU is no budget that is too small, and as much as is named will do', async () => {
  const { smallest } = planned({}).workload;
  const within = (host: number) => planRun(settings, { memory: { gpu: smallest, host } });
  const refused = await within(1e5).catch((error: Error) => error.message);
  const [, bytes] = String(refused).match(/would do, but what lies below it takes (\d+) bytes .* 100 KB of host/) ?? [];
  expect((await within(Number(bytes))).smallest).toBe(smallest);
  await expectMistake(() => within(Number(bytes) - 1), /what lies below it takes/);
  await expectMistake(
    () => planRun(settings, { memory: { gpu: smallest - 1, host: 1e5 } }),
    /^\S+ KB of GPU memory are too little/,
  );
});

describe('by tier and kind', () => {
  test('without a budget all is on the GPU, to the byte, and nothing moves', () => {
    const { fit, plan } = planned({});
    const { map, nonModel } = fit;
    const bytes = (...kinds: Parameters<typeof map.list>[0][]) =>
      kinds.reduce((all, kind) => all + map.list(kind).chunks * map.chunkBytes, 0);
    expect(plan.tiers.gpu).toMatchObject({
      ...{ parameters: bytes('parameter'), gradients: bytes('gradient'), moments: bytes('moment1', 'moment2') },
      ...{ activations: nonModel.arenas, all: fit.peak },
    });
    expect(sum(plan.tiers.gpu)).toBe(fit.peak);
    expect([sum(plan.tiers.host), sum(plan.tiers.disk), plan.links.gpu.up, plan.links.gpu.down]).toEqual([0, 0, 0, 0]);
  });

  test('within one no kind has more than all of it, and what is on no tier is counted on none', () => {
    const { fit, plan } = planned({ gpu: 2e6, host: 1e6, disk: 6e6, activations: 'offload' });
    const { gpu, host, disk } = plan.tiers;
    const kind = fit.map.list('parameter').chunks * fit.map.chunkBytes;
    for (const tier of [gpu, host, disk]) {
      expect(tier.parameters).toBeLessThanOrEqual(kind);
      expect(tier.moments).toBeLessThanOrEqual(2 * kind);
      for (const name of DATA_KINDS) expect(tier[name]).toBeLessThanOrEqual(tier.all);
    }
    expect(gpu.all).toBe(fit.peak);
    expect(host.all).toBeLessThanOrEqual(1e6);
    expect(disk.all).toBeLessThanOrEqual(6e6);
    // Each value lies somewhere below, and what is moved of activations, too.
    expect(host.moments + disk.moments).toBeGreaterThanOrEqual(2 * kind);
    expect(host.activations + disk.activations).toBeGreaterThanOrEqual(plan.links.gpu.activations);
    expect(planned({ gpu: 2e6, host: 8e6 }).plan.tiers.disk.all).toBe(0);
  });

  test('the host’s moments are never on the GPU, and 16 bits take half', () => {
    const { tiers } = planned({ gpu: 4e6 }, { optimizerDevice: 'cpu' }).plan;
    expect(tiers.gpu.moments).toBe(0);
    expect(tiers.host.moments).toBeGreaterThan(0);
    const whole = (changes: Partial<typeof settings>) => planned({}, changes).plan.tiers.gpu;
    const ratio = whole({ optimizerState: 'bf16' }).moments / whole({}).moments;
    expect(ratio).toBeGreaterThan(0.45);
    expect(ratio).toBeLessThan(0.6);
  });
});

test('over each link no less moves than the bound, which is known of a disk unless the host updates', () => {
  const below = { gpu: 1.5e6, host: 1e6, disk: 4e6, recovery: 'step' } as const;
  const { gpu, disk } = planned(below).plan.links;
  expect(gpu.chunks).toBeGreaterThanOrEqual(gpu.bound);
  expect(gpu.up + gpu.down).toBe(gpu.chunks + 2 * gpu.activations + gpu.recovery);
  expect(gpu.recovery).toBeGreaterThan(0);
  const { read = 0, written = 0, bound = 0 } = disk ?? {};
  expect(bound).toBeGreaterThan(0);
  expect(read + written).toBeGreaterThanOrEqual(bound);
  expect(planned({ ...below, recovery: 'checkpoint' }).plan.links.gpu.recovery).toBe(0);
  expect(planned(below, { optimizerDevice: 'cpu' }).plan.links.disk).toEqual({
    read: expect.any(Number),
    written: expect.any(Number),
  });
});

test('of a fit that is found in time the seconds are fewer than were asked for, and the best takes no more', () => {
  let [found, refused] = [0, 0];
  for (const changes of [{}, { batch: 2, accumulate: 2 }, { optimizerDevice: 'cpu' }] as const) {
    const { whole, workload, options, smallest } = planWorkload({
      ...{ settings: { ...settings, ...changes }, memory: {}, limits },
    });
    const secondsOf = (fit: typeof whole) => simulatedSeconds(fit, limits) ?? 0;
    for (const share of [0, 0.1, 0.5]) {
      const budget = Math.round(smallest + share * (whole.peak - smallest));
      for (const times of [1.05, 2, 5, 12]) {
        const most = times * secondsOf(whole);
        const first = fitInTime(workload, limits, budget, most, options);
        if (first) found++;
        else refused++;
        if (!first) continue;
        expect(secondsOf(first), `${JSON.stringify(changes)} ${share} ${times}`).toBeLessThan(most);
        expect(secondsOf(fitMemory(workload, limits, budget, options))).toBeLessThan(most);
      }
    }
  }
  expect(found).toBeGreaterThan(5);
  expect(refused).toBeGreaterThan(5);
});

test('within a comfortable budget a step takes hardly longer than without one; where each step is kept below, none may be', () => {
  const { workload, plan } = planned({ recovery: 'checkpoint' });
  const { comfortable = 0, smallest, unlimited } = plan;
  expect(comfortable).toBeGreaterThan(smallest);
  expect(comfortable).toBeLessThanOrEqual(unlimited);
  const secondsIn = (budget: number) =>
    simulatedSeconds(fitMemory(workload.workload, limits, budget, workload.options), limits) ?? 0;
  const fastest = simulatedSeconds(workload.whole, limits) ?? 0;
  expect(secondsIn(comfortable)).toBeLessThanOrEqual((1 + COMFORT) * fastest);
  expect(secondsIn(smallest)).toBeGreaterThan((1 + COMFORT) * fastest);
  expect(planned({ recovery: 'step' }).plan.comfortable).toBe(undefined);
});

test('what a step within a budget takes without one is what it is reckoned from, to a thousandth', () => {
  const { fit, workload } = planned({ gpu: 2e6 });
  const plain = simulatedSeconds(workload.whole, limits) ?? 0;
  for (const times of [0.1, 1, 30]) {
    const within = secondsWithin(fit, workload.whole, times * plain, limits, {}) ?? 0;
    const without = secondsWithout(fit, workload.whole, within, limits, {}) ?? 0;
    expect(Math.abs(without / (times * plain) - 1)).toBeLessThan(0.001 * (within / (times * plain)));
  }
  // By measured costs the part of dispatches is another; the two are inverse then, too.
  const costs = { dispatch: 1e-3, flop: 1e-12 };
  const byCosts = secondsWithin(fit, workload.whole, plain, limits, { costs }) ?? 0;
  expect(byCosts).not.toBe(secondsWithin(fit, workload.whole, plain, limits, {}));
  expect(secondsWithout(fit, workload.whole, byCosts, limits, { costs })).toBeCloseTo(plain, 2 - Math.log10(plain));
  // Not where the rates were measured themselves.
  const measured = { ...limits, rates: { ...limits.rates, memoryBytes: 1e15 } };
  const [plainly, costly] = [{}, { costs }].map((below) => secondsWithin(fit, workload.whole, plain, measured, below));
  expect(costly).toBe(plainly);
  // The link alone takes longer.
  expect(secondsWithout(fit, workload.whole, 1e-9, limits, {})).toBe(undefined);
  // What a disk takes is not known.
  const onDisk = planned({ gpu: 2e6, host: 1e6, disk: 6e6 });
  expect(secondsWithout(onDisk.fit, onDisk.workload.whole, 1, limits, { host: 1e6 })).toBe(undefined);
});
