// A run on paper for programs: the figures of `holdfast plan` (run-plan.ts) by a call. Of a run on ranks, and of another machine's
// seconds, the command alone tells.

import { type Rates, ratesSchema } from '../../engine/compile/rates.ts';
import { DEFAULT_LIMITS } from '../../engine/compile/workload.ts';
import { keptLimits } from '../../engine/observe/adapter-records.ts';
import { checkMemory, limitsOf } from '../../engine/run/arrangement.ts';
import type { Device } from '../../gpu/device.ts';
import type { StoredElement } from '../../kernels/stored.ts';
import { loadSolver } from '../../memory/plan/bound.ts';
import type { Host } from '../../runtime/host.ts';
import { having, mapByName, withoutUndefined } from '../../util/arguments.ts';
import { anything, check, closed, number, object, optional, truth } from '../../util/json.ts';
import { realNumber } from '../../util/range.ts';
import { knownSteps, type StepMemory } from '../plan/step-times.ts';
import { checkSettings } from './check-settings.ts';
import { expectedStep } from './expected-step.ts';
import { type PlannedMemory, planWithin, planWorkload, type RunForecast } from './run-plan.ts';
import { type RunSettings, readSettings } from './run-settings.ts';

/** What a run is planned for. */
export interface PlanOptions {
  /** Where model data is to lie. @default all of it is on the GPU */
  readonly memory?: PlannedMemory;
  /** By whose limits. @default those that every adapter has */
  readonly device?: Device;
  /** Where what runs and measurements on the device took is kept: by it the time of a step is told. @default it is not */
  readonly host?: Host;
  /** What the device computes and moves a second: of `measureRates`. @default what the host keeps of it, or else what is typical */
  readonly rates?: Rates;
  /** How the files of the model hold what a low-rank update freezes: of `loadWeights`. @default as f32 */
  readonly stored?: ReadonlyMap<string, StoredElement>;
}

const bytes = optional(number(realNumber(0, Number.MAX_VALUE)));
const plannedMemory = closed<PlannedMemory>({
  gpu: bytes,
  host: bytes,
  disk: bytes,
  recovery: anything,
  policy: anything,
  activations: anything,
  accumulateOrder: anything,
  prefetch: optional(truth),
});
const planOptions = closed<PlanOptions>({
  memory: optional(plannedMemory),
  device: optional(object({ adapter: object({ limits: object({}) }) })),
  host: optional(having<Host>('a host, as headlessHost gives', 'files')),
  rates: optional(ratesSchema),
  stored: optional(mapByName),
});

/**
 * Where the bytes of a run would lie, what a step of it would move and compute, and its budgets, with no GPU: the figures of
 * `holdfast plan`. It computes in this thread, of a large model for seconds. Errors: HoldfastError for settings that make no
 * run, and for a budget, or room below it, that is too small, with what would do.
 */
export async function planRun(settings: RunSettings, options: PlanOptions = {}): Promise<RunForecast> {
  const read = readSettings(settings);
  checkSettings(read);
  check(planOptions, options, 'the options of a plan');
  const { memory = {}, device, host, rates, stored } = options;
  const { disk: _, ...others } = memory;
  checkMemory(withoutUndefined(others) as Parameters<typeof checkMemory>[0]);
  const ofDevice = device && (host ? await keptLimits(host, device) : limitsOf(device));
  const limits = { ...(ofDevice ?? DEFAULT_LIMITS), ...(rates && { rates }) };
  const run = { settings: read, memory, limits, stored };
  const planned = planWorkload(run);
  const { whole: resident } = planned;
  const found = memory.gpu === undefined ? resident : planned.fitWithin(memory.gpu);
  const plan = planWithin(await loadSolver(), run, planned, found);
  if (!device || !host) return plan;
  const within = withoutUndefined(memory) as StepMemory;
  const step = expectedStep(
    { settings: read, resident, found, memory: within, limits },
    await knownSteps(host, device),
  );
  return { ...plan, ...(step && { step }) };
}
