// Tokenizers out of a tokenizer.json: ids equal to an independent encoder's, decoding and streaming, special tokens and cuts.
// Files that are refused because their ids would be others are in huggingface-refused.test.ts.

import { Tokenizer as Library } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HuggingFaceTokenizer } from '../../src/data/huggingface/tokenizer.ts';
import { tokenizerOf } from '../../src/data/open-tokenizer.ts';
import { promptIds, type Tokenizer } from '../../src/data/tokenizer.ts';
import {
  bert,
  filesOf,
  gemma,
  gpt2,
  gpt3,
  hardTexts,
  type Json,
  LLAMA3,
  llama2,
  made,
  QWEN,
  SMALL,
  trained,
  wellFormed,
  withPattern,
} from './tokenizers.ts';

const real = made(gpt2());
const texts = hardTexts();
const unicode = fc.string({ unit: 'binary', maxLength: 60 });
/** White space to Unicode and to Hugging Face's library, not to JavaScript, and the other way round. */
const DISPUTED = /[\u0085\ufeff]/;

describe("GPT-2's", () => {
  test('the same ids as an encoder of its own, on 200 hard texts, which come back', () => {
    expect(new Set(texts).size).toBeGreaterThan(190);
    const differ = texts.filter((text) => {
      // It knows no special tokens.
      const wanted = text.includes('<|endoftext|>')
        ? text.split('<|endoftext|>').flatMap((part, i) => [...(i > 0 ? [50256] : []), ...gpt3.encode(part)])
        : gpt3.encode(text);
      return real.encode(text).join() !== wanted.join();
    });
    expect(differ).toEqual([]);
    for (const text of texts) expect(real.decode(real.encode(text))).toBe(wellFormed(text));
  });

  test('the same ids on any text, from its bytes too', () => {
    fc.assert(
      fc.property(unicode, (text) => {
        fc.pre(!DISPUTED.test(text) && !text.includes('<|endoftext|>'));
        expect([...real.encode(text)]).toEqual(gpt3.encode(text));
        expect(real.encode(new TextEncoder().encode(text))).toEqual(real.encode(text));
      }),
      { seed: 3, numRuns: 300 },
    );
  });

  test('white space is what Unicode and Hugging Face’s library take for it, not what JavaScript does', async () => {
    const ids = (...pieces: string[]) => pieces.flatMap((piece) => gpt3.encode(piece));
    // U+0085 ends a line: of two before a letter, the second is a piece of its own.
    expect([...real.encode('!\u0085\u0085b')]).toEqual(ids('!', '\u0085', '\u0085', 'b'));
    expect([...real.encode('!\u0085')]).not.toEqual([...real.encode('!?')]);
    // A byte order mark is a sign like others: one piece with them, so that all of it can be one token.
    const signs = made(await trained('!\ufeff? '.repeat(9), 300));
    expect(signs.encode('!\ufeff?')).toHaveLength(1);
  });
});

describe('streams', () => {
  test.each([
    ['GPT-2', real],
    ['Llama 2', made(llama2())],
    ['Llama 2, newer', made(llama2(true))],
    ['Gemma', made(gemma())],
    ['BERT', made(bert())],
  ])('the pieces of %s, joined, are what decode gives, for any ids; none ends inside a character', (_, tokenizer) => {
    const stream = tokenizer.stream();
    const ids = fc.array(fc.nat({ max: tokenizer.vocabulary + 3 }), { maxLength: 30 });
    fc.assert(
      fc.property(ids, (ids) => {
        const pieces = ids.map((id) => stream.push(id));
        expect(pieces.join('') + stream.end()).toBe(tokenizer.decode(ids));
      }),
      { seed: 4, numRuns: 300 },
    );
    for (const text of texts.filter((text) => text === wellFormed(text) && !text.includes('\ufffd'))) {
      for (const id of tokenizer.encode(text)) expect(stream.push(id)).not.toContain('\ufffd');
      expect(stream.end()).toBe('');
    }
  });

  test('bytes of a character that has no token come as one piece, and the space before a text is taken away once', () => {
    const tokenizer = made(llama2());
    const ids = tokenizer.encode('the 😀');
    const stream = tokenizer.stream();
    expect(Array.from(ids, (id) => stream.push(id)).filter((piece) => piece !== '')).toEqual(['the', ' ', '😀']);
    expect(tokenizer.decode(tokenizer.encode('  the  the'))).toBe('  the  the');
    const [, ...rest] = tokenizer.encode('a the');
    expect(tokenizer.decode([...tokenizer.encode('a'), ...rest.slice(-1)])).toBe('a the');
  });
});

