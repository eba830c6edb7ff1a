// What a run's summary advises is true: with the setting that it names, the planner plans what it says.

import { describe, expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { offloadedBytes, recomputedFlops } from '../../src/engine/compile/pass-figures.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { ActivationMode } from '../../src/graph/activations.ts';
import { makeModel } from '../../src/nn/index.ts';
import { everythingOf, whatIf } from '../../src/train/plan/what-if.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { parseBytes } from '../../src/util/bytes.ts';

const config = { model_type: 'gpt2', vocab_size: 300, n_positions: 32, n_embd: 64, n_layer: 3, n_head: 4 };
const model = makeModel(parseConfig(config, 'test'));
const workload = (activations: ActivationMode | 'auto') =>
  trainingWorkload(model, traceStep(model, 8, 32), 1, undefined, { activations });

/** Bytes that a step moves under these flags. */
function planned(activations: ActivationMode | 'auto', gpu: number): number {
  const { passes, slots } = fitMemory(workload(activations), DEFAULT_LIMITS, gpu);
  const { h2d, d2h } = schedule(passes.step.trace, slots, 'planned', passes.step.extra).moved;
  return h2d + d2h + 2 * offloadedBytes(passes.step);
}

describe.each(['auto', 'recompute', 'offload'] as const)('what if, with --activations %s', (activations) => {
  const gpu = Math.ceil(1.2 * smallestBudget(workload(activations), DEFAULT_LIMITS));
  const found = whatIf(fitMemory(workload(activations), DEFAULT_LIMITS, gpu), DEFAULT_LIMITS, { gpu });

  it('knows what moves, and each alternative moves less, as much as it says', () => {
    expect(found?.moved).toBe(planned(activations, gpu));
    expect(found?.alternatives.length).toBeGreaterThan(0);
    for (const { flag, moved } of found?.alternatives ?? []) {
      const [, name, value = ''] = /^--(activations|gpu-memory) (.*)$/.exec(flag) ?? [];
      const then =
        name === 'activations' ? planned(value as ActivationMode, gpu) : planned(activations, parseBytes(value));
      expect(moved, flag).toBe(then);
      expect(moved, flag).toBeLessThan(found?.moved ?? 0);
    }
  });

  it('knows where the time of a step goes', () => {
    const { computing = 0, again = 0, waiting = 0 } = found?.time ?? {};
    expect(computing + waiting).toBeCloseTo(1, 12);
    expect(waiting).toBeGreaterThan(0);
    const { flops } = recomputedFlops(fitMemory(workload(activations), DEFAULT_LIMITS, gpu).passes.step);
    expect(again > 0).toBe(flops > 0);
    expect(again).toBeLessThan(computing);
  });

  it('names a budget in which nothing moves but what is told to', () => {
    const more = found?.alternatives.find(({ flag }) => flag.startsWith('--gpu-memory'));
    const told = offloadedBytes(fitMemory(workload(activations), DEFAULT_LIMITS, undefined).passes.step);
    expect(more?.moved).toBe(2 * told);
    expect(told > 0).toBe(activations === 'offload');
    // No more than what everything takes where that is enough, to three digits.
    const { peak } = everythingOf(workload(activations), DEFAULT_LIMITS);
    const named = parseBytes(more?.flag.split(' ')[1] ?? '');
    expect(named).toBeGreaterThanOrEqual(peak);
    if (activations === 'auto') expect(named).toBeLessThan(1.01 * peak);
  });
});

it('has no answer without a budget', () => {
  const whole = fitMemory(workload('auto'), DEFAULT_LIMITS, undefined);
  expect(whatIf(whole, DEFAULT_LIMITS, {})).toBe(undefined);
});
