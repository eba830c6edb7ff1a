// The loss of a model on batches, without anything of training: no gradients, no moments, within a budget like all else.
// What batches are is data/'s; what becomes of their losses, cli/eval.ts.
//
// Invariant: the loss of a batch is that of `Trainer.evaluate` with the same weights, batch size and kernel choices, to the
// bit; over several batches it is summed in float64.

import type { Batch } from '../../data/batches.ts';
import { type ChoiceRecord, KernelChoices } from '../../engine/compile/choices.ts';
import { type Pass, readingPass } from '../../engine/compile/pass.ts';
import { NO_READBACK } from '../../engine/compile/workload.ts';
import type { MemoryOptions } from '../../engine/run/arrangement.ts';
import { Session } from '../../engine/run/session.ts';
import { checkDevice, type Device } from '../../gpu/device.ts';
import { withSlices } from '../../graph/activations.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { checkAdapter } from '../../nn/lora.ts';
import { checkComplete, checkModel, type Model } from '../../nn/model.ts';
import { at } from '../../util/at.ts';
import { ASYNC_DISPOSE } from '../../util/dispose.ts';
import { finishing } from '../../util/errors.ts';
import { anything, check, closed, optional, text, truth } from '../../util/json.ts';
import type { TensorSource } from '../../values/tensor-source.ts';
import { type EvaluationProgram, traceEvaluation } from './step-programs.ts';

/** How a model is evaluated. */
export interface EvaluatorOptions {
  /** Sequences at once. */
  readonly batch: number;
  /** Tokens in a sequence. */
  readonly seq: number;
  /** Whether a sequence holds several documents: batches have `documents`. @default false */
  readonly packed?: boolean;
  /** The adapter in use, by its name, or 'none'. @default the one that trains, where the model has it */
  readonly adapter?: string;
  /** Kernel choices to start from. @default none */
  readonly choices?: ChoiceRecord;
  /** Budgets, tiers and policy. @default all model data stays on the GPU */
  readonly memory?: MemoryOptions;
}

/** What a model makes of a batch. */
export interface BatchLoss {
  /** Over the targets that count. */
  readonly nats: number;
  /** How many count. */
  readonly targets: number;
  /** Of a classifier: how many it tells right. */
  readonly right?: number | undefined;
  /** Of a classifier: of each row, whether it tells it right. */
  readonly told?: readonly boolean[] | undefined;
}

const evaluatorOptions = closed<EvaluatorOptions>({
  batch: anything,
  seq: anything,
  packed: optional(truth),
  adapter: optional(text),
  choices: anything,
  memory: anything,
});

type EvaluationPasses = { readonly evaluate: Pass };

/** A model whose loss is asked for. */
export class Evaluator {
  /** What it was made with. */
  readonly options: EvaluatorOptions;
  /** The kernel choices. */
  readonly choices: KernelChoices;
  readonly #session: Session<EvaluationPasses>;
  readonly #model: Model;
  readonly #program: EvaluationProgram;

  /**
   * Errors: HoldfastError for weights that are not all there, for sizes that are none, for a sequence longer than the model's context,
   * for an adapter that the model does not have, and for a budget that is none, or too small.
   */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    options: EvaluatorOptions,
  ): Promise<Evaluator> {
    checkDevice(device);
    checkModel(model);
    checkComplete(model, weights);
    check(evaluatorOptions, options, 'the options of an evaluator');
    checkAdapter(model, options.adapter);
    const traced = traceEvaluation(model, options);
    const program = { ...traced, program: withSlices(traced.program, () => 'keep', 'some') };
    const workload = {
      parameters: model.parameters,
      training: false,
      programs: [program.program],
      passes: (map: ChunkMap) => ({ evaluate: readingPass(program.program, map) }),
      readback: NO_READBACK,
    };
    const choices = new KernelChoices(device, options.choices);
    const session = await Session.open(device, workload, choices, options.memory);
    try {
      await session.values.set('parameter', weights);
      return new Evaluator(session, model, program, choices, options);
    } catch (error) {
      return finishing(
        () => Promise.reject(error),
        () => session.close(),
      );
    }
  }

  private constructor(
    session: Session<EvaluationPasses>,
    model: Model,
    program: EvaluationProgram,
    choices: KernelChoices,
    options: EvaluatorOptions,
  ) {
    this.#session = session;
    this.#model = model;
    this.#program = program;
    this.choices = choices;
    this.options = options;
  }

  /** The device in use: another one after the first was lost. */
  get device(): Device {
    return this.#session.device;
  }

  /**
   * Nats over the targets of a batch that count, and their number; of a classifier also how many it tells right, and which rows'. A
   * batch of fewer rows than `batch` is filled up.
   */
  async lossOf(given: Batch): Promise<BatchLoss> {
    const { inputs, lossSum, hits } = this.#program;
    inputs.check(given);
    const session = this.#session;
    session.values.check();
    let nats = 0;
    const told: boolean[] = [];
    for (let row = 0; row < given.batch; row += this.options.batch) {
      const [loss, found] = await session.runWithRetry('an evaluation', async () => {
        session.write(lossSum, new Float32Array(1));
        await session.run(session.fit.passes.evaluate, inputs.values(inputs.part(given, row)));
        return [at(await session.read(lossSum), 0), hits ? await session.read(hits) : []] as const;
      });
      nats += loss;
      told.push(...Array.from(found, (hit) => hit > 0));
    }
    const targets = this.#model.objective.count(given);
    if (!hits) return { nats, targets };
    told.length = given.batch;
    return { nats, targets, right: told.filter(Boolean).length, told };
  }

  /** Frees every buffer. The device stays open. */
  close(): Promise<void> {
    return this.#session.close();
  }

  /** `await using`: as `close`. */
  [ASYNC_DISPOSE](): Promise<void> {
    return this.close();
  }
}
