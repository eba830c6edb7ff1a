// Tokenizers for tests: GPT-2's real one, made of gpt-3-encoder's files, small ones of other kinds, made by hand, and 200
// texts that are hard on tokenizers.

import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { bpeTokenizerFiles, trainMerges, WordCounts } from '../../src/data/bpe.ts';
import { HuggingFaceTokenizer } from '../../src/data/huggingface/tokenizer.ts';
import type { TokenizerFiles } from '../../src/formats/tokenizer-files.ts';
import { Random } from '../../src/util/random.ts';

const require = createRequire(import.meta.url);

/** GPT-2's tokens by an implementation of its own. */
export const gpt3: { encode(text: string): number[]; decode(ids: number[]): string } = require('gpt-3-encoder');

// biome-ignore lint/suspicious/noExplicitAny: JSON to change
export type Json = any;

export function filesOf(json: unknown, companions: Record<string, unknown> = {}): TokenizerFiles {
  const bytes = (value: unknown) =>
    Uint8Array.from(value instanceof Uint8Array ? value : new TextEncoder().encode(JSON.stringify(value)));
  const main = bytes(json);
  const contents = new Map(Object.entries(companions).map(([name, value]) => [name, bytes(value)]));
  return {
    path: 'model/tokenizer.json',
    sha256: createHash('sha256').update(main).digest('hex'),
    contents: new Map([['tokenizer.json', main], ...contents]),
  };
}

export const made = (json: unknown, companions?: Record<string, unknown>) =>
  new HuggingFaceTokenizer(filesOf(json, companions));

/** GPT-2's tokenizer.json. */
export function gpt2(): Json {
  const file = (name: string) => readFileSync(require.resolve(`gpt-3-encoder/${name}`), 'utf8');
  const byteLevel = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: true };
  return {
    version: '1.0',
    ...{ truncation: null, padding: null, normalizer: null, pre_tokenizer: byteLevel, decoder: byteLevel },
    added_tokens: [{ id: 50256, content: '<|endoftext|>', special: true, normalized: false }],
    post_processor: byteLevel,
    model: {
      ...{ type: 'BPE', dropout: null, unk_token: null, continuing_subword_prefix: '', end_of_word_suffix: '' },
      ...{ fuse_unk: false, byte_fallback: false, vocab: JSON.parse(file('encoder.json')) },
      merges: file('vocab.bpe')
        .split('\n')
        .slice(1)
        .filter((line) => line !== ''),
    },
  };
}

/** A BPE of some text, of the kind that is trained here. */
export async function trained(text: string, vocabulary: number): Promise<Json> {
  const counts = new WordCounts();
  counts.add(text);
  return JSON.parse(bpeTokenizerFiles(await trainMerges(counts, vocabulary))['tokenizer.json'] ?? '');
}

/** A small one. */
export const SMALL: Json = await trained(
  'the thing is that there it’s 12 the\n\nand then 日本 the (end).\n'.repeat(3),
  300,
);

/** With Llama 3's pre-tokenizer, or Qwen's. */
export function withPattern(regex: string, normalizer: unknown = null): Json {
  const split = { type: 'Split', pattern: { Regex: regex }, behavior: 'Isolated', invert: false };
  const bytes = { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false };
  return { ...SMALL, normalizer, pre_tokenizer: { type: 'Sequence', pretokenizers: [split, bytes] } };
}

export const LLAMA3 = String.raw`(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`;
export const QWEN = LLAMA3.replace('{1,3}', '');

const SPACE = '\u2581';
const byteTokens = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);

/** Llama 2's kind: no pieces, a space before the text, bytes for what has no token. `modern`: as Metaspace. */
export function llama2(modern = false): Json {
  const letters = [SPACE, ...'abcdefghijklmnopqrstuvwxyzABC.,!é0123456789日本'];
  const pairs = [
    '▁ t',
    'h e',
    'i n',
    '▁ a',
    '▁t he',
    'r e',
    'o n',
    '▁ ▁',
    '▁▁ ▁▁',
    'e r',
    't h',
    '▁ th',
    'in g',
    '日 本',
    '1 2',
  ];
  const tokens = ['<unk>', '<s>', '</s>', ...byteTokens, ...letters, ...pairs.map((pair) => pair.replace(' ', ''))];
  const prepend = [
    { type: 'Prepend', prepend: SPACE },
    { type: 'Replace', pattern: { String: ' ' }, content: SPACE },
  ];
  return {
    version: '1.0',
    added_tokens: tokens.slice(0, 3).map((content, id) => ({ id, content, special: true, normalized: false })),
    normalizer: modern ? null : { type: 'Sequence', normalizers: prepend },
    pre_tokenizer: modern ? { type: 'Metaspace', replacement: SPACE, prepend_scheme: 'first', split: false } : null,
    post_processor: {
      type: 'TemplateProcessing',
      single: [{ SpecialToken: { id: '<s>', type_id: 0 } }, { Sequence: { id: 'A', type_id: 0 } }],
      pair: [],
      special_tokens: { '<s>': { id: '<s>', ids: [1], tokens: ['<s>'] } },
    },
    decoder: {
      type: 'Sequence',
      decoders: [
        { type: 'Replace', pattern: { String: SPACE }, content: ' ' },
        { type: 'ByteFallback' },
        { type: 'Fuse' },
        { type: 'Strip', content: ' ', start: 1, stop: 0 },
      ],
    },
    model: {
      ...{ type: 'BPE', unk_token: '<unk>', fuse_unk: true, byte_fallback: true },
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
      merges: pairs,
    },
  };
}

