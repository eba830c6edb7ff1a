// A chat template: how a model's conversations are written down, in Jinja as Hugging Face's models bring it, run with
// bounds, which bounded-interpreter.ts keeps. Where a template lies is find-template.ts, which part of the text answers are turns.ts.
//
// Invariant: a template runs a bounded time in bounded memory, whatever it says, and gives the same text on every day and
// every machine; what it refuses, or fails at, is one line.

import { Environment, parse, tokenize } from '@huggingface/jinja';
import { HoldfastError, messageOf, shortened } from '../../util/errors.ts';
import { object, optional, type Schema, text } from '../../util/json.ts';
import { BoundedInterpreter, Exceeded, MOST_ITEMS } from './bounded-interpreter.ts';
import type { Message, TemplateInput } from './shapes.ts';

/** A template and what it is run with, as plain JSON: saved with a run. */
export interface ChatTemplate {
  /** For messages. */
  readonly name: string;
  /** In Jinja. */
  readonly text: string;
  /** The token in front of a text, where the tokenizer has one. */
  readonly bos?: string;
  /** The token behind a text. */
  readonly eos?: string;
  /** What the template takes for today: YYYY-MM-DD. */
  readonly date: string;
}

export const chatTemplateSchema: Schema<ChatTemplate> = object({
  ...{ name: text, text, bos: optional(text), eos: optional(text), date: text },
});

const CHATML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;

/** Templates that come along, for models that have none. */
export const BUILT_IN_TEMPLATES = { chatml: CHATML } as const;

/** Characters. */
const MOST_TEMPLATE = 2 ** 18;

export interface RenderOptions extends TemplateInput {
  /** Ends with the header of an answer, for a model to go on from. @default false */
  readonly addGenerationPrompt?: boolean;
}

/** A template, parsed. */
export class ChatRenderer {
  readonly #template: ChatTemplate;
  readonly #program: ReturnType<typeof parse>;

  /** Errors: HoldfastError for what is no template. */
  constructor(template: ChatTemplate) {
    this.#template = template;
    const { length } = template.text;
    if (length > MOST_TEMPLATE) this.#refuse(`it has ${length} characters, ${MOST_TEMPLATE} at most are read`);
    this.#program = this.#try(() => parse(tokenize(template.text, { lstrip_blocks: true, trim_blocks: true })));
  }

  /** The token in front of a text; empty where there is none. */
  get bos(): string {
    return this.#template.bos ?? '';
  }

  /**
   * The text of a conversation. Errors: HoldfastError where the template fails, refuses, or does not end, and for a variable
   * by a name that templates are given.
   */
  render(
    messages: readonly Message[],
    { addGenerationPrompt = false, tools, variables = {} }: RenderOptions = {},
  ): string {
    const { bos = '', eos = '', date } = this.#template;
    const environment = new Environment();
    const globals = {
      ...{ true: true, false: false, none: null, True: true, False: false, None: null },
      ...{ messages, tools: tools ?? null, documents: null, add_generation_prompt: addGenerationPrompt },
      ...{ bos_token: bos, eos_token: eos },
      range,
      raise_exception(message: unknown) {
        throw new Error(`it refuses: ${message}`);
      },
      strftime_now(format: unknown) {
        if (typeof format !== 'string') throw new Error('strftime_now takes a text');
        return formatDate(format, date);
      },
    };
    const taken = Object.keys(variables).find((name) => Object.hasOwn(globals, name));
    if (taken !== undefined)
      throw new HoldfastError(`chat_template_kwargs.${taken}: a template has its own; leave it out`);
    return this.#try(() => {
      for (const [name, value] of Object.entries({ ...globals, ...variables })) environment.set(name, value);
      const { value } = new BoundedInterpreter(environment).run(this.#program);
      return String(value);
    });
  }

  #try<T>(work: () => T): T {
    try {
      return work();
    } catch (error) {
      return this.#refuse(messageOf(error));
    }
  }

  #refuse(problem: string): never {
    throw new HoldfastError(`chat template ${this.#template.name}: ${shortened(problem.replace(/\s+/g, ' '))}`);
  }
}

/** Python's. */
function range(first: number, second?: number, step = 1): number[] {
  if ([first, second, step].some((value: unknown) => value instanceof Object)) throw new Error('range takes numbers');
  const [start, stop] = second === undefined ? [0, first] : [first, second];
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (!(length <= MOST_ITEMS)) throw new Exceeded(`it counts further than ${MOST_ITEMS}`);
  return Array.from({ length }, (_, i) => start + i * step);
}

const MONTHS = ['January', 'February', 'March', 'April', 'May', 'June', 'July'].concat([
  ...['August', 'September', 'October', 'November', 'December'],
]);
const DAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** Python's strftime at the beginning of a day, in English everywhere. */
function formatDate(format: string, date: string): string {
  const [year = '', month = '', day = ''] = date.split('-');
  const monthName = MONTHS[Number(month) - 1] ?? month;
  const dayName = DAYS[new Date(`${date}T00:00:00Z`).getUTCDay()] ?? '';
  const parts: Readonly<Record<string, string>> = {
    ...{ Y: year, m: month, d: day, y: year.slice(2), B: monthName, b: monthName.slice(0, 3) },
    ...{ A: dayName, a: dayName.slice(0, 3), e: String(Number(day)).padStart(2), H: '00', I: '12', M: '00', S: '00' },
    ...{ p: 'AM', '%': '%' },
  };
  return format.replace(/%([a-zA-Z%])/g, (whole, letter: string) => parts[letter] ?? whole);
}
