// What lies beside a tokenizer.json and outweighs it: ids as Hugging Face's fast tokenizers have them, what depends on their version
// refused by name, and pairs as they are published left as they are.

import { describe, expect, test } from 'vitest';
import { encodingWorker } from '../../src/data/encoding-thread.ts';
import { tokenizerOf } from '../../src/data/open-tokenizer.ts';
import { identityOf } from '../../src/data/tokenizer.ts';
import { huggingFaceVocabulary } from '../../src/formats/gguf/vocabulary/huggingface.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { filesOf, type Json, LLAMA3, llama2, made, QWEN, SMALL, withPattern } from './tokenizers.ts';

const CONFIG = 'tokenizer_config.json';
const flags = { lstrip: false, rstrip: false, single_word: false };

/** BERT's kind, with words that tell its normalizers apart. */
function bert(normalizer: Json = {}): Json {
  const words = ['[PAD]', '[UNK]', '[CLS]', '[SEP]', '[MASK]', 'hold', 'Hold', 'é', 'e', '日', '本', '日本'];
  return {
    ...{ version: '1.0', truncation: null, padding: null, decoder: { type: 'WordPiece', prefix: '##', cleanup: true } },
    added_tokens: words.slice(0, 5).map((content, id) => ({ id, content, ...flags, normalized: false, special: true })),
    normalizer: {
      ...{ type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, strip_accents: null, lowercase: true },
      ...normalizer,
    },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    post_processor: null,
    model: {
      ...{ type: 'WordPiece', unk_token: '[UNK]', continuing_subword_prefix: '##', max_input_chars_per_word: 100 },
      vocab: Object.fromEntries(words.map((word, id) => [word, id])),
    },
  };
}

const [HOLD, CAPITAL, ACCENT, PLAIN, DAY, BOOK, BOTH] = [5, 6, 7, 8, 9, 10, 11];
const ids = (json: Json, config: Json, text: string, more: Json = {}) => [
  ...made(json, { [CONFIG]: config, ...more }).encode(text),
];
const overrides = (json: Json, config: Json, more: Json = {}) =>
  (made(json, { [CONFIG]: config, ...more }).identity as { overrides?: string }).overrides;
const refusal = (json: Json, config: Json, more: Json = {}): string => {
  try {
    made(json, { [CONFIG]: config, ...more });
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError);
    return (error as Error).message;
  }
  return 'nothing';
};

describe('capitals, accents and Chinese characters', () => {
  const TEXT = 'Hold é 日本';
  test.each<[string, Json, Json, number[]]>([
    ['as tokenizer.json says', {}, {}, [HOLD, PLAIN, DAY, BOOK]],
    ['do_lower_case false', {}, { do_lower_case: false }, [CAPITAL, ACCENT, DAY, BOOK]],
    ['do_lower_case true', { lowercase: false }, { do_lower_case: true }, [HOLD, PLAIN, DAY, BOOK]],
    ['strip_accents false', {}, { do_lower_case: true, strip_accents: false }, [HOLD, ACCENT, DAY, BOOK]],
    ['tokenize_chinese_chars false', {}, { tokenize_chinese_chars: false }, [HOLD, PLAIN, BOTH]],
    [
      'all, of a class',
      {},
      { tokenizer_class: 'BertTokenizer', do_lower_case: false, strip_accents: true, tokenize_chinese_chars: false },
      [CAPITAL, PLAIN, BOTH],
    ],
    [
      'none, where the class leaves the normalizer alone',
      {},
      { tokenizer_class: 'PreTrainedTokenizerFast', do_lower_case: false },
      [HOLD, PLAIN, DAY, BOOK],
    ],
  ])('%s', (_, normalizer, config, wanted) => {
    expect(ids(bert(normalizer), config, TEXT)).toEqual(wanted);
  });

  test('what the class takes where nothing is said depends on the version: refused', () => {
    const config = { tokenizer_class: 'BertTokenizer' };
    expect(overrides(bert(), config)).toBeUndefined();
    expect(refusal(bert({ lowercase: false }), config)).toBe(
      'model/tokenizer.json: tokenizer_config.json: says no do_lower_case, by which some versions of "BertTokenizer" take true, and in tokenizer.json lowercase is false; say it there',
    );
    expect(refusal(bert({ strip_accents: false }), { ...config, do_lower_case: true })).toContain(
      'says no strip_accents',
    );
    expect(refusal(bert(), { do_lower_case: 'no' })).toContain('do_lower_case is "no"; it must be true or false');
  });
});

