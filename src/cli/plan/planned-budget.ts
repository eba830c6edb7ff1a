// A run planned within one budget, as `holdfast plan` works it out before it says anything of it: the fit, its schedule, what lies
// where and moves, and the time of a step. In words and as JSON it is in budget-lines.ts and budget.ts.

import type { Highs } from 'highs';
import type { Fit } from '../../engine/compile/fitted.ts';
import { lackBelow } from '../../engine/compile/least.ts';
import { stepPass } from '../../engine/compile/pass.ts';
import { dispatchesOf, flopsOf } from '../../engine/compile/pass-figures.ts';
import { type PassSchedule, schedule, slotsAt } from '../../engine/compile/schedule.ts';
import type { AdapterLimits } from '../../engine/compile/workload.ts';
import { mapChunks } from '../../memory/layout/chunk-map.ts';
import { elementBytesOfKinds, lastingKinds, optimizerKinds, trainedElementBytes } from '../../memory/layout/kinds.ts';
import { makeModel } from '../../nn/index.ts';
import type { Model } from '../../nn/model.ts';
import type { ExpectedStep, StepMemory } from '../../train/plan/step-times.ts';
import { expectedStep } from '../../train/run/expected-step.ts';
import { type PlannedWorkload, planWithin, planWorkload, type RunPlan } from '../../train/run/run-plan.ts';
import { backwardPassesIn, type RunSettings } from '../../train/run/run-settings.ts';
import { traceStep } from '../../train/step/step-programs.ts';
import type { TrainingPasses } from '../../train/step/training-workload.ts';
import { withoutUndefined } from '../../util/arguments.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import type { PlannedRun } from './flags.ts';
import { type PlanBasis, plannedLimits } from './rates.ts';
import { type UpdateFacts, updateFacts } from './update.ts';

export interface PlannedBudget {
  readonly run: PlannedRun;
  readonly basis: PlanBasis;
  readonly planned: PlannedWorkload;
  /** Bytes: as the flags have it, or half of what the chunks would take. */
  readonly budget: number;
  readonly found: Fit<TrainingPasses>;
  readonly schedule: PassSchedule;
  /** Slots at each moment of a step. */
  readonly room: readonly number[];
  /** That working it out took, but for what follows from the fit. */
  readonly milliseconds: number;
  readonly plan: RunPlan;
  /** Absent where nothing is known of the adapter. */
  readonly expected: ExpectedStep | undefined;
  /** Operations of a step that trains all of the model; absent where this one does. */
  readonly fullStep: number | undefined;
  readonly update: UpdateFacts | undefined;
  readonly dispatches: { readonly step: number; readonly unlimited: number };
  /** Bytes for a parameter that trains: all, of these what lives on from step to step, and what the optimizer alone uses. */
  readonly bytesPerParameter: { readonly all: number; readonly kept: number; readonly ofOptimizer: number };
  /** Of chunks: tensors that are tiled, and elements that are padding, and that hold data. */
  readonly tiled: number;
  readonly padding: number;
  readonly held: number;
}

/** Errors: HoldfastError for a budget that is too small, with what would do. */
export function planBudget(highs: Highs, run: PlannedRun, basis: PlanBasis): PlannedBudget {
  const { adapter, known } = basis;
  const { flags, settings } = run;
  const limits = plannedLimits(basis);
  const { diskLimit = Number.POSITIVE_INFINITY, ...asked } = flags;
  const memory = {
    ...{ gpu: asked.gpuMemory, host: asked.hostMemory, disk: asked.disk === undefined ? undefined : diskLimit },
    ...{ recovery: asked.recovery, policy: asked.policy, activations: asked.activations },
    ...{ accumulateOrder: asked.accumulateOrder, prefetch: asked.prefetch },
  };
  const toPlan = { settings, stored: run.stored, memory, limits };
  const start = performance.now();
  const planned = planWorkload(toPlan);
  const { options, whole: resident, smallest } = planned;
  const budget =
    flags.gpuMemory ?? Math.max(smallest, resident.peak - (resident.residents * resident.map.chunkBytes) / 2);
  if (budget < smallest) throw lackBelow(planned.workload, limits, options, budget) ?? tooLittle(run, planned, budget);
  const found = planned.fitWithin(budget);
  const { trace, extra } = found.passes.step;
  const followed = schedule(trace, found.slots, flags.policy, extra);
  const milliseconds = performance.now() - start;

  const within = withoutUndefined({ ...memory, gpu: budget, disk: asked.disk }) as StepMemory;
  const { dtype, momentDtype, trainable, frozen } = found.map;
  const backwardPasses = backwardPassesIn(settings);
  const update = backwardPasses && updateFacts(found, backwardPasses);
  const kept = elementBytesOfKinds(lastingKinds(dtype, momentDtype));
  const [step = 0, unlimited = 0] = [found.passes, resident.passes].map(({ step }) => dispatchesOf({ step }).length);
  return {
    ...{ run, basis, planned, budget, found, schedule: followed, milliseconds, update },
    room: slotsAt(trace, found.slots, extra),
    plan: planWithin(highs, toPlan, planned, found),
    expected: adapter && expectedStep({ settings, resident, found, memory: within, limits }, known),
    fullStep: frozen.chunks > 0 ? fullStepFlops(makeModel(settings.config), settings, limits) : undefined,
    dispatches: { step, unlimited },
    bytesPerParameter: {
      all: update ? kept : trainedElementBytes(dtype, momentDtype),
      kept,
      ofOptimizer: elementBytesOfKinds(optimizerKinds(dtype, momentDtype)),
    },
    tiled: trainable.tiled + frozen.tiled,
    padding: trainable.padding + frozen.padding,
    held: trainable.held + frozen.held,
  };
}

/** Names the smallest budget that works, and what would need less. */
function tooLittle(
  { settings: { batch, seq } }: PlannedRun,
  { model, options, smallest, leastActivations, smallestWith }: PlannedWorkload,
  budget: number,
): HoldfastError {
  const needs = (flag: string, bytes: number) => (bytes < smallest ? [`${flag} needs ${formatBytes(bytes)}`] : []);
  const knobs = [
    ...(batch > 1 ? needs(`--batch ${batch >> 1}`, smallestWith({ batch: batch >> 1 })) : []),
    ...(seq > 1 && model.shape.vocabulary > 0 ? needs(`--context ${seq >> 1}`, smallestWith({ seq: seq >> 1 })) : []),
    ...(options.recovery !== 'checkpoint' ? needs('--recovery checkpoint', smallestWith({}, 'checkpoint')) : []),
  ];
  return new HoldfastError(
    `--gpu-memory ${formatBytes(budget)} is too little: ${smallest} bytes (${formatBytes(smallest)}) is the smallest ` +
      `budget that works, ${formatBytes(leastActivations)} of it for activations${knobs.length > 0 ? `; ${knobs.join(', ')}` : ''}`,
  );
}

/** Operations of a step that trains the whole model, with the activations kept. */
function fullStepFlops(model: Model, { batch, seq, accumulate }: RunSettings, { binding }: AdapterLimits): number {
  const step = traceStep(model, batch, seq);
  const map = mapChunks(model.parameters, true, { minBytes: 0, maxBytes: binding });
  return flopsOf(stepPass(step, map, accumulate));
}

/** The part of its arithmetic that makes activations again, in the rest. */
export const recomputedShare = ({ step, recomputed }: RunPlan['flops']): number => recomputed / (step - recomputed);

/** Nothing is as little as it can be. */
export const ratioOf = (moved: number, bound: number): number => (moved === bound ? 1 : moved / bound);
