// What a budgeted run needed and moved, beside the least that any schedule would: for the summary and the report.

import { median } from '../engine/profile.ts';
import type { Schedule } from '../engine/schedule.ts';
import { exactBound, linearBound, loadSolver } from '../memory/bound.ts';
import { findGaps } from '../memory/gaps.ts';
import type { Trainer } from './trainer.ts';

/** Bytes and milliseconds. Budgets are null where there is none. */
export interface MemoryRecord {
  readonly gpu: { readonly budget: number | null; readonly peak: number; readonly predictedPeak: number };
  readonly host: { readonly budget: number | null; readonly peak: number };
  readonly disk: { readonly budget: number | null; readonly peak: number };
  /**
   * Of the median step after warm-up. `recovery` is that part of d2h which the plan would not move: it goes down so
   * that a lost device costs one step at most.
   */
  readonly bytesPerStep: {
    readonly h2d: number;
    readonly d2h: number;
    readonly recovery: number;
    readonly diskRead: number;
    readonly diskWrite: number;
  };
  /** Bytes both ways in a warm-up step: under a cap of its own. */
  readonly warmUpBytesPerStep: number;
  /** What no schedule can undercut, over the link to the GPU: the linear program's bound, and the optimum where found. */
  readonly bound: { readonly lp: number; readonly milp: number | null; readonly ratio: number };
  /** Over the whole run, by cause. */
  readonly waits: { readonly [cause: string]: number };
  readonly slots: number;
  readonly chunks: number;
  readonly chunkBytes: number;
}

/** Seconds for the optimum, where the plan does not reach the linear bound anyway. */
const EXACT_SECONDS = 10;

export async function memoryRecord(trainer: Trainer): Promise<MemoryRecord> {
  const { session } = trainer;
  const { fit, map } = session;
  const { gpu, host, disk, link, below } = session.report();
  const steady = trainer.traffic.filter(({ warmUp }) => !warmUp);
  const warm = trainer.traffic.filter(({ warmUp }) => warmUp);
  const of = (key: 'h2d' | 'd2h' | 'diskRead' | 'diskWrite') => middle(steady.map((step) => step[key]));
  const schedule = session.scheduleOf(fit.passes[0] as never);
  const planned = schedule.moved.h2d + schedule.moved.d2h;
  const d2h = of('d2h');
  const orNull = (value: number | undefined) => value ?? null;
  return {
    gpu: { ...gpu, budget: orNull(gpu.budget), peak: trainer.device.allocator.peak },
    host: { ...host, budget: orNull(host.budget) },
    disk: { ...disk, budget: orNull(disk.budget) },
    bytesPerStep: {
      h2d: of('h2d'),
      d2h,
      recovery: session.durable ? Math.max(0, d2h - schedule.moved.d2h) : 0,
      diskRead: of('diskRead'),
      diskWrite: of('diskWrite'),
    },
    warmUpBytesPerStep: middle(warm.map(({ h2d, d2h }) => h2d + d2h)),
    bound: await boundOf(schedule, fit.slots, map.chunkBytes, planned),
    waits: { ...link.waits, diskRead: below.waits.diskReadMs, diskWrite: below.waits.diskWriteMs },
    slots: fit.slots,
    chunks: map.count,
    chunkBytes: map.chunkBytes,
  };
}

const middle = (values: readonly number[]): number => (values.length === 0 ? 0 : median(values));

/** `ratio`: what the plan moves, over the linear bound. */
async function boundOf(
  { pass }: Schedule,
  slots: number,
  chunkBytes: number,
  planned: number,
): Promise<MemoryRecord['bound']> {
  if (planned === 0) return { lp: 0, milp: 0, ratio: 1 };
  const highs = await loadSolver();
  const gaps = findGaps(
    pass.trace,
    pass.trace.moments.map(() => slots),
  );
  const linear = linearBound(highs, gaps).chunks;
  const chunks = planned / chunkBytes;
  // Schedules move whole chunks: the next whole number above the bound is the optimum if it is reached.
  const reached = chunks <= Math.ceil(linear - 1e-6);
  const exact = reached ? chunks : exactBound(highs, gaps, EXACT_SECONDS)?.chunks;
  const lp = linear * chunkBytes;
  return { lp, milp: exact === undefined ? null : exact * chunkBytes, ratio: lp === 0 ? 1 : planned / lp };
}
