// What a step of training would take on a machine, from its figures alone: the fit and the plan that a run would have,
// followed over a simulated clock (engine/simulate). Pure; needs no GPU, and no machine of the kind.
//
// A deep model is worked out on fewer blocks, which are alike: what blocks add to memory and to arithmetic is the
// difference of two such models, exactly; how much longer than its arithmetic a step takes is that of the larger of
// them, at the same share of the way from the smallest budget to all, and with the same share of its data in host memory.

import {
  type Fit,
  type FitOptions,
  fitMemory,
  leastChunkOf,
  needBelow,
  type Recovery,
  smallestBudget,
} from '../engine/compile/fit.ts';
import { flopsOf } from '../engine/compile/pass.ts';
import { schedule } from '../engine/compile/schedule.ts';
import type { AdapterLimits, Workload } from '../engine/compile/workload.ts';
import { computeSeconds, type Machine, machineLimits } from '../engine/simulate/machine.ts';
import { type SimulatedStep, simulate } from '../engine/simulate/simulate.ts';
import type { ActivationMode } from '../graph/activations.ts';
import type { AccumulateOrder } from '../graph/layer-major.ts';
import { ELEMENT_BYTES } from '../memory/layout/kinds.ts';
import { bytesBelow, roomOf } from '../memory/tiers/shares.ts';
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
/** A comfortable budget costs no more than this, as a share of the resident step. */
const COMFORT = 0.05;
/** Halvings of the way from the smallest budget to all. */
const HALVINGS = 4;

/** A model of some of the blocks. */
interface Part {
  readonly blocks: number;
  readonly workload: Workload<TrainingPasses>;
  readonly whole: Fit<TrainingPasses>;
  readonly smallest: number;
  readonly seconds: number;
  readonly flops: number;
  readonly modelBytes: number;
}

export class Predictor {
  readonly machine: Machine;
  /** Blocks that it is worked out on. */
  readonly blocks: number;
  readonly smallest: number;
  /** Everything at once: bytes, and seconds of a step in which nothing is waited for. */
  readonly resident: { readonly bytes: number; readonly seconds: number };
  readonly #scenario: Scenario;
  readonly #limits: AdapterLimits;
  readonly #part: Part;
  readonly #flops: number;
  readonly #modelBytes: number;

  /** Errors: HoldfastError for a shape that makes no model. */
  constructor(scenario: Scenario, machine: Machine, most = WHOLE) {
    const { layers, parameters } = scenario;
    this.machine = machine;
    this.#scenario = scenario;
    this.#limits = { ...machineLimits(machine), leastChunk: leastChunkOf(parameters * ELEMENT_BYTES) };
    this.blocks = layers <= most ? layers : Math.min(PART, most);
    this.#part = this.#partOf(this.blocks);
    const other = this.blocks < layers ? this.#partOf(Math.max(1, this.blocks >> 1)) : this.#part;
    const grown = (of: (part: Part) => number): number => {
      const [large, small] = [of(this.#part), of(other)];
      if (other === this.#part) return large;
      return large + ((layers - this.blocks) * (large - small)) / (this.blocks - other.blocks);
    };
    this.smallest = Math.ceil(grown(({ smallest }) => smallest));
    this.resident = { bytes: Math.ceil(grown(({ whole }) => whole.peak)), seconds: grown(({ seconds }) => seconds) };
    this.#flops = grown(({ flops }) => flops);
    this.#modelBytes = grown(({ modelBytes }) => modelBytes);
  }

  #workloadOf(blocks: number, activations: Changes['activations']): Workload<TrainingPasses> {
    const { modelOf, batch, context, accumulate, accumulateOrder } = this.#scenario;
    const model = modelOf(blocks);
    const options = { activations, accumulateOrder };
    return trainingWorkload(model, traceStep(model, batch, context), accumulate, undefined, options);
  }

  #partOf(blocks: number): Part {
    const { activations, recovery } = this.#scenario;
    const workload = this.#workloadOf(blocks, activations);
    const whole = fitMemory(workload, this.#limits, undefined);
    const { step } = whole.passes;
    return {
      blocks,
      workload,
      whole,
      smallest: smallestBudget(workload, this.#limits, { recovery }),
      seconds: computeSeconds(this.machine, step.operations),
      flops: flopsOf(step),
      modelBytes: whole.map.count * whole.map.chunkBytes,
    };
  }

  /**
   * A step within these budgets; without one for the GPU, with everything there. `changes` are tried out in place of what
   * the scenario says. Errors: HoldfastError for what is too small, naming what would do.
   */
  at(asked: number | undefined, hostBytes: number, changes: Partial<Changes> = {}): Prediction {
    const { layers, batch, context, accumulate, ...scenario } = this.#scenario;
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
        : Math.max(part.smallest, Math.floor(part.smallest + share * (part.whole.peak - part.smallest)));
    const isWhole = asked === undefined || (recovery === 'checkpoint' && budget >= this.resident.bytes);
    const workload = activations === scenario.activations ? part.workload : this.#workloadOf(this.blocks, activations);
    const scale = this.#modelBytes / part.modelBytes;
    const { disk } = this.machine;
    const below = roomOf({ host: hostBytes / scale, disk: (disk?.bytes ?? 0) / scale });
    const fitted = (options: FitOptions) =>
      isWhole ? part.whole : fitMemory(workload, this.#limits, within, { recovery, ...options });
    const first = fitted({});
    // Activations may be made again where there is no room for them below.
    const fit = below.holds(needBelow(first)) ? first : fitted({ below });
    const { step } = fit.passes;
    const bytes = belowOf(fit) * scale;
    this.#checkBelow(bytes, hostBytes, fit.map.largestPut * fit.map.chunkBytes);
    const machine = { ...this.machine, ...(disk && { disk: { ...disk, bytes: Number.POSITIVE_INFINITY } }) };
    const simulated = simulate(fit, step, schedule(step.trace, fit.slots, 'planned'), machine, hostBytes / scale);
    const longer = this.resident.seconds / part.seconds;
    const seconds = simulated.seconds * longer;
    return {
      budget,
      seconds,
      computeSeconds: simulated.computeSeconds * longer,
      waits: scaled(simulated.waits, longer),
      bytes: scaled(simulated.bytes, scale),
      tokensPerSecond: (batch * context * accumulate) / seconds,
      efficiency: this.resident.seconds / seconds,
      shareOfPeak: this.#flops / seconds / this.machine.peakFlops,
      below: bytes,
      onDisk: Math.max(0, bytes - hostBytes),
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

/** Bytes that lie below the GPU at most. */
const belowOf = (fit: Fit): number =>
  fit.slots >= fit.residents && fit.stashes.length === 0 ? 0 : bytesBelow(needBelow(fit));

const scaled = <K extends string>(values: Readonly<Record<K, number>>, factor: number): Record<K, number> =>
  Object.fromEntries(Object.entries<number>(values).map(([key, value]) => [key, value * factor])) as Record<K, number>;
