// What a step of training would take on a machine, from its figures alone: the fit and the plan that a run would have,
// followed over a simulated clock (engine/simulate). Pure; needs no GPU, and no machine of the kind.
//
// A deep model is worked out on fewer blocks, which are alike: what blocks add to memory and to arithmetic is the
// difference of two such models, exactly; how much longer than its arithmetic a step takes is that of the larger of
// them, at the same share of the way from the smallest budget to all, and with the same share of its data in host memory.
// Many ranks are worked out as fewer, whose first owns so much less (engine/simulate/network.ts); micro-batches behind the
// second of a step take as long as it, where several ranks share them.

import { leastChunkOf } from '../engine/compile/chunk-sizes.ts';
import { type Fit, type FitOptions, fitMemory, leastMemory, needBelow, type Recovery } from '../engine/compile/fit.ts';
import { flopsOf } from '../engine/compile/pass.ts';
import { schedule } from '../engine/compile/schedule.ts';
import type { AdapterLimits, Workload } from '../engine/compile/workload.ts';
import {
  isOwned,
  mostChunkFor,
  onlyOwnerOf,
  ownerOf,
  type Sharding,
  type ZeroStage,
} from '../engine/ranks/sharding.ts';
import { computeSeconds, type Machine, machineLimits, partOfMachine } from '../engine/simulate/machine.ts';
import { neighboursOf, type SimulatedRanks } from '../engine/simulate/network.ts';
import { simulate } from '../engine/simulate/simulate.ts';
import type { SimulatedStep } from '../engine/simulate/step.ts';
import type { ActivationMode } from '../graph/activations.ts';
import type { AccumulateOrder } from '../graph/layer-major.ts';
import type { BackwardPasses } from '../graph/operators/optimizer.ts';
import { ELEMENT_BYTES, KINDS } from '../memory/layout/kinds.ts';
import { bytesBelow, type RoomBelow, roomOf } from '../memory/tiers/shares.ts';
import type { Model } from '../nn/model.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';
import { traceStep } from './step-programs.ts';
import { type TrainingPasses, trainingWorkload } from './training-workload.ts';

/** What of it may be changed without another model. */
export interface Changes {
  readonly activations: ActivationMode | 'auto';
  readonly recovery: Recovery;
}

/** What would be trained, and how. */
export interface Scenario extends Changes {
  readonly layers: number;
  /** Of all of its layers. */
  readonly parameters: number;
  /** The model with so many blocks: of a deep one, a part. */
  modelOf(layers: number): Model;
  readonly batch: number;
  readonly context: number;
  readonly accumulate: number;
  /** @default 'auto' */
  readonly accumulateOrder?: AccumulateOrder | 'auto' | undefined;
  /** That train it together, with so many micro-batches each. @default one, alone */
  readonly ranks?: { readonly size: number; readonly stage: ZeroStage } | undefined;
  /** Whether the micro-batches behind the second of a step are reckoned, not simulated. @default false */
  readonly reckonsMicroBatches?: boolean;
  /** Backward passes of a step that updates within one. @default it updates at its end */
  readonly passes?: BackwardPasses | undefined;
}

/** A step within a budget. */
export interface Prediction extends SimulatedStep {
  readonly budget: number;
  readonly tokensPerSecond: number;
  /** The resident step's seconds in those of this one. */
  readonly efficiency: number;
  /** Of the machine's peak, counting what the resident step computes. */
  readonly shareOfPeak: number;
  /** Bytes that lie below the GPU at most, and of these what host memory has no room for. */
  readonly below: number;
  readonly onDisk: number;
  readonly modes: readonly ActivationMode[];
  /** How its micro-batches go through the model. */
  readonly order: AccumulateOrder;
}

