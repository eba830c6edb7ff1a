// A fit is measured on two micro-batches of a step: what it comes to is what all of them come to.

import { expect, it } from 'vitest';
import { fitMemory, leastBudget } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import type { Passes } from '../../src/engine/compile/pass.ts';
import { DEFAULT_LIMITS, type Workload } from '../../src/engine/compile/workload.ts';
import { ACTIVATION_MODES } from '../../src/graph/activations.ts';
import { computedIn, optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { EVERY_CASE } from '../host.ts';
import { MODELS } from '../model/runs.ts';

/** The same, whatever part of its micro-batches is asked for. */
function unsketched<P extends Passes>(workload: Workload<P>): Workload<P> {
  const { activations, order } = workload;
  return {
    ...workload,
    passes: (map) => workload.passes(map),
    ...(activations && {
      activations: {
        ...activations,
        with: (modes) => unsketched(activations.with(modes)),
        withOtherHead() {
          const other = activations.withOtherHead?.();
          return other && unsketched(other);
        },
      },
    }),
    ...(order && { order: { ...order, with: (other) => unsketched(order.with(other)) } }),
  };
}

it.each([
  ['in f32', MODELS['llama, grouped heads'], 3, 'gpu'],
  ['in bf16', computedIn(MODELS['gpt2, untied'], 'bf16'), 4, 'gpu'],
  ['with an optimizer on the host', MODELS['gpt2, tied'], 3, 'cpu'],
  ['with low-rank updates', MODELS['gpt2 with low-rank updates'], 5, 'gpu'],
  ['with an optimizer on either', computedIn(MODELS['gpt2, tied'], 'bf16'), 3, 'auto'],
] as const)('%s', (_, plain, accumulate, optimizerDevice) => {
  const model = optimizedOn(plain, optimizerDevice, 5);
  const programs = traceStep(model, 2, 8);
  for (const activations of EVERY_CASE ? ACTIVATION_MODES : (['keep', 'offload'] as const)) {
    const all = (['batch', 'layer'] as const).map((accumulateOrder) => {
      try {
        return trainingWorkload(model, programs, accumulate, undefined, { activations, accumulateOrder });
      } catch {
        return undefined; // this model has no other order
      }
    });
    for (const workload of all) {
      if (!workload) continue;
      const plain = unsketched(workload);
      const least = smallestBudget(workload, DEFAULT_LIMITS);
      expect(least).toBe(smallestBudget(plain, DEFAULT_LIMITS));
      for (const times of EVERY_CASE ? [1, 1.4, 2.5] : [1.4]) {
        const [found, wanted] = [workload, plain].map((tried) => {
          const fit = fitMemory(tried, DEFAULT_LIMITS, Math.floor(times * least));
          const { nonModel, stashes, residents, slots, staging, peak, passes } = fit;
          const smallest = leastBudget(fit, DEFAULT_LIMITS);
          const moments = passes.step.operations.length;
          return { nonModel, stashes, residents, slots, staging, peak, smallest, moments, trace: passes.step.trace };
        });
        expect(found).toEqual(wanted);
      }
    }
  }
});
