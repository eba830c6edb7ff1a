// Text from a generator, for a person to look at.

import { ChatRenderer, type ChatTemplate } from '../data/records/chat-template.ts';
import { endOfTurns } from '../data/records/turns.ts';
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
import type { Candidate, ChatRequest, SampleRequest, WritingRequest } from './protocol.ts';

export class Writer {
  readonly #generator: Generator;
  readonly #tokenizer: Tokenizer;
  readonly #template: ChatTemplate | undefined;
  readonly #underWay = new Set<Promise<unknown>>();
  #closing = false;

  /** A generator of its own. */
  static async open(
    device: Device,
    model: Model,
    weights: TensorSource,
    choices: ChoiceRecord,
    tokenizer: Tokenizer,
    template: ChatTemplate | undefined,
  ): Promise<Writer> {
    return new Writer(await Generator.open(device, model, weights, { choices }), tokenizer, template);
  }

  constructor(generator: Generator, tokenizer: Tokenizer, template: ChatTemplate | undefined) {
    this.#generator = generator;
    this.#tokenizer = tokenizer;
    this.#template = template;
  }

  /** False once its device was lost: then only another writer writes. */
  get works(): boolean {
    return this.#generator.device.works;
  }

  /** Once it is closed, the text that there is. */
  sample(request: SampleRequest, onText?: (text: string) => void): Promise<string> {
    return this.#do(() => this.#write(request.prompt, [], request, onText));
  }

  /** The answer to the last of some messages. Errors: HoldfastError where there is no template. */
  chat({ messages, ...request }: ChatRequest, onText?: (text: string) => void): Promise<string> {
    return this.#do(async () => {
      if (!this.#template) throw new HoldfastError('this model has no chat template: it continues texts, ask for that');
      const renderer = new ChatRenderer(this.#template);
      const end = endOfTurns(renderer);
      const prompt = renderer.render(
        messages.map((message) => ({ ...message })),
        { addGenerationPrompt: true },
      );
      return this.#write(prompt, end === undefined ? [] : [end], request, onText);
    });
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

  async #write(
    prompt: string,
    stop: readonly string[],
    { tokens = 160, temperature = 0.7, topP = 0.95, seed = 1, adapter }: WritingRequest,
    onText?: (text: string) => void,
  ): Promise<string> {
    const random = new Random(seed, 'sample');
    const options = { tokens, temperature, topP, stop, ...(adapter !== undefined && { adapter }) };
    let text = '';
    for await (const piece of writeText(this.#generator, this.#tokenizer, prompt, options, random)) {
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