/** Models of no more blocks are worked out whole; deeper ones on so many, and half as many. */
const WHOLE = 12;
const PART = 8;
/** Of several ranks: on so many, in chunks that are smaller in proportion, so that as many of them have room. */
const SHARED_PART = 4;
/** As a fit has it, where the model is not so large that chunks must be larger. */
const LARGEST_CHUNK = 32 * 2 ** 20;
/** A comfortable budget costs no more than this, as a share of the resident step. */
const COMFORT = 0.05;
/** Halvings of the way from the smallest budget to all. */
const HALVINGS = 4;
/** More ranks are worked out as so many. */
const MOST_RANKS = 16;
/** Micro-batches that are simulated, where those behind them are reckoned. */
const SIMULATED = 2;

/** A model of some of the blocks. */
interface Part {
  readonly blocks: number;
  readonly workload: Workload<TrainingPasses>;
  readonly whole: Fit<TrainingPasses>;
  readonly smallest: number;
  /** The same with the chunks that this part has. */
  readonly least: number;
  /** Of the smallest budget: what is activations. */
  readonly arenas: number;
  readonly seconds: number;
  /** Its seconds in those of a step with the chunks that this part has. */
  readonly arithmetic: number;
  readonly flops: number;
  readonly modelBytes: number;
  /** Bytes with everything on the GPU, of as many ranks as there are. */
  readonly wholeBytes: number;
  readonly ranks: SimulatedRanks | undefined;
}

export class Predictor {
  readonly machine: Machine;
  /** Blocks that it is worked out on. */
  readonly blocks: number;
  readonly smallest: number;
  /** Everything at once: bytes, and seconds of a step in which nothing is waited for. */
  readonly resident: { readonly bytes: number; readonly seconds: number };
  /** Multiplications and additions of a resident step. */
  readonly flops: number;
  readonly #scenario: Scenario;
  /** Micro-batches of a step. */
  readonly #simulated: number;
  readonly #limits: AdapterLimits;
  readonly #part: Part;
  readonly #modelBytes: number;
  /** Of the resident step with the micro-batches that are simulated. */
  readonly #simulatedSeconds: number;
  /** With one micro-batch, where more of them are reckoned. */
  readonly #single: Predictor | undefined;

