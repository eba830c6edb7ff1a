// The time of a step of a run on an adapter, without a budget or within one, as runs and measurements there have found steps to take.

import type { Fit } from '../../engine/compile/fitted.ts';
import { isConfined } from '../../engine/compile/pass-figures.ts';
import type { AdapterLimits } from '../../engine/compile/workload.ts';
import { secondsWithin } from '../plan/simulated-seconds.ts';
import { type ExpectedStep, type KnownSteps, type StepMemory, stepTime } from '../plan/step-times.ts';
import type { TrainingPasses } from '../step/training-workload.ts';
import { stepSizeOf, stepWayOf } from './kept-time.ts';
import type { RunSettings } from './run-settings.ts';

/** A run, and what it was planned to be. */
export interface PlannedStep {
  readonly settings: RunSettings;
  /** Without a budget, and within that of `memory`. */
  readonly resident: Fit<TrainingPasses>;
  readonly found: Fit<TrainingPasses>;
  readonly memory: StepMemory;
  readonly limits: AdapterLimits;
}

/** Undefined where nothing of the adapter is known, or what is waited for is not: of a disk. */
export function expectedStep(
  { settings, resident, found, memory, limits }: PlannedStep,
  known: KnownSteps,
): ExpectedStep | undefined {
  const way = stepWayOf(settings);
  const size = stepSizeOf(resident);
  if (!isConfined(found)) return stepTime(way, size, known, limits.rates);
  const { host, policy } = memory;
  return stepTime(way, size, known, limits.rates, {
    memory,
    seconds: (all, costs) => secondsWithin(found, resident, all, limits, { host, policy, costs }),
  });
}
