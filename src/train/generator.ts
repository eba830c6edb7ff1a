// Text from a model, token by token, with the keys and values of what came before kept in a cache. Two
// programs serve any prompt: one takes BLOCK tokens at a time, one takes a single token.

import { type ChoiceRecord, KernelChoices } from '../engine/compile/choices.ts';
import { type Pass, readingPass } from '../engine/compile/pass.ts';
import { NO_READBACK } from '../engine/compile/workload.ts';
import { type MemoryOptions, Session } from '../engine/run/session.ts';
import type { Device } from '../gpu/device.ts';
import { Graph, makeTensor, type Program, type Tensor } from '../graph/graph.ts';
import { logits as logitsOf } from '../graph/operators/cross-entropy.ts';
import { makeTokens, type Tokens } from '../graph/operators/embedding.ts';
import type { ChunkMap } from '../memory/layout/chunk-map.ts';
import { onlyTokens } from '../nn/inputs.ts';
import { lookup, type Model, parameterTensors } from '../nn/model.ts';
import { at } from '../util/at.ts';
import { assert, finishing, HoldfastError } from '../util/errors.ts';
import type { Random } from '../util/random.ts';
import type { TensorSource } from '../util/tensor-source.ts';
import { checkSampling, type SamplingOptions, sampleToken } from './sampling.ts';

const BLOCK = 16;

/** The programs of generation: one for each of `inputs`, longest first. */
export interface Generation {
  readonly inputs: readonly Tokens[];
  readonly programs: readonly Program[];
  /** (V) of the last token. */
  readonly logits: Tensor;
  /** Positions in the cache. */
  readonly capacity: number;
}

/** Traces generation over a cache of `capacity` positions. */
export function traceGeneration(model: Model, capacity: number): Generation {
  const { layers, kvHeads, headSize, vocabulary } = model.shape;
  const parameters = parameterTensors(model, false);
  const caches = Array.from({ length: layers }, (_, i) => ({
    capacity,
    keys: makeTensor(`keys ${i}`, [1, capacity, kvHeads * headSize], 'persistent'),
    values: makeTensor(`values ${i}`, [1, capacity, kvHeads * headSize], 'persistent'),
  }));
  const logits = makeTensor('logits', [vocabulary], 'persistent');
  const inputs = (capacity >= BLOCK ? [BLOCK, 1] : [1]).map((length) => makeTokens(1, length));
  const programs = inputs.map((tokens) => {
    const g = new Graph(`generate ${tokens.seq}`);
    const { hidden, head } = model.forward(g, onlyTokens(tokens), lookup(parameters), { caches });
    logitsOf(g, hidden, head, logits, tokens.seq - 1);
    return g.program();
  });
  return { inputs, programs, logits, capacity };
}

/** A pass of generation is named for the tokens that it takes at once. */
const nameOf = ({ seq }: Tokens) => `generate ${seq}` as const;

export type GenerationPasses = Readonly<Record<ReturnType<typeof nameOf>, Pass>>;

export const generationPasses = ({ inputs, programs }: Generation, map: ChunkMap): GenerationPasses =>
  Object.fromEntries(programs.map((program, stage) => [nameOf(at(inputs, stage)), readingPass(program, map)]));

/** Tokens in the order in which they went through the model, together or one by one. */
type Fed = (readonly number[])[];

/** Writes text with a model, token by token, over a cache of keys and values. */
export class Generator {
  readonly #session: Session<GenerationPasses>;
  readonly #model: Model;
  readonly #generation: Generation;
  /** Whose keys and values are in the cache, and since which move of the session. */
  #cached: { readonly fed: Fed; readonly epoch: number } | undefined;

