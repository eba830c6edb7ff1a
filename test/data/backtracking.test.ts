// Patterns of a tokenizer.json that may take exponential time: refused when it is opened, and none that a published
// tokenizer has is; what is accepted of patterns at random ends.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { exponentialTime } from '../../src/data/huggingface/backtracking.ts';
import { GPT2_PATTERN } from '../../src/data/huggingface/patterns.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { EVERY_CASE } from '../host.ts';
import { LLAMA3, llama2, made, QWEN, withPattern } from './tokenizers.ts';

const reasonOf = (source: string) => exponentialTime(new RegExp(source, 'gu'));

const REFUSED = [
  ...['(a+)+$', '(a|a)+', '(a|ab)*', '(\\w+\\s?)+', '(?:a*)*', '(a{1,1000}){1,1000}', '(x+x+)+y', '([a-zA-Z]+)*'],
  ...['(?:a(|))*b', '(?:(?:a?)+b)*', '(a|a){30}', '(.*a){20}', '(?:\\d{1,3})*', '(?:[a-z]|\\p{Ll})*', '(?:é|\\u00e9)*'],
  ...['(?=(a+)+$)b', '(?<!(?:a|b|ab)*)', '(?:a?){40}', '(?:a??b??)+?', '(?:(a|b)?c?)*', '(?:[a-z&]|[^\\p{N}])*!'],
  ...['a?'.repeat(30) + 'a'.repeat(30), '(?:a|a)'.repeat(30), '\\s*'.repeat(40)],
];

const O200K_WORD = String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`;
const O200K_LOWER = String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`;
const ENDS = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
const CONTRACTION = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const PUBLISHED: Readonly<Record<string, string>> = {
  'GPT-2': GPT2_PATTERN,
  'Llama 3, cl100k': LLAMA3,
  'Qwen 2 and 3': QWEN,
  o200k: String.raw`${O200K_WORD}*${O200K_LOWER}+${CONTRACTION}?|${O200K_WORD}+${O200K_LOWER}*${CONTRACTION}?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${ENDS}`,
  Tekken: String.raw`${O200K_WORD}*${O200K_LOWER}+|${O200K_WORD}+${O200K_LOWER}*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${ENDS}`,
  'DeepSeek 3': String.raw`[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_\x60{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|${ENDS}`,
  'DeepSeek, lines': String.raw`[一-龥぀-ゟ゠-ヿ]+|\p{N}{1,3}|[\r\n]|\s?\p{L}+|\s?\p{P}+`,
  'Falcon, StarCoder': '[0-9][0-9][0-9]|\\p{N}',
  'OLMo 2, digits from the right': String.raw`\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))`,
  'SuperBPE’s digits': String.raw`\p{N}{1,3}(?=(\d{3})+(?!\d))|\p{N}+`,
  'EXAONE, words apart': String.raw`${CONTRACTION}|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?|${ENDS}`,
  'Kimi 2': String.raw`[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+${CONTRACTION}?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|${ENDS}`,
  BLOOM: String.raw` ?[^(\s|[.,!?…。，、।۔،])]+`,
  'SentencePiece’s spaces': ' {2,}',
  'CLIP’s spaces': '\\s+',
  CLIP: String.raw`<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`,
  'of words with their commas': '(?:[a-z]+,)*[a-z]+',
  'of lines': '(?:\\r?\\n)+|(?:\\s[a-z]+)*',
  'of two loops': 'a*a*b',
};

describe('patterns that may take exponential time', () => {
  test.each(REFUSED)('%s', (source) => {
    expect(reasonOf(source)).toMatch(/may match one text in several ways|leaves too many choices/);
  });

  test('in a pre-tokenizer or a normalizer they are refused when it is opened, in one line', () => {
    const opened = (regex: string) => () => made(withPattern(regex));
    expect(opened('(a+)+$')).toThrow(HoldfastError);
    expect(opened('(a+)+$')).toThrow(
      'model/tokenizer.json: pre_tokenizer.pretokenizers[0] has a pattern that may take time exponential in a text\'s length, or its own: "(a+)+" may match one text in several ways, each time that it is repeated',
    );
    const replaced = { type: 'Replace', pattern: { Regex: '(?:a|a)*$' }, content: '' };
    expect(() => made({ ...llama2(), normalizer: replaced })).toThrow(/normalizer has a pattern that may take time/);
  });

  // Of the work that is counted, at most so much is done.
  test('what would take too much work to tell is refused', () => {
    const words = Array.from({ length: 3000 }, (_, i) => `${i.toString(36)}-`).join('|');
    const classes = Array.from({ length: 300 }, (_, i) => `[\\u{${(0x4e00 + i).toString(16)}}]`).join('|');
    for (const source of [`(?:${words})+`, `(?:${classes})+`])
      expect(reasonOf(source)).toBe('it is too long to be told');
    expect(() => made(withPattern('('.repeat(1e5) + ')'.repeat(1e5)))).toThrow(HoldfastError);
  });
});

test.each(Object.entries(PUBLISHED))('accepted: the pattern of %s', (_, regex) => {
  expect(made(withPattern(regex)).encode('It’s 1234 words, aren’t they?\n').length).toBeGreaterThan(0);
});

test('patterns at random: those that are accepted end on texts that they go back in', () => {
  const { source } = fc.letrec<{ source: string; part: string }>((tie) => ({
    part: fc.oneof(
      { depthSize: 'small' },
      fc.constantFrom('a', 'b', '[ab]', 'a', 'b', '[^b]', '.', ''),
      fc.tuple(tie('part'), tie('part')).map(([a, b]) => a + b),
      fc.tuple(tie('source'), fc.constantFrom('*', '+', '?', '{2}', '{1,9}', '{7,}')).map(([s, q]) => `(?:${s})${q}`),
      tie('source').map((s) => `(?=${s})`),
    ),
    source: fc.oneof(
      tie('part'),
      fc.array(tie('part'), { minLength: 1, maxLength: 3 }).map((all) => all.join('|')),
    ),
  }));
  const texts = ['a'.repeat(60), 'ab'.repeat(30), 'aab'.repeat(20), 'abb'.repeat(20)].map((text) => `${text}!`);
  let [accepted, loops] = [0, 0];
  const property = fc.property(source, (source) => {
    const pattern = `(?:${source})$`;
    if (reasonOf(pattern) !== undefined) return;
    accepted++;
    if (/[*+}]/.test(pattern)) loops++;
    // One that took exponential time would not come to its end: 2 to the power of 60 steps.
    for (const text of texts) new RegExp(`^${pattern}`, 'u').test(text);
  });
  fc.assert(property, { seed: 5, numRuns: EVERY_CASE ? 20_000 : 1500 });
  expect(Math.min(accepted, loops)).toBeGreaterThan(100);
});