  /** Errors: HoldfastError for a shape that makes no model. */
  constructor(scenario: Scenario, machine: Machine, most = WHOLE) {
    const { layers, parameters, accumulate, reckonsMicroBatches, ranks } = scenario;
    const isReckoned = reckonsMicroBatches === true && accumulate > SIMULATED;
    if (ranks) neighboursOf(machine, ranks.size);
    this.machine = ranks ? partOfMachine(machine, ranks.size) : machine;
    this.#scenario = scenario;
    this.#simulated = isReckoned ? SIMULATED : accumulate;
    this.#single = isReckoned ? new Predictor({ ...scenario, accumulate: 1 }, machine, most) : undefined;
    this.#limits = { ...machineLimits(machine), leastChunk: leastChunkOf(parameters * ELEMENT_BYTES) };
    this.blocks = layers <= most ? layers : Math.min(ranks ? SHARED_PART : PART, most);
    this.#part = this.#partOf(this.blocks);
    const other = this.blocks < layers ? this.#partOf(Math.max(1, this.blocks >> 1)) : this.#part;
    const grown = (of: (part: Part) => number): number => {
      const [large, small] = [of(this.#part), of(other)];
      if (other === this.#part) return large;
      return large + ((layers - this.blocks) * (large - small)) / (this.blocks - other.blocks);
    };
    // Chunks are as large whatever the number of blocks, but for the packing.
    const chunkBytes = ({ smallest, arenas }: Part) => smallest - arenas;
    this.smallest = Math.ceil(grown(({ arenas }) => arenas) + Math.max(chunkBytes(this.#part), chunkBytes(other)));
    this.#simulatedSeconds = grown(({ seconds }) => seconds);
    const seconds = this.#reckoned(this.#simulatedSeconds, this.#single?.resident.seconds);
    this.resident = { bytes: Math.max(this.smallest, Math.ceil(grown(({ wholeBytes }) => wholeBytes))), seconds };
    this.flops = this.#reckoned(
      grown(({ flops }) => flops),
      this.#single?.flops,
    );
    this.#modelBytes = grown(({ modelBytes }) => modelBytes);
  }

  /** A figure of all micro-batches, from that of those that are simulated and that of one of them. */
  #reckoned(simulated: number, single: number | undefined): number {
    if (single === undefined) return simulated;
    const more = this.#scenario.accumulate - this.#simulated;
    return simulated + (more * (simulated - single)) / (this.#simulated - 1);
  }

  #workloadOf(blocks: number, activations: Changes['activations']): Workload<TrainingPasses> {
    const { modelOf, batch, context, accumulateOrder, passes } = this.#scenario;
    const model = modelOf(blocks);
    const options = { activations, accumulateOrder, sharding: this.#sharding };
    return trainingWorkload(model, traceStep(model, batch, context, { passes }), this.#simulated, undefined, options);
  }

  /** Of the first of the ranks that are simulated. */
  get #sharding(): Sharding | undefined {
    const { ranks } = this.#scenario;
    return ranks && { rank: 0, size: Math.min(ranks.size, MOST_RANKS), stage: ranks.stage };
  }

  /** How the ranks of a fit stand for all. */
  #ranksOf({ map }: Fit): SimulatedRanks | undefined {
    const { ranks, parameters } = this.#scenario;
    const sharding = this.#sharding;
    if (!ranks || !sharding) return undefined;
    const { size } = ranks;
    const { used } = map.trainable;
    const own = used.filter((_, index) => ownerOf(index, sharding) === sharding.rank).length;
    const owned = size === sharding.size || ranks.stage === 0 ? 1 : used.length / size / own;
    return { size, sharding, owned, splits: map.chunkBytes / this.#chunkBytesOf(parameters, size) };
  }

  /** Of chunks of the whole model on as many ranks, about. */
  #chunkBytesOf(parameters: number, size: number): number {
    const bytes = parameters * ELEMENT_BYTES;
    const least = leastChunkOf(bytes);
    const { binding } = this.#limits;
    return Math.min(binding, Math.max(LARGEST_CHUNK, least), Math.max(mostChunkFor(bytes, { size }), least));
  }

  /** What the fits of a part go by. */
  #limitsOf(blocks: number): AdapterLimits {
    const { ranks, layers, parameters } = this.#scenario;
    if (!ranks || blocks === layers) return this.#limits;
    const { leastChunk: _, ...limits } = this.#limits;
    return { ...limits, mostChunk: (this.#chunkBytesOf(parameters, ranks.size) * blocks) / layers };
  }

  #partOf(blocks: number): Part {
    const { activations, recovery } = this.#scenario;
    const workload = this.#workloadOf(blocks, activations);
    const limits = this.#limitsOf(blocks);
    const whole = fitMemory(workload, limits, undefined);
    const { step } = whole.passes;
    // As the chunks of the whole model have it; `least` as those of this part do.
    const { bytes: smallest, activations: arenas } = leastMemory(workload, this.#limits, { recovery });
    const { bytes: least } = leastMemory(workload, limits, { recovery });
    const ranks = this.#ranksOf(whole);
    const secondsOf = (fit: Fit<TrainingPasses>) =>
      computeSeconds(this.machine, fit.passes.step.operations, this.#ranksOf(fit)?.owned);
    // Smaller chunks are more tiles, each of which reads its activations again.
    const seconds = secondsOf(limits === this.#limits ? whole : fitMemory(workload, this.#limits, undefined));
    return {
      ...{ blocks, workload, whole, smallest, least, arenas, ranks, seconds },
      arithmetic: seconds / secondsOf(whole),
      flops: flopsOf(step),
      modelBytes: whole.map.count * whole.map.chunkBytes,
      wholeBytes: whole.peak - lessOwned(whole, ranks) * whole.map.chunkBytes,
    };
  }

  /**
   * A step within these budgets; without one for the GPU, with everything there. `changes` are tried out in place of what
   * the scenario says. Errors: HoldfastError for what is too small, naming what would do.
   */
  at(asked: number | undefined, hostBytes: number, changes: Partial<Changes> = {}): Prediction {
    const { layers, batch, context, accumulate, ranks, ...scenario } = this.#scenario;
    const { recovery, activations } = { ...scenario, ...changes };
    const budget = asked ?? this.resident.bytes;
    if (budget < this.smallest) {
      throw new HoldfastError(
        `${formatBytes(budget)} of GPU memory are too little: ${formatBytes(this.smallest)} is the smallest budget that works; ` +
          'give that much, or use a smaller batch or context',
      );
    }
    const part = this.#part;
    const share = (budget - this.smallest) / Math.max(1, this.resident.bytes - this.smallest);
    const within =
      this.blocks === layers
        ? budget
        : Math.max(part.least, Math.floor(part.least + share * (part.whole.peak - part.least)));
    const isWhole = asked === undefined || (recovery === 'checkpoint' && budget >= this.resident.bytes);
    const workload = activations === scenario.activations ? part.workload : this.#workloadOf(this.blocks, activations);
    const scale = this.#modelBytes / part.modelBytes;
    const { disk } = this.machine;
    const room = roomOf({ host: hostBytes / scale, disk: (disk?.bytes ?? 0) / scale });
    const fitted = (bytes: number, options: FitOptions = { recovery }) =>
      isWhole ? part.whole : fitMemory(workload, this.#limitsOf(this.blocks), bytes, options);
    const first = fitted(within);
    // Of more ranks than are followed, each has less.
    const has = ranks ? (first.residents - lessOwned(first, this.#ranksOf(first))) / first.map.count : 1;
    const roomHere: RoomBelow = {
      holds: (need) => room.holds({ ...need, held: Math.ceil(has * need.chunks) }),
      key: `${room.key} ${has}`,
      described: room.described,
    };
    let fit = first;
    if (!roomHere.holds(needBelow(first))) {
      // Activations may be made again where there is no room for them below.
      const options = { recovery, below: roomHere };
      const { bytes: least } = leastMemory(workload, this.#limitsOf(this.blocks), options);
      fit = fitted(Math.max(within, Math.min(least, budget)), options);
    }
    const { step } = fit.passes;
    const ranked = this.#ranksOf(fit);
    const simulatedRanks = ranked && { ...ranked, arithmetic: part.arithmetic };
    const below = belowOf(fit, scale, simulatedRanks);
    this.#checkBelow(below, hostBytes, fit.map.largestPut * fit.map.chunkBytes);
    const machine = { ...this.machine, ...(disk && { disk: { ...disk, bytes: Number.POSITIVE_INFINITY } }) };
    const schedules = schedule(step.trace, fit.slots, 'planned', step.extra);
    // Of ranks that stand for more, some values are less than a chunk.
    const here = fit.residents * fit.map.chunkBytes + stashedBytes(fit);
    const hostShare = ranked && below > 0 ? here / below : 1 / scale;
    const simulated = simulate(fit, step, schedules, machine, hostBytes * hostShare, simulatedRanks);
    const longer = (this.#single ? this.#simulatedSeconds : this.resident.seconds) / part.seconds;
    const single = this.#single?.at(asked && Math.max(asked, this.#single.smallest), hostBytes, changes);
    const waits = combined(scaled(simulated.waits, longer), single?.waits, (a, b) => this.#reckoned(a, b));
    const bytes = combined(scaled(simulated.bytes, scale), single?.bytes, (a, b) => this.#reckoned(a, b));
    const seconds = this.#reckoned(simulated.seconds * longer, single?.seconds);
    return {
      ...{ budget, seconds, waits, bytes },
      computeSeconds: this.#reckoned(simulated.computeSeconds * longer, single?.computeSeconds),
      tokensPerSecond: (batch * context * accumulate * (ranks?.size ?? 1)) / seconds,
      efficiency: this.resident.seconds / seconds,
      shareOfPeak: this.flops / seconds / this.machine.peakFlops,
      below,
      onDisk: Math.max(0, below - hostBytes),
      modes: fit.workload.activations?.modes ?? [],
      order: fit.workload.order?.order ?? 'batch',
    };
  }

  /** Of the whole model: of a part, there would be room. */
  #checkBelow(below: number, hostBytes: number, putBytes: number): void {
    const { disk } = this.machine;
    if (below <= hostBytes) return;
    if (disk && below + putBytes <= hostBytes + disk.bytes) return;
    throw new HoldfastError(
      `${formatBytes(below)} lie below the GPU, and there are ${formatBytes(hostBytes)} of host memory and ` +
        `${disk ? `${formatBytes(disk.bytes)} of` : 'no'} disk; use a smaller model, or a machine with more of either`,
    );
  }

  /**
   * The least budget within which a step takes hardly longer than one in which nothing is waited for, about; undefined
   * where there is none.
   */
  comfortable(hostBytes: number): number | undefined {
    const isComfortable = (budget: number) => this.at(budget, hostBytes).efficiency * (1 + COMFORT) >= 1;
    let [less, enough] = [this.smallest, Math.max(this.smallest, this.resident.bytes)];
    if (!isComfortable(enough)) return undefined;
    for (let i = 0; i < HALVINGS; i++) {
      const middle = Math.floor((less + enough) / 2);
      if (isComfortable(middle)) enough = middle;
      else less = middle;
    }
    return enough;
  }
}

/** Chunks' worth that a rank has less of than in the fit, where that stands for more ranks. */
function lessOwned({ map }: Fit, ranks: SimulatedRanks | undefined): number {
  if (!ranks) return 0;
  const chunks = Array.from({ length: map.count }, (_, chunk) => chunk);
  return (1 - ranks.owned) * chunks.filter((chunk) => isOwned(chunk, map, ranks.sharding)).length;
}

/** Chunks that have a value on a rank from step to step, and of gradients from their sum to their use. */
function lastingChunks({ map }: Fit, { sharding }: SimulatedRanks): number {
  const chunks = Array.from({ length: map.count }, (_, chunk) => chunk);
  return chunks.filter((chunk) => {
    const { kind } = map.holding(chunk);
    if (KINDS[kind].between === 'FREE') return sharding.stage < 2 || isOwned(chunk, map, sharding);
    return (onlyOwnerOf(chunk, map, sharding) ?? sharding.rank) === sharding.rank;
  }).length;
}

/**
 * Bytes that lie below the GPU at most, of a model that is so many times as large: on one of several ranks, of what it has at
 * once; what it has only while it is used does not grow.
 */
function belowOf(fit: Fit, scale: number, ranks: SimulatedRanks | undefined): number {
  const { map, slots, residents, stashes } = fit;
  if (slots >= residents && stashes.length === 0) return 0;
  if (!ranks) return scale * bytesBelow(needBelow(fit));
  const lasting = Math.min(residents, lastingChunks(fit, ranks));
  const grows = (lasting - lessOwned(fit, ranks)) * map.chunkBytes + stashedBytes(fit);
  return scale * grows + (residents - lasting) * map.chunkBytes;
}

const stashedBytes = ({ stashes }: Fit): number => stashes.reduce((sum, bytes) => sum + bytes, 0);

const scaled = <K extends string>(values: Readonly<Record<K, number>>, factor: number): Record<K, number> =>
  Object.fromEntries(Object.entries<number>(values).map(([key, value]) => [key, value * factor])) as Record<K, number>;

const combined = <K extends string>(
  values: Readonly<Record<K, number>>,
  others: Readonly<Record<K, number>> | undefined,
  combine: (value: number, other: number | undefined) => number,
): Record<K, number> =>
  Object.fromEntries(
    Object.entries<number>(values).map(([key, value]) => [key, combine(value, others?.[key as K])]),
  ) as Record<K, number>;
