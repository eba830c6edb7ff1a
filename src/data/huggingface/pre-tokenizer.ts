// The pre-tokenizer of a tokenizer.json: a text to the pieces that are tokenized each by itself. @huggingface/tokenizers
// splits by patterns; the kinds that it reads otherwise than the original (white space and digits as JavaScript defines them,
// behaviors that it leaves out) are put into such patterns here, and what no pattern says is refused.

import { SplitPreTokenizer } from '@huggingface/tokenizers';
import { byteCharacters } from '../../util/byte-characters.ts';
import { type Normalizer, translated } from './normalizer.ts';
import type { Part } from './part.ts';
import { alternativesOf, CONTRACTIONS, escaped, GPT2_PATTERN, isLiteral, patternIn } from './patterns.ts';

/** Pieces of a piece. `first`: it begins the text. */
export type Step = (piece: string, first: boolean) => readonly string[];

export interface PreTokenizer {
  readonly steps: readonly Step[];
  /** Whether the last step writes bytes as characters: it changes no borders. */
  readonly byteLevel: boolean;
  /** What a text may be cut by (cuts.ts): patterns that never join what lies on both sides of a cut. */
  readonly separates: boolean;
  /** Whether there are patterns at all. */
  readonly splits: boolean;
}

interface Found {
  readonly steps: Step[];
  readonly safe: boolean;
  readonly splits: boolean;
  byteLevel: boolean;
}

const NOTHING: Found = { steps: [], safe: true, splits: false, byteLevel: false };

/** The pre-tokenizer of texts that went through the normalizer. */
export function preTokenizerOf(part: Part | undefined, normalizer: Normalizer): PreTokenizer {
  const found = part ? read(part) : NOTHING;
  const { steps, safe, splits, byteLevel } = part && findsNothing(part, normalizer) ? NOTHING : found;
  return { steps, byteLevel, separates: safe && splits, splits };
}

/** Gemma splits by spaces, of which its normalizer leaves none. */
function findsNothing(part: Part, normalizer: Normalizer): boolean {
  const literal = part.type === 'Split' && part.value('invert') !== true && part.part('pattern')?.value('String');
  return typeof literal === 'string' && normalizer.removes(literal);
}

const PUNCTUATION = String.raw`[\p{P}!-\/:-@\[-\x60{-~]`;

function read(part: Part): Found {
  const make = part.type === undefined ? undefined : KINDS.get(part.type);
  const made = make?.(part) ?? part.refuseType([...KINDS.keys()]);
  part.done();
  return made;
}

const KINDS: ReadonlyMap<string, (part: Part) => Found> = new Map<string, (part: Part) => Found>([
  [
    'Sequence',
    (part) => {
      const found = part.parts('pretokenizers').map(read);
      // What comes after bytes were written as characters splits those.
      const early = found.slice(0, -1).some(({ byteLevel }) => byteLevel);
      return {
        steps: found.flatMap(({ steps }) => steps),
        safe: !early && found.every(({ safe }) => safe),
        splits: found.some(({ splits }) => splits),
        byteLevel: found.at(-1)?.byteLevel ?? false,
      };
    },
  ],
  ['ByteLevel', byteLevel],
  ['Split', split],
  ['Digits', (part) => isolated(part, part.flag('individual_digits', false) ? '\\p{N}' : '\\p{N}+')],
  ['Punctuation', punctuation],
  ['Whitespace', (part) => by(part, String.raw`\w+|[^\w\s]+`, 'Removed', true, true)],
  ['WhitespaceSplit', (part) => by(part, '\\s+', 'Removed', false, true)],
  [
    'BertPreTokenizer',
    (part) => joined(by(part, '\\s+', 'Removed', false, true), by(part, PUNCTUATION, 'Isolated', false, true)),
  ],
  ['CharDelimiterSplit', (part) => by(part, escaped(part.text('delimiter')), 'Removed', false, false)],
  ['Metaspace', metaspace],
]);

/** By a pattern that is known to be safe. */
const isolated = (part: Part, regex: string): Found => by(part, regex, 'Isolated', false, true);

function by(part: Part, regex: string, behavior: 'Isolated' | 'Removed', invert: boolean, safe: boolean): Found {
  const splitter = translated(
    part,
    () => new SplitPreTokenizer({ type: 'Split', pattern: { Regex: regex }, behavior, invert }),
  );
  return { steps: [(piece) => splitter.pre_tokenize_text(piece)], safe, splits: true, byteLevel: false };
}

const joined = (a: Found, b: Found): Found => ({
  steps: [...a.steps, ...b.steps],
  safe: a.safe && b.safe,
  splits: a.splits || b.splits,
  byteLevel: b.byteLevel,
});

