// `RunPlan`: a run on paper, from its settings alone: what lies on each tier by what it is, what a step moves over each link and the
// least that any schedule would, the smallest budget and a comfortable one. Pure; needs no GPU. `holdfast plan` and a page say what it
// says.
//
// Invariant: the fit is that of a run with these settings, memory and limits.

import type { Highs } from 'highs';
import { beginsAhead, needBelow } from '../../engine/compile/candidate.ts';
import { fitInTime, fitMemory } from '../../engine/compile/fit.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { type FitOptions, leastMemory } from '../../engine/compile/least.ts';
import { activationTraffic, flopsOf, recomputedFlops } from '../../engine/compile/pass-figures.ts';
import type { Recovery } from '../../engine/compile/recovery.ts';
import { type PassSchedule, type PolicyName, schedule, slotsAt } from '../../engine/compile/schedule.ts';
import { type AdapterLimits, heldByUpdate, type Workload } from '../../engine/compile/workload.ts';
import { optionsOf } from '../../engine/run/arrangement.ts';
import { machineOf } from '../../engine/simulate/machine.ts';
import { divideBelow } from '../../engine/simulate/shares-below.ts';
import { simulate } from '../../engine/simulate/simulate.ts';
import type { SimulatedBelow } from '../../engine/simulate/stashes.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { Kind } from '../../memory/layout/kinds.ts';
import { linearBound } from '../../memory/plan/bound.ts';
import { findGaps } from '../../memory/plan/gaps.ts';
import { mostHere } from '../../memory/plan/plan.ts';
import { blockBytes } from '../../memory/tiers/shares.ts';
import { type Model, optimizedOn } from '../../nn/model.ts';
import { at } from '../../util/at.ts';
import { traceGeneration } from '../inference/generation-workload.ts';
import { COMFORT, leastComfortable } from '../plan/comfortable.ts';
import { simulatedSeconds } from '../plan/simulated-seconds.ts';
import type { ExpectedStep } from '../plan/step-times.ts';
import { chooseSplit } from '../step/optimizer-split.ts';
import { checkBatch, traceStep } from '../step/step-programs.ts';
import { type TrainingPasses, trainingWorkload } from '../step/training-workload.ts';
import { backwardPassesIn, generates, type RunSettings } from './run-settings.ts';
import { type StoredAs, storedModel } from './stored-model.ts';

/** Where model data is to lie: as MemoryOptions, each tier in bytes. */
export interface PlannedMemory {
  /** Bytes of GPU memory. @default all of it is on the GPU */
  readonly gpu?: number | undefined;
  /** Bytes of host memory for chunks. @default no limit */
  readonly host?: number | undefined;
  /** Bytes of disk. @default there is none */
  readonly disk?: number | undefined;
  /** See MemoryOptions. @default 'auto' */
  readonly recovery?: Recovery | undefined;
  /** See MemoryOptions. @default 'planned' */
  readonly policy?: PolicyName | undefined;
  /** See MemoryOptions. @default 'auto' */
  readonly activations?: ActivationMode | 'auto' | undefined;
  /** See MemoryOptions. @default 'auto' */
  readonly accumulateOrder?: AccumulateOrder | 'auto' | undefined;
  /** See MemoryOptions. @default true */
  readonly prefetch?: boolean | undefined;
}

/** A run to plan. */
export interface RunToPlan {
  readonly settings: RunSettings;
  /** How the files of its model hold what a low-rank update freezes. @default as f32 */
  readonly stored?: StoredAs | undefined;
  readonly memory: PlannedMemory;
  readonly limits: AdapterLimits;
}

/** What of a run does not depend on its budget, but where that chooses what the optimizer runs on. */
export interface PlannedWorkload {
  /** As it trains. */
  readonly model: Model;
  /** Tensors that the GPU updates, where that is left to the run. */
  readonly split?: number | undefined;
  readonly workload: Workload<TrainingPasses>;
  readonly options: FitOptions;
  /** Without a budget. */
  readonly whole: Fit<TrainingPasses>;
  /** The smallest budget, and the bytes of activations within it. */
  readonly smallest: number;
  readonly leastActivations: number;
  /** As `fitMemory` has it, which has looked at the budget of the run before where the split was chosen. */
  fitWithin(budget: number): Fit<TrainingPasses>;
  /** Of the same run with another batch or length: its smallest budget. */
  smallestWith(changes: Partial<Pick<RunSettings, 'batch' | 'seq'>>, recovery?: Recovery): number;
}

