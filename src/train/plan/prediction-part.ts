// The part of a model that a prediction follows: one stage's share of some of the blocks on one rank, with what a fit of it needs
// and takes. How parts stand for the whole model is prediction.ts's affair. Pure.
//
// Many copies of a model are worked out as fewer, whose first owns so much less (engine/simulate/network.ts).

import { isAllOnGPU, needBelow } from '../../engine/compile/candidate.ts';
import { leastChunkOf } from '../../engine/compile/chunk-sizes.ts';
import { fitMemory } from '../../engine/compile/fit.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { leastMemory } from '../../engine/compile/least.ts';
import type { Operation } from '../../engine/compile/operations.ts';
import { flopsOf } from '../../engine/compile/pass-figures.ts';
import type { Recovery } from '../../engine/compile/recovery.ts';
import type { PolicyName } from '../../engine/compile/schedule.ts';
import type { AdapterLimits, Workload } from '../../engine/compile/workload.ts';
import { collectivesIn } from '../../engine/ranks/collectives.ts';
import { EXCHANGE_AXES, type ExchangeAxis } from '../../engine/ranks/grid.ts';
import {
  isOwned,
  mostChunkFor,
  onlyOwnerOf,
  ownerOf,
  type Sharding,
  type ZeroStage,
} from '../../engine/ranks/sharding.ts';
import { computeSeconds, type Machine, machineLimits } from '../../engine/simulate/machine.ts';
import { type SimulatedRanks, sentBytes } from '../../engine/simulate/network.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import type { GridPlace } from '../../graph/grid-place.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { ActivationDtype } from '../../graph/narrow-activations.ts';
import type { BackwardPasses, OptimizerDevice } from '../../graph/operators/optimizer.ts';
import { trainedKindsOf } from '../../memory/layout/chunk-map.ts';
import { ELEMENT_BYTES, gradientKind, indicesTogether, KINDS } from '../../memory/layout/kinds.ts';
import { bytesBelow } from '../../memory/tiers/shares.ts';
import { type Model, optimizedOn } from '../../nn/model.ts';
import { stepPart } from '../step/rank-part.ts';
import { type TrainingPasses, trainingWorkload } from '../step/training-workload.ts';

/** What of it may be changed without another model. */
export interface Changes {
  readonly activations: ActivationMode | 'auto';
  readonly recovery: Recovery;
}

/** What would be trained, and how. */
export interface Scenario extends Changes {
  readonly layers: number;
  /** Parameters of all of its layers. */
  readonly parameters: number;
  /** The model with so many blocks: of a deep one, a part. */
  modelOf(layers: number): Model;
  readonly batch: number;
  readonly context: number;
  readonly accumulate: number;
  /** @default 'auto' */
  readonly accumulateOrder?: AccumulateOrder | 'auto' | undefined;
  /** Ranks that train it together, with so many micro-batches each. @default one, alone */
  readonly ranks?: ScenarioRanks | undefined;
  /** Whether the micro-batches behind the first few of a step are reckoned, not simulated. @default false */
  readonly reckonsMicroBatches?: boolean;
  /** Where AdamW runs. @default 'gpu' */
  readonly optimizerDevice?: OptimizerDevice | undefined;
  /** Which chunk leaves the GPU. @default 'planned' */
  readonly policy?: PolicyName | undefined;
  /** Whether the disk is read ahead of what is needed. @default true */
  readonly prefetch?: boolean | undefined;
  /** Whether sequences hold several records. @default false */
  readonly packed?: boolean | undefined;
  /** What activations are kept as for the backward pass. @default 'f32' */
  readonly activationDtype?: ActivationDtype | undefined;
  /** Backward passes of a step that updates within one. @default it updates at its end */
  readonly passes?: BackwardPasses | undefined;
}

