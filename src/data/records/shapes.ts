// The shapes of records that people have, and what each says: text, a prompt with its completion, or a conversation.
// Which shape a record has is seen from its fields. Not how a conversation is written down (chat-template.ts).
//
// Invariant: what `exampleOf` gives is whole, and what it refuses is named by file, line and field.

import * as v from 'valibot';
import { HoldfastError } from '../../util/errors.ts';
import { check, isObject, list, namesTo, object, oneOf, optional, type Schema, show, text } from '../../util/json.ts';
import { hasLabel } from './labelled-fields.ts';
import type { FoundRecord } from './lines.ts';
import { checkMessageFields, checkNone, checkRecordFields, says } from './other-fields.ts';

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

/** What a chat template gets beside messages. */
export interface TemplateInput {
  /** That may be called. */
  readonly tools?: readonly unknown[] | undefined;
  /** Of the template's own, by name, such as enable_thinking. */
  readonly variables?: Readonly<Record<string, unknown>> | undefined;
}

/** What there is to learn from. */
export type Example =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'completion'; readonly prompt: string; readonly completion: string }
  | ({
      readonly kind: 'conversation';
      readonly messages: readonly Message[];
      /** Answers before this message belong to the prompt. */
      readonly answersFrom: number;
    } & TemplateInput);

type Conversation = Extract<Example, { kind: 'conversation' }>;

/** The messages of a conversation that are learned, by index: answers, but for those of the prompt and those of weight 0. */
export const learnedIn = ({ messages, answersFrom }: Conversation): number[] =>
  answersIn(messages, ({ weight }, i) => i >= answersFrom && weight !== 0);

/** The answers that are not to be learned whatever is, by index. */
export const unlearnedIn = ({ messages }: Conversation): number[] => answersIn(messages, ({ weight }) => weight === 0);

const answersIn = (messages: readonly Message[], fits: (message: Message, i: number) => boolean): number[] =>
  messages.flatMap((message, i) => (message.role === 'assistant' && fits(message, i) ? [i] : []));

type Fields = Readonly<Record<string, unknown>>;

