// What a run would need, before it is started: worked out from its settings alone, as fit.ts does it for the run.

import { type BufferLimits, DEFAULT_LIMITS, fitMemory, smallestBudget } from '../engine/fit.ts';
import { makeModel } from '../nn/index.ts';
import { parameterCount } from '../nn/model.ts';
import { traceGeneration } from '../train/generator.ts';
import type { RunSettings } from '../train/run.ts';
import { traceStep } from '../train/step-programs.ts';
import { trainingWorkload } from '../train/trainer.ts';
import { HoldfastError } from '../util/errors.ts';
import type { Estimate, MemorySettings } from './protocol.ts';

/** Errors: HoldfastError for settings that make no model. */
export function estimateRun(
  settings: RunSettings,
  memory: MemorySettings,
  limits: BufferLimits = DEFAULT_LIMITS,
): Omit<Estimate, 'room'> {
  const { config, batch, seq, accumulate } = settings;
  const model = makeModel(config);
  if (seq > model.shape.context) {
    throw new HoldfastError(
      `a sequence of ${seq} tokens is longer than the model's context of ${model.shape.context}; use at most that`,
    );
  }
  const workload = trainingWorkload(model, traceStep(model, batch, seq), accumulate, traceGeneration(model, seq));
  const durable = memory.gpu !== undefined && (memory.recovery ?? 'step') === 'step';
  const whole = fitMemory(workload, limits, undefined, false);
  const known = {
    parameters: parameterCount(model),
    modelData: whole.map.count * whole.map.chunkBytes,
    unlimited: whole.peak,
    smallest: smallestBudget(workload, limits, durable),
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
