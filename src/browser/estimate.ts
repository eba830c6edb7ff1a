// The estimate of what a run would need and move, before it is started: worked out from its settings alone, as fit.ts
// does it for the run, and by the code of `holdfast plan` (train/run/run-plan.ts).

import type { Fit } from '../engine/compile/fitted.ts';
import { flopsOf, isConfined } from '../engine/compile/pass-figures.ts';
import { type PolicyName, schedule, slotsAt } from '../engine/compile/schedule.ts';
import { type AdapterLimits, DEFAULT_LIMITS } from '../engine/compile/workload.ts';
import { machineOf } from '../engine/simulate/machine.ts';
import { divideBelow } from '../engine/simulate/shares-below.ts';
import { MOST_CHECKPOINTS } from '../formats/checkpoint/save.ts';
import { linearBound, loadSolver } from '../memory/plan/bound.ts';
import { findGaps } from '../memory/plan/gaps.ts';
import { ORDERS } from '../memory/plan/policies.ts';
import { parameterCount, trainedCount } from '../nn/model.ts';
import { compareActivations } from '../train/plan/activation-comparison.ts';
import { secondsWithin, simulatedSeconds } from '../train/plan/simulated-seconds.ts';
import type { Confined, StepCosts, StepSize } from '../train/plan/step-times.ts';
import { type PlannedWorkload, planWithin, planWorkload, type RunPlan, type RunToPlan } from '../train/run/run-plan.ts';
import { generates, momentDtypeIn, type RunSettings } from '../train/run/run-settings.ts';
import { type StoredAs, storedModel } from '../train/run/stored-model.ts';
import type { TrainingPasses } from '../train/step/training-workload.ts';
import { HoldfastError } from '../util/errors.ts';
import { bytesPerElement } from '../values/stored-elements.ts';
import type { ActivationPolicyFigures, Estimate, PolicyComparison } from './estimate-types.ts';
import type { MemorySettings, StoredWeights } from './protocol.ts';

const MOST_KNOWN = 20;

/** What does not depend on the budget, of runs that were asked for before: a slider moves many times a second. */
export class KnownRuns {
  readonly #known = new Map<string, Known>();

