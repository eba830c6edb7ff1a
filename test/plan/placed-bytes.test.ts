// The memory that a fit takes for activations and chunks beside what lies in it: the most that a step holds at a moment, of activations
// that are alive and of chunks that its plan has on the GPU.

import { expect, it } from 'vitest';
import { occupiedIn } from '../../src/engine/compile/extra-slots.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import type { Fit } from '../../src/engine/compile/fitted.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { type TrainingPasses, trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { EVERY_CASE } from '../host.ts';

const DEFAULT = { model_type: 'gpt2', n_layer: 2, n_embd: 64, n_head: 4, n_positions: 64, vocab_size: 256 };
const GPT2 = { model_type: 'gpt2' };

/** Bytes of activations and chunks at the moment at which a step holds the most of them. */
function mostHeld({ passes: { step }, placements, map, slots }: Fit<TrainingPasses>): number {
  const places = new Map(placements.flatMap((placement) => [...placement.places]));
  const alive = new Float64Array(step.operations.length);
  for (const { bytes, first, last } of occupiedIn(step, places, new Set())) {
    for (let m = first; m <= last; m++) alive[m] = at(alive, m) + bytes;
  }
  const { plan } = schedule(step.trace, slots, 'planned', step.extra);
  const here = new Set(plan.start.map(({ chunk }) => chunk));
  let most = 0;
  for (const [m, { drop, load, claim }] of plan.moments.entries()) {
    for (const chunk of drop) here.delete(chunk);
    for (const chunk of [...load, ...claim]) here.add(chunk);
    most = Math.max(most, at(alive, m) + here.size * map.chunkBytes);
    for (const chunk of at(step.trace.moments, m).frees) here.delete(chunk);
  }
  return most;
}

const CASES = [
  ['the default model', DEFAULT, [8, 64], [0, 0.25, 0.5, 0.75, 0.9]],
  ['GPT-2 124M at 1 x 1,024', GPT2, [1, 1024], EVERY_CASE ? [0, 0.25, 0.5, 0.75, 0.9] : [0.25]],
  ['GPT-2 124M at 8 x 1,024', GPT2, [8, 1024], EVERY_CASE ? [0, 0.25, 0.5, 0.75, 0.9] : [0.5]],
] as const;

it.each(CASES)('of %s is at most 1.05 times as much', (_, config, [batch, seq], shares) => {
  const model = makeModel(parseConfig(config, 'a model'));
  const workload = trainingWorkload(model, traceStep(model, batch, seq), 1);
  const all = fitMemory(workload, DEFAULT_LIMITS, undefined).peak;
  const least = smallestBudget(workload, DEFAULT_LIMITS);
  for (const share of shares) {
    // Of the way from the smallest budget to all, in powers.
    const found = fitMemory(workload, DEFAULT_LIMITS, Math.ceil(least * (all / least) ** share));
    const taken = found.nonModel.arenas + found.slots * found.map.chunkBytes;
    expect(taken / mostHeld(found), `at ${share}`).toBeLessThanOrEqual(1.05);
  }
});