export interface ScenarioRanks {
  readonly size: number;
  /** What copies of the model shard. */
  readonly stage: ZeroStage;
  /** Ranks that share each layer. @default 1 */
  readonly tensor?: number | undefined;
  /** Whether these each have some of the rows between them. @default false */
  readonly sequenceParallel?: boolean | undefined;
  /** Stages. @default 1 */
  readonly pipeline?: number | undefined;
}

/** As a fit has it, where the model is not so large that chunks must be larger. */
const LARGEST_CHUNK = 32 * 2 ** 20;
/** More copies of the model are worked out as so many. */
const MOST_COPIES = 16;

const ALONE: GridPlace = { rank: 0, size: 1 };

/** A stage of some of the blocks. */
export interface PredictedPartOptions {
  /** Blocks of all of its stages together. */
  readonly blocks: number;
  readonly stage: GridPlace;
  /** The stage of a longer pipeline that it stands for: with as many micro-batches at once. @default itself */
  readonly inPipeline?: GridPlace;
  readonly microBatches: number;
  /** Bytes of the chunks whose arithmetic is told. @default as a part of a model that is so large is cut */
  readonly chunkBytes?: number;
}

export interface PredictedPart extends PredictedPartOptions {
  readonly workload: Workload<TrainingPasses>;
  readonly whole: Fit<TrainingPasses>;
  /** Of a step in which nothing is waited for, in chunks of `chunkBytes`; and that in those of a step with the chunks that this part has. */
  readonly seconds: number;
  readonly chunkBytes: number;
  readonly arithmetic: number;
  /** Of a step in which nothing is waited for and all activations are kept, whatever becomes of them here. */
  readonly keptSeconds: number;
  readonly flops: number;
  readonly modelBytes: number;
  /** Bytes with everything on the GPU, of as many ranks as there are. */
  readonly wholeBytes: number;
  /** Bytes that it sends in a step. */
  readonly sent: Readonly<Record<ExchangeAxis, number>>;
  readonly ranks: SimulatedRanks | undefined;
  /** The smallest budget, what of it is activations, and the smallest with the chunks that this part has. */
  need(): { readonly smallest: number; readonly arenas: number; readonly least: number };
}

export class Parts {
  /** Copies of the model, ranks that share each layer, and stages. */
  readonly copies: number;
  readonly tensor: number;
  readonly pipeline: number;
  readonly #scenario: Scenario;
  readonly #machine: Machine;
  readonly #limits: AdapterLimits;
  /** Parameters that one rank has. */
  readonly #parameters: number;
  /** Chunks of the widest kind that have one owner. */
  readonly #together: number;

  /** `machine`: as one of the ranks has it. */
  constructor(scenario: Scenario, machine: Machine) {
    const { ranks } = scenario;
    this.tensor = ranks?.tensor ?? 1;
    this.pipeline = ranks?.pipeline ?? 1;
    this.copies = (ranks?.size ?? 1) / (this.tensor * this.pipeline);
    this.#scenario = scenario;
    this.#machine = machine;
    this.#parameters = scenario.parameters / (this.tensor * this.pipeline);
    this.#together = indicesTogether(trainedKindsOf(scenario.modelOf(1).parameters));
    this.#limits = { ...machineLimits(machine), leastChunk: leastChunkOf(this.#parameters * ELEMENT_BYTES) };
  }

