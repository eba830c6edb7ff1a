// Vocabularies for llama.cpp: what a tokenizer.json says, and the ids that llama.cpp's ways make of texts with it. What would give
// others is refused.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { huggingFaceVocabulary } from '../../../src/formats/gguf/vocabulary/huggingface.ts';
import { BYTE_VOCABULARY, TOKEN, vocabularyMetadata } from '../../../src/formats/gguf/vocabulary/vocabulary.ts';
import { byteLevel } from './models.ts';

type Json = Readonly<Record<string, unknown>>;

function vocabularyOf(files: Record<string, Json | string>) {
  const contents = Object.entries(files).map(
    ([name, content]) =>
      [name, new TextEncoder().encode(typeof content === 'string' ? content : JSON.stringify(content))] as const,
  );
  return huggingFaceVocabulary(new Map(contents), 'm');
}

const vocab = Object.fromEntries(['a', 'b', 'c', 'Ġ', 'ab', 'abc', 'Ġc'].map((text, id) => [text, id]));
const model = { type: 'BPE', vocab, merges: ['a b', 'ab c', 'Ġ c'] };
const special = (content: string, id: number, isSpecial = true) => ({ content, id, special: isSpecial });
const split = (Regex: string) => ({
  type: 'Sequence',
  pretokenizers: [
    { type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false },
    { ...byteLevel, use_regex: false },
  ],
});
const LLAMA3 =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
const QWEN2 = LLAMA3.replace('{1,3}', '');
const TEKKEN =
  '[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
const digits = { type: 'Sequence', pretokenizers: [{ type: 'Digits', individual_digits: true }, byteLevel] };

