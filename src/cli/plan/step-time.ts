// Time of a step on the adapter that would train, as `holdfast plan` says it: as runs and `bench` have found steps to take there.

import type { Fit } from '../../engine/compile/fitted.ts';
import { flopsOf, isConfined } from '../../engine/compile/pass-figures.ts';
import type { AdapterLimits } from '../../engine/compile/workload.ts';
import type { AdapterRecord } from '../../engine/observe/adapter-records.ts';
import { secondsWithin } from '../../train/plan/simulated-seconds.ts';
import { type ExpectedStep, type KnownSteps, stepTime } from '../../train/plan/step-times.ts';
import { stepWayOf } from '../../train/run/kept-time.ts';
import type { TrainingPasses } from '../../train/step/training-workload.ts';
import type { PlannedRun } from './flags.ts';
import { count, duration } from './words.ts';

interface Planned {
  /** Without a budget, and within the one that is planned, in bytes. */
  readonly resident: Fit<TrainingPasses>;
  readonly found: Fit<TrainingPasses>;
  readonly budget: number;
  readonly limits: AdapterLimits;
}

/** Undefined where nothing of the adapter is known, or what is waited for is not: of a disk. */
export function expectedStep(
  { flags, settings }: PlannedRun,
  { resident, found, budget, limits }: Planned,
  known: KnownSteps,
): ExpectedStep | undefined {
  const { hostMemory: host, disk, recovery, policy, activations, accumulateOrder, prefetch } = flags;
  const way = stepWayOf(settings);
  const { operations } = resident.passes.step;
  const size = { dispatches: operations.length, flops: flopsOf(resident.passes.step) };
  if (!isConfined(found)) return stepTime(way, size, known, limits.rates);
  const memory = {
    ...{ gpu: budget, policy, prefetch },
    ...(recovery && { recovery }),
    ...(activations && { activations }),
    ...(accumulateOrder && { accumulateOrder }),
    ...(host !== undefined && { host }),
    ...(disk !== undefined && { disk }),
  };
  return stepTime(way, size, known, limits.rates, {
    memory,
    seconds: (all, link) => secondsWithin(found, resident, all, limits, { host, policy, link }),
  });
}

const FROM = {
  run: 'as the steps of such a run took there',
  probe: 'by the times of other steps there',
} as const satisfies Record<ExpectedStep['from'], string>;

/** `71 ms  a step, 7,200 tokens/s on SwiftShader, as the steps of such a run took there`. */
export function stepTimeLine(
  { seconds, from }: ExpectedStep,
  { batch, seq, accumulate }: PlannedRun['settings'],
  { name }: AdapterRecord,
): string {
  const tokens = batch * seq * accumulate;
  return `  ${duration(seconds).padStart(8)}  a step, ${count(tokens / seconds)} tokens/s on ${name}, ${FROM[from]}`;
}