describe('Llama 2’s kind', () => {
  const library = (json: Json) => {
    const oracle = new Library(json, {});
    return (text: string) => oracle.encode(text, { add_special_tokens: false }).ids;
  };

  test.each([
    ['with Prepend', llama2()],
    ['with Metaspace', llama2(true)],
    ['with Gemma’s split', gemma()],
  ])('%s: ids of the library, which takes the text as one piece, and round trips', (_, json) => {
    const [tokenizer, oracle] = [made(json), library(json)];
    const words = fc.array(
      fc.constantFrom('the', 'thing', 'a', '12', ' ', '  ', '\n', '.', '日本', '😀', 'é', '</s>', 'there'),
    );
    fc.assert(
      fc.property(words, fc.constantFrom('', ' '), (words, joint) => {
        const text = words.join(joint);
        expect([...tokenizer.encode(text)]).toEqual(oracle(text));
        // Metaspace puts no space before one that is there, and the decoder takes one away all the same.
        const lost = text.includes('</s>') || (!json.normalizer && text.startsWith(' '));
        if (!lost) expect(tokenizer.decode(tokenizer.encode(text))).toBe(text);
      }),
      { seed: 5, numRuns: 300 },
    );
  });
});

test('BERT’s kind: Greek capitals, accents, Chinese beyond the first plane, unknown words', () => {
  const tokenizer = made(bert());
  const tokens = (text: string) => Array.from(tokenizer.encode(text), (id) => tokenizer.show(id).trim());
  expect(tokens('The CATS.')).toEqual(['the', 'cat', 's', '.']);
  expect(tokens('ΟΣ Σ')).toEqual(['ο', 'σ', 'σ']);
  expect(tokens('café𠀀日dog')).toEqual(['cafe', '𠀀', '日', '[UNK]']);
  expect(tokenizer.decode(tokenizer.encode('the cats.'))).toBe('the cats.');
});

describe('cuts', () => {
  const words = fc.constantFrom(
    'a',
    'the',
    "it's",
    '12',
    '日本',
    'é',
    '!',
    '.',
    '\n',
    '\n\n',
    '\r\n',
    ' ',
    '  ',
    '\t',
    '<|endoftext|>',
    '(',
    '😀',
    '</s>',
    ' \n',
  );
  const prose = fc.array(words, { minLength: 1, maxLength: 60, size: 'max' }).map((parts) => parts.join(''));

  test.each([
    ['GPT-2', made(SMALL)],
    ['Llama 3', made(withPattern(LLAMA3))],
    ['Qwen', made(withPattern(QWEN, { type: 'NFC' }))],
    [
      'SmolLM',
      made({
        ...SMALL,
        pre_tokenizer: {
          type: 'Sequence',
          pretokenizers: [{ type: 'Digits', individual_digits: true }, SMALL.pre_tokenizer],
        },
      }),
    ],
    ['Llama 2', made(llama2())],
    ['Llama 2, newer', made(llama2(true))],
    ['Gemma', made(gemma())],
    ['BERT', made(bert())],
  ])('the ids of the parts of a text, joined, are those of the whole: %s', (_, tokenizer: Tokenizer) => {
    let cuts = 0;
    fc.assert(
      fc.property(prose, fc.nat({ max: 5 }), (text, step) => {
        const ids: number[] = [];
        let begin = 0;
        for (let cut = tokenizer.nextCut?.(text, 1); cut; cut = tokenizer.nextCut?.(text, cut.end + 1 + step)) {
          ids.push(...tokenizer.encode(text.slice(begin, cut.end)));
          begin = cut.begin;
          cuts++;
        }
        ids.push(...tokenizer.encode(text.slice(begin)));
        expect(ids).toEqual([...tokenizer.encode(text)]);
      }),
      { seed: 6, numRuns: 400 },
    );
    expect(cuts).toBeGreaterThan(20);
  });

  test('none where a pattern is not known, a token lies across, or white space belongs to one', () => {
    const cut = (json: Json) => made(json).nextCut('the cat sat', 1);
    expect(cut(SMALL)).toEqual({ end: 3, begin: 3 });
    expect(cut(llama2())).toEqual({ end: 3, begin: 4 });
    const split = gemma();
    expect(cut(split)).toEqual({ end: 3, begin: 3 });
    // Where the normalizer leaves some, the split finds them.
    split.normalizer = { type: 'Sequence', normalizers: [split.normalizer, { type: 'NFKC' }] };
    expect(cut(split)).toBeUndefined();
    expect(cut(withPattern(String.raw`\p{L}+ \p{L}+|\s+`))).toBeUndefined();
    const add = (token: Json) => ({ ...SMALL, added_tokens: [{ id: 300, content: 'ẋẋ', special: true, ...token }] });
    expect(cut(add({ content: 'e c' }))).toBeUndefined();
    expect(cut(add({ lstrip: true }))).toBeUndefined();
    expect(cut(add({ content: '<x>', lstrip: true }))).toEqual({ end: 3, begin: 3 });
    const across = llama2();
    across.model.vocab['e\u2581'] = 400;
    expect(cut(across)).toBeUndefined();
  });
});