/** Errors: HoldfastError for settings that make no model. */
export function planWorkload({ settings, stored, memory, limits }: RunToPlan): PlannedWorkload {
  const { records, activationDtype, optimizerDevice = 'gpu', optimizerSplit } = settings;
  const passes = backwardPassesIn(settings);
  // Gradients that are gone finish no step.
  const recovery = passes === undefined ? (memory.recovery ?? 'auto') : 'checkpoint';
  const packed = records?.pack === 'yes';
  const workloadOf = (model: Model, changes: Partial<Pick<RunSettings, 'batch' | 'seq'>> = {}) => {
    const { batch, seq, accumulate } = { ...settings, ...changes };
    checkBatch(model, batch, seq);
    const generation = generates(settings) ? traceGeneration(model, seq) : undefined;
    const programs = traceStep(model, batch, seq, { packed, passes, activationDtype });
    return trainingWorkload(model, programs, accumulate, generation, memory);
  };
  const { gpu, host, disk } = memory;
  const tiers = {
    ...{ recovery, ...(host !== undefined && { host }) },
    ...(disk !== undefined && { disk: { open: noFile, limit: disk } }),
  };
  const optionsFor = (workload: Workload) => optionsOf(tiers, heldByUpdate(workload));
  const plain = storedModel(settings, stored);
  const chosen =
    optimizerDevice !== 'auto' || optimizerSplit !== undefined
      ? undefined
      : chooseSplit({ model: plain, workloadOf, memory: { ...tiers, ...(gpu !== undefined && { gpu }) }, limits });
  const split = chosen?.split ?? optimizerSplit;
  const model = optimizedOn(plain, optimizerDevice, split);
  const workload = chosen?.workload ?? workloadOf(model);
  const options = optionsFor(workload);
  const whole = fitMemory(workload, limits, undefined);
  const { bytes: smallest, activations: leastActivations } = leastMemory(workload, limits, options);
  return {
    ...{ model, split, workload, options, whole, smallest, leastActivations },
    fitWithin: (budget) => (budget === gpu ? chosen?.fit : undefined) ?? fitMemory(workload, limits, budget, options),
    smallestWith(changes, other = recovery) {
      const changed = workloadOf(model, changes);
      return leastMemory(changed, limits, { ...optionsFor(changed), recovery: other }).bytes;
    },
  };
}

const noFile = (): never => {
  throw new Error('internal: a plan opens no file');
};

/** What model data and everything else is counted as. */
export const DATA_KINDS = ['parameters', 'gradients', 'moments', 'activations', 'other'] as const;
/** One of DATA_KINDS. */
export type DataKind = (typeof DATA_KINDS)[number];

/**
 * Bytes of each kind that lie there at once, at most, and of all: they take turns, so that all may be less than their sum. Below the
 * GPU all is the room that they have, also for what is on its way and for what is written beside what it replaces.
 */
export type TierPlan = Readonly<Record<DataKind | 'all', number>>;

/** What of a run lies where, and what a step of it moves. */
export interface RunPlan {
  /** Bytes of the smallest budget. */
  readonly smallest: number;
  /** Bytes of everything on the GPU, without a budget. */
  readonly unlimited: number;
  /** Bytes: the least budget within which a step takes hardly longer than without one, about. Absent where there is none. */
  readonly comfortable?: number;
  /** What lies where. */
  readonly tiers: Readonly<Record<'gpu' | 'host' | 'disk', TierPlan>>;
  /** What a step moves. */
  readonly links: PlannedLinks;
  /** Multiplications and additions of a step; `recomputed`: those of them that make activations again. */
  readonly flops: { readonly step: number; readonly recomputed: number };
}

