// Training: a model, its state in memory tiers, and steps. All of it is traced, placed, compiled and planned before
// step 1; a step then writes its data (tokens, learning rate, scale), follows its schedule, and reads eight numbers
// back without waiting for the GPU.

import type { Batch } from '../../data/batches.ts';
import { KernelChoices } from '../../engine/compile/choices.ts';
import type { Ranks } from '../../engine/ranks/ranks.ts';
import { checkKind, type OtherPart } from '../../engine/run/model-values.ts';
import { type Inputs, Session } from '../../engine/run/session.ts';
import { checkDevice, type Device } from '../../gpu/device.ts';
import type { GridPlace } from '../../graph/grid-place.ts';
import { decayWords } from '../../graph/operators/optimizer.ts';
import { STATE } from '../../kernels/step-control.ts';
import type { Kind } from '../../memory/layout/kinds.ts';
import { checkComplete, checkModel, type Model, optimizedOn } from '../../nn/model.ts';
import { stageMap, stageOf } from '../../nn/pipeline-parallel.ts';
import { partsOf, wholeOf } from '../../nn/tensor-parallel.ts';
import { callable } from '../../util/arguments.ts';
import { at } from '../../util/at.ts';
import { ASYNC_DISPOSE } from '../../util/dispose.ts';
import { finishing, HoldfastError } from '../../util/errors.ts';
import { check, list, object } from '../../util/json.ts';
import { checkSource, joined, noTensor, type TensorSource } from '../../values/tensor-source.ts';
import { type Generation, traceGeneration } from '../inference/generation-workload.ts';
import { Generator } from '../inference/generator.ts';
import { stepPartOn } from './rank-part.ts';
import { learningRate } from './schedule.ts';
import { shardWriters } from './shard-writers.ts';
import { splitOn } from './split-on.ts';
import { type StepHooks, stepHooks } from './step-hooks.ts';
import { passesIn, type StepPrograms } from './step-programs.ts';
import { dropoutValues, hyperValues } from './step-values.ts';
import { Stepper } from './stepper.ts';
import { checkOptions, type FullOptions, filledIn, memoryOf, type TrainerOptions } from './trainer-options.ts';
import { checkState, type TrainerState } from './trainer-state.ts';
import { type TrainingPasses, trainingWorkload } from './training-workload.ts';

/** What came of a training step. */
export interface StepMetrics {
  /** From 0. */
  readonly step: number;
  /** Mean over the valid targets of the step, before its update. */
  readonly loss: number;
  /** The learning rate of the step. */
  readonly lr: number;
  /** Global L2 norm before clipping. */
  readonly gradNorm: number;
  /** Nothing was changed: the loss or the norm is not finite. */
  readonly skipped: boolean;
}

const ALONE: GridPlace = { rank: 0, size: 1 };

/** What a trainer is made of. */
interface TrainerParts extends Pick<Trainer, 'model' | 'session' | 'choices' | 'options' | 'ranks'> {
  /** What of each layer is here. */
  readonly layers: Model;
  readonly programs: StepPrograms;
  readonly generation: Generation | undefined;
}

/** A model in training on a device: weights, gradients and moments in their tiers, and steps. */
export class Trainer {
  /** What is trained. */
  readonly model: Model;
  /** What shares the device's memory; `session.report()` tells of it. */
  readonly session: Session<TrainingPasses>;
  /** The kernel choices; `choices.record()` is what another trainer takes to compute the same bits. */
  readonly choices: KernelChoices;
  /** What it was made with, defaults filled in. */
  readonly options: FullOptions;
  /** Writes text with the weights as they are; there when the trainer was made with `generates`. */
  readonly generator: Generator | undefined;
  /** The processes that train together. */
  readonly ranks: Ranks | undefined;
  /** What of its layers is here: all of each, where ranks do not share them. */
  readonly #layers: Model;
  readonly #programs: StepPrograms;
  readonly #stepper: Stepper;
  #step = 0;

