// `Predictor`: the prediction of what a step of training takes on a machine, from its figures alone: the fit and the
// plan that a run would have, followed over a simulated clock (engine/simulate). Pure; needs no GPU, and no machine of
// the kind.
//
// Where it is worked out on fewer blocks (reduced-model.ts), how much longer than its arithmetic a step takes is that of the larger of
// the two models, at the same share of the way from the smallest budget to all, and with the same share of its data in host memory.

import { isAllOnGPU, needBelow } from '../../engine/compile/candidate.ts';
import { fitMemory } from '../../engine/compile/fit.ts';
import { type FitOptions, leastMemory } from '../../engine/compile/least.ts';
import { isOpen } from '../../engine/compile/recovery.ts';
import { schedule } from '../../engine/compile/schedule.ts';
import { EXCHANGE_AXES, type ExchangeAxis } from '../../engine/ranks/grid.ts';
import { computeSeconds, launchSecondsOf } from '../../engine/simulate/machine.ts';
import type { SimulatedPart } from '../../engine/simulate/simulation.ts';
import { simulateStages } from '../../engine/simulate/stages.ts';
import type { SimulatedStep } from '../../engine/simulate/step.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import { bytesBelow, leastHostBytes, type NeedBelow, type RoomBelow, roomOf } from '../../memory/tiers/shares.ts';
import { at } from '../../util/at.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { COMFORT, leastComfortable } from './comfortable.ts';
import { belowOf, type Changes, lessOwned, sentIn, stashedBytes } from './prediction-part.ts';
import { type FollowedPipeline, type FollowedStage, ReducedModel } from './reduced-model.ts';

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
  /** Whether a lost GPU goes back to the last checkpoint, where it is open if each step is kept (`--recovery auto`). */
  readonly losesSteps: boolean;
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
  readonly losesSteps: boolean;
}

export class Predictor extends ReducedModel {
  /**
   * A step within these budgets; without one for the GPU, with everything there. `changes` are tried out in place of what
   * the scenario says. Errors: HoldfastError for what is too small, naming what would do.
   */
  at(asked: number | undefined, hostBytes: number, changes: Partial<Changes> = {}): Prediction {
    const { batch, context, accumulate, recovery, activations } = this.scenario;
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
    const followed = new Map(this.runs.map((run) => [run, this.#followed(run, within)]));
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
      tokensPerSecond: (batch * context * accumulate * this.parts.copies) / seconds,
      efficiency: this.fastest / seconds,
      shareOfPeak: this.flops / seconds / this.machine.peakFlops,
      below: first.below,
      onDisk: Math.max(0, first.below - hostBytes),
      modes: first.modes,
      order: first.order,
      losesSteps: first.losesSteps,
    };
  }

  #followed({ stages }: FollowedPipeline, within: Within): Followed {
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
    const times = stages.map((stage) => this.grown(stage, ({ seconds }) => seconds) / stage.large.seconds);
    const most = (of: (step: SimulatedStep, i: number) => number) => Math.max(...steps.map(of));
    const longer = most(({ computeSeconds }, i) => computeSeconds * at(times, i)) / most((one) => one.computeSeconds);
    const [seconds, computed] = [step.seconds * longer, step.computeSeconds * at(times, 0)];
    const { operations } = fit.passes.step;
    const owned = this.parts.ranksOf(fit, large)?.owned;
    const launchShare = launchSecondsOf(machine, operations, owned) / computeSeconds(machine, operations, owned);
    // What a stage has less to do beside the others than in the blocks that are followed, it waits longer for them.
    const [idle, waited] = [seconds - computed, step.seconds - step.computeSeconds];
    const share = waited > 0 ? Math.min(longer, idle / waited) : 0;
    const waits = combined(step.waits, (cause) => step.waits[cause] * share);
    const bubble = stages.length > 1 ? waits.bubble + idle - waited * share : 0;
    const network = combined(sent, (axis) => {
      const followed = large.sent[axis];
      return followed === 0 ? 0 : (sent[axis] * this.grown(at(stages, 0), (part) => part.sent[axis])) / followed;
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
      losesSteps: !fit.durable && isOpen(fit.workload, within.changes.recovery),
    };
  }

  /**
   * A stage within a budget, as it is followed, and how much larger the real one is. `chunkBytes`: as another stage has chosen
   * them; with these it may need more.
   */
  #fitted(stage: FollowedStage, within: Within, chunkBytes?: number) {
    const { budget, isWhole, hostBytes, changes } = within;
    const { recovery, activations } = changes;
    const { large } = stage;
    const { rank, size } = large.stage;
    const memory = at(this.memory, rank === size - 1 ? this.memory.length - 1 : Math.min(rank, this.memory.length - 2));
    const share = Math.min(1, (budget - memory.smallest) / Math.max(1, memory.resident - memory.smallest));
    const isAll = stage.large === stage.small && size === this.parts.pipeline;
    const workload =
      activations === this.scenario.activations && chunkBytes === undefined
        ? large.workload
        : this.parts.workloadOf(large, activations, chunkBytes);
    const scale = this.grown(stage, ({ modelBytes }) => modelBytes) / large.modelBytes;
    const { disk } = this.machine;
    const room = roomOf({ host: hostBytes / scale, disk: (disk?.bytes ?? 0) / scale });
    const limits = this.parts.limitsOf(large);
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
    const has = large.ranks ? (first.held - lessOwned(first, this.parts.ranksOf(first, large))) / first.map.count : 1;
    const hasOf = (need: NeedBelow) => ({ ...need, held: Math.ceil(has * need.chunks) });
    const roomHere: RoomBelow = {
      holds: (need) => room.holds(hasOf(need)),
      holdsChunks: (need) => room.holdsChunks(hasOf(need)),
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
    const ranked = this.parts.ranksOf(fit, large);
    const ranks = ranked && { ...ranked, arithmetic: large.arithmetic };
    const below = belowOf(fit, scale, ranks);
    // Of ranks that stand for more, some values are less than a chunk.
    const here = fit.held * fit.map.chunkBytes + stashedBytes(fit);
    const hostShare = ranked && below > 0 ? here / below : 1 / scale;
    const leastHost = leastHostBytes(needBelow(fit), disk !== undefined) / hostShare;
    this.#checkBelow(below, hostBytes, { least: leastHost, put: fit.map.largestPut * fit.map.chunkBytes });
    const { policy = 'planned', prefetch } = this.scenario;
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

const combined = <K extends string>(values: Readonly<Record<K, number>>, of: (key: K) => number): Record<K, number> =>
  Object.fromEntries(Object.keys(values).map((key) => [key, of(key as K)])) as Record<K, number>;
