// The shapes of records that people have, and what each says: text, a prompt with its completion, or a conversation.
// Which shape a record has is seen from its fields. Not how a conversation is written down (chat-template.ts).
//
// Invariant: what `exampleOf` gives is whole, and what it refuses is named by file, line and field.

import * as v from 'valibot';
import { HoldfastError } from '../../util/errors.ts';
import { check, isObject, list, object, oneOf, optional, type Schema, show, text } from '../../util/json.ts';
import type { FoundRecord } from './lines.ts';

/** A message, as a chat template gets it: its other fields too. */
export interface Message {
  /** Of its writer: user, assistant, system, tool; what a template has a form for. */
  readonly role: string;
  /** What is said. */
  readonly content: string;
  /** Of an answer: 0 where it is not to be learned. */
  readonly weight?: 0 | 1 | null | undefined;
  /** What else a template may look at. */
  readonly [field: string]: unknown;
}

/** What there is to learn from. */
export type Example =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'completion'; readonly prompt: string; readonly completion: string }
  | {
      readonly kind: 'conversation';
      readonly messages: readonly Message[];
      readonly tools?: readonly unknown[] | undefined;
      /** Answers before this message belong to the prompt. */
      readonly answersFrom: number;
    };

type Conversation = Extract<Example, { kind: 'conversation' }>;

/** The messages of a conversation that are learned, by index: answers, but for those of the prompt and those of weight 0. */
export const learnedIn = ({ messages, answersFrom }: Conversation): number[] =>
  answersIn(messages, ({ weight }, i) => i >= answersFrom && weight !== 0);

/** The answers that are not to be learned whatever is, by index. */
export const unlearnedIn = ({ messages }: Conversation): number[] => answersIn(messages, ({ weight }) => weight === 0);

const answersIn = (messages: readonly Message[], fits: (message: Message, i: number) => boolean): number[] =>
  messages.flatMap((message, i) => (message.role === 'assistant' && fits(message, i) ? [i] : []));

interface ShapeReader {
  /** Fields that a record of the shape has. */
  readonly fields: readonly string[];
  /** `chat`: whether conversations can be written down. */
  read(value: Readonly<Record<string, unknown>>, at: string, chat: boolean): Example;
}

const isContent = (value: unknown): boolean =>
  typeof value === 'string' ||
  value === null ||
  (Array.isArray(value) &&
    value.every((part) => isObject(part) && part['type'] === 'text' && typeof part['text'] === 'string'));

/** A list of parts is their texts, joined; null is what a message of tool calls alone has. */
const content: Schema<string> = v.pipe(
  v.custom<string | null | { text: string }[]>(isContent, 'a text, or a list of {"type": "text", "text": ...}'),
  v.transform((value) => (Array.isArray(value) ? value.map((part) => part.text).join('') : (value ?? ''))),
);

const filled = <T>(item: Schema<T>): Schema<T[]> =>
  v.pipe(list(item), v.minLength(1, 'a list of at least one message'));

/** As OpenAI's records have it, and ShareGPT's. */
const weight = optional(v.nullable(oneOf([0, 1])));

const messages = filled(object({ role: text, content: optional(content), weight }));
const tools = object({ tools: optional(v.nullable(v.array(v.unknown(), 'a list')) as Schema<unknown[] | null>) });

/** The list of messages in a field. */
function messagesIn(value: Readonly<Record<string, unknown>>, field: string, at: string): Message[] {
  const checked = check(object({ [field]: messages }), value, at)[field] ?? [];
  const given = value[field] as Record<string, unknown>[];
  return checked.map((message, i) => ({ ...given[i], content: '', ...message }));
}

const toolsIn = (value: unknown, at: string) => ({ tools: check(tools, value, at).tools ?? undefined });

const SPEAKERS = {
  ...{ system: 'system', human: 'user', user: 'user', gpt: 'assistant', assistant: 'assistant', chatgpt: 'assistant' },
  ...{
    bing: 'assistant',
    bard: 'assistant',
    model: 'assistant',
    tool: 'tool',
    function_response: 'tool',
    observation: 'tool',
  },
} as const;
const conversations = object({
  conversations: filled(
    object({ from: oneOf(Object.keys(SPEAKERS) as (keyof typeof SPEAKERS)[]), value: text, weight }),
  ),
});

