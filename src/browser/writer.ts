// Text from a generator, for a person to look at.

import { promptIds, type Tokenizer } from '../data/tokenizer.ts';
import type { ChoiceRecord } from '../engine/compile/choices.ts';
import type { Device } from '../gpu/device.ts';
import type { Model } from '../nn/model.ts';
import { Generator } from '../train/generator.ts';
import { writeText } from '../train/writing.ts';
import { at } from '../util/at.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import type { TensorSource } from '../util/tensor-source.ts';
import type { Candidate, SampleRequest } from './protocol.ts';

export class Writer {
  readonly #generator: Generator;
  readonly #tokenizer: Tokenizer;
  readonly #underWay = new Set<Promise<unknown>>();
  #closing = false;

  /** A generator of its own. */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    choices: ChoiceRecord,
    tokenizer: Tokenizer,
  ): Promise<Writer> {
    return new Writer(await Generator.open(device, model, weights, { choices }), tokenizer);
  }

  constructor(generator: Generator, tokenizer: Tokenizer) {
    this.#generator = generator;
    this.#tokenizer = tokenizer;
  }

  /** False once its device was lost: then only another writer writes. */
  get works(): boolean {
    return this.#generator.device.works;
  }

  /** Once it is closed, the text that there is. */
  sample(request: SampleRequest, onText?: (text: string) => void): Promise<string> {
    return this.#do(() => this.#sample(request, onText));
  }

  /** The likeliest next tokens after the prompt, most likely first. */
  next(prompt: string, count: number): Promise<Candidate[]> {
    return this.#do(() => this.#next(prompt, count));
  }

  /** Frees a generator of its own, once what is being written has come to an end: at the next token. */
  async close(): Promise<void> {
    this.#closing = true;
    await Promise.allSettled(this.#underWay);
    await this.#generator.close();
  }

  async #do<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closing) throw new HoldfastError('the weights are about to change; ask again');
    const result = work();
    const ended: Promise<unknown> = result.catch(() => {}).then(() => this.#underWay.delete(ended));
    this.#underWay.add(ended);
    return result;
  }

  async #sample(request: SampleRequest, onText?: (text: string) => void): Promise<string> {
    const { prompt, tokens = 160, temperature = 0.7, topP = 0.95, seed = 1 } = request;
    const random = new Random(seed, 'sample');
    let text = '';
    for await (const piece of writeText(
      this.#generator,
      this.#tokenizer,
      prompt,
      { tokens, temperature, topP },
      random,
    )) {
      text += piece;
      onText?.(piece);
      if (this.#closing) break;
    }
    return text;
  }

  async #next(prompt: string, count: number): Promise<Candidate[]> {
    const logits = await this.#generator.next(promptIds(this.#tokenizer, prompt));
    const most = logits.reduce((a, b) => Math.max(a, b));
    const weights = Float64Array.from(logits, (logit) => Math.exp(logit - most));
    const sum = weights.reduce((a, b) => a + b, 0);
    const order = [...weights.keys()].sort((a, b) => at(weights, b) - at(weights, a) || a - b);
    return order
      .slice(0, count)
      .map((token) => ({ token, text: this.#tokenizer.show(token), probability: at(weights, token) / sum }));
  }
}