  /** `key`: all that it does depend on. */
  of(key: string, make: () => Known): Known {
    const before = this.#known.get(key);
    if (before) return before;
    const found = make();
    if (this.#known.size === MOST_KNOWN) this.#known.clear();
    this.#known.set(key, found);
    return found;
  }
}

interface Known {
  readonly planned: PlannedWorkload;
  readonly parameters: number;
  readonly trained: number;
  /** Of a step without a budget, on the simulated clock; absent until it is asked for. */
  seconds?: number | undefined;
  /** The budget that was asked for last, and its fit. */
  latest?: { readonly gpu: number; readonly fit: Fit<TrainingPasses> };
}

/** What settings and budget alone say. */
type RunEstimate = Omit<Estimate, 'room' | 'tokensPerSecond'> & {
  /** There where it does not fit into the budget whole: see there. */
  readonly secondsWithin?: Confined['seconds'];
};

/** What an estimate goes by beside its settings and its budgets. */
export interface EstimateBasis {
  /** @default DEFAULT_LIMITS */
  readonly limits?: AdapterLimits | undefined;
  /** How the files of a model hold what a low-rank update freezes. @default as f32 */
  readonly stored?: StoredWeights | undefined;
  /** What estimates before this one have worked out. @default nothing */
  readonly known?: KnownRuns;
}

/** The estimate of a run. Errors: HoldfastError for settings that make no model. */
export function estimateRun(settings: RunSettings, memory: MemorySettings, basis: EstimateBasis = {}): RunEstimate {
  const { limits = DEFAULT_LIMITS } = basis;
  const { run } = askedFor(settings, memory, basis);
  const { planned, parameters, trained } = run;
  const { whole, smallest } = planned;
  const figures = {
    parameters,
    trained,
    modelData: whole.held * whole.map.chunkBytes,
    checkpoints: checkpointBytes(settings, trained),
    unlimited: whole.peak,
    smallest,
    flopsPerStep: flopsOf(whole.passes.step),
    dispatchesPerStep: whole.passes.step.operations.length,
  };
  try {
    const found = fitOf(run, memory);
    const { peak, nonModel, map, slots } = found;
    const fit = { peak, activations: nonModel.arenas, chunkBytes: map.chunkBytes, slots, chunks: map.count };
    if (!isConfined(found)) return { ...figures, fit: { ...fit, slowdown: 1 } };
    const slowdown = slowdownOf(found, run, limits, memory);
    return {
      ...figures,
      fit: { ...fit, ...(slowdown !== undefined && { slowdown }) },
      secondsWithin: timeWithin(found, whole, limits, memory),
    };
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    return { ...figures, problem: error.message };
  }
}

const timeWithin =
  (fit: Fit<TrainingPasses>, whole: Fit<TrainingPasses>, limits: AdapterLimits, memory: MemorySettings) =>
  (resident: number, costs: StepCosts | undefined): number | undefined =>
    secondsWithin(fit, whole, resident, limits, { ...memory, costs });

/** By the rates that fits go by. Undefined where the host has no room for what is not on the GPU. */
function slowdownOf(
  fit: Fit<TrainingPasses>,
  run: Known,
  limits: AdapterLimits,
  memory: MemorySettings,
): number | undefined {
  run.seconds ??= simulatedSeconds(run.planned.whole, limits);
  const seconds = simulatedSeconds(fit, limits, memory);
  return seconds === undefined || run.seconds === undefined ? undefined : seconds / run.seconds;
}

interface PlannedHere {
  readonly plan: RunPlan;
  /** Of its step without a budget. */
  readonly size: StepSize;
  /** As `RunEstimate` has it. */
  readonly secondsWithin?: Confined['seconds'];
}

/**
 * Where the bytes of a run would lie and what a step of it would move and compute, as `holdfast plan` says it. Errors: HoldfastError
 * for settings that make no model, and where it does not fit.
 */
export async function planHere(
  settings: RunSettings,
  memory: MemorySettings,
  basis: EstimateBasis = {},
): Promise<PlannedHere> {
  const { limits = DEFAULT_LIMITS } = basis;
  const { asked, run } = askedFor(settings, memory, basis);
  const { planned } = run;
  await nextTask();
  const fit = fitOf(run, memory);
  const highs = await loadSolver();
  await nextTask();
  const { step } = planned.whole.passes;
  return {
    plan: planWithin(highs, asked, planned, fit),
    size: { dispatches: step.operations.length, flops: flopsOf(step) },
    ...(isConfined(fit) && { secondsWithin: timeWithin(fit, planned.whole, limits, memory) }),
  };
}

/**
 * What each policy would move in a step. A run that trains in this thread goes on between the policies. Errors:
 * HoldfastError for settings that make no model, and where it does not fit.
 */
export async function comparePolicies(
  settings: RunSettings,
  memory: MemorySettings,
  basis: EstimateBasis = {},
): Promise<PolicyComparison> {
  const { run } = askedFor(settings, memory, basis);
  await nextTask();
  const { passes, slots, map } = fitOf(run, memory);
  const { trace, extra } = passes.step;
  const policies: PolicyComparison['policies'][number][] = [];
  for (const name of ['planned', ...(Object.keys(ORDERS) as (keyof typeof ORDERS)[])] satisfies PolicyName[]) {
    await nextTask();
    policies.push({ name, ...schedule(trace, slots, name, extra).moved });
  }
  const highs = await loadSolver();
  await nextTask();
  const { chunks } = linearBound(highs, findGaps(trace, slotsAt(trace, slots, extra)));
  return { slots, chunks: map.count, policies, lp: chunks * map.chunkBytes };
}

/**
 * What each policy for activations would need, move and compute again in a step, this library's own first. Errors and
 * pauses as in `comparePolicies`.
 */
export async function compareActivationPolicies(
  settings: RunSettings,
  { gpu, host, recovery = 'auto' }: MemorySettings,
  { limits = DEFAULT_LIMITS, stored }: EstimateBasis = {},
): Promise<ActivationPolicyFigures[]> {
  const { batch, seq: context, accumulate, records } = settings;
  const packed = records?.pack === 'yes';
  const compared = { model: storedModel(settings, inFiles(stored)), batch, context, accumulate, recovery, packed };
  await nextTask();
  const { resident, policies } = compareActivations(
    compared,
    machineOf(limits),
    host ?? Number.POSITIVE_INFINITY,
    gpu,
    limits,
  );
  const found: ActivationPolicyFigures[] = [];
  for (const { name, paper, smallest, steps } of policies) {
    const [step] = steps;
    const within = step && {
      slowdown: step.seconds / resident.seconds,
      moved: step.moved,
      recomputedShare: step.recomputedShare,
    };
    found.push({ name, paper, smallest, ...(within && { step: within }) });
    await nextTask();
  }
  return found;
}

/** What is asked for, as it is planned, and what is known of it. */
function askedFor(
  settings: RunSettings,
  memory: MemorySettings,
  { limits = DEFAULT_LIMITS, stored, known = new KnownRuns() }: EstimateBasis,
): { readonly asked: RunToPlan; readonly run: Known } {
  const asked = { settings, memory, limits, stored: inFiles(stored) };
  return { asked, run: knownOf(known, asked) };
}

function knownOf(known: KnownRuns, run: RunToPlan): Known {
  const { settings, stored, limits } = run;
  const { config, lora, records, batch, seq, accumulate, update, clip } = settings;
  const { dtype, optimizerState, activationDtype, optimizerDevice, optimizerSplit } = settings;
  const { gpu, host, disk, recovery } = run.memory;
  const step = [records?.pack, batch, seq, accumulate, update, clip, generates(settings)];
  const widths = [dtype, optimizerState, activationDtype, optimizerDevice, optimizerSplit];
  // A split is chosen within the budget.
  const memory = [host, disk, recovery, optimizerDevice === 'auto' && optimizerSplit === undefined && gpu];
  const key = JSON.stringify([config, lora, ...step, ...widths, ...memory, limits, lora && stored && [...stored]]);
  return known.of(key, () => {
    const planned = planWorkload(run);
    return { planned, parameters: parameterCount(planned.model), trained: trainedCount(planned.model) };
  });
}

/** Errors: HoldfastError for a budget that is too small, and for too little room below it. */
function fitOf(run: Known, { gpu, host = Number.POSITIVE_INFINITY, disk }: MemorySettings): Fit<TrainingPasses> {
  const { planned } = run;
  if (gpu === undefined) return planned.whole;
  if (run.latest?.gpu !== gpu) run.latest = { gpu, fit: planned.fitWithin(gpu) };
  const { fit } = run.latest;
  divideBelow(fit, disk, host);
  return fit;
}

/** On disk at most: values and moments of what trains, in as many checkpoints as lie there at once. */
function checkpointBytes(settings: RunSettings, trained: number): number {
  const { steps, saveEvery } = settings;
  const saves = saveEvery > 0 ? Math.ceil(steps / saveEvery) : 1;
  const bytes = bytesPerElement('f32') + 2 * bytesPerElement(momentDtypeIn(settings));
  return trained * bytes * Math.min(MOST_CHECKPOINTS, saves);
}

const inFiles = (stored: StoredWeights | undefined): StoredAs | undefined => stored && new Map(Object.entries(stored));

/** Lets others use this thread. */
const nextTask = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));
