// Cutting of a text before a byte-level tokenizer merges, by the names that llama.cpp has for the ways it supports.
// There they are told apart by the ids of one text; here the regular expression itself is looked up.
//
// Invariant: a way that is not known is refused: another would give other tokens, and a model that babbles.

import { HoldfastError, shortened } from '../../../util/errors.ts';
import { isObject, show } from '../../../util/json.ts';

const GPT2 = String.raw`'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`;
const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const ENDS = String.raw`\s*[\r\n]+|\s+(?!\S)|\s+`;
/** Llama 3's and Qwen 2's, which differ in how many digits go together. */
const modern = (digits: string): string =>
  String.raw`${CONTRACTIONS}|[^\r\n\p{L}\p{N}]?\p{L}+|${digits}| ?[^\s\p{L}\p{N}]+[\r\n]*|${ENDS}`;
/** Mistral's Tekken and OpenAI's o200k, which part capitals from small letters. */
const cased = (after: string, digits: string): string => {
  const [upper, lower] = [String.raw`[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]`, String.raw`[\p{Ll}\p{Lm}\p{Lo}\p{M}]`];
  const before = String.raw`[^\r\n\p{L}\p{N}]?`;
  const words = `${before}${upper}*${lower}+${after}|${before}${upper}+${lower}*${after}`;
  return String.raw`${words}|${digits}| ?[^\s\p{L}\p{N}]+[\r\n/]*|${ENDS}`;
};

interface Way {
  readonly pre: string;
  readonly pattern: string;
  /** Whether a piece that is a token as it is stays one, whatever the merges make of it. */
  readonly ignoresMerges: boolean;
  /** Whether texts begin with BOS where a file does not say. */
  readonly addsBos?: boolean;
}

const WAYS: readonly Way[] = [
  { pre: 'gpt-2', pattern: GPT2, ignoresMerges: false },
  { pre: 'llama-bpe', pattern: modern(String.raw`\p{N}{1,3}`), ignoresMerges: true, addsBos: true },
  { pre: 'smaug-bpe', pattern: modern(String.raw`\p{N}{1,3}`), ignoresMerges: false },
  { pre: 'qwen2', pattern: modern(String.raw`\p{N}`), ignoresMerges: false },
  { pre: 'tekken', pattern: cased('', String.raw`\p{N}`), ignoresMerges: true, addsBos: true },
  { pre: 'gpt-4o', pattern: cased(`${CONTRACTIONS}?`, String.raw`\p{N}{1,3}`), ignoresMerges: false },
];

/** A tokenizer.json's pre-tokenizer as a list of steps. */
export function stepsOf(preTokenizer: unknown): readonly Readonly<Record<string, unknown>>[] {
  if (!isObject(preTokenizer)) return [];
  const { type, pretokenizers } = preTokenizer;
  return type === 'Sequence' && Array.isArray(pretokenizers) ? pretokenizers.flatMap(stepsOf) : [preTokenizer];
}

/** llama.cpp's name for these steps, of which the last is ByteLevel. Errors: HoldfastError for others than it supports. */
export function preOf(
  steps: readonly Readonly<Record<string, unknown>>[],
  ignoresMerges: boolean,
  from: string,
): string {
  const refuse = (problem: string): never => {
    throw new HoldfastError(`${from}: ${problem}; llama.cpp has no such way to cut a text`);
  };
  const bytes = steps.at(-1);
  if (bytes?.['add_prefix_space'] === true) refuse('pre_tokenizer begins a text with a space');
  const before = steps.slice(0, -1);
  const [step] = before;
  // Its regular expression is switched on where the field is missing.
  const usesRegex = bytes?.['use_regex'] !== false;
  if (before.length === 1 && usesRegex && step?.['type'] === 'Digits' && step['individual_digits'] === true) {
    return ignoresMerges ? refuse('model.ignore_merges is true with digits by themselves') : 'smollm';
  }
  const pattern = before.length === 0 && usesRegex ? GPT2 : usesRegex ? undefined : patternOf(before);
  const ways = WAYS.filter((way) => way.pattern === pattern);
  if (ways.length === 0) {
    const names = steps.map(({ type }) => shortened(String(type))).join(', ');
    return refuse(`pre_tokenizer is ${names}${pattern === undefined ? '' : `, of ${show(pattern)}`}`);
  }
  const found = ways.find((way) => way.ignoresMerges === ignoresMerges);
  return found?.pre ?? refuse(`model.ignore_merges is ${ignoresMerges} with the pattern of ${ways[0]?.pre}`);
}

/** What llama.cpp's way of that name is in a tokenizer.json. */
export interface NamedSteps {
  readonly ignoresMerges: boolean;
  /** Whether texts begin with BOS where a file does not say. */
  readonly addsBos: boolean;
  /** Qwen's is NFC; llama.cpp has none. */
  readonly normalizer: Readonly<Record<string, unknown>> | null;
  readonly steps: Readonly<Record<string, unknown>>;
}

/** Other names that files have for the same ways. */
const ALIASES: Readonly<Record<string, string>> = {
  ...{ llama3: 'llama-bpe', 'llama-v3': 'llama-bpe', 'deepseek-r1-qwen': 'qwen2', gpt2: 'gpt-2', llama4: 'gpt-4o' },
};

/** Errors: what `fail` throws, for a way that is not known. */
export function ggufPreTokenizer(name: string, fail: (problem: string) => never): NamedSteps {
  const pre = ALIASES[name] ?? name;
  const bytes = (use_regex: boolean) => ({ type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex });
  const sequence = (first: Readonly<Record<string, unknown>>, last: Readonly<Record<string, unknown>>) => ({
    type: 'Sequence',
    pretokenizers: [first, last],
  });
  if (pre === 'smollm')
    return {
      ignoresMerges: false,
      addsBos: false,
      normalizer: null,
      steps: sequence({ type: 'Digits', individual_digits: true }, bytes(true)),
    };
  const way = WAYS.find((each) => each.pre === pre);
  if (!way) return fail(`pre is ${show(name)}; supported: ${WAYS.map((each) => each.pre).join(', ')}, smollm`);
  const { pattern, ignoresMerges, addsBos = false } = way;
  if (pattern === GPT2) return { ignoresMerges, addsBos, normalizer: null, steps: bytes(true) };
  const split = { type: 'Split', pattern: { Regex: pattern }, behavior: 'Isolated', invert: false };
  const normalizer = pre === 'qwen2' ? { type: 'NFC' } : null;
  return { ignoresMerges, addsBos, normalizer, steps: sequence(split, bytes(false)) };
}

/** The pattern of one Split that keeps what it finds as pieces of their own. */
function patternOf(steps: readonly Readonly<Record<string, unknown>>[]): string | undefined {
  const [step] = steps;
  if (steps.length !== 1 || step?.['type'] !== 'Split') return undefined;
  const { pattern, behavior, invert } = step;
  // Tekken's and o200k's are written with what lies between removed, which is nothing.
  const isWhole = behavior === 'Isolated' ? invert !== true : behavior === 'Removed' && invert === true;
  const regex = isObject(pattern) ? pattern['Regex'] : undefined;
  return isWhole && typeof regex === 'string' ? regex : undefined;
}
