// The training step. All of it is traced, placed, compiled and bound before step 1; a step then writes its
// data (tokens, learning rate, scale), submits one command buffer a micro-batch, and reads eight numbers back
// through a ring, without waiting for the GPU.

import type { Batch } from '../data/batches.ts';
import { type ChoiceRecord, KernelChoices } from '../engine/choices.ts';
import { Executable } from '../engine/executable.ts';
import { ModelData, type Values } from '../engine/model-data.ts';
import { Storage } from '../engine/storage.ts';
import type { Device } from '../gpu/device.ts';
import { ReadbackRing } from '../gpu/readback.ts';
import { makeTensor } from '../graph/graph.ts';
import { IGNORE_INDEX } from '../graph/operators/cross-entropy.ts';
import type { Tokens } from '../graph/operators/embedding.ts';
import type { StepScalars } from '../graph/operators/optimizer.ts';
import { tokenIndex } from '../kernels/embedding.ts';
import { HYPER, STATE } from '../kernels/step-control.ts';
import { BLOCK_ELEMENTS } from '../memory/chunks.ts';
import type { Model } from '../nn/model.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { collect, type TensorSource } from '../util/tensor-source.ts';
import { checkSchedule, learningRate, type Schedule } from './schedule.ts';
import { type StepPrograms, traceOptimizer, traceStep } from './step-programs.ts';

export interface AdamWOptions {
  beta1: number;
  beta2: number;
  epsilon: number;
  /** Of tensors with two dimensions; the others never decay. */
  weightDecay: number;
  /** Gradients are scaled down to this global norm; 0: never. */
  clip: number;
}

export const ADAMW_DEFAULTS: AdamWOptions = { beta1: 0.9, beta2: 0.95, epsilon: 1e-8, weightDecay: 0.1, clip: 1 };

export interface TrainerOptions {
  /** Sequences in a micro-batch. */
  batch: number;
  /** Tokens in a sequence. */
  seq: number;
  /** Micro-batches in a step. @default 1 */
  accumulate?: number;
  schedule: Schedule;
  /** @default ADAMW_DEFAULTS */
  optimizer?: Partial<AdamWOptions>;
  /**
   * Kernel choices to start from: a checkpoint's, or the cache's. What they lack is measured, and two measurements
   * may differ: runs that must repeat bit for bit pass the first one's `trainer.choices.record()` on.
   * @default none
   */
  choices?: ChoiceRecord;
}

export interface StepMetrics {
  /** From 0. */
  readonly step: number;
  /** Mean over the valid targets of the step, before its update. */
  readonly loss: number;
  readonly lr: number;
  /** Global L2 norm before clipping. */
  readonly gradNorm: number;
  /** Nothing was changed: the loss or the norm is not finite. */
  readonly skipped: boolean;
}

/** What the optimizer remembers besides the moments. */
export interface TrainerState {
  step: number;
  /** The step-control numbers, exactly. */
  control: number[];
}

/** Steps whose numbers may be under way at once. */
const READS_IN_FLIGHT = 4;

export class Trainer {
  readonly device: Device;
  readonly model: Model;
  readonly data: ModelData;
  readonly choices: KernelChoices;
  readonly options: Readonly<Required<Omit<TrainerOptions, 'optimizer' | 'choices'>> & { optimizer: AdamWOptions }>;
  readonly #storage: Storage;
  readonly #tokens: Tokens;
  readonly #scalars: StepScalars;
  readonly #programs: { first: Executable; next: Executable; optimizer: Executable; evaluate: Executable };
  readonly #ring: ReadbackRing;
  #step = 0;

