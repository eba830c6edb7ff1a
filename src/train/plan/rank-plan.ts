// Plan of what each of several ranks holds, needs and exchanges, worked out as each of them will: the fit of every
// rank's own part of a step, with the chunks that rank 0 chooses. Pure; needs no GPU and no MPI.
//
// Invariant: bytes are those that the run counts; a budget that is called the smallest works on every rank.

import { isAllOnGPU, needBelow } from '../../engine/compile/candidate.ts';
import { fitMemory } from '../../engine/compile/fit.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { smallestBudget } from '../../engine/compile/least.ts';
import { type ActivationTraffic, activationTraffic, flopsOf } from '../../engine/compile/pass-figures.ts';
import { schedule } from '../../engine/compile/schedule.ts';
import { type AdapterLimits, DEFAULT_LIMITS, type Workload } from '../../engine/compile/workload.ts';
import {
  collectivesIn,
  type Exchanged,
  exchangedOverLink,
  exchangesIn,
  gridBound,
  type NetworkBytes,
  sentInStage,
} from '../../engine/ranks/collectives.ts';
import { exchangeMemory } from '../../engine/ranks/exchange-memory.ts';
import { type GridAxis, type GridPlaces, type GridShape, gridPlacesOf, rankAt } from '../../engine/ranks/grid.ts';
import { onlyOwnerOf, ownerOf, type ZeroStage } from '../../engine/ranks/sharding.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import type { ActivationDtype } from '../../graph/narrow-activations.ts';
import type { OptimizerDevice } from '../../graph/operators/optimizer.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { KINDS, type Kind } from '../../memory/layout/kinds.ts';
import { bytesBelow } from '../../memory/tiers/shares.ts';
import { type Model, optimizedOn } from '../../nn/model.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { traceGeneration } from '../inference/generation-workload.ts';
import { type StepPart, stepPart, writesText } from '../step/rank-part.ts';
import { type TrainingPasses, trainingWorkload } from '../step/training-workload.ts';

/** What would be trained, and by how many in what grid. */
export interface SharedStep extends GridShape {
  readonly batch: number;
  readonly context: number;
  /** Micro-batches of a step on each rank. */
  readonly accumulate: number;
  readonly activations: ActivationMode | 'auto';
  /** What they are kept as. @default 'f32' */
  readonly activationDtype?: ActivationDtype | undefined;
  /** Where AdamW runs. @default 'gpu' */
  readonly optimizerDevice?: OptimizerDevice | undefined;
  /** Whether sequences hold several records. @default false */
  readonly packed?: boolean | undefined;
  /** Whether text is written between steps. @default false */
  readonly generates?: boolean | undefined;
  readonly size: number;
  /** Whether those that share layers each have some of the rows between them. @default false */
  readonly sequenceParallel?: boolean | undefined;
  /** What copies of the model shard; one alone has nothing to shard. */
  readonly stage: ZeroStage;
}

/** What one rank of a plan holds, moves and computes. */
export interface RankPlan {
  readonly rank: number;
  /** Among the copies of the model, among those that share its layers, and among its stages. */
  readonly place: Readonly<Record<GridAxis, number>>;
  /** Bytes of chunks that have a value here between two steps, by kind. */
  readonly held: Readonly<Partial<Record<Kind, number>>>;
  /** Chunks of each kind of what trains whose owner it is. */
  readonly owned: number;
  /** Bytes of GPU memory: at its peak, of which activations and everything else that is no chunk, and with all that it holds. */
  readonly peak: number;
  readonly activations: number;
  readonly other: number;
  readonly whole: number;
  readonly smallest: number;
  readonly slots: number;
  readonly residents: number;
  /** Bytes that lie below the GPU at most. */
  readonly below: number;
  /** Bytes of host memory beside that, for what is exchanged, at most. */
  readonly exchangeMemory: number;
  /** Bytes of a step over the link between host and GPU: chunks, activations that are moved, and what is exchanged. */
  readonly link: {
    readonly h2d: number;
    readonly d2h: number;
    readonly activations: ActivationTraffic;
    readonly exchanged: { readonly down: number; readonly up: number };
  };
  readonly network: NetworkBytes;
  /** Its network bytes by axis of the grid and by what is exchanged. */
  readonly exchanges: readonly Exchanged[];
  readonly flops: number;
  readonly fit: Fit<TrainingPasses>;
}

