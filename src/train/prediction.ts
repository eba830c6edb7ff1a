// What a step of training would take on a machine, from its figures alone: the fit and the plan that a run would have,
// followed over a simulated clock (engine/simulate). Pure; needs no GPU, and no machine of the kind.
//
// A deep model is worked out on fewer blocks, which are alike: what blocks add to memory and to arithmetic is the
// difference of two such models, exactly; how much longer than its arithmetic a step takes is that of the larger of
// them, at the same share of the way from the smallest budget to all, and with the same share of its data in host memory.

import { type Fit, fitMemory, leastChunkOf, type Recovery, smallestBudget } from '../engine/compile/fit.ts';
import { flopsOf } from '../engine/compile/pass.ts';
import { schedule } from '../engine/compile/schedule.ts';
import type { AdapterLimits, Workload } from '../engine/compile/workload.ts';
import { computeSeconds, type Machine, machineLimits } from '../engine/simulate/machine.ts';
import { type SimulatedStep, simulate } from '../engine/simulate/simulate.ts';
import type { ActivationMode } from '../graph/activations.ts';
import type { Model } from '../nn/model.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';
import { traceStep } from './step-programs.ts';
import { type TrainingPasses, trainingWorkload } from './trainer.ts';

/** What would be trained, and how. */
export interface Scenario {
  readonly layers: number;
  /** Of all of its layers. */
  readonly parameters: number;
  /** The model with so many blocks: of a deep one, a part. */
  modelOf(layers: number): Model;
  readonly batch: number;
  readonly context: number;
  readonly accumulate: number;
  readonly activations: ActivationMode | 'auto';
  readonly recovery: Recovery;
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
}

/** Models of no more blocks are worked out whole; deeper ones on so many, and half as many. */
const WHOLE = 12;
const PART = 8;
/** A comfortable budget costs no more than this, as a share of the resident step. */
const COMFORT = 0.05;
/** Halvings of the way from the smallest budget to all. */
const HALVINGS = 5;

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
    this.#limits = { ...machineLimits(machine), leastChunk: leastChunkOf(parameters) };
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

  #partOf(blocks: number): Part {
    const { modelOf, batch, context, accumulate, activations, recovery } = this.#scenario;
    const model = modelOf(blocks);
    const workload = trainingWorkload(model, traceStep(model, batch, context), accumulate, undefined, activations);
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
   * A step within these budgets; without one for the GPU, with everything there. Errors: HoldfastError for one that is too
   * small, naming what would do.
   */
  at(asked: number | undefined, hostBytes: number, recovery = this.#scenario.recovery): Prediction {
    const budget = asked ?? this.resident.bytes;
    if (budget < this.smallest) {
      throw new HoldfastError(
        `${formatBytes(budget)} of GPU memory are too little: ${formatBytes(this.smallest)} is the smallest budget that works; ` +
          'give that much, or use a smaller batch or context',
      );
    }
    const { workload, whole, smallest, modelBytes, seconds } = this.#part;
    const span = Math.max(1, this.resident.bytes - this.smallest);
    const share = (budget - this.smallest) / span;
    const within =
      this.blocks === this.#scenario.layers
        ? budget
        : Math.max(smallest, Math.floor(smallest + share * (whole.peak - smallest)));
    const scale = this.#modelBytes / modelBytes;
    const isWhole = asked === undefined || (recovery === 'checkpoint' && budget >= this.resident.bytes);
    const fit = isWhole ? whole : fitMemory(workload, this.#limits, within, { recovery });
    const { step } = fit.passes;
    const { disk } = this.machine;
    const machine = { ...this.machine, ...(disk && { disk: { ...disk, bytes: disk.bytes / scale } }) };
    const simulated = simulate(fit, step, schedule(step.trace, fit.slots, 'planned'), machine, hostBytes / scale);
    const longer = this.resident.seconds / seconds;
    const took = simulated.seconds * longer;
    const { batch, context, accumulate } = this.#scenario;
    const below =
      fit.slots >= fit.map.count && fit.stashed === 0 ? 0 : (fit.map.count + fit.stashed) * fit.map.chunkBytes;
    return {
      budget,
      seconds: took,
      computeSeconds: simulated.computeSeconds * longer,
      waits: scaled(simulated.waits, longer),
      bytes: scaled(simulated.bytes, scale),
      tokensPerSecond: (batch * context * accumulate) / took,
      efficiency: this.resident.seconds / took,
      shareOfPeak: this.#flops / took / this.machine.peakFlops,
      below: below * scale,
      onDisk: Math.max(0, below * scale - hostBytes),
      modes: fit.workload.activations?.modes ?? [],
    };
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

const scaled = <K extends string>(values: Readonly<Record<K, number>>, factor: number): Record<K, number> =>
  Object.fromEntries(Object.entries<number>(values).map(([key, value]) => [key, value * factor])) as Record<K, number>;
