// What a run would need and move, before it is started: worked out from its settings alone, as fit.ts does it for the
// run.

import {
  type BufferLimits,
  DEFAULT_LIMITS,
  type Fit,
  fitMemory,
  smallestBudget,
  type Workload,
} from '../engine/fit.ts';
import type { Pass } from '../engine/pass.ts';
import { type PolicyName, schedule } from '../engine/schedule.ts';
import { linearBound, loadSolver } from '../memory/bound.ts';
import { findGaps } from '../memory/gaps.ts';
import { ORDERS } from '../memory/policies.ts';
import { makeModel } from '../nn/index.ts';
import { parameterCount } from '../nn/model.ts';
import { traceGeneration } from '../train/generator.ts';
import type { RunSettings } from '../train/run.ts';
import { traceStep } from '../train/step-programs.ts';
import { trainingWorkload } from '../train/trainer.ts';
import { HoldfastError } from '../util/errors.ts';
import type { Estimate, MemorySettings, PolicyComparison } from './protocol.ts';

/** Errors: HoldfastError for settings that make no model. */
export function estimateRun(
  settings: RunSettings,
  memory: MemorySettings,
  limits: BufferLimits = DEFAULT_LIMITS,
): Omit<Estimate, 'room' | 'tokensPerSecond'> {
  const { parameters, workload } = workloadOf(settings);
  const durable = keepsSteps(memory);
  const whole = fitMemory(workload, limits, undefined, false);
  const known = {
    parameters,
    modelData: whole.map.count * whole.map.chunkBytes,
    unlimited: whole.peak,
    smallest: smallestBudget(workload, limits, durable),
    flopsPerStep: flopsOf(whole.passes[0] as Pass),
  };
  try {
    const { peak, nonModel, map, slots } =
      memory.gpu === undefined ? whole : fitMemory(workload, limits, memory.gpu, durable);
    const fit = { peak, activations: nonModel.arenas, chunkBytes: map.chunkBytes, slots, chunks: map.count };
    return { ...known, fit };
  } catch (error) {
    if (!(error instanceof HoldfastError)) throw error;
    return { ...known, problem: error.message };
  }
}

/**
 * What each policy would move in a step. A run that trains in this thread goes on between the policies. Errors:
 * HoldfastError for settings that make no model, and where it does not fit.
 */
export async function comparePolicies(
  settings: RunSettings,
  memory: MemorySettings,
  limits: BufferLimits = DEFAULT_LIMITS,
): Promise<PolicyComparison> {
  const { passes, slots, map } = fitOf(workloadOf(settings).workload, memory, limits);
  const step = passes[0] as Pass;
  const policies: PolicyComparison['policies'][number][] = [];
  for (const name of ['planned', ...(Object.keys(ORDERS) as (keyof typeof ORDERS)[])] satisfies PolicyName[]) {
    await aTurn();
    policies.push({ name, ...schedule(step, slots, name).moved });
  }
  const highs = await loadSolver();
  await aTurn();
  const { chunks } = linearBound(
    highs,
    findGaps(
      step.trace,
      step.trace.moments.map(() => slots),
    ),
  );
  return { slots, chunks: map.count, policies, lp: chunks * map.chunkBytes };
}

function workloadOf({ config, batch, seq, accumulate, sampleTokens }: RunSettings): {
  parameters: number;
  workload: Workload;
} {
  const model = makeModel(config);
  if (seq > model.shape.context) {
    throw new HoldfastError(
      `a sequence of ${seq} tokens is longer than the model's context of ${model.shape.context}; use at most that`,
    );
  }
  const generation = sampleTokens > 0 ? traceGeneration(model, seq) : undefined;
  const workload = trainingWorkload(model, traceStep(model, batch, seq), accumulate, generation);
  return { parameters: parameterCount(model), workload };
}

const keepsSteps = ({ gpu, recovery = 'step' }: MemorySettings): boolean => gpu !== undefined && recovery === 'step';

const fitOf = (workload: Workload, memory: MemorySettings, limits: BufferLimits): Fit =>
  fitMemory(workload, limits, memory.gpu, keepsSteps(memory));

const flopsOf = ({ dispatches }: Pass): number =>
  dispatches.reduce((sum, { kernel, problem }) => sum + kernel.flops(problem), 0);

/** Lets others use this thread. */
const aTurn = (): Promise<void> => new Promise((resolve) => setTimeout(resolve, 0));