export interface RanksPlan {
  readonly budget: number;
  /** Works on every rank. */
  readonly smallest: number;
  /** With it nothing moves below the GPU on any rank. */
  readonly comfortable: number;
  readonly chunkBytes: number;
  /** Of all ranks; of many, of each stage those that differ in how many chunks they own. */
  readonly ranks: readonly RankPlan[];
  /** Of all ranks together, in a step: as many are sent as got. */
  readonly exchangedBytes: number;
  /** See `gridBound`: for each rank, on average. */
  readonly bound: number;
}

/** More of them are alike but for the number of chunks that they own. */
const MOST_FITTED = 16;
/** Budgets that are tried for one that works on all: a larger one may make rank 0 choose other chunks. */
const MOST_BUDGETS = 8;
const OPTIONS = { recovery: 'checkpoint' } as const;

/** A stage, and in it one of the copies of the model: those that share its layers differ in nothing that a fit goes by. */
interface Fitted {
  readonly stage: number;
  readonly copy: number;
}

/** The rank that chooses the chunks of all. */
const FIRST: Fitted = { stage: 0, copy: 0 };

/** Each of several ranks' own part of a step, and its fits; what they have in common is worked out once. */
class RankFits {
  /** Places of the first of all ranks. */
  readonly first: GridPlaces;
  readonly zero: ZeroStage;
  /** All ranks, but for those that are alike: the first one first. */
  readonly fitted: readonly Fitted[];
  readonly #model: Model;
  readonly #step: SharedStep;
  readonly #limits: AdapterLimits;
  /** By stage. */
  readonly #parts = new Map<number, StepPart>();
  readonly #workloads = new Map<string, Workload<TrainingPasses>>();
  /** The first rank's, without a budget. */
  readonly #whole: Fit<TrainingPasses>;

  constructor(model: Model, step: SharedStep, limits: AdapterLimits) {
    const { size, tensor, pipeline, optimizerDevice = 'gpu' } = step;
    this.#model = optimizedOn(model, optimizerDevice);
    this.#step = step;
    this.#limits = limits;
    this.first = gridPlacesOf({ rank: 0, size }, { tensor, pipeline });
    this.zero = zeroIn(step, this.first);
    this.#whole = fitMemory(this.#workloadOf(FIRST), limits, undefined);
    this.fitted = Array.from({ length: this.first.pipeline.size }, (_, stage) =>
      fittedCopies(this.wholeOf({ stage, copy: 0 }).map, this.first.data.size).map((copy): Fitted => ({ stage, copy })),
    ).flat();
  }