  /** Makes everything that a step needs. Weights must be set; moments are zero. */
  static async create(device: Device, model: Model, options: TrainerOptions): Promise<Trainer> {
    checkDevice(device);
    checkModel(model);
    checkOptions(model, options);
    const { choices, generates = false, threads, ranks, signal, optimizerSplit, activationCoins, ...rest } = options;
    const memory = memoryOf(options);
    const given = filledIn(rest);
    const passes = passesIn(model, given.update, given.optimizer);
    const { batch, seq, packed, optimizerDevice, activationDtype } = given;
    const { sequenceParallel, grid: places } = ranks ?? {};
    const how = { batch, seq, places, packed, activationDtype, activationCoins, passes, sequenceParallel };
    const sharding = ranks && { ...ranks.sharding, chunkBytes: ranks.chunkBytes };
    const partOf = await stepPartOn(device, model, how, signal);
    const madeOf = (model: Model) => {
      const { layers, part, programs } = partOf(model);
      const generation = generates ? traceGeneration(layers, seq, programs.stages) : undefined;
      const workload = trainingWorkload(part, programs, given.accumulate, generation, { ...memory, sharding });
      return { layers, programs, generation, workload };
    };
    const search = { model, memory, workloadOf: (model: Model) => madeOf(model).workload };
    const split = optimizerDevice === 'auto' ? (optimizerSplit ?? (await splitOn(device, search, threads))) : undefined;
    const full = { ...given, optimizerSplit: split };
    const { layers, programs, generation, workload } = madeOf(optimizedOn(model, optimizerDevice, split));
    const kernelChoices = new KernelChoices(device, choices);
    kernelChoices.signal = signal;
    const session = await Session.open(device, workload, kernelChoices, memory, threads, ranks);
    kernelChoices.signal = undefined;
    try {
      return new Trainer({
        model,
        layers,
        session,
        choices: kernelChoices,
        options: full,
        programs,
        generation,
        ranks,
      });
    } catch (error) {
      return finishing(
        () => Promise.reject(error),
        () => session.close(),
      );
    }
  }

  private constructor({ model, layers, session, choices, options, programs, generation, ranks }: TrainerParts) {
    this.ranks = ranks;
    this.model = model;
    this.#layers = layers;
    this.session = session;
    this.choices = choices;
    this.options = options;
    this.#programs = programs;
    this.#stepper = new Stepper(session, programs.scalars.state);
    const decay = decayWords([...programs.gradients.values()], programs.numbers);
    session.hold(programs.decayMask, () => decay);
    this.generator = generation && new Generator(session, model, generation);
  }

  /** The device in use: another one after the first was lost. */
  get device(): Device {
    return this.session.device;
  }

  /** The next step's number: steps done so far, skipped ones included. */
  get step(): number {
    return this.#step;
  }

  /** Devices that were lost on the way. */
  get recoveries(): number {
    return this.#stepper.recoveries;
  }

  /** Dispatches of one step. */
  get dispatches(): number {
    return this.session.fit.passes.step.operations.length;
  }

  /** Sets every parameter. Errors: HoldfastError naming those that `source` lacks, or one that it has in another length. */
  async setWeights(source: TensorSource): Promise<void> {
    checkComplete(this.model, source);
    await this.#set('parameter', source);
  }

  /**
   * Sets tensors of a kind, by the names of their parameters. Ranks are all given whole ones. Errors: HoldfastError naming one
   * of another length, or of no parameter.
   */
  async setValues(kind: Kind, source: TensorSource): Promise<void> {
    checkSource(source);
    const known = new Set(this.model.parameters.map(({ name }) => name));
    const other = source.names.find((name) => !known.has(name));
    if (other !== undefined) throw noTensor('the model', other, known);
    await this.#set(kind, source);
  }