describe('byte-level', () => {
  test('tokens, kinds, merges of both spellings, special tokens, the chat template', () => {
    const added_tokens = [special('<|im_end|>', 8), special('<tool>', 9, false)];
    const asPairs = { ...model, merges: model.merges.map((merge) => merge.split(' ')) };
    const files = {
      'tokenizer.json': { pre_tokenizer: split(QWEN2), normalizer: { type: 'NFC' }, model: asPairs, added_tokens },
      'tokenizer_config.json': { eos_token: { content: '<|im_end|>' }, bos_token: null, chat_template: 'hello' },
      'generation_config.json': { eos_token_id: [8, 3, 99], pad_token_id: 9 },
    };
    const found = vocabularyOf(files);
    expect(found).toMatchObject({ model: 'gpt2', pre: 'qwen2', merges: ['a b', 'ab c', 'Ġ c'], chatTemplate: 'hello' });
    expect(found.specials).toEqual({ eos: 8, eot: 8, pad: 9, addBos: false, addEos: false });
    const metadata = vocabularyMetadata(found, 12, 'm');
    expect(metadata.get('tokenizer.ggml.tokens')?.value).toEqual([
      ...Object.keys(vocab),
      ...['[PAD7]', '<|im_end|>', '<tool>', '[PAD10]', '[PAD11]'],
    ]);
    expect(metadata.get('tokenizer.ggml.token_type')?.value).toEqual([1, 1, 1, 1, 1, 1, 1, 5, 3, 4, 5, 5]);
    expect(metadata.get('tokenizer.ggml.add_bos_token')?.value).toBe(false);
    expect(metadata.has('tokenizer.ggml.bos_token_id')).toBe(false);
    expect(vocabularyOf({ ...files, 'chat_template.jinja': 'newer' }).chatTemplate).toBe('newer');
  });

  test('a template that begins and ends texts, and what outweighs it', () => {
    const [begin, end] = [{ SpecialToken: { id: '<s>' } }, { SpecialToken: { id: '</s>' } }];
    const template = { type: 'TemplateProcessing', single: [begin, { Sequence: { id: 'A' } }, end] };
    const tokenizer = {
      pre_tokenizer: byteLevel,
      model,
      added_tokens: [special('<s>', 7), special('</s>', 8)],
      post_processor: { type: 'Sequence', processors: [byteLevel, template] },
    };
    expect(vocabularyOf({ 'tokenizer.json': tokenizer }).specials).toMatchObject({
      ...{ bos: 7, eos: 8, addBos: true, addEos: true },
    });
    const chats = { bos_token: '<s>', chat_template: '{{ bos_token }}{{ messages }}' };
    const plain = { ...tokenizer, post_processor: byteLevel };
    const addsBos = (config: Json) =>
      vocabularyOf({ 'tokenizer.json': plain, 'tokenizer_config.json': config }).specials.addBos;
    expect(addsBos(chats)).toBe(true);
    expect(addsBos({ ...chats, add_bos_token: false })).toBe(false);
    expect(addsBos({ ...chats, chat_template: '{{ messages }}' })).toBe(false);
    const config = { add_bos_token: false, bos_token: '<s>', eos_token: '<s>' };
    expect(vocabularyOf({ 'tokenizer.json': tokenizer, 'tokenizer_config.json': config }).specials).toMatchObject({
      ...{ bos: 7, eos: 7, addBos: false, addEos: false },
    });
  });

  test.each([
    ['gpt-2', byteLevel, false],
    ['smollm', digits, false],
    ['llama-bpe', split(LLAMA3), true],
    ['smaug-bpe', split(LLAMA3), false],
    ['qwen2', split(QWEN2), false],
    ['tekken', split(TEKKEN), true],
  ])('cuts texts as %s', (pre, pre_tokenizer, ignore_merges) => {
    const tokenizer = { pre_tokenizer, model: { ...model, ignore_merges } };
    expect(vocabularyOf({ 'tokenizer.json': tokenizer }).pre).toBe(pre);
  });

  test.each<[Json, RegExp]>([
    [
      { pre_tokenizer: split('\\w+'), model },
      /pre_tokenizer is Split, ByteLevel, of "\\\\w\+"; llama.cpp has no such way/,
    ],
    [{ pre_tokenizer: { ...byteLevel, add_prefix_space: true }, model }, /begins a text with a space/],
    [
      { pre_tokenizer: split(QWEN2), model: { ...model, ignore_merges: true } },
      /ignore_merges is true with the pattern of qwen2/,
    ],
    [{ pre_tokenizer: byteLevel, model: { ...model, dropout: 0.1 } }, /model.dropout is 0.1/],
    [{ pre_tokenizer: byteLevel, model, normalizer: { type: 'Lowercase' } }, /normalizer is Lowercase/],
    [{ pre_tokenizer: null, model }, /BPE without bytes to fall back on/],
    [{ model: { type: 'WordPiece', vocab: {} } }, /its model is WordPiece/],
    [
      { pre_tokenizer: byteLevel, model: { ...model, vocab: { a: 0, b: 0 } } },
      /vocab has "b" as 0; it must be another than that of "a"/,
    ],
    [{ pre_tokenizer: byteLevel, model: { ...model, vocab: { a: 1e9 } } }, /vocab has "a" as 1000000000/],
    [{ pre_tokenizer: byteLevel, model: { ...model, merges: ['a b c'] } }, /merges\[0\] is "a b c"/],
    [{ pre_tokenizer: byteLevel, model: { ...model, merges: 7 } }, /merges is 7; it must be a list/],
    [{ pre_tokenizer: byteLevel, model, added_tokens: [{ id: 1 }] }, /added_tokens\[0\]/],
    [{ pre_tokenizer: byteLevel }, /model is missing; it must be an object/],
  ])('%j is refused', (tokenizer, message) => {
    expect(() => vocabularyOf({ 'tokenizer.json': tokenizer })).toThrow(message);
  });

  test('a token without a row, one text twice, none, and a damaged file are refused', () => {
    const found = vocabularyOf({ 'tokenizer.json': { pre_tokenizer: byteLevel, model } });
    expect(() => vocabularyMetadata(found, 6, 'm')).toThrow("m: token 6 has no row in the model's embedding of 6");
    const twice = { ...found, tokens: [...found.tokens, { text: 'ab', kind: TOKEN.normal }] };
    expect(() => vocabularyMetadata(twice, 8, 'm')).toThrow('m: two tokens are "ab"');
    const empty = { ...found, tokens: [{ text: '', kind: TOKEN.normal }] };
    expect(() => vocabularyMetadata(empty, 8, 'm')).toThrow('a token has no text');
    expect(() => vocabularyOf({ 'tokenizer.json': '{' })).toThrow(/m: tokenizer.json: not JSON/);
    const padded = { ...found, tokens: [{ text: '[PAD1]', kind: TOKEN.normal }] };
    expect(vocabularyMetadata(padded, 2, 'm').get('tokenizer.ggml.tokens')?.value).toEqual(['[PAD1]', '[[PAD1]]']);
  });
});

test('bytes: token i is byte i, by the characters that byte-level tokenizers have for them', () => {
  const metadata = vocabularyMetadata(BYTE_VOCABULARY, 256, 'm');
  const tokens = metadata.get('tokenizer.ggml.tokens')?.value as string[];
  expect(new Set(tokens).size).toBe(256);
  expect(tokens[0x41]).toBe('A');
  expect(tokens[0x20]).toBe('Ġ');
  expect(tokens[0x0a]).toBe('Ċ');
  expect(metadata.get('tokenizer.ggml.merges')).toEqual({ type: 'strings', value: [] });
  expect(metadata.get('tokenizer.ggml.eos_token_id')?.value).toBe(0);
});

// ---- SentencePiece's -------------------------------------------------------------------------------------------

const SPACE = '\u2581';
const gemma = {
  normalizer: { type: 'Replace', pattern: { String: ' ' }, content: SPACE },
  pre_tokenizer: { type: 'Split', pattern: { String: ' ' }, behavior: 'MergedWithPrevious', invert: false },
};
const llama2 = {
  normalizer: {
    type: 'Sequence',
    normalizers: [{ type: 'Prepend', prepend: SPACE }, gemma.normalizer],
  },
  pre_tokenizer: null,
};