/** The plan of a run, with the time of its steps on the device here. */
export interface RunForecast extends RunPlan {
  /** Absent where nothing is known of it, and where a disk is waited for. */
  readonly step?: ExpectedStep;
}

/** Bytes of a step. */
export interface PlannedLinks {
  /**
   * Between host and GPU. `chunks`: both ways; `bound`: the least of any schedule; `activations`: of what goes down, and `fetched` of what
   * comes up; `recovery`: of what goes down, against the loss of a device.
   */
  readonly gpu: {
    readonly up: number;
    readonly down: number;
    readonly chunks: number;
    readonly activations: number;
    readonly fetched: number;
    readonly recovery: number;
    readonly bound: number;
  };
  /** Absent without one. `bound`: the least of chunks with so much memory above it; absent where the host updates: none is known. */
  readonly disk?: { readonly read: number; readonly written: number; readonly bound?: number };
}

/** A fit of a run, and its plan. Errors: HoldfastError for a budget, or room below it, that is too small, with what would do. */
export function planWithin(highs: Highs, run: RunToPlan, planned: PlannedWorkload, fit: Fit<TrainingPasses>): RunPlan {
  const { policy = 'planned' } = run.memory;
  const { step } = fit.passes;
  const plan = schedule(step.trace, fit.slots, policy, step.extra);
  const comfortable = comfortableBudget(run, planned);
  return {
    ...{ smallest: planned.smallest, unlimited: planned.whole.peak },
    ...(comfortable !== undefined && { comfortable }),
    flops: { step: flopsOf(step), recomputed: recomputedFlops(step).flops },
    ...(fit === planned.whole ? residentFigures(fit, plan) : figuresWithin(highs, run, fit, plan)),
  };
}

/** Undefined where no budget is comfortable: where each step is kept below it as well, copies may be what a step waits for. */
function comfortableBudget(
  { memory, limits }: RunToPlan,
  { workload, options, whole, smallest }: PlannedWorkload,
): number | undefined {
  const { policy = 'planned' } = memory;
  const most = (1 + COMFORT) * (simulatedSeconds(whole, limits) ?? Number.POSITIVE_INFINITY);
  return leastComfortable(smallest, whole.peak, (budget) => {
    // Nothing is kept below what has room for everything.
    if (budget >= whole.peak && options.recovery !== 'step') return true;
    const found = fitInTime(workload, limits, budget, most, options);
    if (!found || policy === 'planned') return found !== undefined;
    return (simulatedSeconds(found, limits, { policy }) ?? most) < most;
  });
}

/** Everything is on the GPU, and nothing moves. */
function residentFigures(fit: Fit<TrainingPasses>, plan: PassSchedule): Pick<RunPlan, 'tiers' | 'links'> {
  return {
    tiers: { gpu: onGPU(fit, plan), host: NOTHING, disk: NOTHING },
    links: { gpu: { up: 0, down: 0, chunks: 0, activations: 0, fetched: 0, recovery: 0, bound: 0 } },
  };
}

const NOTHING: TierPlan = { parameters: 0, gradients: 0, moments: 0, activations: 0, other: 0, all: 0 };

/** What a kind of model data is counted as. */
function dataKindOf(kind: Kind): DataKind {
  if (kind.startsWith('gradient')) return 'gradients';
  return kind.startsWith('moment') ? 'moments' : 'parameters';
}

/** The kinds of chunks, by their number. */
const kindsIn = ({ map }: Fit): DataKind[] =>
  map.lists.flatMap(({ kind, chunks }) => Array.from({ length: chunks }, () => dataKindOf(kind)));

function onGPU(fit: Fit<TrainingPasses>, { trace, plan }: PassSchedule): TierPlan {
  const { nonModel, staging, stagingBytes, peak, map } = fit;
  const most = mostHere(trace, plan, kindsIn(fit));
  const bytes = (kind: DataKind) => (most.get(kind) ?? 0) * map.chunkBytes;
  return {
    ...{ parameters: bytes('parameters'), gradients: bytes('gradients'), moments: bytes('moments') },
    ...{ activations: nonModel.arenas, all: peak },
    other: nonModel.persistent + (staging.down + staging.up) * stagingBytes,
  };
}

