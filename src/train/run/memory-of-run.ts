// The memory record of a run that is over, worked out: what its last step moved, the least that it could have, and what steps would
// take within other budgets. It takes a share of the time that the run took, not more. What the record says is memory-record.ts.

import { activationTraffic } from '../../engine/compile/pass-figures.ts';
import type { Recording } from '../../engine/observe/recording.ts';
import { limitsOf } from '../../engine/run/arrangement.ts';
import { sweepBudgets } from '../plan/sweep.ts';
import { whatIf } from '../plan/what-if.ts';
import type { Trainer } from '../step/trainer.ts';
import { memoryBound } from './memory-bound.ts';
import { type MemoryRecord, memoryRecord } from './memory-record.ts';

/** For the optimum over whole chunks, where the plan is not at the bound: a tenth of the run, a minute at most. */
const exactSeconds = (spentMs: number): number => Math.min(60, Math.max(10, spentMs / 10_000));

/** For a step's time within other budgets: a tenth of the run, a second at most, and the plan that is under way by then. */
const sweepMs = (spentMs: number): number => Math.min(1000, spentMs / 10);

/** The time of a run that is over, and its last step. */
export interface Spent {
  /** Of the run on this device. */
  readonly milliseconds: number;
  /** What was recorded of its last step. */
  readonly lastStep: Recording | undefined;
  /** As its steps took; undefined where none was measured. */
  readonly secondsPerStep: number | undefined;
  /** No other rank shares its steps. */
  readonly isAlone: boolean;
}

/** Of a run within a budget. */
export async function memoryOfRun({ session, device }: Trainer, spent: Spent): Promise<MemoryRecord> {
  const { step } = session.fit.passes;
  const bound = await memoryBound(session, exactSeconds(spent.milliseconds));
  const limits = limitsOf(device, session.memory);
  const sweep = () => {
    const end = performance.now() + sweepMs(spent.milliseconds);
    const found = sweepBudgets(session.fit, limits, session.memory, () => performance.now() > end);
    return found && { ...found, ...(spent.secondsPerStep !== undefined && { measured: spent.secondsPerStep }) };
  };
  return memoryRecord({
    report: session.report(),
    gpuPeak: device.allocator.peak,
    fit: session.fit,
    planned: session.scheduleOf(step).moved,
    activations: activationTraffic(step),
    recordings: spent.lastStep ? [spent.lastStep] : [],
    bound,
    ...(spent.isAlone && { whatIf: whatIf(session.fit, limits, session.memory), sweep: sweep() }),
  });
}
