// `Chat`: a conversation with a run: what was asked, and what it answered, with its adapter, without, or both beside
// each other. Each side goes on from its own answers. The turns are kept and shown here; how an answer is written is
// the worker's.

import type { ChatMessage } from '../src/browser/index.ts';
import { make } from './page.ts';

/** Which weights write: those with the adapter, or the model without. */
export type Side = 'with' | 'without';

export const SIDES: Readonly<Record<Side, string>> = { with: 'with the adapter', without: 'without' };

interface Turn {
  readonly question: string;
  readonly answers: Map<Side, string>;
}

/** A place for a text of each side: beside each other, with headings, where there are two. */
export function places(sides: readonly Side[]): { element: HTMLElement; texts: ReadonlyMap<Side, Text> } {
  const texts = new Map(sides.map((side) => [side, document.createTextNode('')]));
  const element = make(
    'div',
    { className: 'answers' },
    ...[...texts].map(([side, text]) =>
      make('div', {}, ...(sides.length > 1 ? [make('h4', {}, SIDES[side])] : []), make('p', {}, text)),
    ),
  );
  return { element, texts };
}

export class Chat {
  readonly #box: HTMLElement;
  #turns: Turn[] = [];

  constructor(box: HTMLElement) {
    this.#box = box;
    this.clear();
  }

  clear(): void {
    this.#turns = [];
    this.#box.replaceChildren(make('p', { className: 'hint' }, 'Ask it something: now, or while it trains.'));
  }

  /**
   * Asks each side in turn, while the conversation is the same and goes on. `answer` writes one, piece by piece, until its listener
   * returns false.
   */
  async ask(
    question: string,
    sides: readonly Side[],
    goesOn: () => boolean,
    answer: (side: Side, messages: ChatMessage[], onText: (piece: string) => boolean) => Promise<unknown>,
  ): Promise<void> {
    if (this.#turns.length === 0) this.#box.replaceChildren();
    const turn: Turn = { question, answers: new Map() };
    const { element, texts } = places(sides);
    this.#box.append(make('p', { className: 'question' }, question), element);
    const messagesOf = (side: Side) => [...this.#said(side), { role: 'user', content: question }];
    const asked = sides.map((side) => ({ side, messages: messagesOf(side) }));
    this.#turns.push(turn);
    const isWanted = () => this.#turns.includes(turn) && goesOn();
    for (const { side, messages } of asked) {
      if (!isWanted()) return;
      const text = texts.get(side);
      let said = '';
      await answer(side, messages, (piece) => {
        said += piece;
        turn.answers.set(side, said);
        text?.appendData(piece);
        this.#box.parentElement?.scrollTo({ top: this.#box.scrollHeight });
        return isWanted();
      });
    }
  }

  /** The conversation of one side so far: without the questions that went to the other side alone. */
  #said(side: Side): ChatMessage[] {
    return this.#turns.flatMap(({ question, answers }) => {
      const content = answers.get(side);
      if (content === undefined) return [];
      return [
        { role: 'user', content: question },
        { role: 'assistant', content },
      ];
    });
  }
}