describe('special tokens', () => {
  test('are found as they are spelled, whatever a pattern would take them for', () => {
    const names = ['<|tool-call|>', '[/a.b]', '--', '\\d^$', '(x)*+?{1}'];
    const added_tokens = names.map((content, i) => ({ id: 400 + i, content, special: true }));
    const tokenizer = made({ ...SMALL, added_tokens });
    const ids = names.map((_, i) => 400 + i);
    expect([...tokenizer.encode(names.join(''))]).toEqual(ids);
    const [a] = tokenizer.encode('a');
    expect([...tokenizer.encode(names.join('a'))]).toEqual(ids.flatMap((id, i) => (i > 0 ? [a, id] : [id])));
  });

  test('of the template, the configuration and the generation’s, which may name several ends', () => {
    const json = llama2();
    expect(made(json)).toMatchObject({ specials: { bos: 1, eos: [] }, addsBos: true });
    const config = { bos_token: { content: '<s>' }, eos_token: '</s>', pad_token: '<unk>', add_bos_token: false };
    const generation = { eos_token_id: [2, 5, 99_999] };
    const tokenizer = made(json, { 'tokenizer_config.json': config, 'generation_config.json': generation });
    expect(tokenizer).toMatchObject({ specials: { bos: 1, eos: [2, 5], pad: 0 }, addsBos: false });
    expect(made(json, { 'special_tokens_map.json': { eos_token: '</s>' } }).specials.eos).toEqual([2]);
    expect(made(json, { 'generation_config.json': { eos_token_id: 2 } }).specials.eos).toEqual([2]);
  });

  test('of config.json where generation_config.json names none; neither outweighs what is put before a text', () => {
    const json = { ...llama2(), post_processor: null };
    const of = (modelIds: Record<string, unknown>, companions = {}, tokenizer: unknown = json) =>
      new HuggingFaceTokenizer({ ...filesOf(tokenizer, companions), modelIds }).specials;
    const all = { bos_token_id: 5, eos_token_id: [6, 99_999], pad_token_id: 8 };
    expect(of(all)).toEqual({ bos: 5, eos: [6], pad: 8 });
    expect(of({ ...all, pad_token_id: -1 })).toEqual({ bos: 5, eos: [6] });
    const generation = { 'generation_config.json': { eos_token_id: 9, pad_token_id: null } };
    expect(of(all, generation)).toEqual({ bos: 5, eos: [9], pad: 8 });
    expect(of(all, { 'tokenizer_config.json': { eos_token: '</s>' } }).eos).toEqual([6, 2]);
    expect(of(all, {}, llama2()).bos).toBe(1);
    expect(() => of({ eos_token_id: { id: 2 } })).toThrow(/config.json: eos_token_id is .*; it must be an id/);
  });

  test('BOS comes before a prompt where its models see it, never twice, and alone where the prompt is empty', () => {
    const tokenizer = made(llama2());
    const plain = [...tokenizer.encode('the')];
    expect([...promptIds(tokenizer, 'the')]).toEqual([1, ...plain]);
    expect([...promptIds(tokenizer, '<s>the')]).toEqual([...tokenizer.encode('<s>the')]);
    expect([...promptIds(tokenizer, '')]).toEqual([1]);
    // More tokens than a call takes arguments.
    const long = 'the '.repeat(150_000);
    const ids = promptIds(tokenizer, long);
    expect(ids[0]).toBe(1);
    expect(ids.subarray(1)).toEqual(tokenizer.encode(long));
    const without = made(llama2(), { 'tokenizer_config.json': { add_bos_token: false } });
    expect([...promptIds(without, 'the')]).toEqual(plain);
    expect([...promptIds(without, '')]).toEqual([1]);
  });

  test('are shown, and so is what is no text', () => {
    const tokenizer = made(llama2());
    expect([1, 3 + 0x0a, 3 + 0xe2, 9999].map((id) => tokenizer.show(id))).toEqual(['<s>', '\\n', '0xe2', '<9999>']);
    for (let id = 0; id < tokenizer.vocabulary; id++) expect(tokenizer.show(id)).toMatch(/^\P{Cc}+$/u);
  });
});

test('a tokenizer is one of its model: the same file, and ids below the vocabulary, which may be larger', async () => {
  const files = filesOf(llama2());
  const { identity, vocabulary } = made(llama2());
  expect((await tokenizerOf(identity, files, vocabulary + 100, 'it')).vocabulary).toBe(vocabulary);
  await expect(tokenizerOf(identity, files, vocabulary - 1, 'it')).rejects.toThrow(
    `its tokens go up to ${vocabulary - 1}, the vocabulary of it ends at ${vocabulary - 2}`,
  );
  await expect(tokenizerOf(identity, filesOf(llama2(true)), vocabulary, 'it')).rejects.toThrow(
    'is not the one that it was made with',
  );
  await expect(tokenizerOf(identity, undefined, vocabulary, 'it')).rejects.toThrow('its tokenizer.json is not there');
});