/** Gemma's kind: no space before the text, and a split by what the normalizer leaves nothing of. */
export function gemma(): Json {
  const json = llama2();
  return {
    ...json,
    normalizer: { type: 'Replace', pattern: { String: ' ' }, content: SPACE },
    pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false },
    decoder: { type: 'Sequence', decoders: json.decoder.decoders.slice(0, -1) },
  };
}

/** BERT's kind. */
export function bert(): Json {
  const tokens = [
    '[PAD]',
    '[UNK]',
    '[CLS]',
    '[SEP]',
    'the',
    'cat',
    '##s',
    's',
    'σ',
    '##σ',
    'ο',
    '##ο',
    '日',
    '.',
    'cafe',
    '𠀀',
  ];
  return {
    added_tokens: tokens.slice(0, 4).map((content, id) => ({ id, content, special: true })),
    normalizer: {
      type: 'BertNormalizer',
      clean_text: true,
      handle_chinese_chars: true,
      strip_accents: null,
      lowercase: true,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: { type: 'BertProcessing', sep: ['[SEP]', 3], cls: ['[CLS]', 2] },
    decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
    model: {
      ...{ type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100 },
      vocab: Object.fromEntries(tokens.map((token, id) => [token, id])),
    },
  };
}

const HARD = [
  ...[
    '',
    ' ',
    '\n',
    '\t',
    'a',
    'é',
    '日',
    '😀',
    '\0',
    '\x7f',
    '\u00a0',
    '\u3000',
    '\u200b',
    '\u200d',
    '\u2028',
    '\u202e',
  ],
  ...[
    '👨‍👩‍👧‍👦',
    '🏳️‍🌈',
    '👍🏽',
    '🇩🇪🇫🇷',
    'e\u0301',
    'a\u0300\u0301\u0302b',
    'ﬁ',
    'ß',
    'İi',
    'Σίσυφος',
    '\u1100\u1161\u11a8',
  ],
  ...['한국어 텍스트', '中文，没有空格。', 'ไม่มีช่องว่าง', 'مرحبا بالعالم', 'שלום עולם', 'हिन्दी में', 'ру́сский', 'Ελληνικά'],
  ...["I'll don't we've he'd she's I'm they're", "'S 'LL 'Ve it'S", '``quotes\'\' "x"', "''''", "a's's"],
  ...['1234567890', '3.14159', '1,000,000', '٣٤٥', '½ ² Ⅷ 一二三', '0x1F', '1e-5', '12 345 6789', '1'.repeat(50)],
  ...[
    '  two',
    'trailing  ',
    '\n\n\n',
    ' \n \n ',
    '\t\t\tindent',
    'a\r\nb\r\n\r\nc',
    'x\n    y\n\tz',
    ' '.repeat(65),
    '\n'.repeat(33),
  ],
  ...[
    '\ud800',
    'a\udc00b',
    '\ud83d',
    '\ude00\ud83d',
    '\ud800\ud800 x',
    '<|endoftext|>',
    'a<|endoftext|>b',
    '<|endoftext|',
    '<|endo ftext|>',
  ],
  ...[
    '!!!???...',
    '--- ___ ===',
    '}{)(][><',
    'foo(bar);\n}\n',
    '/* c */ // d',
    'https://example.org/a?b=c#d',
    'a@b.c',
    '\\n\\t',
  ],
  ...[
    'a'.repeat(1000),
    'ab'.repeat(700),
    '漢'.repeat(200),
    '😀'.repeat(60),
    'pneumonoultramicroscopicsilicovolcanoconiosis',
  ],
  ...[
    '__proto__',
    'constructor',
    'toString',
    '{"a": [1, null]}',
    '\x1b[31mred\x1b[0m',
    '\u0001\u0002\u0003',
    '\ufffd\ufffe\uffff',
  ],
];

const ALPHABETS = [
  'abcXYZ  \n',
  "it's we'll  '\n\n\t",
  '0123456789 .,-',
  ' \t\n\r\u00a0\u3000x',
  'é日本語한국 ,。\n',
  '\u0301\u0308aeo \u200d',
  '(){}[];:=+-*/ \n',
];

/** 200 texts. */
export function hardTexts(): string[] {
  const random = new Random(7, 'hard texts');
  const texts = [...HARD];
  while (texts.length < 200) {
    const alphabet = [...(ALPHABETS[texts.length % ALPHABETS.length] ?? ''), ...'😀👩‍🚀'];
    const length = 1 + random.below(40);
    texts.push(Array.from({ length }, () => alphabet[random.below(alphabet.length)]).join(''));
  }
  return texts;
}

/** What a text is without characters that are no characters. */
export const wellFormed = (text: string): string => text.replace(/\p{Cs}/gu, '\ufffd');