/** Merges made as SentencePiece's are: of every way to come to a token, in the order of the tokens. */
function sentencePiece(words: readonly string[]) {
  const texts = ['<unk>', '<s>', ...Array.from({ length: 3 }, (_, i) => `<0x0${i}>`), ...'abc', SPACE, ...words];
  const known = new Set(texts);
  const merges = words.flatMap((word) =>
    Array.from({ length: word.length - 1 }, (_, i) => [word.slice(0, i + 1), word.slice(i + 1)] as const).filter(
      (pair) => pair.every((part) => known.has(part)),
    ),
  );
  const vocab = Object.fromEntries(texts.map((text, id) => [text, id]));
  const sp = { type: 'BPE', vocab, merges, byte_fallback: true, unk_token: '<unk>', fuse_unk: true };
  return { merges, tokenizer: { ...llama2, model: sp, added_tokens: [special('<unk>', 0), special('<s>', 1)] } };
}

/** Merges the best neighbours, the first of equals, until none are left. */
function merged(text: string, better: (left: string, right: string) => number | undefined): string[] {
  const parts = [...text];
  for (;;) {
    const found = parts
      .slice(1)
      .map((right, i) => ({ i, order: better(parts[i] ?? '', right) }))
      .filter((each) => each.order !== undefined)
      .sort((a, b) => (a.order ?? 0) - (b.order ?? 0) || a.i - b.i)[0];
    if (!found) return parts;
    parts.splice(found.i, 2, `${parts[found.i]}${parts[found.i + 1]}`);
  }
}

describe('SentencePiece’s', () => {
  test('kinds of tokens, scores, whether a space is put before', () => {
    const { tokenizer } = sentencePiece([`${SPACE}a`, 'ab']);
    const found = vocabularyOf({
      'tokenizer.json': {
        ...tokenizer,
        added_tokens: [...tokenizer.added_tokens, special(`${SPACE}${SPACE}`, 11, false)],
      },
    });
    expect(found).toMatchObject({ model: 'llama', pre: 'default', addSpacePrefix: true });
    expect(found.tokens.map((token) => token?.kind)).toEqual([2, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1, 4]);
    // llama.cpp looks for it in the text, where spaces are spaces.
    expect(found.tokens[11]?.text).toBe('  ');
    expect(found.scores?.slice(9, 11)).toEqual([-1, -2]);
    expect(new Set(found.scores?.slice(0, 9))).toEqual(new Set([-3]));
    expect(vocabularyOf({ 'tokenizer.json': { ...tokenizer, ...gemma } }).addSpacePrefix).toBe(false);
    const metaspace = { type: 'Metaspace', replacement: SPACE, prepend_scheme: 'first', split: false };
    const newer = { ...tokenizer, normalizer: null, pre_tokenizer: metaspace };
    expect(vocabularyOf({ 'tokenizer.json': newer }).addSpacePrefix).toBe(true);
  });

  test('scores make the tokens that the merges make', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', 'c', SPACE), minLength: 2, maxLength: 5 });
    const words = fc.uniqueArray(word, { minLength: 1, maxLength: 12 });
    fc.assert(
      fc.property(words, fc.string({ unit: fc.constantFrom('a', 'b', 'c', SPACE), maxLength: 30 }), (all, text) => {
        const { merges, tokenizer } = sentencePiece(all);
        // Tokens that no merge comes to are none of SentencePiece's.
        fc.pre(all.every((token) => merges.some(([left, right]) => left + right === token)));
        const ranks = new Map(merges.map((pair, i) => [pair.join(' '), i]));
        const { tokens, scores = [] } = vocabularyOf({ 'tokenizer.json': tokenizer });
        const ids = new Map(tokens.map((token, id) => [token?.text, id]));
        const byScores = merged(text, (left, right) => {
          const id = ids.get(left + right);
          return id === undefined ? undefined : -(scores[id] ?? 0);
        });
        expect(byScores).toEqual(merged(text, (left, right) => ranks.get(`${left} ${right}`)));
      }),
      { seed: 5, numRuns: 300 },
    );
  });

  test.each<[Json, RegExp]>([
    [{ normalizer: { type: 'Lowercase' } }, /normalizer has Lowercase as llama.cpp does not/],
    [{ pre_tokenizer: { type: 'Whitespace' } }, /pre_tokenizer has Whitespace/],
    [{ pre_tokenizer: { type: 'Metaspace', split: true } }, /pre_tokenizer has Metaspace/],
  ])('%j is refused', (other, message) => {
    const { tokenizer } = sentencePiece(['ab']);
    expect(() => vocabularyOf({ 'tokenizer.json': { ...tokenizer, ...other } })).toThrow(message);
  });
});
