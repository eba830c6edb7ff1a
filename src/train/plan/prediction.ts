// `Predictor`: the prediction of what a step of training takes on a machine, from its figures alone: the fit and the
// plan that a run would have, followed over a simulated clock (engine/simulate). Pure; needs no GPU, and no machine of
// the kind.
//
// A deep model is worked out on fewer blocks, which are alike: what blocks add to memory and to arithmetic is the
// difference of two such models, exactly; how much longer than its arithmetic a step takes is that of the larger of
// them, at the same share of the way from the smallest budget to all, and with the same share of its data in host memory.
// A long pipeline is worked out on fewer stages: each more of them, and each more micro-batch, takes as long as the last one
// that is followed. Memory is that of the real stages.

import { isAllOnGPU, needBelow } from '../../engine/compile/candidate.ts';
import { fitMemory } from '../../engine/compile/fit.ts';
import { type FitOptions, leastMemory } from '../../engine/compile/least.ts';
import { schedule } from '../../engine/compile/schedule.ts';
import { EXCHANGE_AXES, type ExchangeAxis } from '../../engine/ranks/grid.ts';
import { computeSeconds, launchSecondsOf, type Machine, partOfMachine } from '../../engine/simulate/machine.ts';
import { neighboursOf } from '../../engine/simulate/network.ts';
import type { SimulatedPart } from '../../engine/simulate/simulation.ts';
import { simulateStages } from '../../engine/simulate/stages.ts';
import type { SimulatedStep } from '../../engine/simulate/step.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import { bytesBelow, leastHostBytes, type NeedBelow, type RoomBelow, roomOf } from '../../memory/tiers/shares.ts';
import { checkStages } from '../../nn/pipeline-parallel.ts';
import { at } from '../../util/at.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { COMFORT, leastComfortable } from './comfortable.ts';
import {
  belowOf,
  type Changes,
  lessOwned,
  Parts,
  type PredictedPart,
  type Scenario,
  sentIn,
  stashedBytes,
} from './prediction-part.ts';

/** A step within a budget, as rank 0 does it. */
export interface Prediction extends SimulatedStep {
  /** Bytes that rank 0 sends in a step, by axis of the grid. */
  readonly network: Readonly<Record<ExchangeAxis, number>>;
  readonly budget: number;
  /** Of `computeSeconds`: what dispatches take whatever they compute. */
  readonly launchSeconds: number;
  readonly tokensPerSecond: number;
  /** The fastest step's seconds in those of this one. */
  readonly efficiency: number;
  /** Of the machine's peak, counting what the resident step computes. */
  readonly shareOfPeak: number;
  /** Bytes that lie below the GPU at most, on the rank with most, and of these what host memory has no room for. */
  readonly below: number;
  readonly onDisk: number;
  readonly modes: readonly ActivationMode[];
  /** How its micro-batches go through the model. */
  readonly order: AccumulateOrder;
}

/** Models of no more blocks are worked out whole; deeper ones on so many, and half as many. */
const WHOLE = 12;
const PART = 8;
/** Of several ranks: on so many a stage, in chunks that are smaller in proportion, so that as many of them have room. */
const SHARED_PART = 4;
/** Stages that are followed, where more are reckoned; with two micro-batches more than there are, where more are: the one before the last is like no end of a step. */
const FOLLOWED = 3;

/** A stage of the blocks that are followed, and of half as many; one of them where all are. */
interface Stage {
  readonly large: PredictedPart;
  readonly small: PredictedPart;
}

/** A pipeline that is followed, and how often a step has what it does: figures are sums. */
interface Run {
  readonly times: number;
  readonly stages: readonly Stage[];
}

/** Figures of two parts have a difference of blocks alone where both are cut into chunks of one size. */
const like = ({ chunkBytes }: PredictedPart) => ({ chunkBytes });

/** Bytes of a real stage. */
interface StageMemory {
  readonly smallest: number;
  readonly resident: number;
}

/** Within which a step is followed. */
interface Within {
  readonly budget: number;
  readonly isWhole: boolean;
  readonly hostBytes: number;
  readonly changes: Changes;
}

