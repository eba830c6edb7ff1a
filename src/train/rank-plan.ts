// What each of several ranks would hold, need and exchange in a run of theirs, worked out as each of them will: the fit of
// every rank's own part of a step, with the chunks that rank 0 chooses. Pure; needs no GPU and no MPI.
//
// Invariant: bytes are those that the run counts; a budget that is called the smallest works on every rank.

import { type Fit, fitMemory, smallestBudget } from '../engine/compile/fit.ts';
import { flopsOf, offloadedBytes } from '../engine/compile/pass.ts';
import { schedule } from '../engine/compile/schedule.ts';
import { type AdapterLimits, DEFAULT_LIMITS, type Workload } from '../engine/compile/workload.ts';
import {
  collectivesIn,
  type Exchanged,
  exchangedOverLink,
  exchangesIn,
  type NetworkBytes,
  networkBound,
  networkBytes,
} from '../engine/ranks/collectives.ts';
import { onlyOwnerOf, ownerOf, type ZeroStage } from '../engine/ranks/sharding.ts';
import type { ActivationMode } from '../graph/activations.ts';
import type { ChunkMap } from '../memory/layout/chunk-map.ts';
import { KINDS, type Kind } from '../memory/layout/kinds.ts';
import type { Model } from '../nn/model.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';
import { traceStep } from './step-programs.ts';
import { type TrainingPasses, trainingWorkload } from './training-workload.ts';

/** What would be trained, and by how many. */
export interface SharedStep {
  readonly batch: number;
  readonly context: number;
  /** Micro-batches of a step on each rank. */
  readonly accumulate: number;
  readonly activations: ActivationMode | 'auto';
  readonly size: number;
  readonly stage: ZeroStage;
}

/** One of them. */
export interface RankPlan {
  readonly rank: number;
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
  /** Bytes of a step over the link between host and GPU: chunks, activations that are moved, and what is exchanged. */
  readonly link: {
    readonly h2d: number;
    readonly d2h: number;
    readonly activations: number;
    readonly exchanged: { readonly down: number; readonly up: number };
  };
  readonly network: NetworkBytes;
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
  /** Of all ranks; of many, of those that differ in how many chunks they own. */
  readonly ranks: readonly RankPlan[];
  /** Of rank 0, by what is exchanged. */
  readonly exchanges: readonly Exchanged[];
  /** Of all ranks together, in a step: as many are sent as got. */
  readonly exchangedBytes: number;
  /** See `networkBound`: for each rank. */
  readonly bound: number;
}

/** More of them are alike but for the number of chunks that they own. */
const MOST_FITTED = 16;
/** Budgets that are tried for one that works on all: a larger one may make rank 0 choose other chunks. */
const MOST_BUDGETS = 8;
const OPTIONS = { recovery: 'checkpoint' } as const;

/** Errors: HoldfastError for a budget that is too small for one of them, naming the smallest for all. */
export function planRanks(
  model: Model,
  step: SharedStep,
  budgetFor: BudgetFor,
  limits: AdapterLimits = DEFAULT_LIMITS,
): RanksPlan {
  const { size, stage, batch, context, accumulate, activations } = step;
  const programs = traceStep(model, batch, context);
  const known = new Map<string, Workload<TrainingPasses>>();
  /** Chunks are those that rank 0 chooses. */
  const workloadOf = (rank: number, chunkBytes?: number): Workload<TrainingPasses> => {
    const key = `${rank} ${chunkBytes}`;
    const sharding = { rank, size, stage, chunkBytes };
    const options = { activations, accumulateOrder: 'batch', sharding } as const;
    const workload = known.get(key) ?? trainingWorkload(model, programs, accumulate, undefined, options);
    known.set(key, workload);
    return workload;
  };
  const first = workloadOf(0);
  const whole = fitMemory(first, limits, undefined);
  const fitted = fittedRanks(whole.map, size);
  const chunksWithin = (budget: number) => fitMemory(first, limits, budget, OPTIONS).map.chunkBytes;
  const leastOf = (rank: number, chunkBytes: number) => smallestBudget(workloadOf(rank, chunkBytes), limits, OPTIONS);
  const needed = (chunkBytes: number) => Math.max(...fitted.slice(1).map((rank) => leastOf(rank, chunkBytes)));

  let smallest = smallestBudget(first, limits, OPTIONS);
  for (let i = 0; i < MOST_BUDGETS; i++) {
    const more = needed(chunksWithin(smallest));
    if (more <= smallest) break;
    smallest = more;
  }
  const wholeOf = (rank: number) =>
    rank === 0 ? whole : fitMemory(workloadOf(rank, whole.map.chunkBytes), limits, undefined);
  const comfortable = Math.max(...fitted.map((rank) => wholeOf(rank).peak));
  const budget = budgetFor({ smallest, comfortable });
  const isTooSmall = budget < smallest || needed(chunksWithin(budget)) > budget;
  if (isTooSmall) {
    throw new HoldfastError(
      `--gpu-memory ${formatBytes(budget)} is too little for a rank of ${size}: ${smallest} bytes (${formatBytes(smallest)}) is the ` +
        'smallest budget that works on all of them; give that much, or use a smaller batch or context',
    );
  }
  const zero = fitMemory(first, limits, budget, OPTIONS);
  const { chunkBytes } = zero.map;
  const smallestChunks = chunksWithin(smallest);
  const ranks = fitted.map((rank): RankPlan => {
    const fit = rank === 0 ? zero : fitMemory(workloadOf(rank, chunkBytes), limits, budget, OPTIONS);
    return rankPlan(rank, step, fit, { smallest: leastOf(rank, smallestChunks), whole: wholeOf(rank).peak });
  });
  checkExchanges(ranks);
  const { step: pass } = zero.passes;
  const all = Array.from({ length: size }, (_, rank) => networkBytes(pass.operations, { rank, size }).sent);
  return {
    ...{ budget, smallest, comfortable, chunkBytes, ranks },
    exchanges: exchangesIn(pass.operations, zero.map, { rank: 0, size }),
    exchangedBytes: all.reduce((a, b) => a + b, 0),
    bound: networkBound(zero.map, step, accumulate),
  };
}

