// A conversation with a model: what was said is kept, written down by the model's chat template for each answer, and an
// answer ends where the template ends a turn. How text is written is writing.ts; where lines come from, the caller's matter.
//
// Invariant: the ids that an answer is asked for with are those that training on the conversation would have; where they
// outgrow the context, the oldest exchanges are left out, whole, and the system's message stays.

import { ChatRenderer, type ChatTemplate, chatTemplateSchema } from '../../data/records/chat-template.ts';
import type { Message } from '../../data/records/shapes.ts';
import { endOfTurns } from '../../data/records/turns.ts';
import { checkTokenizer, type Tokenizer } from '../../data/tokenizer.ts';
import { having } from '../../util/arguments.ts';
import { HoldfastError } from '../../util/errors.ts';
import { check, closed, list, object, optional, text as textSchema } from '../../util/json.ts';
import { checkRandom, type Random } from '../../util/random.ts';
import type { Generator } from './generator.ts';
import { WRITING_OPTIONS, type WritingOptions, writeText } from './writing.ts';

/** How a conversation is held. */
export interface ConversationOptions extends WritingOptions {
  /** How it is written down. */
  readonly template: ChatTemplate;
  /** Said before all else. @default nothing */
  readonly system?: string | undefined;
  /** What was said so far, where it is gone on with. @default nothing */
  readonly messages?: readonly Message[];
}

const conversationOptions = closed<ConversationOptions>({
  ...WRITING_OPTIONS,
  template: chatTemplateSchema,
  system: optional(textSchema),
  messages: optional(list(object({ role: textSchema, content: textSchema }))),
});

/** What is said in turns, and answered by a model. */
export class Conversation {
  /** Of the answers to come: as the option of that name. A change of it leaves what was said. */
  adapter: string | undefined;
  readonly #generator: Pick<Generator, 'generate' | 'capacity'>;
  readonly #tokenizer: Pick<Tokenizer, 'encode' | 'specials' | 'addsBos' | 'stream'>;
  readonly #options: ConversationOptions;
  readonly #renderer: ChatRenderer;
  readonly #random: Random;
  readonly #stop: readonly string[];
  readonly #system: readonly Message[];
  #messages: Message[];
  #leftOut = 0;

  /** Errors: HoldfastError for a template that fails. */
  constructor(
    generator: Pick<Generator, 'generate' | 'capacity'>,
    tokenizer: Pick<Tokenizer, 'encode' | 'specials' | 'addsBos' | 'stream'>,
    options: ConversationOptions,
    random: Random,
  ) {
    check(having<Generator>('a generator of text', 'generate'), generator, 'generator');
    checkTokenizer(tokenizer);
    check(conversationOptions, options, 'the options of a conversation');
    checkRandom(random);
    this.#generator = generator;
    this.#tokenizer = tokenizer;
    this.#options = options;
    this.#random = random;
    this.adapter = options.adapter;
    this.#renderer = new ChatRenderer(options.template);
    const end = endOfTurns(this.#renderer);
    this.#stop = [...(end === undefined ? [] : [end]), ...(options.stop ?? [])];
    this.#messages = [...(options.messages ?? [])];
    this.#system = options.system === undefined ? [] : [{ role: 'system', content: options.system }];
  }

  /** What was said, without what was left out. */
  get messages(): readonly Message[] {
    return [...this.#system, ...this.#messages];
  }

  /** Messages that the model does not see any more. */
  get leftOut(): number {
    return this.#leftOut;
  }

  /**
   * The answer to what is said next, piece by piece; it is kept, up to where it was read. Errors: HoldfastError for what
   * does not fit into the context by itself, or is refused by the template, and where none is written: it is then not said.
   */
  async *answer(text: string): AsyncGenerator<string> {
    check(textSchema, text, 'text');
    const ids = this.#promptOf({ role: 'user', content: text });
    const { tokens, stop: _, system: __, template: ___, messages: ____, ...sampling } = this.#options;
    // The last token is never fed: no text is dropped while an answer is written.
    const most = Math.min(tokens, this.#generator.capacity - ids.length + 1);
    const options = { ...sampling, tokens: most, stop: this.#stop, adapter: this.adapter };
    let said = '';
    let failed = false;
    try {
      for await (const piece of writeText(this.#generator, this.#tokenizer, ids, options, this.#random)) {
        said += piece;
        yield piece;
      }
    } catch (error) {
      failed = true;
      throw error;
    } finally {
      if (failed) this.#messages.pop();
      else this.#messages.push({ role: 'assistant', content: said });
    }
  }

  /** What the model goes on from. Takes the message into the conversation, and the oldest out. */
  #promptOf(message: Message): Int32Array {
    const { capacity } = this.#generator;
    const room = Math.min(this.#options.tokens, capacity >> 1);
    for (let kept = [...this.#messages, message]; ; ) {
      const text = this.#renderer.render([...this.#system, ...kept], { addGenerationPrompt: true });
      const ids = this.#tokenizer.encode(text);
      const isLast = kept.length === 1;
      if (ids.length + room - 1 <= capacity || (isLast && ids.length <= capacity)) {
        this.#leftOut += this.#messages.length + 1 - kept.length;
        this.#messages = kept;
        return ids;
      }
      if (isLast)
        throw new HoldfastError(
          `the message has ${ids.length} tokens with what is around it, the context ${capacity}; say it in fewer words`,
        );
      // A conversation begins with a question.
      const next = kept.findIndex(({ role }, i) => i > 0 && role === 'user');
      kept = kept.slice(next);
    }
  }
}