interface ShapeReader {
  /** Fields that a record of the shape has. */
  readonly fields: readonly string[];
  /** `chat`: whether conversations can be written down. */
  read(value: Fields, at: string, chat: boolean): Example;
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

/** A field that may be absent, or null. */
const maybe = <T>(schema: Schema<T>) => optional<T | null>(v.nullable(schema));

const filled = <T>(item: Schema<T>): Schema<T[]> =>
  v.pipe(list(item), v.minLength(1, 'a list of at least one message'));

/** As OpenAI's records have it, and ShareGPT's. */
const weight = maybe(oneOf([0, 1]));

const messages = filled(object({ role: text, content: optional(content), weight }));

/** The list of messages in a field. */
function messagesIn(value: Fields, field: string, at: string): Message[] {
  const checked = check(object({ [field]: messages }), value, at)[field] ?? [];
  const given = value[field] as Fields[];
  return checked.map((message, i) => {
    checkMessageFields(given[i] ?? {}, message.role, `${at}: ${field}[${i}]`);
    return { ...given[i], content: '', ...message };
  });
}

/** A JSON value; undefined for what is none. */
function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** A list, or the JSON text of one; undefined for anything else. */
function listIn(value: unknown): unknown[] | undefined {
  if (value === '') return [];
  const list = typeof value === 'string' ? parsed(value) : value;
  return Array.isArray(list) ? list : undefined;
}

const tools: Schema<unknown[]> = v.pipe(
  v.custom((value) => listIn(value) !== undefined, 'a list, or the JSON text of one'),
  v.transform((value) => listIn(value) ?? []),
);
const templateInput = object({ tools: maybe(tools), chat_template_kwargs: maybe(namesTo(v.unknown())) });

/** As a template gets them: some data has a function's name and parameters alone. */
const asTool = (tool: unknown): unknown =>
  isObject(tool) && typeof tool['name'] === 'string' && !says(tool['function'])
    ? { type: 'function', function: tool }
    : tool;

/** What a record has for the chat template beside its messages. */
function templateInputIn(value: Fields, at: string): TemplateInput {
  const { tools, chat_template_kwargs: variables } = check(templateInput, value, at);
  return { ...(tools && { tools }), ...(variables && says(variables) && { variables }) };
}

const system = object({ system: maybe(text) });

/** Messages behind the record's own system message, where it has one. */
function behindSystem(value: Fields, at: string, messages: readonly Message[]): Message[] {
  const content = check(system, value, at).system ?? '';
  const [first] = messages;
  if (content === '' || (first?.role === 'system' && first.content === content)) return [...messages];
  if (first?.role === 'system')
    throw new HoldfastError(`${at}: system is ${show(content)}, and the first message another; leave one of them out`);
  return [{ role: 'system', content }, ...messages];
}

/** A conversation of which all answers may be learned. */
const conversation = (value: Fields, at: string, messages: readonly Message[]): Conversation => ({
  ...{ kind: 'conversation', messages: behindSystem(value, at, messages), answersFrom: 0 },
  ...templateInputIn(value, at),
});

const SPEAKERS = {
  ...{ system: 'system', human: 'user', user: 'user', gpt: 'assistant', assistant: 'assistant', chatgpt: 'assistant' },
  ...{ bing: 'assistant', bard: 'assistant', model: 'assistant', function_call: 'assistant' },
  ...{ tool: 'tool', function_response: 'tool', observation: 'tool' },
} as const;
const conversations = object({
  conversations: filled(
    object({ from: oneOf(Object.keys(SPEAKERS) as (keyof typeof SPEAKERS)[]), value: text, weight }),
  ),
});
/** Fields of a turn that a template may look at. */
const OF_TURNS = ['name', 'tool_calls', 'tool_call_id', 'function_call', 'reasoning_content', 'thinking'] as const;

/** The turns of a ShareGPT record, as messages. */
function turnsIn(value: Fields, at: string): Message[] {
  const turns = check(conversations, value, at).conversations;
  const given = value['conversations'] as Fields[];
  return turns.map(({ from, value, weight }, i) => {
    const [turn = {}, place, role] = [given[i], `${at}: conversations[${i}]`, SPEAKERS[from]];
    checkMessageFields(turn, role, place);
    return {
      ...Object.fromEntries(OF_TURNS.flatMap((field) => (says(turn[field]) ? [[field, turn[field]]] : []))),
      ...{ role, content: value },
      ...(from === 'function_call' && { content: '', tool_calls: callsIn(value, place) }),
      ...(weight === 0 && { weight }),
    };
  });
}

/** The calls in what such a turn says. */
function callsIn(value: string, at: string): unknown[] {
  const found = parsed(value);
  const calls = Array.isArray(found) ? found : [found];
  if (calls.length > 0 && calls.every((call) => isObject(call) && typeof call['name'] === 'string'))
    return calls.map(asTool);
  throw new HoldfastError(
    `${at}.value is ${show(value)}; it must be a call in JSON, {"name": ..., "arguments": ...}, or a list of them`,
  );
}

/** The prompt that the Alpaca data was published with. */
const alpacaPrompt = (instruction: string, input: string): string =>
  input === ''
    ? `Below is an instruction that describes a task. Write a response that appropriately completes the request.\n\n### Instruction:\n${instruction}\n\n### Response:\n`
    : `Below is an instruction that describes a task, paired with an input that provides further context. Write a response that appropriately completes the request.\n\n### Instruction:\n${instruction}\n\n### Input:\n${input}\n\n### Response:\n`;

const asked = (content: string, answer: string): Message[] => [
  { role: 'user', content },
  { role: 'assistant', content: answer },
];
const turn: Schema<[string, string]> = v.custom<[string, string]>(
  (value) => Array.isArray(value) && value.length === 2 && value.every((said) => typeof said === 'string'),
  'an instruction and its response, two texts',
);
const alpaca = object({ instruction: text, input: maybe(text), output: text, history: maybe(list(turn)) });

const SHAPES = {
  messages: {
    fields: ['messages'],
    read(value, at) {
      checkNone(value, at, ['history'], 'give its turns as messages');
      return conversation(value, at, messagesIn(value, 'messages', at));
    },
  },
  sharegpt: {
    fields: ['conversations'],
    read(value, at) {
      checkNone(value, at, ['history'], 'give its turns as conversations');
      const { tools, ...rest } = conversation(value, at, turnsIn(value, at));
      return { ...rest, ...(says(tools) && { tools: tools?.map(asTool) }) };
    },
  },
  'prompt/completion': {
    fields: ['prompt', 'completion'],
    read(value, at) {
      checkNone(value, at, ['history', 'suffix'], 'a prompt has all that is in front; give it as a part of the prompt');
      if (!Array.isArray(value['prompt']) && !Array.isArray(value['completion'])) {
        checkNone(value, at, ['system', 'tools'], 'a prompt of text is all that is in front; give it as messages');
        return { kind: 'completion', ...check(object({ prompt: text, completion: text }), value, at) };
      }
      const prompt = behindSystem(value, at, messagesIn(value, 'prompt', at));
      const all = [...prompt, ...messagesIn(value, 'completion', at)];
      return { kind: 'conversation', messages: all, answersFrom: prompt.length, ...templateInputIn(value, at) };
    },
  },
  alpaca: {
    fields: ['instruction', 'output'],
    read(value, at, chat) {
      const { instruction, input, output, history } = check(alpaca, value, at);
      if (!chat) {
        const why = 'the prompt of Alpaca has no place for it; name a chat template (chatml comes along)';
        checkNone(value, at, ['system', 'history', 'tools'], why);
        return { kind: 'completion', prompt: alpacaPrompt(instruction, input ?? ''), completion: output };
      }
      const turns = (history ?? []).flatMap(([content, answer]) => asked(content, answer));
      return conversation(value, at, [...turns, ...asked(input ? `${instruction}\n${input}` : instruction, output)]);
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
  if (isObject(value)) checkRecordFields(value, at, false);
  const known = Object.values(READERS)
    .map(({ fields }) => fields.join(' and '))
    .join(', or ');
  const found = isObject(value) ? `fields ${show(Object.keys(value).join(', '))}` : show(value);
  throw new HoldfastError(
    hasLabel(value)
      ? `${at} has ${found}: a classifier learns such records, which finetune makes of a BERT; a model that writes text learns those with ${known}`
      : `${at} has ${found}: no record that is known; it must have ${known}`,
  );
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
  checkRecordFields(value, at, shape !== 'text');
  return read(value, at, chat);
}
