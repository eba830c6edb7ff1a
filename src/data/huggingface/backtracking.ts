// A check of regular expressions, in JavaScript's syntax with the flag u: which of them may take time exponential in the
// length of a text, or in their own, where they go back for another way to match.
//
// A loop is accepted where its next character always says which way is taken: the positions that may follow any position
// inside it (Glushkov's automaton, "The abstract theory of automata", 1961) have no character in common. Then a text has one
// way through it. Invariant: no loop is accepted that has two ways through one text, the cause of exponential time (Weideman
// et al., "Analyzing matching time behavior of backtracking regular expression matchers", 2016). Not the least set: some
// that take no such time are refused, too. Loops one after another are accepted: their time is a power of the length.

import { show } from '../../util/json.ts';

/** A character, or class of characters, at its place. */
interface Position {
  readonly source: string;
  /** Where it stands for one character: that. */
  readonly literal: string | undefined;
  /** As often as there are ways from here to there. */
  readonly next: Position[];
}

/** A part of an expression. */
interface Fragment {
  /** Positions that it may begin and end with, as often as there are ways to. */
  readonly first: readonly Position[];
  readonly last: readonly Position[];
  /** Ways to match nothing: 0, 1, or 2 for several. */
  readonly empty: number;
  /** Choices that may be taken one after another, a loop counted as `LOOP_WAYS`. */
  readonly ways: number;
  /** Whether there is no choice in it. */
  readonly fixed: boolean;
}

const LOOP_WAYS = 4;
/** Ten loops one after another, or twenty parts that may be left out. */
const MOST_WAYS = 2 ** 20;
/** Pairs of positions; a comparison over all characters counts as many. */
const MOST_WORK = 2 ** 20;
const COMPARISON = 2 ** 14;

const ATOM =
  /\[(?:\\[\s\S]|[^\\\]])*\]|\\u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}|\\(?:[pPu]\{[^}]*\}|u[\da-fA-F]{4}|x[\da-fA-F]{2}|c[a-zA-Z]|[\s\S])|[\s\S]/uy;
