// The tools of a conversation, and the calls of them: which messages have some, and whether a chat template writes both down. How they
// are written is the template's; where they lie in an answer is turns.ts's.
//
// Invariant: a conversation that passes `checkToolCalls` has the name of each call in its text, so that no answer that calls
// a tool is learned as one that says nothing; one that passes `checkTools` has its tools in its text.

import { HoldfastError } from '../../util/errors.ts';
import { isObject, show } from '../../util/json.ts';
import type { ChatRenderer } from './chat-template.ts';
import type { Message, TemplateInput } from './shapes.ts';

/** The one that OpenAI's older records have, and theirs. */
const FIELDS = ['function_call', 'tool_calls'] as const;

const isNone = (calls: unknown): boolean =>
  calls === undefined || calls === null || (Array.isArray(calls) && calls.length === 0);

/** Whether a message calls tools. */
export const callsTools = (message: Message): boolean =>
  message.role === 'assistant' && FIELDS.some((field) => !isNone(message[field]));

/** A message that calls tools by other names, made of theirs in order. Errors: HoldfastError for a call without a name. */
export function withNames(message: Message, renamed: (name: string) => string): Message {
  const copy: Record<string, unknown> = { ...message };
  for (const field of FIELDS) {
    const calls = message[field];
    if (isNone(calls)) continue;
    copy[field] = Array.isArray(calls)
      ? calls.map((call, i) => withName(call, renamed, `${field}[${i}]`))
      : withName(calls, renamed, field);
  }
  return copy as Message;
}

/** What has the name and the rest of a tool, or of a call: itself, or its `function`. Undefined for what is none. */
function innerOf(tool: unknown): Readonly<Record<string, unknown>> | undefined {
  if (!isObject(tool)) return undefined;
  return isObject(tool['function']) ? tool['function'] : tool;
}

function withName(call: unknown, renamed: (name: string) => string, field: string): unknown {
  const inner = innerOf(call);
  if (typeof inner?.['name'] !== 'string')
    throw new HoldfastError(`${field} is ${show(call)}; it must be a call with a name`);
  const named = { ...inner, name: renamed(inner['name']) };
  return inner === call ? named : { ...(call as object), function: named };
}

/** Errors: HoldfastError naming the message with a call that is none, or that the template leaves out. */
export function checkToolCalls(renderer: ChatRenderer, messages: readonly Message[], input: TemplateInput): void {
  if (!messages.some(callsTools)) return;
  const all = JSON.stringify([messages, input]);
  let sign = 'call_';
  while (all.includes(sign)) sign += '_';
  /** The message of each. */
  const places: number[] = [];
  const renamed = messages.map((message, i) => {
    if (!callsTools(message)) return message;
    try {
      return withNames(message, () => `${sign}${places.push(i) - 1}.`);
    } catch (error) {
      throw error instanceof HoldfastError ? new HoldfastError(`messages[${i}].${error.message}`) : error;
    }
  });
  const text = renderer.render(renamed, input);
  const missing = places.find((_, call) => !text.includes(`${sign}${call}.`));
  if (missing === undefined) return;
  throw new HoldfastError(
    `the chat template leaves out the tool calls of message ${missing + 1}; use one that writes them, or leave the record out`,
  );
}

/** Errors: HoldfastError where the template leaves out the tools, and no message in front of the answers names them. */
export function checkTools(renderer: ChatRenderer, messages: readonly Message[], input: TemplateInput): void {
  const { tools = [] } = input;
  if (tools.length === 0) return;
  if (renderer.render(messages, input) !== renderer.render(messages, { ...input, tools: undefined })) return;
  const asked = messages.filter(({ role }) => role !== 'assistant' && role !== 'tool');
  const isNamed = (tool: unknown): boolean => {
    const { name } = innerOf(tool) ?? {};
    return typeof name === 'string' && asked.some(({ content }) => content.includes(name));
  };
  if (tools.every(isNamed)) return;
  throw new HoldfastError(
    'the chat template leaves out the tools; use one that writes them, or name them in a system message',
  );
}