/** The first stage of a run, in the figures of the whole model. */
interface Followed extends SimulatedStep {
  readonly network: Prediction['network'];
  readonly launchSeconds: number;
  readonly below: number;
  readonly modes: readonly ActivationMode[];
  readonly order: AccumulateOrder;
}

export class Predictor {
  readonly machine: Machine;
  /** Blocks that it is worked out on. */
  readonly blocks: number;
  readonly smallest: number;
  /** Everything at once: bytes, and seconds of a step in which nothing is waited for. Both of the rank with most. */
  readonly resident: { readonly bytes: number; readonly seconds: number };
  /** Seconds of a step with everything on the GPU and all activations kept: what each mode of them is held against. */
  readonly fastest: number;
  /** Of each stage, of many the first and the last: its smallest budget, and everything on the GPU. */
  readonly memory: readonly StageMemory[];
  /** Multiplications and additions of a resident step, of a rank on average. */
  readonly flops: number;
  readonly #scenario: Scenario;
  readonly #parts: Parts;
  /** Blocks of a real stage. */
  readonly #each: number;
  readonly #runs: readonly Run[];

  /** Errors: HoldfastError for a shape that makes no model, for ranks that are no such grid or that no network reaches. */
  constructor(scenario: Scenario, machine: Machine, mostBlocks = WHOLE) {
    const { layers, accumulate, reckonsMicroBatches, ranks } = scenario;
    if (ranks) neighboursOf(machine, ranks.size);
    this.machine = ranks ? partOfMachine(machine, ranks.size) : machine;
    this.#scenario = scenario;
    this.#parts = new Parts(scenario, this.machine);
    const { pipeline } = this.#parts;
    checkStages(layers, pipeline);
    this.#each = Math.ceil(layers / pipeline);
    const stages = Math.min(pipeline, FOLLOWED);
    const isWhole = layers <= mostBlocks && stages === pipeline;
    const each = Math.min(ranks ? SHARED_PART : PART, mostBlocks, this.#each);
    this.blocks = isWhole ? layers : each * stages;
    const microBatches = reckonsMicroBatches ? Math.min(accumulate, stages + 2) : accumulate;
    const [more, longer] = [accumulate - microBatches, pipeline - stages];
    const run = (times: number, stages: number, microBatches: number): Run[] => {
      const followed = Array.from({ length: times === 0 ? 0 : stages }, (_, rank): Stage => {
        const options = { stage: { rank, size: stages }, microBatches };
        const large = this.#parts.of({ ...options, blocks: isWhole ? layers : each * stages });
        const isAll = isWhole || each === this.#each;
        return {
          large,
          small: isAll
            ? large
            : this.#parts.of({ ...options, ...like(large), blocks: Math.max(1, each >> 1) * stages }),
        };
      });
      return times === 0 ? [] : [{ times, stages: followed }];
    };
    this.#runs = [
      ...run(1 + more + longer, stages, microBatches),
      ...run(-more, stages, microBatches - 1),
      ...run(-longer, stages - 1, microBatches),
    ];
    const { stages: first } = at(this.#runs, 0);
    const real = longer === 0 ? first : this.#ends(each);
    this.memory = real.map((stage) => this.#memoryOf(stage));
    const reckoned = first.map((_, i) => (of: (part: PredictedPart) => number) => {
      return this.#reckoned((one) => this.#grown(stageIn(one, i, i === first.length - 1), of));
    });
    const most = (of: (memory: StageMemory) => number) => Math.max(...this.memory.map(of));
    this.smallest = most(({ smallest }) => smallest);
    this.resident = {
      bytes: most(({ resident }) => resident),
      seconds: Math.max(...reckoned.map((sum) => sum(({ seconds }) => seconds))),
    };
    this.fastest = Math.max(...reckoned.map((sum) => sum(({ keptSeconds }) => keptSeconds)));
    // Stages that are not followed are like those between the ends.
    this.flops = reckoned.reduce((total, sum, i) => {
      const alike = i > 0 && i < stages - 1 ? (pipeline - 2) / (stages - 2) : 1;
      return total + (alike * sum(({ flops }) => flops)) / pipeline;
    }, 0);
  }

  /** Of a long pipeline: the stages with most micro-batches, and with the head. */
  #ends(each: number): Stage[] {
    const { pipeline } = this.#parts;
    const { accumulate } = this.#scenario;
    return [0, 1].map((rank) => {
      const inPipeline = { rank: rank * (pipeline - 1), size: pipeline };
      const options = { stage: { rank, size: 2 }, inPipeline, microBatches: Math.min(accumulate, pipeline) };
      const large = this.#parts.of({ ...options, blocks: 2 * each });
      const blocks = 2 * Math.max(1, each >> 1);
      return { large, small: each === this.#each ? large : this.#parts.of({ ...options, ...like(large), blocks }) };
    });
  }

  #memoryOf(stage: Stage): StageMemory {
    const { large, small } = stage;
    // Chunks are as large whatever the number of blocks, but for the packing.
    const chunkBytes = (part: PredictedPart) => part.need().smallest - part.need().arenas;
    const arenas = this.#grown(stage, (part) => part.need().arenas);
    const smallest = Math.ceil(arenas + Math.max(chunkBytes(large), chunkBytes(small)));
    const resident = Math.max(smallest, Math.ceil(this.#grown(stage, ({ wholeBytes }) => wholeBytes)));
    return { smallest, resident };
  }

  /** A figure of a stage with all of its blocks, from those of two parts of it. */
  #grown({ large, small }: Stage, of: (part: PredictedPart) => number): number {
    const [more, fewer] = [of(large), of(small)];
    if (large === small) return more;
    const [blocks, others] = [large.blocks / large.stage.size, small.blocks / small.stage.size];
    return more + ((this.#each - blocks) * (more - fewer)) / (blocks - others);
  }

  /** A figure of all micro-batches and stages, from those of the pipelines that are followed. */
  #reckoned(of: (run: Run) => number): number {
    return this.#runs.reduce((sum, run) => sum + run.times * of(run), 0);
  }

  /**
   * A step within these budgets; without one for the GPU, with everything there. `changes` are tried out in place of what
   * the scenario says. Errors: HoldfastError for what is too small, naming what would do.
   */
  at(asked: number | undefined, hostBytes: number, changes: Partial<Changes> = {}): Prediction {
    const { batch, context, accumulate, recovery, activations } = this.#scenario;
    const how = { recovery, activations, ...changes };
    const budget = asked ?? this.resident.bytes;
    if (budget < this.smallest) {
      const { gpuBytes } = this.machine;
      const first =
        this.smallest > gpuBytes ? `this machine has ${formatBytes(gpuBytes)}; take another, or` : 'give that much, or';
      throw new HoldfastError(
        `${formatBytes(budget)} of GPU memory are too little: ${formatBytes(this.smallest)} is the smallest budget that works; ` +
          `${first} use a smaller batch or context`,
      );
    }
    const isWhole = asked === undefined || (how.recovery === 'checkpoint' && budget >= this.resident.bytes);
    const within = { budget, isWhole, hostBytes, changes: how };
    const followed = new Map(this.#runs.map((run) => [run, this.#followed(run, within)]));
    const first = at([...followed.values()], 0);
    const sum = (of: (one: Followed) => number) =>
      [...followed].reduce((total, [{ times }, one]) => total + times * of(one), 0);
    const computed = sum((one) => one.computeSeconds);
    // A further micro-batch may shorten the wait for what is exchanged once a step, until there is none.
    const waits = combined(first.waits, (cause) =>
      Math.max(
        0,
        sum((one) => one.waits[cause]),
      ),
    );
    const seconds = computed + Object.values(waits).reduce((a, b) => a + b, 0);
    const network = { data: 0, tensor: 0, pipeline: 0, ends: 0 };
    for (const axis of EXCHANGE_AXES) network[axis] = sum((one) => one.network[axis]);
    return {
      ...{ budget, seconds, computeSeconds: computed, waits, network },
      launchSeconds: sum((one) => one.launchSeconds),
      bytes: combined(first.bytes, (of) => sum(({ bytes }) => bytes[of])),
      tokensPerSecond: (batch * context * accumulate * this.#parts.copies) / seconds,
      efficiency: this.fastest / seconds,
      shareOfPeak: this.flops / seconds / this.machine.peakFlops,
      below: first.below,
      onDisk: Math.max(0, first.below - hostBytes),
      modes: first.modes,
      order: first.order,
    };
  }

  #followed({ stages }: Run, within: Within): Followed {
    const { disk } = this.machine;
    const own = this.#fitted(at(stages, 0), within);
    // What stages exchange, they exchange in chunks of one size: that which the first has chosen.
    const { chunkBytes } = own.fit.map;
    const fitted = [own, ...stages.slice(1).map((stage) => this.#fitted(stage, within, chunkBytes))];
    const machine = { ...this.machine, ...(disk && { disk: { ...disk, bytes: Number.POSITIVE_INFINITY } }) };
    const steps = simulateStages(
      fitted.map(({ part }) => part),
      machine,
    );
    const [{ large }, { fit, scale, sent }, step] = [at(stages, 0), at(fitted, 0), at(steps, 0)];
    // The stage with most to do is what a step of many waits for.
    const times = stages.map((stage) => this.#grown(stage, ({ seconds }) => seconds) / stage.large.seconds);
    const most = (of: (step: SimulatedStep, i: number) => number) => Math.max(...steps.map(of));
    const longer = most(({ computeSeconds }, i) => computeSeconds * at(times, i)) / most((one) => one.computeSeconds);
    const [seconds, computed] = [step.seconds * longer, step.computeSeconds * at(times, 0)];
    const { operations } = fit.passes.step;
    const owned = this.#parts.ranksOf(fit, large)?.owned;
    const launchShare = launchSecondsOf(machine, operations, owned) / computeSeconds(machine, operations, owned);
    // What a stage has less to do beside the others than in the blocks that are followed, it waits longer for them.
    const [idle, waited] = [seconds - computed, step.seconds - step.computeSeconds];
    const share = waited > 0 ? Math.min(longer, idle / waited) : 0;
    const waits = combined(step.waits, (cause) => step.waits[cause] * share);
    const bubble = stages.length > 1 ? waits.bubble + idle - waited * share : 0;
    const network = combined(sent, (axis) => {
      const followed = large.sent[axis];
      return followed === 0 ? 0 : (sent[axis] * this.#grown(at(stages, 0), (part) => part.sent[axis])) / followed;
    });
    const bytes = combined(step.bytes, (of) => step.bytes[of] * scale);
    return {
      ...{ seconds, computeSeconds: computed, network },
      launchSeconds: computed * launchShare,
      waits: { ...waits, bubble },
      bytes: { ...bytes, network: Object.values(network).reduce((a, b) => a + b, 0) },
      below: Math.max(...fitted.map(({ below }) => below)),
      modes: fit.workload.activations?.modes ?? [],
      order: fit.workload.order?.order ?? 'batch',
    };
  }

  /**
   * A stage within a budget, as it is followed, and how much larger the real one is. `chunkBytes`: as another stage has chosen
   * them; with these it may need more.
   */
  #fitted(stage: Stage, within: Within, chunkBytes?: number) {
    const { budget, isWhole, hostBytes, changes } = within;
    const { recovery, activations } = changes;
    const { large } = stage;
    const { rank, size } = large.stage;
    const memory = at(this.memory, rank === size - 1 ? this.memory.length - 1 : Math.min(rank, this.memory.length - 2));
    const share = Math.min(1, (budget - memory.smallest) / Math.max(1, memory.resident - memory.smallest));
    const isAll = stage.large === stage.small && size === this.#parts.pipeline;
    const workload =
      activations === this.#scenario.activations && chunkBytes === undefined
        ? large.workload
        : this.#parts.workloadOf(large, activations, chunkBytes);
    const scale = this.#grown(stage, ({ modelBytes }) => modelBytes) / large.modelBytes;
    const { disk } = this.machine;
    const room = roomOf({ host: hostBytes / scale, disk: (disk?.bytes ?? 0) / scale });
    const limits = this.#parts.limitsOf(large);
    const leastHere = () => leastMemory(workload, limits, { recovery }).bytes;
    const least = isWhole ? 0 : chunkBytes === undefined ? large.need().least : leastHere();
    const bytes = Math.max(least, isAll ? budget : Math.floor(least + share * (large.whole.peak - least)));
    const whole = chunkBytes === undefined ? large.whole : fitMemory(workload, limits, undefined);
    const hasRoom = budget >= memory.resident;
    const fitted = (bytes: number, options: FitOptions = { recovery }) => {
      const found = isWhole ? whole : fitMemory(workload, limits, bytes, options);
      return hasRoom && !found.durable && isAllOnGPU(found) ? whole : found;
    };
    const first = fitted(bytes);
    // Of more ranks than are followed, each has less.
    const has = large.ranks ? (first.held - lessOwned(first, this.#parts.ranksOf(first, large))) / first.map.count : 1;
    const hasOf = (need: NeedBelow) => ({ ...need, held: Math.ceil(has * need.chunks) });
    const roomHere: RoomBelow = {
      holds: (need) => room.holds(hasOf(need)),
      all: room.all,
      key: `${room.key} ${has}`,
      described: room.described,
    };
    let fit = first;
    const need = needBelow(first);
    const isOnDisk = disk && !large.ranks && !isAllOnGPU(first) && bytesBelow(hasOf(need)) > room.all.host;
    if (isOnDisk || !roomHere.holds(need)) {
      // Activations may be made again where there is no room for them below, or none but on disk.
      const options = { recovery, below: roomHere };
      const { bytes: least } = leastMemory(workload, limits, options);
      fit = fitted(Math.max(bytes, Math.min(least, budget)), options);
    }
    const { step } = fit.passes;
    const ranked = this.#parts.ranksOf(fit, large);
    const ranks = ranked && { ...ranked, arithmetic: large.arithmetic };
    const below = belowOf(fit, scale, ranks);
    // Of ranks that stand for more, some values are less than a chunk.
    const here = fit.held * fit.map.chunkBytes + stashedBytes(fit);
    const hostShare = ranked && below > 0 ? here / below : 1 / scale;
    const leastHost = leastHostBytes(needBelow(fit), disk !== undefined) / hostShare;
    this.#checkBelow(below, hostBytes, { least: leastHost, put: fit.map.largestPut * fit.map.chunkBytes });
    const { policy = 'planned', prefetch } = this.#scenario;
    const planned = { schedule: schedule(step.trace, fit.slots, policy, step.extra), hostBytes: hostBytes * hostShare };
    const part: SimulatedPart = { fit, pass: step, ...planned, ranks, prefetch, beginsAhead: true };
    return { part, fit, scale, below, sent: sentIn(step.operations, ranks) };
  }

  /** Of the whole model: of a part, there would be room. Beside a disk host memory still has `least` bytes; `put`: of what is written at once. */
  #checkBelow(below: number, hostBytes: number, { least, put }: { least: number; put: number }): void {
    const { disk } = this.machine;
    if (below <= hostBytes) return;
    if (disk && below + put <= hostBytes + disk.bytes) {
      if (hostBytes >= least) return;
      throw new HoldfastError(
        `${formatBytes(below)} lie below the GPU, and what passes through host memory on its way to disk has no room in ` +
          `${formatBytes(hostBytes)} of it; --host-memory ${Math.ceil(least / 1e6)}MB would do`,
      );
    }
    throw new HoldfastError(
      `${formatBytes(below)} lie below the GPU, and there are ${formatBytes(hostBytes)} of host memory and ` +
        `${disk ? `${formatBytes(disk.bytes)} of` : 'no'} disk; use a smaller model, or a machine with more of either`,
    );
  }

  /**
   * The least budget within which a step takes hardly longer than the fastest one, about; undefined
   * where there is none.
   */
  comfortable(hostBytes: number): number | undefined {
    const isComfortable = (budget: number) => this.at(budget, hostBytes).efficiency * (1 + COMFORT) >= 1;
    return leastComfortable(this.smallest, this.resident.bytes, isComfortable);
  }
}

/** The stage of another pipeline that is followed that has as much to do: the last one has the head. */
const stageIn = ({ stages }: Run, i: number, isLast: boolean): Stage =>
  at(stages, isLast ? stages.length - 1 : Math.min(i, stages.length - 2));

const combined = <K extends string>(values: Readonly<Record<K, number>>, of: (key: K) => number): Record<K, number> =>
  Object.fromEntries(Object.keys(values).map((key) => [key, of(key as K)])) as Record<K, number>;