  /** Makes everything that a step needs. Weights and moments are zero until set. */
  static async create(device: Device, model: Model, options: TrainerOptions): Promise<Trainer> {
    checkSchedule(options.schedule);
    const { context } = model.shape;
    if (options.seq > context) {
      throw new HoldfastError(`a sequence of ${options.seq} tokens is longer than the model's context of ${context}`);
    }
    const full = { accumulate: 1, ...options, optimizer: { ...ADAMW_DEFAULTS, ...options.optimizer } };
    const storage = new Storage(device);
    try {
      const data = new ModelData(device, storage, model.parameters, true);
      const traced = traceStep(model, full.batch, full.seq);
      data.assign(storage, 'parameter', traced.parameters.values());
      data.assign(storage, 'gradient', traced.gradients.values());
      for (const { tensor, values } of model.constants) storage.write(tensor, values);
      const maskBlocks = data.layout.chunkElements / BLOCK_ELEMENTS;
      const words = Math.max(1, Math.ceil((data.chunks.length * maskBlocks) / 32));
      const decayMask = makeTensor('decay mask', [words], 'persistent', 'u32');
      storage.write(decayMask, decayBits(model, data, words, maskBlocks));
      const update = traceOptimizer(data.chunks, traced.scalars, decayMask, maskBlocks);

      const choices = new KernelChoices(device, options.choices);
      const programs = [traced.first, traced.next, update, traced.evaluate];
      const [first, next, optimizer, evaluate] = (await Executable.compile(device, storage, choices, programs)) as [
        Executable,
        Executable,
        Executable,
        Executable,
      ];
      return new Trainer(device, model, data, choices, full, storage, traced, { first, next, optimizer, evaluate });
    } catch (error) {
      storage.destroy();
      throw error;
    }
  }

  private constructor(
    device: Device,
    model: Model,
    data: ModelData,
    choices: KernelChoices,
    options: Trainer['options'],
    storage: Storage,
    { tokens, scalars }: StepPrograms,
    programs: { first: Executable; next: Executable; optimizer: Executable; evaluate: Executable },
  ) {
    this.device = device;
    this.model = model;
    this.data = data;
    this.choices = choices;
    this.options = options;
    this.#storage = storage;
    this.#tokens = tokens;
    this.#scalars = scalars;
    this.#programs = programs;
    this.#ring = new ReadbackRing(device.allocator, 'step', STATE.size * 4, READS_IN_FLIGHT);
  }

  /** The next step's number: steps done so far, skipped ones included. */
  get step(): number {
    return this.#step;
  }

  /** Dispatches and command buffers of one step. */
  get cost(): { dispatches: number; submits: number } {
    const { accumulate } = this.options;
    const { first, next, optimizer } = this.#programs;
    const dispatches = first.steps.length + next.steps.length * (accumulate - 1) + optimizer.steps.length;
    return { dispatches, submits: accumulate };
  }

  /** The programs of a step, for benchmarks that time each dispatch. */
  get executables(): { first: Executable; next: Executable; optimizer: Executable; evaluate: Executable } {
    return this.#programs;
  }

  /** Sets every parameter. Errors: HoldfastError naming one that `source` lacks. */
  async setWeights(source: TensorSource): Promise<void> {
    const given = new Set(source.names);
    const missing = this.model.parameters.find(({ name }) => !given.has(name));
    if (missing) throw new HoldfastError(`the weights have no ${missing.name}; give every parameter of the model`);
    await this.data.write('parameter', source);
  }

  /**
   * Starts one step on `accumulate` micro-batches; the promise resolves when the GPU has done it. Up to
   * READS_IN_FLIGHT steps may be started before the first is awaited.
   */
  start(batches: readonly Batch[]): Promise<StepMetrics> {
    const { accumulate, schedule } = this.options;
    assert(batches.length === accumulate, `a step takes ${accumulate} micro-batches, got ${batches.length}`);
    this.device.check();
    const step = this.#step++;
    const lr = learningRate(schedule, step);
    const valid = batches.reduce((sum, { targets }) => sum + countValid(targets), 0);
    this.#writeScalars(lr, valid);

    let read: (() => Promise<ArrayBuffer>) | undefined;
    batches.forEach((batch, i) => {
      this.#writeTokens(batch);
      const encoder = this.device.gpu.createCommandEncoder();
      (i === 0 ? this.#programs.first : this.#programs.next).encode(encoder);
      if (i === accumulate - 1) {
        this.#programs.optimizer.encode(encoder);
        read = this.#ring.copy(encoder, this.#storage.range(this.#scalars.state).buffer);
      }
      this.device.submit(encoder);
    });
    return this.#metrics(step, lr, read as () => Promise<ArrayBuffer>);
  }

  async #metrics(step: number, lr: number, read: () => Promise<ArrayBuffer>): Promise<StepMetrics> {
    const state = new Float32Array(await read());
    this.device.check();
    return {
      step,
      lr,
      loss: state[STATE.loss] as number,
      gradNorm: state[STATE.gradNorm] as number,
      skipped: state[STATE.skip] !== 0,
    };
  }