describe('the space before a text', () => {
  const spaced = { ...SMALL, pre_tokenizer: { ...SMALL.pre_tokenizer, add_prefix_space: true } };
  test('is put, or not, as add_prefix_space says', () => {
    const [with_, without] = [[...made(spaced).encode('the')], [...made(SMALL).encode('the')]];
    expect(with_).not.toEqual(without);
    expect(ids(SMALL, { add_prefix_space: true }, 'the')).toEqual(with_);
    expect(ids(spaced, { add_prefix_space: false }, 'the')).toEqual(without);
    expect(overrides(SMALL, { add_prefix_space: false })).toBeUndefined();
    expect(overrides(SMALL, { add_prefix_space: true })).toBe('add_prefix_space true');
  });

  test.each<[string, Json, Json, string]>([
    ['nothing is said', spaced, {}, 'says no add_prefix_space, by which some versions'],
    ['bytes in a sequence', withPattern(QWEN), { add_prefix_space: true }, 'by tokenizer.json a text begins with none'],
    [
      'Llama’s spaces',
      llama2(),
      { add_prefix_space: false },
      'add_prefix_space is false, and by tokenizer.json a text begins with one',
    ],
    ['Metaspace', llama2(true), { add_prefix_space: false }, 'a text begins with one'],
    ['what is no flag', SMALL, { add_prefix_space: 1 }, 'add_prefix_space is 1; it must be true or false'],
  ])('is refused where versions differ: %s', (_, json, config, message) => {
    expect(refusal(json, config)).toContain(message);
  });
});

describe('added tokens', () => {
  const decoder = (id: number | string, token: Json) => ({ added_tokens_decoder: { [id]: token } });
  test('that tokenizer.json lacks have the next ids, in their order', () => {
    const named = {
      12: { content: '<new>', ...flags, normalized: false, special: true },
      13: { content: '<Other>', ...flags, normalized: true, special: false },
    };
    expect(ids(bert(), { added_tokens_decoder: named }, 'hold<new>hold <other> [MASK]')).toEqual([
      HOLD,
      12,
      HOLD,
      13,
      4,
    ]);
    expect(overrides(bert(), { added_tokens_decoder: named })).toBe('added 12 "<new>"; added 13 "<Other>"');
    expect(made(bert(), { [CONFIG]: { added_tokens_decoder: named } }).vocabulary).toBe(14);
  });

  test('that are in the vocabulary have its ids, and are found as they are spelled', () => {
    expect(ids(bert(), {}, 'holdhold')).toEqual([1]);
    expect(ids(bert(), decoder(HOLD, { content: 'hold', ...flags, special: true }), 'holdhold')).toEqual([HOLD, HOLD]);
    // So do those that play a role.
    expect(ids(bert(), { additional_special_tokens: ['hold'] }, 'holdhold')).toEqual([HOLD, HOLD]);
    expect(ids(bert(), {}, 'holdhold', { 'special_tokens_map.json': { sep_token: 'hold' } })).toEqual([HOLD, HOLD]);
    expect(overrides(bert(), { pad_token: 'in no vocabulary', bos_token: null })).toBeUndefined();
  });

  test('that are there get the flags that are said', () => {
    const mask = { content: '[MASK]', ...flags, lstrip: true, normalized: false, special: true };
    const json = { ...llama2(), normalizer: null };
    expect(overrides(bert(), decoder(4, mask))).toBe('"[MASK]" lstrip true');
    const bos = { content: '<s>', ...flags, rstrip: true, normalized: true, special: true };
    expect(overrides(json, { bos_token: bos })).toBe('"<s>" rstrip true');
    const [stripped, plain] = [ids(json, { bos_token: bos }, '<s> a'), ids(json, {}, '<s> a')];
    expect(stripped).not.toEqual(plain);
    expect(stripped).toEqual(ids(json, {}, '<s>a'));
  });

  test('in a file of their own, where nothing else names them', () => {
    const file = { 'added_tokens.json': { '<b>': 13, '<a>': 12 } };
    expect(refusal(bert(), {}, file)).toContain('"<b>" is token 13, and by tokenizer.json it would be 12');
    const inOrder = { 'added_tokens.json': { '<a>': 12, '[MASK]': 4 } };
    expect(ids(bert(), {}, 'hold <a>', inOrder)).toEqual([HOLD, 12]);
    expect(overrides(bert(), { added_tokens_decoder: {} }, inOrder)).toBeUndefined();
  });

  test.each<[string, Json, string]>([
    [
      'another id than they would have',
      decoder(20, { content: '<new>' }),
      '"<new>" is token 20, and by tokenizer.json it would be 12',
    ],
    [
      'another id than the vocabulary’s',
      decoder(6, { content: 'hold' }),
      '"hold" is token 6, and by tokenizer.json it would be 5',
    ],
    ['no id', decoder('x', { content: '<new>' }), 'added_tokens_decoder.x must be named by an id'],
    ['no content', decoder(12, { special: true }), 'added_tokens_decoder.12 is '],
    ['no list', { added_tokens_decoder: 5 }, 'added_tokens_decoder is 5; it must be an object'],
    ['single words', decoder(4, { content: '[MASK]', single_word: true }), 'single_word is true'],
    ['not to be found', { split_special_tokens: true }, 'split_special_tokens is true'],
  ])('of %s are refused by name', (_, config, message) => {
    expect(refusal(bert(), config)).toContain(message);
  });

  test('that are normalized otherwise are refused where that may matter', () => {
    const json = {
      ...bert(),
      added_tokens: [...bert().added_tokens, { id: 12, content: '<N>', ...flags, normalized: true, special: false }],
    };
    const said = { content: '<N>', ...flags, normalized: false, special: false };
    expect(refusal(json, decoder(12, said))).toContain(
      '"<N>" is not normalized, and in tokenizer.json it is otherwise',
    );
    expect(overrides({ ...json, normalizer: null }, decoder(12, said))).toBeUndefined();
  });
});

