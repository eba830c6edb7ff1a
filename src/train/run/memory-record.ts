// Record of memory in a run's report: budgets and peaks of each tier, bytes over every link, the bound that no schedule
// can beat, what was waited for, and the chunk map of one step. Plain data; see memory-section.ts for how it looks.

import type { Fit } from '../../engine/compile/fitted.ts';
import type { ActivationTraffic } from '../../engine/compile/pass-figures.ts';
import type { ChunkHistory } from '../../engine/observe/chunk-codes.ts';
import { chunkHistory } from '../../engine/observe/chunk-history.ts';
import {
  type Cause,
  endOf,
  type LinkBytes,
  linkBytes,
  type Recording,
  waitedIn,
} from '../../engine/observe/recording.ts';
import type { PlannedAgain } from '../../engine/run/adaptation.ts';
import type { MemoryReport } from '../../engine/run/memory-report.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { BudgetSweep } from '../plan/sweep.ts';
import type { WhatIf } from '../plan/what-if.ts';

/** Bytes; `budget` is undefined where there was no limit. */
export interface TierFigures {
  readonly budget: number | undefined;
  readonly peak: number;
}

/** Bytes that a step moves between host and GPU, both ways, and what its schedule moves as a multiple of `lp`. */
export interface MemoryBound {
  /** The linear program: no schedule moves less. */
  readonly lp: number;
  /** The least that a schedule of whole chunks moves; absent where it was not proven. */
  readonly milp?: number;
  /** 1: the plan moves no more than `lp`. */
  readonly ratio: number;
}

/** Milliseconds since the run began in which the executor stood still, and what the tiers below spent of `below`. */
export interface WaitFigures {
  readonly down: number;
  readonly up: number;
  readonly below: number;
  /** For what other ranks send or take; 0 where there is one. */
  readonly network: number;
  readonly diskRead: number;
  readonly diskWrite: number;
}

/** Memory over a run: budgets, peaks, bytes moved, time waited. */
export interface MemoryRecord {
  /** Of all GPU memory; `predictedPeak` was known before the first step. */
  readonly gpu: TierFigures & { readonly predictedPeak: number };
  /** Of chunks in host memory. */
  readonly host: TierFigures;
  /** Of the file. */
  readonly disk: TierFigures;
  /**
   * Of chunks in a training step, and of activations from and to the disk: the mean over the steps recorded; padding, and
   * copies for recovery, count. Absent where none was: of a run that ended early, or within its warm-up.
   */
  readonly bytesPerStep?: LinkBytes;
  /** Of activations that a training step moves below the GPU. */
  readonly offloadedPerStep: number;
  /** Of activations that it brings back: twice as many where its backward pass runs twice. */
  readonly fetchedPerStep: number;
  /** Since the run began: loading, warm-up, validation, samples and saving too. */
  readonly total: LinkBytes;
  /** Of `bytesPerStep.d2h`: beyond what the plan moves, so that a lost device costs one step at most. */
  readonly recoveryBytesPerStep: number;
  /** Absent where its linear program was too large. */
  readonly bound?: MemoryBound;
  /** How chunks share the GPU. */
  readonly fit: { readonly slots: number; readonly chunks: number; readonly chunkBytes: number };
  /** Of micro-batches, and the seconds that a step was reckoned to take in each order tried; absent where a step has one. */
  readonly accumulate?: {
    readonly order: AccumulateOrder;
    readonly seconds: Readonly<Partial<Record<AccumulateOrder, number>>>;
  };
  /** Seconds that a step was reckoned to take by what the first steps took: by the plan before, and by the one made then. */
  readonly plannedAgain?: PlannedAgain;
  /** What was waited for. */
  readonly waits: WaitFigures;
  /** Of the last step that was recorded: the time of its encoding, and what of it each wait took. Milliseconds. */
  readonly lastStep?: { readonly milliseconds: number; readonly waits: Readonly<Record<Cause, number>> };
  /** What other settings would make of a step. Absent where that takes long to work out. */
  readonly whatIf?: WhatIf;
  /** A step over the budget, as planned, and seconds that one took on average, where one was done. Absent where that takes long to work out. */
  readonly sweep?: BudgetSweep & { readonly measured?: number };
  /** The last step that was recorded. */
  readonly map?: ChunkHistory;
}

export interface MemoryInputs {
  readonly report: MemoryReport;
  /** Of the allocator: what was counted. */
  readonly gpuPeak: number;
  readonly fit: Fit;
  /** Bytes that the plan moves in a step: of chunks, and of activations. */
  readonly planned: { readonly h2d: number; readonly d2h: number };
  readonly activations: ActivationTraffic;
  /** Whole steps; none: neither bytes per step nor a map. */
  readonly recordings: readonly Recording[];
  readonly bound?: MemoryBound | undefined;
  readonly whatIf?: WhatIf | undefined;
  readonly sweep?: MemoryRecord['sweep'] | undefined;
}

export function memoryRecord({
  report,
  gpuPeak,
  fit,
  planned,
  activations,
  recordings,
  bound,
  whatIf,
  sweep,
}: MemoryInputs): MemoryRecord {
  const { gpu, host, disk, link, below, plannedAgain } = report;
  const last = recordings.at(-1);
  const { order } = fit.workload;
  const bytesPerStep = last && meanOf(recordings.map(linkBytes));
  return {
    gpu: { ...gpu, peak: gpuPeak },
    host,
    disk,
    ...(bytesPerStep && { bytesPerStep }),
    offloadedPerStep: activations.down,
    fetchedPerStep: activations.up,
    total: {
      h2d: link.h2dBytes,
      d2h: link.d2hBytes,
      diskRead: below.diskReadBytes,
      diskWrite: below.diskWriteBytes,
    },
    recoveryBytesPerStep: bytesPerStep ? Math.max(0, bytesPerStep.d2h - planned.d2h) : 0,
    waits: { ...link.waits, diskRead: below.waits.diskReadMs, diskWrite: below.waits.diskWriteMs },
    fit: { slots: fit.slots, chunks: fit.map.count, chunkBytes: fit.map.chunkBytes },
    ...(order && { accumulate: { order: order.order, seconds: fit.orderSeconds ?? {} } }),
    ...(plannedAgain && { plannedAgain }),
    ...(bound && { bound }),
    ...(whatIf && { whatIf }),
    ...(sweep && { sweep }),
    ...(last && { lastStep: timeOf(last), map: chunkHistory(last, fit) }),
  };
}

function timeOf(recording: Recording): NonNullable<MemoryRecord['lastStep']> {
  return { milliseconds: endOf(recording) - recording.began, waits: waitedIn(recording) };
}

function meanOf(steps: readonly LinkBytes[]): LinkBytes {
  const mean = (link: keyof LinkBytes) => steps.reduce((sum, bytes) => sum + bytes[link], 0) / steps.length;
  return { h2d: mean('h2d'), d2h: mean('d2h'), diskRead: mean('diskRead'), diskWrite: mean('diskWrite') };
}
