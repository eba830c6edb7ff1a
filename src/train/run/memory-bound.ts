// The lower bound on the bytes that any schedule moves, for the run at hand: the linear program of all schedules of its
// step, and where the plan does not reach that, the optimum over whole chunks, if it is found in time.

import type { StepPasses } from '../../engine/compile/pass.ts';
import { slotsAt } from '../../engine/compile/schedule.ts';
import type { Session } from '../../engine/run/session.ts';
import { exactBound, linearBound, loadSolver } from '../../memory/plan/bound.ts';
import { findGaps } from '../../memory/plan/gaps.ts';
import type { MemoryBound } from './memory-record.ts';

/**
 * Of a step, in bytes between host and GPU. `seconds`: for the optimum over whole chunks; the
 * linear program takes what it takes.
 */
export async function memoryBound(session: Session<StepPasses>, seconds: number): Promise<MemoryBound> {
  const { fit } = session;
  const { step } = fit.passes;
  const { trace, moved } = session.scheduleOf(step);
  const planned = moved.h2d + moved.d2h;
  if (planned === 0) return { lp: 0, milp: 0, ratio: 1 };
  const highs = await loadSolver();
  const gaps = findGaps(trace, slotsAt(trace, fit.slots, step.extra));
  const { chunkBytes } = fit.map;
  const linear = linearBound(highs, gaps).chunks;
  // Schedules move whole chunks: the next whole number above the bound is the optimum if it is reached.
  const reached = planned / chunkBytes <= Math.ceil(linear - 1e-6);
  const exact = reached ? planned / chunkBytes : seconds > 0 ? exactBound(highs, gaps, seconds)?.chunks : undefined;
  return {
    lp: linear * chunkBytes,
    ...(exact !== undefined && { milp: exact * chunkBytes }),
    ratio: planned / (linear * chunkBytes),
  };
}
