// The curve of a run's step time over the budget: what is drawn is what the planner plans within each budget.

import { describe, expect, test } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { leastHostBytes } from '../../src/memory/tiers/shares.ts';
import { makeModel } from '../../src/nn/index.ts';
import { optimizedOn } from '../../src/nn/model.ts';
import { budgetBetween, sweepBudgets } from '../../src/train/plan/sweep.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';

const config = { model_type: 'gpt2', vocab_size: 300, n_positions: 32, n_embd: 64, n_layer: 2, n_head: 4 };
const model = makeModel(parseConfig(config, 'test'));
const workload = trainingWorkload(model, traceStep(model, 8, 32), 1);
const smallest = smallestBudget(workload, DEFAULT_LIMITS);
const all = fitMemory(workload, DEFAULT_LIMITS, undefined).peak;
const gpu = Math.ceil(1.3 * smallest);
const fit = fitMemory(workload, DEFAULT_LIMITS, gpu);
const budgetsOf = (found: ReturnType<typeof sweepBudgets>) => found?.points.map(({ budget }) => budget) ?? [];

describe('the sweep of a run over budgets', () => {
  const found = sweepBudgets(fit, DEFAULT_LIMITS, { gpu });

  test('goes from the smallest budget to everything, its own among them', () => {
    const budgets = budgetsOf(found);
    expect(budgets).toHaveLength(10);
    expect(budgets).toEqual(budgets.toSorted((a, b) => a - b));
    expect([budgets[0], budgets.at(-1)]).toEqual([smallest, all]);
    expect(budgets).toContain(gpu);
  });

  test('each step takes at least as long as with everything on the GPU, and the shortest is not within the smallest budget', () => {
    const seconds = found?.points.map((point) => point.seconds) ?? [];
    for (const one of seconds) expect(one).toBeGreaterThanOrEqual(0.999 * (found?.resident ?? Number.NaN));
    expect(Math.min(...seconds)).toBeLessThan(at(seconds, 0));
  });

  test('says of a budget what a run within it would say of itself', () => {
    const { budget, seconds } = at(found?.points ?? [], 3);
    const other = sweepBudgets(
      fitMemory(workload, DEFAULT_LIMITS, budget),
      DEFAULT_LIMITS,
      { gpu: budget },
      () => true,
    );
    expect(other?.points).toEqual([{ budget, seconds }]);
  });

  test('stops when it has taken long enough, with the widest gaps halved first', () => {
    let asked = 0;
    const some = sweepBudgets(fit, DEFAULT_LIMITS, { gpu }, () => ++asked > 3);
    const middle = budgetBetween(smallest, all, 1 / 2);
    expect(budgetsOf(some)).toEqual([smallest, gpu, middle, all].toSorted((a, b) => a - b));
  });

  test('leaves out what the tiers have no room for; a disk counts as more of host memory', () => {
    const chunks = fit.map.count * fit.map.chunkBytes;
    const within = (disk?: number) => {
      const slow = disk === undefined ? {} : { disk: { open: () => Promise.reject(), limit: disk } };
      return budgetsOf(sweepBudgets(fit, DEFAULT_LIMITS, { gpu, host: 0.1 * chunks, ...slow }));
    };
    expect(within()).toEqual([]);
    expect(within(2 * chunks).length).toBeGreaterThan(5);
  });

  test('beside a disk, host memory that would be too little with everything on the GPU is none of that step', () => {
    const updated = optimizedOn(model, 'cpu');
    const onHost = trainingWorkload(updated, traceStep(updated, 8, 32), 1);
    const whole = fitMemory(onHost, DEFAULT_LIMITS, undefined);
    const within = fitMemory(onHost, DEFAULT_LIMITS, smallestBudget(onHost, DEFAULT_LIMITS));
    const host = leastHostBytes(needBelow(within), true);
    expect(leastHostBytes(needBelow(whole), true)).toBeGreaterThan(host);
    const disk = { open: () => Promise.reject(), limit: 1e9 };
    const swept = sweepBudgets(within, DEFAULT_LIMITS, { gpu: within.peak, host, disk });
    expect(budgetsOf(swept)).toContain(within.peak);
    expect(swept?.resident).toBeGreaterThan(0);
  });

  test('follows the policy of the run', () => {
    const lru = sweepBudgets(fit, DEFAULT_LIMITS, { gpu, policy: 'LRU' });
    expect(budgetsOf(lru)).toEqual(budgetsOf(found));
    expect(lru?.points).not.toEqual(found?.points);
  });

  test('there is none without a budget', () => {
    expect(sweepBudgets(fit, DEFAULT_LIMITS, {})).toBe(undefined);
  });
});