  of(options: PredictedPartOptions): PredictedPart {
    const { activations, recovery } = this.#scenario;
    const workload = this.workloadOf(options, activations);
    const limits = this.limitsOf(options);
    const whole = fitMemory(workload, limits, undefined);
    const { step } = whole.passes;
    const ranks = this.ranksOf(whole, options);
    const secondsOf = (fit: Fit<TrainingPasses>) =>
      computeSeconds(this.#machine, fit.passes.step.operations, this.ranksOf(fit, options)?.owned);
    // Smaller chunks are more tiles, each of which reads its activations again.
    const asWhole = limits === this.#limits ? workload : this.#inChunksOfAll(workload);
    const told = this.#cutAlike(asWhole, options.chunkBytes);
    const toldWhole = told === workload ? whole : fitMemory(told, this.#limits, undefined);
    const seconds = secondsOf(toldWhole);
    const keptSeconds = activations === 'auto' ? seconds : secondsOf(this.#keptWhole(options));
    let need: ReturnType<PredictedPart['need']> | undefined;
    return {
      ...{ ...options, workload, whole, ranks, seconds, chunkBytes: toldWhole.map.chunkBytes },
      keptSeconds,
      arithmetic: seconds / secondsOf(whole),
      flops: flopsOf(step),
      modelBytes: whole.map.count * whole.map.chunkBytes,
      wholeBytes: whole.peak - lessOwned(whole, ranks) * whole.map.chunkBytes,
      sent: sentIn(step.operations, ranks),
      need: () => {
        if (need) return need;
        // As the chunks of the whole model have it; `least` as those of this part do.
        const { bytes: smallest, activations: arenas } = leastMemory(asWhole, this.#limits, { recovery });
        need = { smallest, arenas, least: leastMemory(workload, limits, { recovery }).bytes };
        return need;
      },
    };
  }

  /** All activations kept, in chunks of the size that arithmetic is told in. */
  #keptWhole(options: PredictedPartOptions): Fit<TrainingPasses> {
    const workload = this.workloadOf(options, 'auto');
    const asWhole = this.limitsOf(options) === this.#limits ? workload : this.#inChunksOfAll(workload);
    return fitMemory(this.#cutAlike(asWhole, options.chunkBytes), this.#limits, undefined);
  }

  /** `chunkBytes`: as another stage has chosen them. @default those that suit it */
  workloadOf(
    { blocks, stage, inPipeline, microBatches }: PredictedPartOptions,
    activations: Changes['activations'],
    chunkBytes?: number,
  ) {
    const { modelOf, batch, context, accumulateOrder, optimizerDevice = 'gpu', ranks } = this.#scenario;
    const { passes, packed, activationDtype } = this.#scenario;
    const places = { tensor: { rank: 0, size: this.tensor }, pipeline: stage };
    const model = optimizedOn(modelOf(blocks), optimizerDevice);
    const { part, programs } = stepPart(model, batch, context, places, {
      ...{ passes, packed, activationDtype, sequenceParallel: ranks?.sequenceParallel },
    });
    const sharding = this.#sharding && { ...this.#sharding, chunkBytes };
    const options = { activations, accumulateOrder, sharding, inPipeline };
    return trainingWorkload(part, programs, microBatches, undefined, options);
  }

  /** What the fits of a part go by. */
  limitsOf({ blocks, stage }: PredictedPartOptions): AdapterLimits {
    const { ranks, layers } = this.#scenario;
    if (!ranks || (blocks === layers && stage.size === this.pipeline)) return this.#limits;
    const { leastChunk: _, ...limits } = this.#limits;
    const share = blocks / stage.size / (layers / this.pipeline);
    return { ...limits, mostChunk: this.#chunkBytes * share };
  }

  /** Of a part: several ranks' chunks are as small as their share of the parameters, which is to be that of all of them. */
  #inChunksOfAll(workload: Workload<TrainingPasses>): Workload<TrainingPasses> {
    const { chunkLimits } = workload;
    return chunkLimits ? { ...workload, chunkLimits: { ...chunkLimits, mostChunk: this.#chunkBytes } } : workload;
  }

  #cutAlike(workload: Workload<TrainingPasses>, bytes: number | undefined): Workload<TrainingPasses> {
    if (bytes === undefined) return workload;
    return { ...workload, chunkLimits: { isFixed: true, leastChunk: bytes, mostChunk: bytes } };
  }

  /** How the ranks of a fit stand for all. */
  ranksOf({ map }: Fit, { stage }: Pick<PredictedPartOptions, 'stage'>): SimulatedRanks | undefined {
    const { ranks } = this.#scenario;
    const sharding = this.#sharding;
    if (!ranks || !sharding) return undefined;
    const { used } = map.trainable;
    const own = used.filter((_, index) => ownerOf(index, map, sharding) === sharding.rank).length;
    const owned = this.copies === sharding.size || sharding.stage === 0 ? 1 : used.length / this.copies / own;
    return {
      ...{ size: this.copies, sharding, owned, splits: map.chunkBytes / this.#chunkBytes },
      ...{ tensor: { ...ALONE, size: this.tensor }, stage, stages: this.pipeline },
    };
  }

  /** Of the first of the copies that are simulated. One has nothing to shard. */
  get #sharding(): Sharding | undefined {
    const { ranks } = this.#scenario;
    const stage = this.copies > 1 ? (ranks?.stage ?? 0) : 0;
    return ranks && { rank: 0, size: Math.min(this.copies, MOST_COPIES), stage };
  }

  /** Of chunks of the whole model on as many ranks, about. */
  get #chunkBytes(): number {
    const bytes = this.#parameters * ELEMENT_BYTES;
    const least = leastChunkOf(bytes);
    const most = Math.max(mostChunkFor(bytes, { size: this.copies }, this.#together), least);
    return Math.min(this.#limits.binding, Math.max(LARGEST_CHUNK, least), most);
  }
}

export const sentIn = (operations: readonly Operation[], ranks: SimulatedRanks | undefined): PredictedPart['sent'] => {
  const along = (axis: ExchangeAxis) =>
    ranks ? collectivesIn(operations, axis).reduce((sum, each) => sum + sentBytes(ranks, each), 0) : 0;
  const sent = { data: 0, tensor: 0, pipeline: 0, ends: 0 };
  for (const axis of EXCHANGE_AXES) sent[axis] = along(axis);
  return sent;
};

/** Chunks' worth that a rank has less of than in the fit, where that stands for more ranks. */
export function lessOwned({ map }: Fit, ranks: SimulatedRanks | undefined): number {
  if (!ranks) return 0;
  const chunks = Array.from({ length: map.count }, (_, chunk) => chunk);
  return (1 - ranks.owned) * chunks.filter((chunk) => isOwned(chunk, map, ranks.sharding)).length;
}

/** Chunks that have a value on a rank from step to step, and of gradients from their sum to their use. */
function lastingChunks({ map }: Fit, { sharding }: SimulatedRanks): number {
  const chunks = Array.from({ length: map.count }, (_, chunk) => chunk);
  return chunks.filter((chunk) => {
    const { kind } = map.holding(chunk);
    const { stage } = sharding;
    if (KINDS[kind].between === 'FREE') {
      // With ZeRO 1 they are added up at the end.
      const all = stage === 0 ? gradientKind(map.dtype) : stage === 1 && 'gradient';
      return kind === all || (kind === gradientKind(map.dtype) && isOwned(chunk, map, sharding));
    }
    return (onlyOwnerOf(chunk, map, sharding) ?? sharding.rank) === sharding.rank;
  }).length;
}

/**
 * Bytes that lie below the GPU at most, of a model that is so many times as large: on one of several ranks, of what it has at
 * once; what it has only while it is used does not grow.
 */
export function belowOf(fit: Fit, scale: number, ranks: SimulatedRanks | undefined): number {
  const { map, held } = fit;
  if (isAllOnGPU(fit)) return 0;
  if (!ranks) return scale * bytesBelow(needBelow(fit));
  const lasting = Math.min(held, lastingChunks(fit, ranks));
  const grows = (lasting - lessOwned(fit, ranks)) * map.chunkBytes + stashedBytes(fit);
  return scale * grows + (held - lasting) * map.chunkBytes;
}

export const stashedBytes = ({ stashes }: Fit): number => stashes.reduce((sum, bytes) => sum + bytes, 0);
