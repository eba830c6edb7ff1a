// `Writer`: a generator as the page uses it: a prompt or a conversation goes in, text comes out as it is made.

import type { ChatTemplate } from '../data/records/chat-template.ts';
import { promptIds, type Tokenizer } from '../data/tokenizer.ts';
import type { ChoiceRecord } from '../engine/compile/choices.ts';
import type { MemoryOptions } from '../engine/run/arrangement.ts';
import type { Device } from '../gpu/device.ts';
import type { Model } from '../nn/model.ts';
import { Conversation } from '../train/inference/conversation.ts';
import { Generator } from '../train/inference/generator.ts';
import { writeText } from '../train/inference/writing.ts';
import { at } from '../util/at.ts';
import { HoldfastError } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import type { TensorSource } from '../values/tensor-source.ts';
import type { Candidate, ChatRequest, SampleRequest, TextListener, WritingRequest } from './protocol.ts';

/** Positions of the cache where nothing is said: of models with a longer context it would take gigabytes. */
const MOST_CONTEXT = 4096;

/** What a writer of its own is made with, weights apart. */
export interface WriterOptions {
  readonly tokenizer: Tokenizer;
  readonly template: ChatTemplate | undefined;
  readonly choices: ChoiceRecord;
  readonly memory: MemoryOptions;
  /** Positions of the cache. @default the model's context, 4096 at most */
  readonly capacity?: number;
}

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
    { tokenizer, template, ...options }: WriterOptions,
  ): Promise<Writer> {
    const { context } = model.shape;
    const capacity = Math.min(options.capacity ?? MOST_CONTEXT, context);
    return new Writer(await Generator.open(device, model, weights, { ...options, capacity }), tokenizer, template);
  }

  constructor(generator: Generator, tokenizer: Tokenizer, template: ChatTemplate | undefined) {
    this.#generator = generator;
    this.#tokenizer = tokenizer;
    this.#template = template;
  }

  /** False once its device was lost: then only another writer writes. */
  get works(): boolean {
    return this.#generator.device.status === 'works';
  }

  /** Once it is closed, the text that there is. */
  sample(request: SampleRequest, onText?: TextListener): Promise<string> {
    return this.#do(() => {
      const { random, ...options } = writing(request);
      return this.#told(writeText(this.#generator, this.#tokenizer, request.prompt, options, random), onText);
    });
  }

  /** The answer to the last of some messages. Errors: HoldfastError where there is no template. */
  chat({ messages, ...request }: ChatRequest, onText?: TextListener): Promise<string> {
    return this.#do(async () => {
      const { random, ...options } = writing(request);
      if (!this.#template) throw new HoldfastError('this model has no chat template: it continues texts, ask for that');
      const all = messages.map((message) => ({ ...message }));
      const system = all[0]?.role === 'system' ? all.shift()?.content : undefined;
      const question = all.pop()?.content ?? '';
      const settings = { ...options, template: this.#template, system, messages: all };
      const conversation = new Conversation(this.#generator, this.#tokenizer, settings, random);
      return this.#told(conversation.answer(question), onText);
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

  /** All that is written, told piece by piece. Errors: those of the listener. */
  async #told(pieces: AsyncIterable<string>, onText?: TextListener): Promise<string> {
    let text = '';
    let isOver = false;
    // The next piece is made while this one is on its way.
    const tell = async (piece: string) => {
      if ((await onText?.(piece)) === false) isOver = true;
    };
    const told: Promise<void>[] = [];
    for await (const piece of pieces) {
      text += piece;
      const heard = tell(piece);
      heard.catch(() => {
        isOver = true;
      });
      told.push(heard);
      if (this.#closing || isOver) break;
    }
    await Promise.all(told);
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

/** A request with its defaults. */
function writing({ tokens = 160, temperature = 0.7, topP = 0.95, seed = 1, adapter }: WritingRequest) {
  const random = new Random(seed, 'sample');
  return { random, tokens, temperature, topP, ...(adapter !== undefined && { adapter }) };
}