function byteLevel(part: Part): Found {
  const prefix = part.flag('add_prefix_space', true);
  const regex = part.flag('use_regex', true);
  // Of offsets, which nothing here has.
  part.value('trim_offsets');
  const bytes: Found = { steps: [(piece) => [byteCharacters(piece)]], safe: true, splits: false, byteLevel: true };
  const spaced: Found = {
    steps: [(piece) => [piece.startsWith(' ') ? piece : ` ${piece}`]],
    safe: false,
    splits: false,
    byteLevel: false,
  };
  const found = regex ? joined(byPattern(part, GPT2_PATTERN), bytes) : bytes;
  return prefix ? joined(spaced, found) : found;
}

/** Leaves nothing out; a text may be cut where all alternatives are known. */
const byPattern = (part: Part, regex: string): Found => by(part, regex, 'Isolated', false, isSafe(regex));

function split(part: Part): Found {
  const regex = patternIn(part);
  const literal = isLiteral(part);
  const behavior = part.text('behavior').toLowerCase();
  const invert = part.flag('invert', false);
  switch (behavior) {
    // What is between matches is a piece, too: inverted it is the same.
    case 'isolated':
      return byPattern(part, regex);
    case 'removed':
      if (/(?<!\\)\((?!\?)/.test(regex))
        return part.refuse('pattern', 'a group', 'without groups, where it is removed', 'supported');
      return by(part, regex, 'Removed', invert, false);
    case 'contiguous':
    case 'mergedwithprevious':
    case 'mergedwithnext':
      break;
    default:
      return part.refuse(
        'behavior',
        part.value('behavior'),
        'Isolated, Removed, Contiguous, MergedWithPrevious or MergedWithNext',
      );
  }
  if (!literal || invert) {
    return part.refuse('behavior', part.value('behavior'), 'it for a String that is not inverted', 'supported');
  }
  const joining = {
    contiguous: `(?:${regex})+`,
    mergedwithprevious: String.raw`[\s\S]*?${regex}|[\s\S]+`,
    mergedwithnext: String.raw`${regex}(?:(?!${regex})[\s\S])*|(?:(?!${regex})[\s\S])+`,
  };
  return { ...by(part, joining[behavior], 'Isolated', false, false) };
}

function punctuation(part: Part): Found {
  const behavior = part.text('behavior', 'Isolated').toLowerCase();
  if (behavior === 'isolated') return isolated(part, PUNCTUATION);
  if (behavior === 'contiguous') return isolated(part, `${PUNCTUATION}+`);
  if (behavior === 'removed') return by(part, PUNCTUATION, 'Removed', false, true);
  return part.refuse('behavior', part.value('behavior'), 'Isolated, Contiguous, Removed', 'supported');
}

function metaspace(part: Part): Found {
  const symbol = part.text('replacement', '\u2581');
  // Of older files.
  const always = part.flag('add_prefix_space', true);
  part.value('str_rep');
  const scheme = part.text('prepend_scheme', always ? 'always' : 'never');
  if (!['always', 'first', 'never'].includes(scheme)) part.refuse('prepend_scheme', scheme, 'always, first or never');
  const step: Step = (piece, first) => {
    const replaced = piece.replaceAll(' ', symbol);
    const prepends = scheme === 'always' || (scheme === 'first' && first);
    return [prepends && !replaced.startsWith(symbol) ? symbol + replaced : replaced];
  };
  const found: Found = { steps: [step], safe: true, splits: false, byteLevel: false };
  if (!part.flag('split', true)) return found;
  const sign = escaped(symbol);
  return joined(found, by(part, `${sign}[^${sign}]*|[^${sign}]+`, 'Isolated', false, false));
}

/**
 * Alternatives that match nothing across a cut of cuts.ts, and see nothing beyond it: none of them has a letter, digit or
 * sign and then a space, or a line's end and then a letter or digit.
 */
const SAFE = new Set([
  ...["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", CONTRACTIONS],
  ...[String.raw`\p{L}+`, String.raw` ?\p{L}+`, String.raw`[^\r\n\p{L}\p{N}]?\p{L}+`],
  ...[String.raw`\p{N}`, String.raw`\p{N}+`, String.raw` ?\p{N}+`, String.raw`\p{N}{1,3}`],
  ...[String.raw` ?[^\s\p{L}\p{N}]+`, String.raw` ?[^\s\p{L}\p{N}]+[\r\n]*`, String.raw` ?[^\s\p{L}\p{N}]+[\r\n/]*`],
  ...[String.raw`\s*[\r\n]+`, String.raw`\s+(?!\S)`, String.raw`\s+`],
  String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+${CONTRACTIONS}?`,
  String.raw`[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*${CONTRACTIONS}?`,
]);

function isSafe(regex: string): boolean {
  const alternatives = alternativesOf(regex);
  // The first leaves the last of several white spaces: where it stands alone, the second takes it.
  const paired = !alternatives.includes('\\s+(?!\\S)') || alternatives.includes('\\s+');
  return paired && alternatives.every((alternative) => SAFE.has(alternative));
}