  /** A generator of its own, with these weights and nothing else. */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    options: { choices?: ChoiceRecord; memory?: MemoryOptions } = {},
  ): Promise<Generator> {
    const generation = traceGeneration(model, model.shape.context);
    const workload = {
      parameters: model.parameters,
      training: false,
      programs: generation.programs,
      passes: (map: ChunkMap) => generationPasses(generation, map),
      readback: NO_READBACK,
    };
    const choices = new KernelChoices(device, options.choices);
    const session = await Session.open(device, workload, choices, options.memory);
    try {
      for (const { tensor, values } of model.constants) session.hold(tensor, values);
      await session.setValues('parameter', weights);
      return new Generator(session, model, generation);
    } catch (error) {
      return finishing(
        () => Promise.reject(error),
        () => session.close(),
      );
    }
  }

  /** `session` has the passes of this generation, and the weights. */
  constructor(session: Session<GenerationPasses>, model: Model, generation: Generation) {
    this.#session = session;
    this.#model = model;
    this.#generation = generation;
  }

  /** The device in use: another one after the first was lost. */
  get device(): Device {
    return this.#session.device;
  }

  /**
   * Yields `count` token ids that continue `prompt` (one token at least). Past the context's end it goes on
   * from the last half of what there is. The weights may change between tokens; a lost device, or another text
   * begun meanwhile, costs time only: what was fed is fed again.
   */
  async *generate(
    prompt: Int32Array,
    count: number,
    sampling: SamplingOptions,
    random: Random,
  ): AsyncGenerator<number> {
    checkSampling(sampling);
    this.#check(prompt);
    const context = this.#generation.capacity;
    let text = [...prompt].slice(-context);
    let fed: Fed = [];
    let logits = await this.#feed(fed, text);
    for (let i = 0; i < count; i++) {
      const id = sampleToken(logits, sampling, random);
      yield id;
      if (i === count - 1) return;
      text.push(id);
      if (text.length > context) {
        text = text.slice(-Math.max(1, Math.floor(context / 2)));
        fed = [];
        logits = await this.#feed(fed, text);
      } else logits = await this.#feed(fed, [id]);
    }
  }

  /** The logits (V) of the token after `prompt`. */
  next(prompt: Int32Array): Promise<Float32Array> {
    this.#check(prompt);
    return this.#feed([], [...prompt].slice(-this.#generation.capacity));
  }

  #check(prompt: Int32Array): void {
    const { vocabulary } = this.#model.shape;
    if (prompt.length === 0) throw new HoldfastError('the prompt is empty; give at least one token');
    const stranger = prompt.find((id) => id < 0 || id >= vocabulary);
    if (stranger !== undefined) {
      throw new HoldfastError(`the prompt has token ${stranger}, the model's vocabulary ends at ${vocabulary - 1}`);
    }
  }

  /** Runs tokens through the model behind those that were fed; returns the logits after the last. */
  #feed(fed: Fed, ids: readonly number[]): Promise<Float32Array> {
    fed.push([...ids]);
    this.#session.checkWeights();
    return this.#session.runWithRetry('the writing of text', async () => {
      const { epoch } = this.#session;
      const isThere = this.#cached?.fed === fed && this.#cached.epoch === epoch;
      this.#cached = undefined;
      const before = fed.slice(0, -1).flat().length;
      if (isThere) await this.#run(ids, before);
      else {
        let position = 0;
        for (const part of fed) {
          await this.#run(part, position);
          position += part.length;
        }
      }
      const logits = await this.#session.read(this.#generation.logits);
      this.#cached = { fed, epoch };
      return logits;
    });
  }

  /** Runs tokens through the model from a position on. */
  async #run(ids: readonly number[], position: number): Promise<void> {
    const { inputs, capacity } = this.#generation;
    assert(position + ids.length <= capacity, 'the cache is full');
    const session = this.#session;
    for (let done = 0; done < ids.length; ) {
      const tokens = inputs.find(({ seq }) => seq <= ids.length - done) as Tokens;
      const { seq } = tokens;
      const pass = session.fit.passes[nameOf(tokens)];
      assert(pass, `no pass takes ${seq} tokens`);
      await session.run(pass, [
        [tokens.ids, Int32Array.from(ids.slice(done, done + seq))],
        [tokens.position, Uint32Array.of(position + done)],
      ]);
      done += seq;
    }
  }

  /** Frees every buffer of a generator that was opened by itself. */
  close(): Promise<void> {
    return this.#session.close();
  }
}
