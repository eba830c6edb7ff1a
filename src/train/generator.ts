// Text from a model, token by token, with the keys and values of what came before kept in a cache. Two
// programs serve any prompt: one takes BLOCK tokens at a time, one takes a single token.

import { type ChoiceRecord, KernelChoices } from '../engine/choices.ts';
import { Executable } from '../engine/executable.ts';
import type { ModelData } from '../engine/model-data.ts';
import { Storage } from '../engine/storage.ts';
import type { Device } from '../gpu/device.ts';
import { Graph, makeTensor, type Program, type Tensor } from '../graph/graph.ts';
import { logits as logitsOf } from '../graph/operators/cross-entropy.ts';
import { makeTokens, type Tokens } from '../graph/operators/embedding.ts';
import { lookup, type Model, parameterTensors } from '../nn/model.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import type { Random } from '../util/random.ts';
import { checkSampling, type SamplingOptions, sampleToken } from './sampling.ts';

const BLOCK = 16;

interface Stage {
  readonly tokens: Tokens;
  readonly executable: Executable;
}

export class Generator {
  readonly #device: Device;
  readonly #storage: Storage;
  readonly #stages: readonly Stage[];
  readonly #logits: Tensor;
  readonly #model: Model;
  /** Tokens whose keys and values are in the cache. */
  #position = 0;

  /** `data` holds the weights: a trainer's, which go on changing, or ones made for generation alone. */
  static async create(device: Device, model: Model, data: ModelData, choices: ChoiceRecord = {}): Promise<Generator> {
    const storage = new Storage(device);
    const { layers, context, kvHeads, headSize, vocabulary } = model.shape;
    const parameters = parameterTensors(model, false);
    data.assign(storage, 'parameter', parameters.values());
    for (const { tensor, values } of model.constants) storage.write(tensor, values);
    const caches = Array.from({ length: layers }, (_, i) => ({
      capacity: context,
      keys: makeTensor(`keys ${i}`, [1, context, kvHeads * headSize], 'persistent'),
      values: makeTensor(`values ${i}`, [1, context, kvHeads * headSize], 'persistent'),
    }));
    const logits = makeTensor('logits', [vocabulary], 'persistent');
    const program = (tokens: Tokens): Program => {
      const g = new Graph(`generate ${tokens.seq}`);
      const { hidden, head } = model.forward(g, tokens, lookup(parameters), { caches });
      logitsOf(g, hidden, head, logits, tokens.seq - 1);
      return g.program();
    };
    const lengths = context >= BLOCK ? [BLOCK, 1] : [1];
    const inputs = lengths.map((length) => makeTokens(1, length));
    const kernelChoices = new KernelChoices(device, choices);
    const executables = await Executable.compile(device, storage, kernelChoices, inputs.map(program));
    const stages = inputs.map((tokens, i) => ({ tokens, executable: executables[i] as Executable }));
    return new Generator(device, model, storage, stages, logits);
  }

  private constructor(device: Device, model: Model, storage: Storage, stages: readonly Stage[], logits: Tensor) {
    this.#device = device;
    this.#model = model;
    this.#storage = storage;
    this.#stages = stages;
    this.#logits = logits;
  }

  /**
   * Yields `count` token ids that continue `prompt` (one token at least). Past the context's end it goes on
   * from the last half of what there is.
   */
  async *generate(
    prompt: Int32Array,
    count: number,
    sampling: SamplingOptions,
    random: Random,
  ): AsyncGenerator<number> {
    checkSampling(sampling);
    const { context, vocabulary } = this.#model.shape;
    if (prompt.length === 0) throw new HoldfastError('the prompt is empty; give at least one token');
    const stranger = prompt.find((id) => id < 0 || id >= vocabulary);
    if (stranger !== undefined) {
      throw new HoldfastError(`the prompt has token ${stranger}, the model's vocabulary ends at ${vocabulary - 1}`);
    }
    let text = [...prompt].slice(-context);
    this.#position = 0;
    let logits = await this.#feed(text);
    for (let i = 0; i < count; i++) {
      const id = sampleToken(logits, sampling, random);
      yield id;
      if (i === count - 1) return;
      text.push(id);
      if (text.length > context) {
        text = text.slice(-Math.max(1, Math.floor(context / 2)));
        this.#position = 0;
        logits = await this.#feed(text);
      } else logits = await this.#feed([id]);
    }
  }

  /** Runs tokens through the model behind those in the cache; returns the logits after the last. */
  async #feed(ids: readonly number[]): Promise<Float32Array> {
    assert(this.#position + ids.length <= this.#model.shape.context, 'the cache is full');
    let done = 0;
    while (done < ids.length) {
      const stage = this.#stages.find(({ tokens }) => tokens.seq <= ids.length - done) as Stage;
      const { seq, ids: input, position } = stage.tokens;
      this.#storage.write(input, Int32Array.from(ids.slice(done, done + seq)));
      this.#storage.write(position, Uint32Array.of(this.#position));
      const encoder = this.#device.gpu.createCommandEncoder();
      stage.executable.encode(encoder);
      this.#device.submit(encoder);
      this.#position += seq;
      done += seq;
    }
    return this.#storage.read(this.#logits);
  }

  destroy(): void {
    this.#storage.destroy();
  }
}
