// The regular expressions of a tokenizer.json: which are refused because the library that translates them to JavaScript's
// would match something else, and what their alternatives are.
//
// Not the translation itself, which is @huggingface/tokenizers'. Invariant: a pattern that `checked` returns matches here
// what it matches in Hugging Face's own library, Unicode's versions apart.

import type { Part } from './part.ts';

/** GPT-2's, which the pre-tokenizer ByteLevel brings along. */
export const GPT2_PATTERN = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;

/**
 * Regardless of case, s is ſ too; the library folds ASCII alone. Contractions are what such groups are for in practice.
 */
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const UNFOLDED = "(?:'[sSſ]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])";

/** The pattern of a part as a regular expression, in the words that the library takes. */
export function patternIn(part: Part): string {
  const pattern = part.part('pattern');
  if (!pattern) return part.refuse('pattern', undefined, 'a String or a Regex');
  const literal = pattern.value('String');
  const regex = pattern.value('Regex');
  pattern.done();
  if (typeof literal === 'string') return escaped(literal);
  if (typeof regex !== 'string') return part.refuse('pattern', literal ?? regex, 'a String or a Regex');
  return checked(regex, part);
}

/** Whether the pattern of a part is text to be found as it is. */
export const isLiteral = (part: Part): boolean => part.part('pattern')?.value('String') !== undefined;

/** A literal as a regular expression, also where escapes of other characters are refused. */
export const escaped = (literal: string): string => literal.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

function checked(regex: string, part: Part): string {
  const plain = regex.replaceAll(CONTRACTIONS, UNFOLDED);
  const other = strange(plain);
  if (other) return part.refuse('pattern.Regex', other, 'patterns without it', 'supported');
  return plain;
}

/** What of a pattern the library would take for something else. */
function strange(regex: string): string | undefined {
  for (const token of tokensOf(regex)) {
    if (/^\\[GKRXgk]/.test(token.text) || (/^\\[1-9]/.test(token.text) && token.depth === 0)) return token.text;
    if (token.depth > 0) continue;
    const rest = regex.slice(token.at);
    const group = /^\(\?(?:>|[imx-]+[:)]|[^:=!<])/.exec(rest)?.[0];
    if (group) return group;
    // Possessive: the library would go back where Oniguruma does not.
    const possessive = /^[*+?]\+/.exec(rest)?.[0];
    if (possessive) return possessive;
  }
  return undefined;
}

/** Characters and escapes of a pattern, with the depth of the character classes that they are in. */
function* tokensOf(regex: string): Generator<{ readonly text: string; readonly at: number; readonly depth: number }> {
  let depth = 0;
  for (let at = 0; at < regex.length; ) {
    const [text] = /^(?:\\[pPxu]\{[^}]*\}|\\[\s\S]|[\s\S])/u.exec(regex.slice(at, at + 64)) ?? [regex.charAt(at)];
    if (text === ']' && depth > 0) depth--;
    yield { text, at, depth };
    if (text === '[') depth++;
    at += text.length;
  }
}

/** The alternatives of a pattern, outside of all groups and classes. */
export function alternativesOf(regex: string): string[] {
  const found: string[] = [];
  let begin = 0;
  let groups = 0;
  for (const { text, at, depth } of tokensOf(regex)) {
    if (depth > 0) continue;
    if (text === '(') groups++;
    if (text === ')') groups--;
    if (text !== '|' || groups > 0) continue;
    found.push(regex.slice(begin, at));
    begin = at + 1;
  }
  return [...found, regex.slice(begin)];
}

export { UNFOLDED as CONTRACTIONS };
