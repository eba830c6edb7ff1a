// `TurnFinder`: the spans of a conversation's answers in its text: from behind the header of an answer through the end
// of its turn, for any template that writes contents down as they are.
//
// Rendering a beginning of the conversation and taking the difference does not do: templates drop old reasoning, or put
// something into the last answer alone. So the conversation is rendered with marks in place of what was said, which
// shows what the template itself writes around each turn. The marks are then replaced. Invariant: what comes of it is
// what the template makes of the conversation, character for character; what is not is refused.

import { HoldfastError, messageOf } from '../../util/errors.ts';
import type { ChatRenderer } from './chat-template.ts';
import { type Example, learnedIn, type Message } from './shapes.ts';
import { callsTools, withNames } from './tool-calls.ts';

/** Characters of a text, from `begin` up to `end`. */
export interface Span {
  readonly begin: number;
  readonly end: number;
}

export interface Rendered {
  readonly text: string;
  /** In order, apart from each other. */
  readonly answers: readonly Span[];
}

type ConversationExample = Extract<Example, { kind: 'conversation' }>;

/** Fields of a message that say something. */
const SPOKEN = ['content', 'reasoning_content', 'thinking'] as const;
/** What templates look for inside contents: it stays where it is, and marks stand between. */
const TAGS = /(<\/?(?:think|thinking|reasoning|tool_call|tool_response)>)/;

/** A mark in a text. */
interface Mark extends Span {
  readonly number: number;
}

/** What a template writes around what is said, for all conversations of one form. */
interface Learned {
  readonly text: string;
  readonly marks: readonly Mark[];
  readonly answers: readonly Span[];
}

/** A conversation with marks in it. */
interface Marked {
  readonly messages: readonly Message[];
  /** What each mark stands for, by number. */
  readonly said: readonly string[];
  /** The number of each message's last mark, in what it says or in the calls behind it; undefined where it has none. */
  readonly last: readonly (number | undefined)[];
  readonly pattern: RegExp;
}

/** Forms of conversations that are remembered. */
const MOST_FORMS = 1024;

/** Refused with a reason. */
class Unclear extends Error {}

export class TurnFinder {
  readonly #renderer: ChatRenderer;
  readonly #forms = new Map<string, Learned | Unclear>();
  readonly #unasked: string;

  constructor(renderer: ChatRenderer) {
    this.#renderer = renderer;
    this.#unasked = unaskedHeader(renderer);
  }

  /**
   * `wanted`: the answers to find, by index, in order. Errors: HoldfastError, with the reason, where the template fails or
   * does not show where they begin and end.
   */
  render(conversation: ConversationExample, wanted: readonly number[] = learnedIn(conversation)): Rendered {
    const text = this.#renderer.render(conversation.messages, { tools: conversation.tools });
    try {
      const marked = mark(conversation.messages);
      const { answers, ...learned } = this.#learn(marked, conversation.tools, wanted);
      const { written, moved } = replace(learned, marked.said);
      if (written !== text) throw new Unclear('it changes what is said');
      return { text, answers: answers.map(({ begin, end }) => ({ begin: moved(begin), end: moved(end) })) };
    } catch (error) {
      if (!(error instanceof Unclear)) throw error;
      throw new HoldfastError(
        `the chat template does not show where answers begin and end: ${error.message}; train on all, or use another template`,
      );
    }
  }

  /** What is said does not matter to it, only where marks are. */
  #learn(marked: Marked, tools: ConversationExample['tools'], wanted: readonly number[]): Learned {
    const form = JSON.stringify([marked.messages, tools, wanted]);
    const known = this.#forms.get(form);
    if (known instanceof Unclear) throw known;
    if (known) return known;
    if (this.#forms.size >= MOST_FORMS) this.#forms.clear();
    try {
      const learned = this.#around(marked, tools, wanted);
      this.#forms.set(form, learned);
      return learned;
    } catch (error) {
      if (error instanceof Unclear) this.#forms.set(form, error);
      throw error;
    }
  }

  #around(
    { messages, last, pattern }: Marked,
    tools: ConversationExample['tools'],
    wanted: readonly number[],
  ): Learned {
    const part = (count: number, addGenerationPrompt: boolean) => {
      const text = this.#renderer.render(messages.slice(0, count), { tools, addGenerationPrompt });
      return { text, marks: marksIn(text, pattern) };
    };
    const whole = part(messages.length, false);
    const places = new Map(whole.marks.map((mark) => [mark.number, mark]));
    const answers: Span[] = [];
    for (const i of wanted) {
      const number = last[i];
      const said = number === undefined ? undefined : places.get(number);
      if (number === undefined || !said) throw new Unclear(`it leaves out the answer in message ${i + 1}`);
      const ending = endOfTurn(part(i + 1, false), number, i, this.#unasked, messages[i]);
      const span = {
        begin: this.#behindHeader(() => part(i, true), whole.text, places, i),
        end: said.end + ending.length,
      };
      if (span.begin > said.begin) throw new Unclear(`it puts the header of message ${i + 1} behind it`);
      if (span.begin < (answers.at(-1)?.end ?? 0))
        throw new Unclear(`message ${i + 1} begins before the last one ends`);
      if (whole.text.slice(said.end, span.end) !== ending) {
        throw new Unclear(`it ends message ${i + 1} in another way where the conversation goes on`);
      }
      answers.push(span);
    }
    return { ...whole, answers };
  }

  /** What is in front of an answer is what a model goes on from, behind what was said last. */
  #behindHeader(
    before: () => { text: string; marks: readonly Mark[] },
    text: string,
    places: ReadonlyMap<number, Mark>,
    i: number,
  ): number {
    let prompt: ReturnType<typeof before>;
    try {
      prompt = before();
    } catch (error) {
      if (i > 0) throw error;
      throw new Unclear(`the conversation begins with an answer, and it writes no header alone (${messageOf(error)})`);
    }
    const anchor = prompt.marks.at(-1);
    const from = anchor ? places.get(anchor.number)?.end : 0;
    const header = prompt.text.slice(anchor?.end ?? 0);
    if (from === undefined || !text.startsWith(header, from)) {
      throw new Unclear(`it writes something else in front of message ${i + 1} than in front of an answer to come`);
    }
    return from + header.length;
  }
}

