// The tokens that were added to a model's own: found in a text as they are spelled, the longest of those that begin first,
// before anything else is done to it.
//
// Two kinds: those that are found in the text as it is, and those that are found in it after it was normalized.

import { HoldfastError, shortened } from '../../util/errors.ts';
import { show } from '../../util/json.ts';
import { Part } from './part.ts';
import { escaped } from './patterns.ts';

export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** White space before it, or after it, belongs to it. */
  readonly lstrip: boolean;
  readonly rstrip: boolean;
  readonly normalized: boolean;
  readonly special: boolean;
}

const MOST_IDS = 2 ** 22;

export function addedTokensIn(
  list: readonly unknown[],
  vocabulary: ReadonlyMap<string, number>,
  file: string,
): AddedToken[] {
  const ids = new Map([...vocabulary].map(([token, id]) => [id, token]));
  const seen = new Set<string>();
  return list.map((json, i) => {
    const part = new Part(json, file, `added_tokens[${i}]`);
    const id = part.count('id');
    const content = part.text('content');
    part.neutral('single_word', false);
    const special = part.flag('special', false);
    const token: AddedToken = {
      ...{ id, content, special, lstrip: part.flag('lstrip', false), rstrip: part.flag('rstrip', false) },
      normalized: part.flag('normalized', !special),
    };
    part.done();
    if (id >= MOST_IDS) part.refuse('id', id, `below ${MOST_IDS}`);
    if (content === '' || seen.has(content)) part.refuse('content', content, 'a text that no other one has');
    seen.add(content);
    const own = vocabulary.get(content);
    if (own !== undefined && own !== id) part.refuse('id', id, `${own}, which ${show(content)} has in the vocab`);
    const other = ids.get(id);
    if (other !== undefined && other !== content)
      part.refuse('id', id, `another one, since it is that of ${show(other)}`);
    ids.set(id, content);
    return token;
  });
}

/** A part of a text that is an added token, or between such. */
export type Section = { readonly text: string; readonly token?: undefined } | { readonly token: AddedToken };

/** Finds some of the added tokens. */
export class TokenFinder {
  readonly #tokens: ReadonlyMap<string, AddedToken>;
  readonly #pattern: RegExp | undefined;

  /** `spelled`: how each is spelled in the text that is searched. */
  constructor(tokens: readonly AddedToken[], spelled: (token: AddedToken) => string) {
    this.#tokens = new Map(tokens.map((token) => [spelled(token), token]));
    const names = [...this.#tokens.keys()].filter((name) => name !== '').sort((a, b) => b.length - a.length);
    if (names.length === 0) return;
    const literals = names.map(escaped);
    this.#pattern = new RegExp(literals.join('|'), 'gu');
  }

  /** The whole text, in order; without sections of no text. */
  split(text: string): Section[] {
    if (!this.#pattern) return text === '' ? [] : [{ text }];
    const found: Section[] = [];
    let begin = 0;
    let trims = false;
    const between = (end: number, trimsEnd: boolean) => {
      let part = text.slice(begin, end);
      if (trims) part = part.replace(/^\p{White_Space}+/u, '');
      if (trimsEnd) part = trimmedEnd(part);
      if (part !== '') found.push({ text: part });
    };
    for (const match of text.matchAll(this.#pattern)) {
      const token = this.#tokens.get(match[0]);
      if (!token) throw new HoldfastError(`${shortened(match[0])}: is no added token`);
      between(match.index, token.lstrip);
      found.push({ token });
      begin = match.index + match[0].length;
      trims = token.rstrip;
    }
    between(text.length, false);
    return found;
  }
}

/** A pattern that ends with the text would be tried at every white space in it. */
function trimmedEnd(text: string): string {
  let end = text.length;
  while (end > 0 && /\p{White_Space}/u.test(text.charAt(end - 1))) end--;
  return text.slice(0, end);
}