  /** `tensor`: which of those that share its layers. */
  placesAt({ stage, copy }: Fitted, tensor = 0): GridPlaces {
    const rank = rankAt(this.first, { pipeline: stage, data: copy, tensor });
    return gridPlacesOf({ rank, size: this.#step.size }, this.#step);
  }

  /** Without a budget. */
  wholeOf(one: Fitted): Fit<TrainingPasses> {
    if (isFirst(one)) return this.#whole;
    return fitMemory(this.#workloadOf(one, this.#whole.map.chunkBytes), this.#limits, undefined);
  }

  /** Within a budget, in chunks that another rank has chosen. @default those that suit it */
  within(budget: number, one: Fitted = FIRST, chunkBytes?: number): Fit<TrainingPasses> {
    return fitMemory(this.#workloadOf(one, chunkBytes), this.#limits, budget, OPTIONS);
  }

  /** Bytes of the chunks that the first rank chooses within a budget. */
  chunksWithin(budget: number): number {
    return this.within(budget).map.chunkBytes;
  }

  /** The smallest budget of a rank. */
  leastOf(one: Fitted, chunkBytes?: number): number {
    return smallestBudget(this.#workloadOf(one, chunkBytes), this.#limits, OPTIONS);
  }

  /** The smallest budget of all ranks but the first, in chunks that it has chosen. */
  leastOfOthers(chunkBytes: number): number {
    return Math.max(...this.fitted.slice(1).map((one) => this.leastOf(one, chunkBytes)));
  }

  /** The smallest budget that works on all ranks. */
  smallest(): number {
    let smallest = this.leastOf(FIRST);
    for (let i = 0; i < MOST_BUDGETS; i++) {
      const more = this.leastOfOthers(this.chunksWithin(smallest));
      if (more <= smallest) break;
      smallest = more;
    }
    return smallest;
  }

  #partOf(stage: number): StepPart {
    const { batch, context, activationDtype, sequenceParallel, packed } = this.#step;
    const places = this.placesAt({ stage, copy: 0 });
    const ways = { activationDtype, sequenceParallel, packed };
    const found = this.#parts.get(stage) ?? stepPart(this.#model, batch, context, places, ways);
    this.#parts.set(stage, found);
    return found;
  }

  #workloadOf(one: Fitted, chunkBytes?: number): Workload<TrainingPasses> {
    const { context, accumulate, activations, generates = false } = this.#step;
    const { layers, part, programs } = this.#partOf(one.stage);
    const key = `${one.stage} ${one.copy} ${chunkBytes}`;
    const grid = this.placesAt(one);
    const sharding = { ...grid.data, stage: this.zero, chunkBytes };
    const writes = generates && writesText({ rank: rankAt(grid), sharding, grid });
    const generation = writes ? traceGeneration(layers, context, programs.stages) : undefined;
    const options = { activations, accumulateOrder: 'batch', sharding } as const;
    const workload = this.#workloads.get(key) ?? trainingWorkload(part, programs, accumulate, generation, options);
    this.#workloads.set(key, workload);
    return workload;
  }
}

/** Errors: HoldfastError for a budget that is too small for one of them, naming the smallest for all; for a grid that is none. */
export function planRanks(
  model: Model,
  step: SharedStep,
  budgetFor: BudgetFor,
  limits: AdapterLimits = DEFAULT_LIMITS,
): RanksPlan {
  const { size, accumulate } = step;
  const fits = new RankFits(model, step, limits);
  const { first, zero, fitted } = fits;
  const smallest = fits.smallest();
  const comfortable = Math.max(...fitted.map((one) => fits.wholeOf(one).peak));
  const budget = budgetFor({ smallest, comfortable });
  const isTooSmall = budget < smallest || fits.leastOfOthers(fits.chunksWithin(budget)) > budget;
  if (isTooSmall) {
    throw new HoldfastError(
      `--gpu-memory ${formatBytes(budget)} is too little for a rank of ${size}: ${smallest} bytes (${formatBytes(smallest)}) is the ` +
        'smallest budget that works on all of them; give that much, or use a smaller batch or context',
    );
  }
  const own = fits.within(budget);
  const { chunkBytes } = own.map;
  const smallestChunks = fits.chunksWithin(smallest);
  const isAll = size <= MOST_FITTED;
  const ranks = fitted.flatMap((one): RankPlan[] => {
    const fit = isFirst(one) ? own : fits.within(budget, one, chunkBytes);
    const needs = { smallest: fits.leastOf(one, smallestChunks), whole: fits.wholeOf(one).peak };
    const shown = Array.from({ length: isAll ? first.tensor.size : 1 }, (_, rank) => fits.placesAt(one, rank));
    return shown.map((places) => rankPlan(places, zero, fit, needs));
  });
  checkExchanges(ranks);
  // Collectives are the same on all ranks of a stage.
  const stages = ranks.filter(({ place }) => place.data === 0 && place.tensor === 0);
  const sums = stages.map(({ place: { pipeline }, fit: { map, passes } }) => {
    const { operations } = passes.step;
    const places = fits.placesAt({ stage: pipeline, copy: 0 });
    const sent = sentInStage(operations, places);
    return { sent, bound: gridBound(operations, map, places, zero, accumulate) };
  });
  return {
    ...{ budget, smallest, comfortable, chunkBytes, ranks: ranks.toSorted((a, b) => a.rank - b.rank) },
    exchangedBytes: sums.reduce((bytes, { sent }) => bytes + sent, 0),
    bound: sums.reduce((bytes, { bound }) => bytes + bound, 0) / stages.length,
  };
}

const isFirst = ({ stage, copy }: Fitted): boolean => stage === 0 && copy === 0;

/** One copy of the model has nothing to shard. */
const zeroIn = ({ stage }: SharedStep, { data }: GridPlaces): ZeroStage => (data.size > 1 ? stage : 0);

const total = (exchanges: readonly Exchanged[]): NetworkBytes => {
  const sum = (way: keyof NetworkBytes) => exchanges.reduce((bytes, each) => bytes + each[way], 0);
  return { sent: sum('sent'), received: sum('received') };
};

/** The budget to plan with, from those that are known. */
export type BudgetFor = (known: Pick<RanksPlan, 'smallest' | 'comfortable'>) => number;

/** All, or of many those around the ends of the lists of chunks. */
function fittedCopies(map: ChunkMap, size: number): number[] {
  if (size <= MOST_FITTED) return Array.from({ length: size }, (_, rank) => rank);
  const lastOwner = ownerOf(Math.max(0, map.trainable.chunks - 1), map, { size });
  return [...new Set([0, lastOwner, Math.min(lastOwner + 1, size - 1), size - 1])].sort((a, b) => a - b);
}

function rankPlan(
  places: GridPlaces,
  stage: ZeroStage,
  fit: Fit<TrainingPasses>,
  { smallest, whole }: Pick<RankPlan, 'smallest' | 'whole'>,
): RankPlan {
  const { map, passes, slots, residents, nonModel, peak } = fit;
  const { step } = passes;
  const sharding = { ...places.data, stage };
  const held: { [K in Kind]?: number } = {};
  for (const { kind, first, chunks } of map.lists) {
    if (KINDS[kind].between === 'FREE') continue;
    const own = Array.from({ length: chunks }, (_, i) => onlyOwnerOf(first + i, map, sharding) ?? sharding.rank);
    held[kind] = own.filter((owner) => owner === sharding.rank).length * map.chunkBytes;
  }
  const { h2d, d2h } = schedule(step.trace, slots, 'planned', step.extra).moved;
  const exchanges = exchangesIn(step.operations, map, places);
  const owned = Array.from({ length: map.trainable.chunks }, (_, i) => ownerOf(i, map, sharding));
  return {
    ...{ rank: rankAt(places), held, peak, whole, smallest, slots, residents, fit },
    place: { data: places.data.rank, tensor: places.tensor.rank, pipeline: places.pipeline.rank },
    owned: owned.filter((owner) => owner === sharding.rank).length,
    activations: nonModel.arenas,
    other: nonModel.persistent,
    below: isAllOnGPU(fit) ? 0 : bytesBelow(needBelow(fit)),
    exchangeMemory: exchangeMemory(Object.values(passes), places),
    link: { h2d, d2h, activations: activationTraffic(step), exchanged: exchangedOverLink(step.operations, places) },
    network: total(exchanges),
    exchanges,
    flops: flopsOf(step),
  };
}

/** Where parameters are gathered for use, what becomes of activations decides when: all copies of a stage must do the same. */
function checkExchanges(ranks: readonly RankPlan[]): void {
  const exchanged = ({ fit }: RankPlan) =>
    collectivesIn(fit.passes.step.operations)
      .map(({ label }) => label)
      .join('\n');
  for (const rank of ranks) {
    const first = ranks.find(({ place }) => place.pipeline === rank.place.pipeline);
    if (!first || exchanged(rank) === exchanged(first)) continue;
    throw new HoldfastError(
      `--activations auto: within this budget ranks ${first.rank} and ${rank.rank} would treat activations differently, and so gather ` +
        'parameters in another order; say what becomes of them (--activations keep or recompute)',
    );
  }
}