/** The prompt that the Alpaca data was published with. */
const alpacaPrompt = (instruction: string, input: string): string =>
  input === ''
    ? `Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\n${instruction}\n\n### Response:\n`
    : `Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n### Instruction:\n${instruction}\n\n### Input:\n${input}\n\n### Response:\n`;

const alpaca = object({ instruction: text, input: optional(text), output: text, system: optional(text) });

const SHAPES = {
  messages: {
    fields: ['messages'],
    read: (value, at) => ({
      ...{ kind: 'conversation', messages: messagesIn(value, 'messages', at), answersFrom: 0 },
      ...toolsIn(value, at),
    }),
  },
  sharegpt: {
    fields: ['conversations'],
    read(value, at) {
      const turns = check(conversations, value, at).conversations;
      const messages = turns.map(({ from, value, weight }) => ({
        ...{ role: SPEAKERS[from], content: value },
        ...(weight === 0 && { weight }),
      }));
      return { kind: 'conversation', messages, answersFrom: 0 };
    },
  },
  'prompt/completion': {
    fields: ['prompt', 'completion'],
    read(value, at) {
      if (!Array.isArray(value['prompt']) && !Array.isArray(value['completion'])) {
        return { kind: 'completion', ...check(object({ prompt: text, completion: text }), value, at) };
      }
      const prompt = messagesIn(value, 'prompt', at);
      const all = [...prompt, ...messagesIn(value, 'completion', at)];
      return { kind: 'conversation', messages: all, answersFrom: prompt.length, ...toolsIn(value, at) };
    },
  },
  alpaca: {
    fields: ['instruction', 'output'],
    read(value, at, chat) {
      const { instruction, input = '', output, system = '' } = check(alpaca, value, at);
      if (!chat) return { kind: 'completion', prompt: alpacaPrompt(instruction, input), completion: output };
      const messages = [
        ...(system === '' ? [] : [{ role: 'system', content: system }]),
        { role: 'user', content: input === '' ? instruction : `${instruction}\n${input}` },
        { role: 'assistant', content: output },
      ];
      return { kind: 'conversation', messages, answersFrom: 0 };
    },
  },
  text: { fields: ['text'], read: (value, at) => ({ kind: 'text', ...check(object({ text }), value, at) }) },
} as const satisfies Record<string, ShapeReader>;

/** The shapes of records that are known: what they say is in `exampleOf`. */
export type ShapeName = keyof typeof SHAPES;

/** Their names. */
export const SHAPE_NAMES = Object.keys(SHAPES) as ShapeName[];

const READERS: Readonly<Record<ShapeName, ShapeReader>> = SHAPES;

/** The shape of a record: of several whose fields it has, the one that says most. Undefined for none. */
export function recordShape(value: unknown): ShapeName | undefined {
  if (!isObject(value)) return undefined;
  return SHAPE_NAMES.find((name) => READERS[name].fields.every((field) => Object.hasOwn(value, field)));
}

/** Errors: HoldfastError for a record of no shape that is known. */
export function shapeAt({ at, value }: FoundRecord): ShapeName {
  const shape = recordShape(value);
  if (shape) return shape;
  const known = Object.values(READERS).map(({ fields }) => fields.join(' and '));
  const found = isObject(value) ? `fields ${show(Object.keys(value).join(', '))}` : show(value);
  throw new HoldfastError(`${at} has ${found}: no record that is known; it must have ${known.join(', or ')}`);
}

/** What a record of a shape says. Errors: HoldfastError naming the place and the field. */
export function exampleOf({ at, value }: FoundRecord, shape: ShapeName, chat: boolean): Example {
  const { fields, read } = READERS[shape];
  const own = recordShape(value);
  if (own !== undefined && own !== shape) {
    throw new HoldfastError(
      `${at} is a record of the shape ${own}, those before it are of ${shape}; a file has one shape`,
    );
  }
  if (!isObject(value))
    throw new HoldfastError(`${at} is ${show(value)}; it must be an object with ${fields.join(', ')}`);
  return read(value, at, chat);
}