test.each<[string, Json, Json]>([
  ['gpt2', SMALL, { model_max_length: 1024 }],
  ['bert-base-uncased', bert(), { do_lower_case: true, model_max_length: 512 }],
  ['bert-base-cased', bert({ lowercase: false }), { do_lower_case: false, model_max_length: 512 }],
  [
    'a BERT that was saved again',
    bert(),
    {
      ...{ tokenizer_class: 'BertTokenizer', do_lower_case: true, strip_accents: null, tokenize_chinese_chars: true },
      ...{ cls_token: '[CLS]', sep_token: '[SEP]', mask_token: '[MASK]', pad_token: '[PAD]', unk_token: '[UNK]' },
      added_tokens_decoder: Object.fromEntries(bert().added_tokens.map(({ id, ...token }: Json) => [id, token])),
    },
  ],
  [
    'Llama 2',
    llama2(),
    {
      ...{
        add_bos_token: true,
        add_eos_token: false,
        tokenizer_class: 'LlamaTokenizer',
        legacy: false,
        pad_token: null,
      },
      bos_token: { __type: 'AddedToken', content: '<s>', ...flags, normalized: false },
      eos_token: { __type: 'AddedToken', content: '</s>', ...flags, normalized: false },
      unk_token: { __type: 'AddedToken', content: '<unk>', ...flags, normalized: false },
    },
  ],
  ['Llama 3', withPattern(LLAMA3), { bos_token: '<|endoftext|>', tokenizer_class: 'PreTrainedTokenizerFast' }],
  [
    'Qwen 2.5 and 3',
    withPattern(QWEN, { type: 'NFC' }),
    {
      ...{ add_bos_token: false, add_prefix_space: false, bos_token: null, errors: 'replace' },
      ...{ eos_token: '<|endoftext|>', pad_token: '<|endoftext|>', split_special_tokens: false },
      ...{ tokenizer_class: 'Qwen2Tokenizer', unk_token: null, additional_special_tokens: ['<|endoftext|>'] },
    },
  ],
  [
    'SmolLM2',
    withPattern('\\p{N}'),
    { add_prefix_space: false, bos_token: '<|endoftext|>', tokenizer_class: 'GPT2Tokenizer', vocab_size: 49152 },
  ],
  [
    'Mistral, with a space',
    llama2(true),
    {
      add_prefix_space: true,
      add_bos_token: true,
      tokenizer_class: 'LlamaTokenizer',
      use_default_system_prompt: false,
    },
  ],
])('a pair as %s is published is left as it is', (_, json, config) => {
  expect(overrides(json, config)).toBeUndefined();
  expect(identityOf(filesOf(json, { [CONFIG]: config }))).toEqual(identityOf(filesOf(json)));
});

describe('a run', () => {
  const files = filesOf(bert(), { [CONFIG]: { do_lower_case: false } });
  const identity = identityOf(files);

  test('keeps what outweighed its tokenizer.json, by which it is opened again', async () => {
    expect(identity).toMatchObject({ kind: 'huggingface', overrides: 'lowercase false' });
    const tokenizer = await tokenizerOf(identity, files, 12, 'm');
    expect(tokenizer.identity).toEqual(identity);
    expect([...tokenizer.encode('Hold')]).toEqual([CAPITAL]);
    const other = filesOf(bert(), { [CONFIG]: {} });
    await expect(tokenizerOf(identity, other, 12, 'm')).rejects.toThrow(
      'model/tokenizer.json: what lies beside it says nothing else than it, and with m it was lowercase false; use the tokenizer_config.json of then',
    );
  });

  test('of an earlier version goes on with tokenizer.json alone, in threads, too', async () => {
    const { overrides: _, ...earlier } = identity as { overrides?: string } & typeof identity;
    const tokenizer = await tokenizerOf(earlier, files, 12, 'm');
    expect(tokenizer.identity).toEqual(earlier);
    expect([...tokenizer.encode('Hold')]).toEqual([HOLD]);
    for (const [alone, id] of [
      [true, HOLD],
      [false, CAPITAL],
    ] as const) {
      const worker = encodingWorker();
      worker({ files, alone });
      expect(worker({ id: 1, task: { texts: ['Hold'] } })?.encoded?.ids).toEqual([Int32Array.of(id)]);
    }
  });
});

test('a GGUF file has the tokens that were added, too', () => {
  const size = Object.keys(SMALL.model.vocab).length;
  const next = Math.max(size, ...SMALL.added_tokens.map(({ id }: Json) => id + 1));
  const config = { added_tokens_decoder: { [next]: { content: '<|new|>', special: true } } };
  const { contents } = filesOf(SMALL, { [CONFIG]: config });
  expect(huggingFaceVocabulary(contents, 'm').tokens[next]).toMatchObject({ text: '<|new|>' });
});
