// Text that a model writes, piece by piece: from a prompt in its own tokens until one of its end tokens, a stop string or
// the wanted length. How a token is drawn is sampling.ts, how the model is asked generator.ts.
//
// Invariant: the pieces, joined, are the text before the first stop string; no piece ends inside a character, and none has
// a part of a stop string that is still to come.

import { checkTokenizer, promptIds, type Tokenizer } from '../../data/tokenizer.ts';
import { having, iterable } from '../../util/arguments.ts';
import { HoldfastError } from '../../util/errors.ts';
import { anything, check, closed, list, optional, text } from '../../util/json.ts';
import type { Random } from '../../util/random.ts';
import type { GenerationOptions } from './continuation.ts';
import type { Generator } from './generator.ts';
import type { SamplingOptions } from './sampling.ts';

/** How much is written, how tokens are drawn, and what ends it. */
export interface WritingOptions extends SamplingOptions, GenerationOptions {
  /** The most to write. */
  readonly tokens: number;
  /** Each of them ends the text, and is left out. @default none */
  readonly stop?: readonly string[];
}

/** How text is written is looked into where tokens are drawn. */
export const WRITING_OPTIONS = {
  tokens: anything,
  stop: optional(list(text)),
  temperature: anything,
  topK: anything,
  topP: anything,
  adapter: anything,
} as const satisfies Record<keyof WritingOptions, unknown>;

const writingOptions = closed<WritingOptions>(WRITING_OPTIONS);

/**
 * Continues `prompt`, a text or its ids, which is not repeated; an empty text is the model's BOS alone. Errors: as
 * Generator.generate.
 */
export async function* writeText(
  generator: Pick<Generator, 'generate'>,
  tokenizer: Pick<Tokenizer, 'encode' | 'specials' | 'addsBos' | 'stream'>,
  prompt: string | Int32Array,
  options: WritingOptions,
  random: Random,
): AsyncGenerator<string> {
  check(having<Generator>('a generator of text', 'generate'), generator, 'generator');
  checkTokenizer(tokenizer);
  check(writingOptions, options, 'the writing options');
  const { tokens, stop = [], adapter, ...sampling } = options;
  if (stop.includes('')) throw new HoldfastError('a stop string is empty: give at least one character');
  const ids = typeof prompt === 'string' ? promptIds(tokenizer, prompt) : check(iterable, prompt, 'prompt') && prompt;
  if (ids.length === 0)
    throw new HoldfastError(
      'the prompt is empty, and this model has no token that begins a text; give at least one character',
    );
  const decoder = tokenizer.stream();
  // So that the first word keeps the space before it.
  for (const id of ids) decoder.push(id);
  const stops = new StopStrings(stop);
  for await (const id of generator.generate(ids, tokens, sampling, random, adapter === undefined ? {} : { adapter })) {
    if (tokenizer.specials.eos.includes(id)) break;
    const piece = stops.push(decoder.push(id));
    if (piece !== '') yield piece;
    if (stops.found) return;
  }
  const rest = stops.push(decoder.end()) + stops.end();
  if (rest !== '') yield rest;
}

/** Lets text pass up to the first of some strings, also where it comes in pieces. */
export class StopStrings {
  readonly #strings: readonly string[];
  #held = '';
  found = false;

  constructor(strings: readonly string[]) {
    this.#strings = strings;
  }

  /** What is certainly before any of them. */
  push(piece: string): string {
    if (this.found) return '';
    const text = this.#held + piece;
    const at = Math.min(...this.#strings.map((string) => text.indexOf(string)).filter((index) => index >= 0));
    this.found = Number.isFinite(at);
    const end = this.found ? at : text.length - this.#begun(text);
    this.#held = this.found ? '' : text.slice(end);
    return text.slice(0, end);
  }

  /** What was held back and has come to nothing. */
  end(): string {
    const held = this.#held;
    this.#held = '';
    return held;
  }

  /** Characters at the end with which one of the strings begins. */
  #begun(text: string): number {
    let most = 0;
    for (const string of this.#strings)
      for (let length = Math.min(string.length - 1, text.length); length > most; length--)
        if (text.endsWith(string.slice(0, length))) most = length;
    return most;
  }
}
