// The normalizer of a tokenizer.json: text to text, before anything is cut. Patterns are translated by
// @huggingface/tokenizers; what that library does otherwise than the original (lower case at the end of Greek words, white
// space, Chinese characters beyond the first plane) is done here, what it only approximates is refused.

import { ReplaceNormalizer } from '@huggingface/tokenizers';
import { exponentialTime } from './backtracking.ts';
import type { Part } from './part.ts';
import { escaped, isLiteral, patternIn } from './patterns.ts';

export interface Normalizer {
  apply(text: string): string;
  /** Whether it looks at single characters, composition apart: what is apart in a text then stays apart. */
  readonly local: boolean;
  /** Whether no text has this in it once it is normalized. */
  removes(literal: string): boolean;
}

const NOTHING: Normalizer = { apply: (text) => text, local: true, removes: () => false };

export function normalizerOf(part: Part | undefined): Normalizer {
  if (!part) return NOTHING;
  const make = part.type === undefined ? undefined : KINDS.get(part.type);
  const made = make?.(part) ?? part.refuseType([...KINDS.keys()]);
  part.done();
  return made;
}

const perText = (apply: (text: string) => string): Normalizer => ({ ...NOTHING, apply });

const KINDS: ReadonlyMap<string, (part: Part) => Normalizer> = new Map<string, (part: Part) => Normalizer>([
  [
    'Sequence',
    (part) => {
      const steps = part.parts('normalizers').map(normalizerOf);
      return {
        apply: (text) => steps.reduce((found, { apply }) => apply(found), text),
        local: steps.every(({ local }) => local),
        removes: (literal) => steps.at(-1)?.removes(literal) ?? false,
      };
    },
  ],
  ['NFC', () => perText((text) => text.normalize('NFC'))],
  ['NFD', () => perText((text) => text.normalize('NFD'))],
  ['NFKC', () => perText((text) => text.normalize('NFKC'))],
  ['NFKD', () => perText((text) => text.normalize('NFKD'))],
  ['Lowercase', () => perText(lowercase)],
  ['Prepend', prepend],
  ['Replace', replace],
  ['BertNormalizer', bert],
]);

function prepend(part: Part): Normalizer {
  const before = part.text('prepend');
  return perText((text) => (text === '' ? text : before + text));
}

function replace(part: Part): Normalizer {
  const literal = isLiteral(part);
  // A dollar is a character here; where JavaScript replaces, two of them are.
  const content = part.text('content').replaceAll('$', '$$$$');
  const pattern = patternIn(part);
  const normalizer = translated(
    part,
    () => new ReplaceNormalizer({ type: 'Replace', pattern: { Regex: pattern }, content }),
  );
  const single = /^\\?[\s\S]$/u;
  const local = literal && single.test(pattern);
  const removes = (other: string) => local && pattern === escaped(other) && !content.includes(other);
  return { apply: (text) => normalizer.normalize(text), local, removes };
}

/** What the library cannot translate is the file's fault, and so is what may take time without end. */
export function translated<T extends { readonly pattern: RegExp | null }>(part: Part, make: () => T): T {
  let made: T;
  let reason: string | undefined;
  try {
    made = make();
    reason = made.pattern ? exponentialTime(made.pattern) : undefined;
  } catch (error) {
    return part.fail(`has a pattern that cannot be used (${(error as Error).message.split('\n')[0]?.slice(0, 200)})`);
  }
  if (reason === undefined) return made;
  return part.fail(`has a pattern that may take time exponential in a text's length, or its own: ${reason}`);
}

/** Character by character, as Rust's: a sigma at the end of a word is one like any other. */
function lowercase(text: string): string {
  return Array.from(text, (character) => character.toLowerCase()).join('');
}

const CHINESE =
  /[\u4E00-\u9FFF\u3400-\u4DBF\u{20000}-\u{2A6DF}\u{2A700}-\u{2B73F}\u{2B740}-\u{2B81F}\u{2B920}-\u{2CEAF}\uF900-\uFAFF\u{2F800}-\u{2FA1F}]/gu;

function bert(part: Part): Normalizer {
  const clean = part.flag('clean_text', true);
  const chinese = part.flag('handle_chinese_chars', true);
  const lower = part.flag('lowercase', true);
  const strip = part.flag('strip_accents', lower);
  return perText((text) => {
    let found = text;
    if (clean) found = found.replace(/[\0\ufffd]|(?![\t\n\r])\p{C}/gu, '').replace(/\p{White_Space}/gu, ' ');
    if (chinese) found = found.replace(CHINESE, ' $& ');
    if (strip) found = found.normalize('NFD').replace(/\p{Mn}/gu, '');
    return lower ? lowercase(found) : found;
  });
}
