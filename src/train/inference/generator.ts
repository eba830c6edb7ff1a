// Text from a model, token by token, with the keys and values of what came before kept in a cache. Two
// programs serve any prompt: one takes BLOCK tokens at a time, one takes a single token.

import { checkTokens } from '../../data/batches.ts';
import { type ChoiceRecord, KernelChoices } from '../../engine/compile/choices.ts';
import type { MemoryOptions } from '../../engine/run/arrangement.ts';
import { Session } from '../../engine/run/session.ts';
import { checkDevice, type Device } from '../../gpu/device.ts';
import { checkComplete, checkModel, type Model } from '../../nn/model.ts';
import { ASYNC_DISPOSE } from '../../util/dispose.ts';
import { assert, finishing, HoldfastError } from '../../util/errors.ts';
import { anything, check, closed, show } from '../../util/json.ts';
import type { Random } from '../../util/random.ts';
import { describeRange, inRange, wholeNumber } from '../../util/range.ts';
import type { TensorSource } from '../../values/tensor-source.ts';
import { checkPrompt, continuation, type GenerationOptions, nothingFed, type TokensFed } from './continuation.ts';
import {
  type Generation,
  type GenerationInputs,
  type GenerationPasses,
  generationWorkload,
  passNameOf,
  traceGeneration,
} from './generation-workload.ts';
import type { SamplingOptions } from './sampling.ts';

/** How a generator of its own is made. */
export interface GeneratorOptions {
  /** Kernel choices to start from. @default none */
  readonly choices?: ChoiceRecord;
  /**
   * Budgets, tiers and policy; `activations`: of the cache of each layer, `keep` on the GPU, or `offload` below it. @default all
   * stays on the GPU
   */
  readonly memory?: MemoryOptions;
  /** Tokens that it sees: positions in the cache. @default the model's context */
  readonly capacity?: number;
}

const generatorOptions = closed<GeneratorOptions>({ choices: anything, memory: anything, capacity: anything });

/** Of all layers and texts: each is some operators of every step. */
const MOST_CACHES = 2 ** 14;

/** What generation runs on: a session with its passes and the weights. Errors: as `Generator.open`; HoldfastError for more texts than are planned. */
export async function openGeneration(
  device: Device,
  model: Model,
  weights: TensorSource,
  options: GeneratorOptions,
  sequences = 1,
): Promise<{ session: Session<GenerationPasses>; generation: Generation }> {
  checkDevice(device);
  checkModel(model);
  checkComplete(model, weights);
  check(generatorOptions, options, 'the options of a generator');
  const { context, layers } = model.shape;
  const { capacity = context } = options;
  if (!inRange(wholeNumber(1, context), capacity))
    throw new HoldfastError(
      `a capacity of ${show(capacity)} tokens: must be ${describeRange(wholeNumber(1, context))}, the model's context`,
    );
  const most = Math.max(1, Math.floor(MOST_CACHES / layers));
  if (sequences > most) throw new HoldfastError(`${sequences} texts at once: use at most ${most} with this model`);
  checkTokens('cache', sequences, capacity);
  const generation = traceGeneration(model, capacity, undefined, sequences);
  const workload = generationWorkload(model, generation, options.memory?.activations);
  const choices = new KernelChoices(device, options.choices);
  const session = await Session.open(device, workload, choices, options.memory);
  try {
    await session.values.set('parameter', weights);
    return { session, generation };
  } catch (error) {
    return finishing(
      () => Promise.reject(error),
      () => session.close(),
    );
  }
}

/** Writes text with a model, token by token, over a cache of keys and values. */
export class Generator {
  readonly #session: Session<GenerationPasses>;
  readonly #model: Model;
  readonly #generation: Generation;
  readonly #isOpened: boolean;
  /** The text of which keys and values are in the cache, and the move of the session since which they are. */
  #cached: { readonly tokensFed: TokensFed; readonly epoch: number } | undefined;