const QUANTIFIER = /(?:([*+?])|\{(\d+)(,?)(\d*)\})\??/y;
const GROUP = /\((?:\?(?:([=!]|<[=!])|:|<[^>]*>))?/y;
const LITERAL = /^(?:[^.\\[]|\\[^\p{L}\p{N}])$/u;

const NOTHING: Fragment = { first: [], last: [], empty: 1, ways: 1, fixed: true };

/** Refused with a reason. */
class Refused extends Error {}

/** Why an expression may take exponential time; undefined where it does not. */
export function exponentialTime({ source }: RegExp): string | undefined {
  try {
    new Check(source).all();
    return undefined;
  } catch (error) {
    if (error instanceof Refused) return error.message;
    throw error;
  }
}

/** A reading of an expression, which ends with `Refused` at the first loop that is. */
class Check {
  readonly #source: string;
  #at = 0;
  #work = 0;
  /** In the order of the source. */
  readonly #positions: Position[] = [];
  readonly #compared = new Map<string, boolean>();
  #characters: string | undefined;

  constructor(source: string) {
    this.#source = source;
  }

  all(): void {
    const { ways } = this.#alternatives();
    if (ways > MOST_WAYS) throw new Refused('it leaves too many choices, one after another');
  }

  #take(pattern: RegExp): RegExpExecArray | undefined {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#source) ?? undefined;
    if (found) this.#at = pattern.lastIndex;
    return found;
  }

  #alternatives(): Fragment {
    const found = [this.#sequence()];
    while (this.#source[this.#at] === '|') {
      this.#at++;
      found.push(this.#sequence());
    }
    const [only] = found;
    return only && found.length === 1 ? only : union(found);
  }

  #sequence(): Fragment {
    const parts: Fragment[] = [];
    while (this.#at < this.#source.length && !'|)'.includes(this.#source.charAt(this.#at)))
      parts.push(this.#repeated());
    // From the end: what comes next is joined to what may be empty in front of it.
    return parts.reduceRight((rest, part) => this.#joined(part, rest), NOTHING);
  }

  #repeated(): Fragment {
    const begin = this.#at;
    const before = this.#positions.length;
    const body = this.#single();
    const quantifier = this.#take(QUANTIFIER);
    if (!quantifier) return body;
    const [, sign, least, comma, end] = quantifier;
    const min = sign ? (sign === '+' ? 1 : 0) : Number(least);
    const max = sign ? (sign === '?' ? 1 : Infinity) : comma ? (end ? Number(end) : Infinity) : min;
    if (max === 0) return NOTHING;
    if (body.fixed && min === max) return body;
    if (max > 1) {
      const several = body.empty > 0 && min > 0;
      this.#connect(body.last, body.first);
      if (several || !this.#positions.slice(before).every(({ next }) => this.#areApart(next))) {
        const loop = show(this.#source.slice(begin, this.#at));
        throw new Refused(`${loop} may match one text in several ways, each time that it is repeated`);
      }
    }
    const ways = max > 1 ? LOOP_WAYS * body.ways : 1 + body.ways;
    return { ...body, empty: min === 0 ? 1 : body.empty, ways, fixed: false };
  }

  /** A group, an assertion, or a character. */
  #single(): Fragment {
    const before = this.#positions.length;
    const group = this.#take(GROUP);
    if (group) {
      if (this.#source[this.#at] === '?') throw new Refused('it has a group of an unknown kind');
      const body = this.#alternatives();
      this.#at++;
      if (group[1] === undefined) return body;
      // What is looked at is tried by itself, and never gone back to.
      this.#positions.length = before;
      return { ...NOTHING, ways: body.ways };
    }
    const source = this.#take(ATOM)?.[0] ?? '';
    if (/^(?:[$^]|\\[bB])$/.test(source)) return NOTHING;
    if (/^\\[1-9k]/.test(source)) throw new Refused(`${show(source)} refers back`);
    const literal = LITERAL.test(source) ? source.slice(source.startsWith('\\') ? 1 : 0) : undefined;
    const position: Position = { source, literal, next: [] };
    this.#positions.push(position);
    return { ...NOTHING, first: [position], last: [position], empty: 0 };
  }

  #joined(a: Fragment, b: Fragment): Fragment {
    this.#connect(a.last, b.first);
    return {
      first: [...a.first, ...times(b.first, a.empty)],
      last: [...b.last, ...times(a.last, b.empty)],
      empty: Math.min(2, a.empty * b.empty),
      ways: a.ways * b.ways,
      fixed: a.fixed && b.fixed,
    };
  }

  #connect(from: readonly Position[], to: readonly Position[]): void {
    this.#count(from.length * to.length);
    for (const { next } of from) for (const position of to) next.push(position);
  }

  /** Whether no character is in two of them. */
  #areApart(positions: readonly Position[]): boolean {
    this.#count(1 + positions.length ** 2);
    return positions.every((a, i) => positions.every((b, j) => j <= i || !this.#meet(a, b)));
  }

  #meet(a: Position, b: Position): boolean {
    if (a.source === b.source) return true;
    const pair = `(?=${a.source})${b.source}`;
    const known = this.#compared.get(pair);
    if (known !== undefined) return known;
    const text = a.literal ?? b.literal;
    if (text === undefined) this.#count(COMPARISON);
    this.#characters ??= text === undefined ? everyCharacter() : undefined;
    const found = new RegExp(pair, 'u').test(text ?? this.#characters ?? '');
    this.#compared.set(pair, found);
    return found;
  }

  #count(work: number): void {
    this.#work += work;
    if (this.#work > MOST_WORK) throw new Refused('it is too long to be told');
  }
}

function union(alternatives: readonly Fragment[]): Fragment {
  return {
    first: alternatives.flatMap(({ first }) => first),
    last: alternatives.flatMap(({ last }) => last),
    empty: Math.min(
      2,
      alternatives.reduce((sum, { empty }) => sum + empty, 0),
    ),
    ways: alternatives.reduce((sum, { ways }) => sum + ways, 0),
    fixed: false,
  };
}

const times = <T>(items: readonly T[], count: number): readonly T[] =>
  count === 0 ? [] : count === 1 ? items : [...items, ...items];

/** All of Unicode in order, surrogates apart, which no text has. */
function everyCharacter(): string {
  const codes = Array.from({ length: 2 ** 12 }, (_, i) => i);
  const blocks = Array.from({ length: 0x110 }, (_, block) =>
    String.fromCodePoint(...codes.map((code) => block * 2 ** 12 + code)),
  );
  return blocks.join('').replace(/\p{Cs}/gu, '');
}
