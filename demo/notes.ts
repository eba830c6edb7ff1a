// What is said to the person: the one line of what is going on, which screen readers read out, and below the page the
// list of what was said before.

import { messageOf } from '../src/browser/index.ts';
import { byId, make, setText } from './page.ts';

const MOST_KEPT = 200;

export class Notes {
  readonly #status = byId('status', HTMLElement);
  readonly #log = byId('log', HTMLElement);

  say(text: string): void {
    this.#show(text, false);
  }

  problem(error: unknown): void {
    this.#show(messageOf(error), true);
  }

  /** Into the list alone. */
  add(text: string): void {
    const time = new Date().toLocaleTimeString([], { hour: '2-digit', minute: '2-digit', second: '2-digit' });
    this.#log.prepend(make('li', {}, make('time', {}, time), ` ${text}`));
    while (this.#log.childElementCount > MOST_KEPT) this.#log.lastElementChild?.remove();
  }

  #show(text: string, problem: boolean): void {
    setText(this.#status, text);
    this.#status.classList.toggle('problem', problem);
    this.add(text);
  }
}