  /**
   * A generator of its own, with these weights and nothing else. Errors: HoldfastError for weights that are not all there, for a
   * capacity that the model does not have, and for a budget that is none, or too small.
   */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    options: GeneratorOptions = {},
  ): Promise<Generator> {
    const { session, generation } = await openGeneration(device, model, weights, options);
    return new Generator(session, model, generation, true);
  }

  /** `session` has the passes of this generation, and the weights. `isOpened`: and nothing else. */
  constructor(session: Session<GenerationPasses>, model: Model, generation: Generation, isOpened = false) {
    this.#isOpened = isOpened;
    this.#session = session;
    this.#model = model;
    this.#generation = generation;
  }

  /** Tokens that it sees: a longer text is cut at its beginning. */
  get capacity(): number {
    return this.#generation.capacity;
  }

  /** The device in use; of a trainer, another one after the first was lost. */
  get device(): Device {
    return this.#session.device;
  }

  /**
   * Yields `count` token ids that continue `prompt` (one token at least). Past the context's end it goes on
   * from the last half of what there is. The weights may change between tokens; another text begun meanwhile,
   * or a device that a trainer replaces, costs time only: what was fed is fed again. By itself it ends with the error of a lost device.
   */
  generate(
    prompt: Int32Array,
    count: number,
    sampling: SamplingOptions,
    random: Random,
    options: GenerationOptions = {},
  ): AsyncGenerator<number> {
    const feeder = { model: this.#model, capacity: this.capacity, feed: this.#feed.bind(this) };
    return continuation(feeder, prompt, count, sampling, random, options);
  }

  /** The logits (V) of the token after `prompt`. */
  async next(prompt: Int32Array, options: GenerationOptions = {}): Promise<Float32Array> {
    checkPrompt(this.#model, prompt);
    return this.#feed(nothingFed(this.#model, options), [...prompt].slice(-this.#generation.capacity));
  }

  /** Runs tokens through the model behind those that were fed; returns the logits after the last. */
  #feed(tokensFed: TokensFed, ids: readonly number[]): Promise<Float32Array> {
    tokensFed.parts.push([...ids]);
    this.#session.values.check();
    return this.#session.runWithRetry('the writing of text', async () => {
      const { epoch } = this.#session;
      const isThere = this.#cached?.tokensFed === tokensFed && this.#cached.epoch === epoch;
      this.#cached = undefined;
      const before = tokensFed.parts.slice(0, -1).flat().length;
      if (isThere) await this.#run(ids, before, tokensFed.adapter);
      else {
        let position = 0;
        for (const part of tokensFed.parts) {
          await this.#run(part, position, tokensFed.adapter);
          position += part.length;
        }
      }
      const logits = await this.#session.read(this.#generation.logits);
      this.#cached = { tokensFed, epoch };
      return logits;
    });
  }

  /** Runs tokens through the model from a position on. */
  async #run(ids: readonly number[], position: number, adapter: string | undefined): Promise<void> {
    const { inputs, capacity } = this.#generation;
    assert(position + ids.length <= capacity, 'the cache is full');
    const session = this.#session;
    for (let done = 0; done < ids.length; ) {
      const tokens = inputs.find(({ seq }) => seq <= ids.length - done) as GenerationInputs;
      const { seq } = tokens;
      const pass = session.fit.passes[passNameOf({ tokens, adapter })];
      assert(pass, `no pass takes ${seq} tokens`);
      await session.run(pass, [
        [tokens.ids, Int32Array.from(ids.slice(done, done + seq))],
        [tokens.position, Uint32Array.of(position + done)],
      ]);
      done += seq;
    }
  }

  /** Frees every buffer of a generator that was opened by itself; a trainer's goes with the trainer. */
  async close(): Promise<void> {
    if (this.#isOpened) await this.#session.close();
  }

  /** `await using`: as `close`. */
  [ASYNC_DISPOSE](): Promise<void> {
    return this.close();
  }
}