  async #set(kind: Kind, source: TensorSource): Promise<void> {
    const { size } = this.ranks?.grid.tensor ?? ALONE;
    return this.session.values.set(kind, size > 1 ? partsOf(this.#layers, source) : source);
  }

  /** The tensors of a kind, as they are when they are read. What only other ranks have is read in `collect`. */
  values(kind: Kind): TensorSource {
    checkKind(kind);
    const { stages } = this.#programs;
    if (!stages) return this.#valuesOf(kind, this.#layers);
    const sources = Array.from({ length: stages.size }, (_, stage) => {
      const layers = stageOf(this.#layers, stages, stage);
      if (stage === stages.place.rank) return this.#valuesOf(kind, layers);
      const map = stageMap(layers, stages, this.session.map.chunkBytes);
      return this.#valuesOf(kind, layers, { stage, map });
    });
    return joined(...sources);
  }

  #valuesOf(kind: Kind, layers: Model, part: OtherPart = {}): TensorSource {
    const { size } = this.ranks?.grid.tensor ?? ALONE;
    const { values } = this.session;
    if (size === 1) return values.of(kind, part);
    return wholeOf(
      layers,
      Array.from({ length: size }, (_, tensor) => values.of(kind, { ...part, tensor })),
    );
  }

  /**
   * Starts one step on `accumulate` micro-batches (of several ranks, on so many for each: all of them are given to all
   * ranks, in one order); the promise resolves when the GPU has done it. Up to
   * STEP_READS steps may be started before the first is awaited.
   */
  async start(batches: readonly Batch[], hooks: StepHooks = {}): Promise<StepMetrics> {
    const { accumulate, schedule, batch } = this.options;
    const { rank, size } = this.ranks?.grid.data ?? ALONE;
    check(list(object({})), batches, 'the batches of a step');
    check(stepHooks, hooks, 'the hooks of a step');
    if (batches.length !== accumulate * size) {
      throw new HoldfastError(
        `a step of this trainer takes ${accumulate * size} micro-batches (accumulate${size > 1 ? ' x ranks' : ''}), not ${batches.length}`,
      );
    }
    for (const given of batches) this.#programs.inputs.check(given, batch);
    this.session.values.check();
    const step = this.#step++;
    const lr = learningRate(schedule, step);
    const valid = batches.reduce((sum, given) => sum + this.model.objective.count(given), 0);
    const lossScale = 1 / Math.max(1, valid);
    const { scalars, inputs, dropoutKey } = this.#programs;
    const { seed } = this.options;
    const valuesOf = (given: Batch, i: number): Inputs => [
      ...inputs.values(given),
      ...(dropoutKey ? [[dropoutKey, dropoutValues(seed, step, i)] as const] : []),
    ];
    const state = await this.#stepper.start({
      step,
      scalars: [
        [scalars.hyper, hyperValues(this.options, { step, lr, lossScale }, scalars.hyper.size)],
        [scalars.lossScale, Float32Array.of(lossScale)],
      ],
      micro: batches.flatMap((given, i) => (i % size === rank ? [valuesOf(given, i)] : [])),
      ...hooks,
    });
    const found = {
      step,
      lr,
      loss: at(state, STATE.loss),
      gradNorm: at(state, STATE.gradNorm),
      skipped: state[STATE.skip] !== 0,
    };
    if (!found.skipped && !Number.isFinite(found.gradNorm)) this.#fail(found);
    return found;
  }

  /**
   * Mean loss over the valid targets of any number of sequences (a multiple of `batch` is fastest; the rest
   * is padded with ignored targets). Changes nothing.
   */
  async evaluate(windows: Batch): Promise<number> {
    return (await this.score(windows)).loss;
  }

  /** As `evaluate`; of a classifier also the share of labels that are told right. */
  async score(windows: Batch): Promise<{ readonly loss: number; readonly accuracy?: number }> {
    const { batch } = this.options;
    const { inputs, hits } = this.#programs;
    inputs.check(windows);
    const { session } = this;
    session.values.check();
    const { lossSum } = this.#programs.scalars;
    const [sum, right] = await session.runWithRetry('an evaluation', async () => {
      session.write(lossSum, new Float32Array(1));
      if (hits) session.write(hits, new Float32Array(1));
      for (let row = 0; row < windows.batch; row += batch) {
        await session.run(session.fit.passes.evaluate, this.#programs.inputs.values(inputs.part(windows, row)));
      }
      const { evaluated } = session.fit.passes;
      if (evaluated) await session.run(evaluated, []);
      return [at(await session.read(lossSum), 0), hits && at(await session.read(hits), 0)] as const;
    });
    const count = Math.max(1, this.model.objective.count(windows));
    return { loss: sum / count, ...(right !== undefined && { accuracy: right / count }) };
  }

  /** See `ModelValues.collect`: how rank 0 saves what only other ranks have. */
  async collect<T>(work: () => Promise<T>): Promise<T | undefined> {
    check(callable, work, 'work');
    await this.settle();
    return this.session.values.collect(work);
  }

  /** See `ModelValues.share`: how all ranks save, each the tensors that `writers` gives it. */
  async share<T>(work: () => Promise<T>): Promise<T> {
    check(callable, work, 'work');
    await this.settle();
    return this.session.values.share(work);
  }

  /** The rank that writes each tensor of a checkpoint, the same on all ranks. @internal */
  writers(ranks: Ranks): ReadonlyMap<string, number> {
    const { stages } = this.#programs;
    const { map } = this.session;
    const parts = Array.from({ length: stages?.size ?? 1 }, (_, stage) => {
      const layers = stages ? stageOf(this.#layers, stages, stage) : this.#layers;
      return { layers, map: !stages || stage === stages.place.rank ? map : stageMap(layers, stages, map.chunkBytes) };
    });
    return shardWriters(parts, ranks);
  }

  /** Whether `setBudget` would take it, in bytes. */
  fits(budget: number): boolean {
    const { memory, leastBudget } = this.session;
    return memory.gpu !== undefined && budget >= leastBudget;
  }

  /**
   * Goes on within another GPU budget, in bytes: the same losses, more or less traffic. Only for a trainer that has a budget:
   * one that was made with `auto` has none where everything has room. Errors: see `Session.setBudget`.
   */
  async setBudget(budget: number): Promise<void> {
    if (this.session.memory.gpu === undefined) {
      throw new HoldfastError(
        "this trainer has no GPU budget, nor had one of 'auto' that found room for everything; give it one in bytes when it is made, if only the whole memory",
      );
    }
    await this.session.setBudget(budget);
  }

  /** All steps so far are done; what they changed is final. */
  settle(): Promise<void> {
    return this.#stepper.settle();
  }

  /** What a checkpoint keeps beside weights and moments, of the last step that is done; waits for the steps under way. */
  async state(): Promise<TrainerState> {
    await this.settle();
    // Others may have been started since.
    return { step: this.#stepper.next ?? this.#step, control: [...this.#stepper.state] };
  }

  /** `state` before the steps that were skipped last: they have changed no weight and no moment. */
  async unskippedState(): Promise<TrainerState> {
    await this.settle();
    return this.#stepper.unskipped ?? this.state();
  }

  /** Steps skipped since the first, those before a resume included. */
  async skipped(): Promise<number> {
    await this.settle();
    return at(this.#stepper.state, STATE.skipped);
  }

  /**
   * Goes on from where `state` was taken; weights and moments are set with `setValues`. Errors: HoldfastError while steps are
   * under way, and for a step that is no whole number.
   */
  restore(state: TrainerState): void {
    checkState(state);
    this.#stepper.restore(state.control);
    this.#step = state.step;
  }

  /** Frees every buffer and removes the slow tier's file; what is called later fails. The device stays open. */
  destroy(): Promise<void> {
    return this.session.close();
  }

  /** `await using`: as `destroy`. */
  [ASYNC_DISPOSE](): Promise<void> {
    return this.destroy();
  }

  /** It was used up before the norm was known: nothing may go on from what that made, and nothing saves it. */
  #fail({ step }: StepMetrics): never {
    const error = new HoldfastError(
      `step ${step} gave a gradient that is not finite, a part of which the update in the backward pass has used up; go on from the ` +
        'last checkpoint with --update at-end, which skips such a step, or with --clip, or a lower --lr',
    );
    this.session.end(error);
    throw error;
  }
}