/**
 * What a template writes behind every answer: it ends the text of one. Undefined where it writes nothing, or has no
 * conversation of a question and an answer alone.
 */
export function endOfTurns(renderer: ChatRenderer): string | undefined {
  const conversation = [
    { role: 'user', content: 'a' },
    { role: 'assistant', content: 'b' },
  ];
  const { messages, last, pattern } = mark(conversation);
  try {
    const text = renderer.render(messages);
    const end = endOfTurn(
      { text, marks: marksIn(text, pattern) },
      last.at(-1) ?? -1,
      1,
      unaskedHeader(renderer),
      undefined,
    );
    return end.trim() || end;
  } catch (error) {
    if (error instanceof Unclear || error instanceof HoldfastError) return undefined;
    throw error;
  }
}

/** The header of an answer to come, where it is behind every conversation, asked for or not: Llama 3's first template. */
function unaskedHeader(renderer: ChatRenderer): string {
  try {
    const text = renderer.render([]);
    return text.startsWith(renderer.bos) ? text.slice(renderer.bos.length) : text;
  } catch (error) {
    // Most templates look at the first message.
    if (error instanceof HoldfastError) return '';
    throw error;
  }
}

/**
 * What stands behind an answer that ends a text, but for the header of the next: its first word, with space in front;
 * space alone where that is all. Behind the name of a call, all: the call has not ended there.
 */
function endOfTurn(
  { text, marks }: { text: string; marks: readonly Mark[] },
  number: number,
  i: number,
  unasked: string,
  message: Message | undefined,
): string {
  const said = marks.find((mark) => mark.number === number);
  if (!said) throw new Unclear(`it leaves out the answer in message ${i + 1}`);
  const all = text.slice(said.end);
  const behind = all.length > unasked.length && all.endsWith(unasked) ? all.slice(0, all.length - unasked.length) : all;
  if (behind === '')
    throw new Unclear(`it writes nothing behind message ${i + 1}, so that nothing would end an answer`);
  return (message && callsTools(message) ? behind.trimEnd() : /^\s*\S+/.exec(behind)?.[0]) || behind;
}

/** Puts marks in place of what is said; space around it and tags in it stay, for templates that look at them. */
function mark(messages: readonly Message[]): Marked {
  const [open, close] = delimiters(messages);
  const said: string[] = [];
  const last: (number | undefined)[] = [];
  const marked = messages.map((message) => {
    const calls = callsTools(message);
    const isAnswer = message.role === 'assistant' && !calls;
    const copy: Record<string, unknown> = { ...message };
    for (const field of SPOKEN) {
      const whole = message[field];
      if (typeof whole !== 'string') continue;
      const parts = whole.split(TAGS);
      copy[field] = parts
        .map((part, i) => {
          const core = part.trim();
          // An answer ends with a mark, even where nothing is said, or with its calls.
          const needed = isAnswer && field === 'content' && i === parts.length - 1;
          if (i % 2 === 1 || (core === '' && !needed)) return part;
          const begin = core === '' ? part.length : part.indexOf(core);
          const number = said.push(core) - 1;
          return `${part.slice(0, begin)}${open}${number}${close}${part.slice(begin + core.length)}`;
        })
        .join('');
      if (field === 'content') last.push(copy[field] === whole ? undefined : said.length - 1);
    }
    if (!calls) return copy as Message;
    last[last.length - 1] = undefined;
    return withNames(copy as Message, (name) => {
      last[last.length - 1] = said.push(name) - 1;
      return `${open}${said.length - 1}${close}`;
    });
  });
  return { messages: marked, said, last, pattern: new RegExp(`${open}(\\d+)${close}`, 'gu') };
}

/** Two characters that are nowhere in the conversation, of those that mean nothing. */
function delimiters(messages: readonly Message[]): readonly [string, string] {
  const all = JSON.stringify(messages);
  for (let code = 0xe000; code < 0xf8ff; code += 2) {
    const pair = [String.fromCharCode(code), String.fromCharCode(code + 1)] as const;
    if (!pair.some((character) => all.includes(character))) return pair;
  }
  throw new Unclear('the conversation has all characters of the private use area in it');
}

function marksIn(text: string, pattern: RegExp): Mark[] {
  const marks = Array.from(text.matchAll(pattern), ({ 0: whole, 1: digits, index }) => ({
    number: Number(digits),
    begin: index,
    end: index + whole.length,
  }));
  if (new Set(marks.map(({ number }) => number)).size < marks.length) throw new Unclear('it writes a message twice');
  return marks;
}

/** The text with the marks replaced, and where a place of it has moved to. */
function replace({ text, marks }: Omit<Learned, 'answers'>, said: readonly string[]) {
  const parts: string[] = [];
  const moves: { readonly end: number; readonly by: number }[] = [];
  let at = 0;
  let by = 0;
  for (const { begin, end, number } of marks) {
    const core = said[number] ?? '';
    parts.push(text.slice(at, begin), core);
    by += core.length - (end - begin);
    moves.push({ end, by });
    at = end;
  }
  parts.push(text.slice(at));
  const moved = (place: number) => place + (moves.findLast(({ end }) => end <= place)?.by ?? 0);
  return { written: parts.join(''), moved };
}