/** The budget to plan with, from those that are known. */
export type BudgetFor = (known: Pick<RanksPlan, 'smallest' | 'comfortable'>) => number;

/** All, or of many those around the ends of the lists of chunks. */
function fittedRanks({ trainable: { chunks } }: ChunkMap, size: number): number[] {
  if (size <= MOST_FITTED) return Array.from({ length: size }, (_, rank) => rank);
  const lastOwner = ownerOf(Math.max(0, chunks - 1), { size });
  return [...new Set([0, lastOwner, Math.min(lastOwner + 1, size - 1), size - 1])].sort((a, b) => a - b);
}

function rankPlan(
  rank: number,
  { size, stage }: SharedStep,
  fit: Fit<TrainingPasses>,
  { smallest, whole }: Pick<RankPlan, 'smallest' | 'whole'>,
): RankPlan {
  const { map, passes, slots, residents, stashes, nonModel, peak } = fit;
  const stashed = stashes.reduce((sum, bytes) => sum + bytes, 0);
  const { step } = passes;
  const place = { rank, size, stage };
  const held: { [K in Kind]?: number } = {};
  for (const { kind, first, chunks } of map.lists) {
    if (KINDS[kind].between === 'FREE') continue;
    const own = Array.from({ length: chunks }, (_, i) => onlyOwnerOf(first + i, map, place) ?? rank);
    held[kind] = own.filter((owner) => owner === rank).length * map.chunkBytes;
  }
  const { h2d, d2h } = schedule(step.trace, slots, 'planned', step.extra).moved;
  const owned = Array.from({ length: map.trainable.chunks }, (_, i) => ownerOf(i, place));
  return {
    ...{ rank, held, peak, whole, smallest, slots, residents, fit },
    owned: owned.filter((owner) => owner === rank).length,
    activations: nonModel.arenas,
    other: nonModel.persistent,
    below: slots >= residents && stashed === 0 ? 0 : residents * map.chunkBytes + stashed,
    link: { h2d, d2h, activations: offloadedBytes(step), exchanged: exchangedOverLink(step.operations, rank) },
    network: networkBytes(step.operations, place),
    flops: flopsOf(step),
  };
}

/** Where parameters are gathered for use, what becomes of activations decides when: all must do the same. */
function checkExchanges(ranks: readonly RankPlan[]): void {
  const exchanged = ({ fit }: RankPlan) =>
    collectivesIn(fit.passes.step.operations)
      .map(({ label }) => label)
      .join('\n');
  const [first, ...others] = ranks;
  const other = others.find((each) => first && exchanged(each) !== exchanged(first));
  if (!other) return;
  throw new HoldfastError(
    `--activations auto: within this budget ranks 0 and ${other.rank} would treat activations differently, and so gather ` +
      'parameters in another order; say what becomes of them (--activations keep or recompute)',
  );
}