  /**
   * Mean loss over the valid targets of any number of sequences (a multiple of `batch` is fastest; the rest
   * is padded with ignored targets). Changes nothing.
   */
  async evaluate(windows: Batch): Promise<number> {
    const { batch, seq } = this.options;
    assert(windows.seq === seq, `evaluation windows have ${windows.seq} tokens, the programs ${seq}`);
    this.#storage.write(this.#scalars.lossSum, new Float32Array(1));
    for (let row = 0; row < windows.batch; row += batch) {
      const ids = new Int32Array(batch * seq);
      const targets = new Int32Array(batch * seq).fill(IGNORE_INDEX);
      const end = Math.min(windows.batch, row + batch) * seq;
      ids.set(windows.ids.subarray(row * seq, end));
      targets.set(windows.targets.subarray(row * seq, end));
      this.#writeTokens({ ids, targets, batch, seq });
      const encoder = this.device.gpu.createCommandEncoder();
      this.#programs.evaluate.encode(encoder);
      this.device.submit(encoder);
    }
    const [sum] = await this.#storage.read(this.#scalars.lossSum);
    return (sum as number) / Math.max(1, countValid(windows.targets));
  }

  /** Gradients of the last step, before clipping. */
  gradients(): Promise<Values> {
    return collect(this.data.source('gradient'));
  }

  async state(): Promise<TrainerState> {
    return { step: this.#step, control: [...(await this.#storage.read(this.#scalars.state))] };
  }

  /** Steps skipped since the first, those before a resume included. */
  async skipped(): Promise<number> {
    return (await this.#storage.read(this.#scalars.state))[STATE.skipped] as number;
  }

  restore(state: TrainerState): void {
    this.#step = state.step;
    this.#storage.write(this.#scalars.state, new Float32Array(state.control));
  }

  /** Frees every buffer. The device stays open. */
  destroy(): void {
    this.#ring.destroy();
    this.#storage.destroy();
  }

  #writeScalars(lr: number, valid: number): void {
    const { beta1, beta2, epsilon, weightDecay, clip } = this.options.optimizer;
    const lossScale = 1 / Math.max(1, valid);
    const hyper = new Float32Array(HYPER.size);
    hyper[HYPER.learningRate] = lr;
    hyper[HYPER.oneMinusBeta1] = 1 - beta1;
    hyper[HYPER.oneMinusBeta2] = 1 - beta2;
    hyper[HYPER.epsilon] = epsilon;
    hyper[HYPER.weightDecay] = weightDecay;
    hyper[HYPER.maxNorm] = clip;
    hyper[HYPER.lossScale] = lossScale;
    this.#storage.write(this.#scalars.hyper, hyper);
    this.#storage.write(this.#scalars.lossScale, new Float32Array([lossScale]));
  }

  #writeTokens({ ids, targets, batch, seq }: Batch): void {
    const { options } = this;
    assert(
      batch === options.batch && seq === options.seq,
      `a batch of ${batch} x ${seq}, not ${options.batch} x ${options.seq}`,
    );
    const index = tokenIndex(ids);
    this.#storage.write(this.#tokens.ids, ids);
    this.#storage.write(this.#tokens.targets, targets);
    this.#storage.write(this.#tokens.index.tokens, index.tokens);
    this.#storage.write(this.#tokens.index.starts, index.starts);
    this.#storage.write(this.#tokens.index.order, index.order);
  }
}

function countValid(targets: Int32Array): number {
  return targets.reduce((sum, target) => sum + (target === IGNORE_INDEX ? 0 : 1), 0);
}

/** One bit a block: set where the block's tensor has two dimensions. */
function decayBits(model: Model, data: ModelData, words: number, maskBlocks: number): Uint32Array<ArrayBuffer> {
  const bits = new Uint32Array(words);
  for (const { name, shape } of model.parameters) {
    const place = data.layout.places.get(name);
    if (!place || shape.length !== 2) continue;
    const size = shape.reduce((a, b) => a * b, 1);
    const first = place.chunk * maskBlocks + place.offset / BLOCK_ELEMENTS;
    for (let block = first; block < first + Math.ceil(size / BLOCK_ELEMENTS); block++) {
      bits[block >> 5] = (bits[block >> 5] as number) | (1 << (block & 31));
    }
  }
  return bits;
}