function figuresWithin(
  highs: Highs,
  { memory, limits }: RunToPlan,
  fit: Fit<TrainingPasses>,
  plan: PassSchedule,
): Pick<RunPlan, 'tiers' | 'links'> {
  const { host = Number.POSITIVE_INFINITY, disk, prefetch } = memory;
  const { map, passes, staging, slots } = fit;
  const { step } = passes;
  const { trace, extra } = step;
  const need = needBelow(fit, beginsAhead(fit, limits));
  const { hostSlots, beside, homes } = divideBelow(fit, disk, host, need);
  const kinds = Uint8Array.from(kindsIn(fit), (kind) => DATA_KINDS.indexOf(kind));
  const peaks = { host: new Peaks(), disk: new Peaks() };
  const machine = machineOf(limits, disk);
  const watch = (below: SimulatedBelow) => {
    below.eachChunk((chunk, here, onDisk) => {
      if (here) peaks.host.add(at(kinds, chunk));
      if (onDisk) peaks.disk.add(at(kinds, chunk));
    });
    peaks.host.end();
    peaks.disk.end();
  };
  const { bytes } = simulate(fit, step, plan, machine, { hostBytes: host, steps: 1, watch, prefetch, copiesLie: true });
  const { h2d, d2h } = plan.moved;
  const { down: activations, up: fetched } = activationTraffic(step);
  const room = slotsAt(trace, slots, extra);
  const leastWith = (more: number) => {
    const { chunks } = linearBound(highs, findGaps(trace, more === 0 ? room : room.map((here) => here + more)));
    return chunks * map.chunkBytes;
  };
  const updatesBelow = trace.moments.some(({ onHost = [] }) => onHost.length > 0);
  const besideSlots = beside.onDisk ? 0 : beside.slots;
  // What is in host memory may have a copy there as well.
  const ofBlocks = hostSlots < need.held ? blockBytes(need) : 0;
  const ofReaders = homes.onHost + homes.readers * homes.readerBytes;
  const fileBytes = Math.min(disk ?? 0, ofBlocks + homes.onDisk);
  return {
    tiers: {
      gpu: onGPU(fit, plan),
      host: {
        ...{ ...peaks.host.figures(map.chunkBytes), activations: ofReaders, other: besideSlots * map.chunkBytes },
        all: (hostSlots + besideSlots) * map.chunkBytes + ofReaders,
      },
      disk: { ...peaks.disk.figures(map.chunkBytes), activations: homes.onDisk, other: 0, all: fileBytes },
    },
    links: {
      gpu: {
        ...{ up: bytes.up, down: bytes.down, chunks: h2d + d2h, activations, fetched },
        ...{ recovery: bytes.down - d2h - activations, bound: leastWith(0) },
      },
      ...(fileBytes > 0 && {
        disk: {
          ...{ read: bytes.diskRead, written: bytes.diskWrite },
          ...(!updatesBelow && { bound: leastWith(hostSlots + staging.down + staging.up) }),
        },
      }),
    },
  };
}

/** The most chunks of each kind that are somewhere at once, told moment by moment. */
class Peaks {
  /** By the number of a kind. */
  readonly #most = new Uint32Array(DATA_KINDS.length);
  readonly #now = new Uint32Array(DATA_KINDS.length);

  /** One more of a kind, by its number. */
  add(kind: number): void {
    this.#now[kind] = at(this.#now, kind) + 1;
  }

  /** Of a moment. */
  end(): void {
    this.#now.forEach((count, kind) => {
      if (count > at(this.#most, kind)) this.#most[kind] = count;
    });
    this.#now.fill(0);
  }

  figures(chunkBytes: number): Pick<TierPlan, 'parameters' | 'gradients' | 'moments'> {
    const bytes = (kind: DataKind) => at(this.#most, DATA_KINDS.indexOf(kind)) * chunkBytes;
    return { parameters: bytes('parameters'), gradients: bytes('gradients'), moments: bytes('moments') };
  }
}
