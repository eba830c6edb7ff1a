// A chat template: how a model's conversations are written down, in Jinja as Hugging Face's models bring it, run with
// bounds. Where a template lies is find-template.ts, which part of the text answers are turns.ts.
//
// Invariant: a template runs a bounded time in bounded memory, whatever it says, and gives the same text on every day and
// every machine; what it refuses, or fails at, is one line.

import { Environment, Interpreter, parse, tokenize } from '@huggingface/jinja';
import { HoldfastError, messageOf, shortened } from '../../util/errors.ts';
import { object, optional, type Schema, text } from '../../util/json.ts';
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
/** Characters of any value; what is written is one. */
const MOST_TEXT = 2 ** 26;
/** Items of a list. */
const MOST_ITEMS = 2 ** 17;
/** Expressions, turns of loops, and parts of the values that they work on: some seconds of it. */
const MOST_WORK = 2e6;
/** A turn of a loop costs as much as so many expressions. */
const TURN_WORK = 20;
/** Characters, or items, that cost as much as an expression. */
const FREE_SIZE = 256;

type Evaluate = Interpreter['evaluate'];
type Value = ReturnType<Evaluate>;

/** A template did more than its bounds allow. */
class Exceeded extends Error {}

/** Counts what it does. */
class BoundedInterpreter extends Interpreter {
  #work = 0;
  /** What loops go over: each of its items is a turn. */
  readonly #iterables = new Set<unknown>();

  override evaluate(...[statement, environment]: Parameters<Evaluate>): Value {
    if (statement && 'iterable' in statement) this.#iterables.add(statement.iterable);
    if (statement && 'lhs' in statement && this.#iterables.has(statement)) this.#iterables.add(statement.lhs);
    const value = super.evaluate(statement, environment);
    const size = sizeOf(value);
    this.#work += 1 + (this.#iterables.has(statement) ? size * TURN_WORK : size / FREE_SIZE);
    if (this.#work > MOST_WORK) throw new Exceeded('it does not come to an end');
    return value;
  }
}

function sizeOf({ value }: Value): number {
  if (typeof value === 'string') {
    if (value.length > MOST_TEXT) throw new Exceeded(`it writes more than ${MOST_TEXT} characters`);
    return value.length;
  }
  if (Array.isArray(value)) {
    if (value.length > MOST_ITEMS) throw new Exceeded(`it makes a list of more than ${MOST_ITEMS} items`);
    return value.length;
  }
  return value instanceof Map ? value.size : 1;
}

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
      strftime_now: (format: unknown) => formatDate(String(format), date),
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
