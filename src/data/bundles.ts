// `Bundles`: items gathered as they come, and handed on together as soon as their texts are long enough for that to be
// worth it.

import { PART } from './text-parts.ts';

export class Bundles<T> {
  readonly #full: (items: readonly T[], characters: number) => Promise<void>;
  #items: T[] = [];
  #characters = 0;

  /** `full`: gets items in their order, and the characters of their texts. */
  constructor(full: (items: readonly T[], characters: number) => Promise<void>) {
    this.#full = full;
  }

  /** One whose text has so many characters. */
  async add(item: T, characters: number): Promise<void> {
    this.#items.push(item);
    this.#characters += characters;
    if (this.#characters >= PART) await this.end();
  }

  /** What is left. */
  async end(): Promise<void> {
    const [items, characters] = [this.#items, this.#characters];
    [this.#items, this.#characters] = [[], 0];
    if (items.length > 0) await this.#full(items, characters);
  }
}
