// The stages of a pipeline on one simulated clock: each follows its own pass and plan until it waits for another one, in turn.
// What they hand to each other is in pipeline.ts. Pure.

import { assert } from '../../util/errors.ts';
import type { Machine } from './machine.ts';
import { SimulatedPipeline } from './pipeline.ts';
import { STEPS } from './simulate.ts';
import { type SimulatedPart, Simulation } from './simulation.ts';
import type { SimulatedStep } from './step.ts';

/** A step of each stage, in their order: `ranks.stage` says which it is. Errors: as `simulate`. */
export function simulateStages(stages: readonly SimulatedPart[], machine: Machine): SimulatedStep[] {
  const pipeline = new SimulatedPipeline();
  // Until the plans of all repeat themselves.
  const rounds = STEPS * Math.max(...stages.map(({ schedule }) => schedule.plan.steps));
  const following = stages.map((stage) => new Simulation(stage, machine, pipeline).follow(rounds));
  const done = new Map<number, SimulatedStep>();
  while (done.size < stages.length) {
    const before = pipeline.events + done.size;
    for (const [stage, one] of following.entries()) {
      if (done.has(stage)) continue;
      const next = one.next();
      if (next.done) done.set(stage, next.value);
    }
    assert(pipeline.events + done.size > before, 'stages wait for each other in a circle');
  }
  return [...done].sort(([a], [b]) => a - b).map(([, step]) => step);
}
