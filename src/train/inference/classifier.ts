// A classifier that is asked for one example at a time: how likely each class is. Forward alone, within a budget like all
// else. What the examples are is data/'s; how much of a set is told right, the evaluator's.
//
// Invariant: the logits are those of the forward pass that the model is trained with, given the same kernel choices, to the bit.

import type { Batch } from '../../data/batches.ts';
import { textExample } from '../../data/labelled-texts.ts';
import { checkTokenizer, type Tokenizer } from '../../data/tokenizer.ts';
import { type ChoiceRecord, KernelChoices } from '../../engine/compile/choices.ts';
import { type Pass, readingPass } from '../../engine/compile/pass.ts';
import { NO_READBACK } from '../../engine/compile/workload.ts';
import type { MemoryOptions } from '../../engine/run/arrangement.ts';
import { Session } from '../../engine/run/session.ts';
import type { ModelShape } from '../../formats/families/family.ts';
import { checkDevice, type Device } from '../../gpu/device.ts';
import { Graph } from '../../graph/graph.ts';
import { logits as logitsOf } from '../../graph/operators/cross-entropy.ts';
import { makeTensor, type Tensor } from '../../graph/program.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { BatchInputs } from '../../nn/inputs.ts';
import { checkAdapter } from '../../nn/lora.ts';
import { checkComplete, checkModel, lookup, type Model, parameterTensors } from '../../nn/model.ts';
import { at } from '../../util/at.ts';
import { ASYNC_DISPOSE } from '../../util/dispose.ts';
import { finishing, HoldfastError } from '../../util/errors.ts';
import { anything, check, closed, optional, text as words } from '../../util/json.ts';
import type { TensorSource } from '../../values/tensor-source.ts';

type ClassifierPasses = { readonly classify: Pass };

/** How a classifier is opened. */
export interface ClassifierOptions {
  /** The adapter in use, by its name, or 'none'. @default the one that trains, where the model has it */
  readonly adapter?: string;
  /** Kernel choices to start from. @default none */
  readonly choices?: ChoiceRecord;
  /** Budgets, tiers and policy. @default all model data stays on the GPU */
  readonly memory?: MemoryOptions;
}

const classifierOptions = closed<ClassifierOptions>({ adapter: optional(words), choices: anything, memory: anything });

/** A model whose word on one example at a time is asked for. */
export class Classifier {
  readonly #session: Session<ClassifierPasses>;
  readonly #shape: ModelShape;
  readonly #inputs: BatchInputs;
  readonly #logits: Tensor;

  /**
   * Errors: HoldfastError for a model that tells no classes apart, for weights that are not all there, for an adapter that the model
   * does not have, and for a budget that is none, or too small.
   */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    options: ClassifierOptions = {},
  ): Promise<Classifier> {
    checkDevice(device);
    checkModel(model);
    checkComplete(model, weights);
    check(classifierOptions, options, 'the options of a classifier');
    const { adapter, choices: given, memory } = options;
    checkAdapter(model, adapter);
    if (!model.objective.accuracy) throw new HoldfastError('the model tells no classes apart; open a Generator of it');
    const { context, classes } = model.shape;
    const inputs = new BatchInputs(model.inputs(context, false), 1, context);
    const g = new Graph('classify');
    const logits = makeTensor('logits', [1, classes], 'persistent');
    const tensors = lookup(parameterTensors(model, false));
    const { hidden, head } = model.forward(g, inputs, tensors, adapter === undefined ? {} : { adapter });
    logitsOf(g, hidden, head, logits);
    const program = g.program();
    const workload = {
      parameters: model.parameters,
      training: false,
      programs: [program],
      passes: (map: ChunkMap) => ({ classify: readingPass(program, map) }),
      readback: NO_READBACK,
    };
    const session = await Session.open(device, workload, new KernelChoices(device, given), memory);
    try {
      await session.values.set('parameter', weights);
      return new Classifier(session, model.shape, inputs, logits);
    } catch (error) {
      return finishing(
        () => Promise.reject(error),
        () => session.close(),
      );
    }
  }

  private constructor(session: Session<ClassifierPasses>, shape: ModelShape, inputs: BatchInputs, logits: Tensor) {
    this.#session = session;
    this.#shape = shape;
    this.#inputs = inputs;
    this.#logits = logits;
  }

  /** The device in use: another one after the first was lost. */
  get device(): Device {
    return this.#session.device;
  }

  /** The probability of each class, in their order, of a batch of one example. */
  async tell(given: Batch): Promise<Float64Array> {
    this.#inputs.check(given);
    const session = this.#session;
    session.values.check();
    const logits = await session.runWithRetry('an example', async () => {
      await session.run(session.fit.passes.classify, this.#inputs.values(given));
      return session.read(this.#logits);
    });
    const most = logits.reduce((a, b) => Math.max(a, b));
    const weights = Float64Array.from(logits, (logit) => Math.exp(logit - most));
    const sum = weights.reduce((a, b) => a + b, 0);
    return weights.map((_, i) => at(weights, i) / sum);
  }

  /**
   * The probability of each class of a text, or of a pair of texts, in the tokens of the model's tokenizer; what is longer than the
   * model's context loses its end. Errors: HoldfastError for a model that looks at images, and for a tokenizer without the marks of a classifier.
   */
  async tellText(tokenizer: Tokenizer, text: string, pair?: string): Promise<Float64Array> {
    checkTokenizer(tokenizer);
    check(words, text, 'text');
    check(optional(words), pair, 'pair');
    const { vocabulary, context } = this.#shape;
    if (vocabulary === 0)
      throw new HoldfastError('the model looks at images, and reads no text; give tell their pixels');
    return this.tell(textExample(tokenizer, pair === undefined ? [text] : [text, pair], context));
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
