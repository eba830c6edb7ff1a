// Places at which a text may be cut into parts whose ids, joined, are those of the whole. Two kinds of places:
//
// - before a single space between two letters or digits ("to| be"): no pattern that is known here joins what is before such
//   a space with it; where the tokenizer puts a space before a text of itself, the next part begins behind the space;
// - behind a line's end between what is not white space and a letter or digit ("me.\n|And").
//
// Used where every step of the tokenizer is known to keep apart what is apart there; where one is not, a text is not cut.

import type { Cut } from '../tokenizer.ts';
import type { AddedToken } from './added-tokens.ts';
import type { Normalizer } from './normalizer.ts';
import type { PreTokenizer } from './pre-tokenizer.ts';

const SPACE = String.raw`(?<=[\p{L}\p{N}])(?= [\p{L}\p{N}])`;
const LINE = String.raw`(?<=\P{White_Space}\n)(?=[\p{L}\p{N}])`;

export interface CutRules {
  readonly pattern: RegExp;
  /** Whether the space at a cut is left out: the tokenizer makes it anew. */
  readonly drops: boolean;
}

const pattern = (line: boolean): RegExp => new RegExp(line ? `${SPACE}|${LINE}` : SPACE, 'gu');

/** How text is cut into GPT-2's words. */
export const GPT2_CUTS: CutRules = { pattern: pattern(true), drops: false };

/** Undefined where no place is known to be safe. */
export function cutRulesOf(
  normalizer: Normalizer,
  { steps, separates, splits }: PreTokenizer,
  tokens: Iterable<string>,
  added: readonly AddedToken[],
): CutRules | undefined {
  if (!normalizer.local || (splits && !separates)) return undefined;
  const prepared = steps.reduce<readonly string[]>(
    (pieces, step) => pieces.flatMap((piece) => step(piece, true)),
    [normalizer.apply('a b')],
  );
  const [, before = '', space = ''] = /^(.*)a(.+)b$/su.exec(prepared.join('')) ?? [];
  if (space === '' && !splits) return undefined;
  const drops = before !== '';
  if (drops && before !== space) return undefined;
  const sides = /^[\p{L}\p{N}]|[\p{L}\p{N}]$/u;
  // An added token may lie across a place, and its white space beside it.
  const isApart = ({ content, lstrip, rstrip }: AddedToken) =>
    !/[\p{L}\p{N}] |\n[\p{L}\p{N}]/u.test(content) && !((lstrip || rstrip) && sides.test(content));
  if (!added.every(isApart)) return undefined;
  if (splits) return drops ? undefined : { pattern: pattern(true), drops };
  // All of the text is one piece: then no token may lie across.
  let line = !drops;
  for (const token of tokens) {
    const at = token.indexOf(space, 1);
    if (at > 0 && /[\p{L}\p{N}]/u.test(token.slice(0, at))) {
      if (crosses(token, space)) return undefined;
    }
    line &&= !/\n[\p{L}\p{N}]/u.test(token);
  }
  return { pattern: pattern(line), drops };
}

/** Whether a token has a letter or digit, and the sign for a space behind it. */
function crosses(token: string, space: string): boolean {
  for (let at = token.indexOf(space, 1); at > 0; at = token.indexOf(space, at + 1))
    if (/[\p{L}\p{N}]$/u.test(token.slice(0, at))) return true;
  return false;
}

/** See Tokenizer.nextCut. */
export function nextCut({ pattern, drops }: CutRules, text: string, from: number): Cut | undefined {
  pattern.lastIndex = Math.max(1, from);
  const found = pattern.exec(text);
  return found ? { end: found.index, begin: found.index + (drops ? 1 : 0) } : undefined;
}
