// Files of tokenizers that are refused, by name, because their ids would be others than elsewhere; and files that are damaged.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { HoldfastError } from '../../src/util/errors.ts';
import { EVERY_CASE } from '../host.ts';
import { type Json, llama2, made, withPattern } from './tokenizers.ts';

describe('refused by name: what would have other ids than elsewhere', () => {
  const change = (make: () => Json, edit: (json: Json) => void) => {
    const json = make();
    edit(json);
    return json;
  };
  test.each<[string, () => Json, (json: Json) => void, string]>([
    [
      'a model',
      llama2,
      (json) => {
        json.model.type = 'Unigram';
      },
      'model is of type "Unigram"; supported: BPE, WordPiece',
    ],
    [
      'dropout',
      llama2,
      (json) => {
        json.model.dropout = 0.1;
      },
      'model.dropout is 0.1',
    ],
    [
      'a suffix',
      llama2,
      (json) => {
        json.model.end_of_word_suffix = '</w>';
      },
      'model.end_of_word_suffix is "</w>"',
    ],
    [
      'no bytes',
      llama2,
      (json) => {
        json.model.byte_fallback = false;
      },
      'text would be lost',
    ],
    [
      'a byte',
      llama2,
      (json) => {
        delete json.model.vocab['<0x0A>'];
      },
      'has no token <0x0A> for the byte 10',
    ],
    [
      'a merge',
      llama2,
      (json) => {
        json.model.merges.push('q q');
      },
      'and "qq" is not in vocab',
    ],
    [
      'half a merge',
      llama2,
      (json) => {
        json.model.merges.push('q');
      },
      'model.merges[15] is "q"; it must be two tokens',
    ],
    [
      'an id twice',
      llama2,
      (json) => {
        json.model.vocab.q = 5;
      },
      'it must be another id',
    ],
    [
      'an id of nowhere',
      llama2,
      (json) => {
        json.model.vocab.q = 2 ** 40;
      },
      'it must be a whole number below',
    ],
    [
      'a normalizer',
      llama2,
      (json) => {
        json.normalizer = { type: 'Precompiled' };
      },
      'normalizer is of type "Precompiled"; supported:',
    ],
    [
      'a pre-tokenizer',
      llama2,
      (json) => {
        json.pre_tokenizer = { type: 'UnicodeScripts' };
      },
      'pre_tokenizer is of type "UnicodeScripts"',
    ],
    [
      'a decoder',
      llama2,
      (json) => {
        json.decoder.decoders.push({ type: 'CTC' });
      },
      'decoder.decoders[4] is of type "CTC"',
    ],
    [
      'a stripped end',
      llama2,
      (json) => {
        json.decoder.decoders[3].stop = 1;
      },
      'strips something else',
    ],
    [
      'single words',
      llama2,
      (json) => {
        json.added_tokens[0].single_word = true;
      },
      'added_tokens[0].single_word is true',
    ],
    [
      'another id',
      llama2,
      (json) => {
        json.added_tokens[0].id = 7;
      },
      'added_tokens[0].id is 7; it must be 0',
    ],
    [
      'a field',
      llama2,
      (json) => {
        json.model.magic = 1;
      },
      'model.magic is 1; no such field is known here',
    ],
    [
      'a post-processor',
      llama2,
      (json) => {
        json.post_processor.type = 'Magic';
      },
      'post_processor is of type "Magic"',
    ],
    [
      'an atomic group',
      () => withPattern('(?>a)|b'),
      () => {},
      'pre_tokenizer.pretokenizers[0].pattern.Regex is "(?>"',
    ],
    ['no way back', () => withPattern('a++|b'), () => {}, 'pattern.Regex is "++"'],
    ['letters of any case', () => withPattern('(?i:straße)'), () => {}, 'pattern.Regex is "(?i:"'],
    ['a pattern', () => withPattern('(a'), () => {}, 'has a pattern that cannot be used'],
    [
      'a behavior',
      () => withPattern('a'),
      (json) => {
        json.pre_tokenizer.pretokenizers[0].behavior = 'MergedWithNext';
      },
      'behavior is "MergedWithNext"',
    ],
  ])('%s', (_, make, edit, message) => {
    const refused = () => made(change(make, edit));
    expect(refused).toThrow(HoldfastError);
    expect(refused).toThrow(message);
    expect(refused).toThrow(/^model\/tokenizer\.json: /);
  });

  test('any damage is one clear line, or leaves a tokenizer that works', () => {
    const source = JSON.stringify(llama2());
    const numRuns = EVERY_CASE ? 10_000 : 400;
    let refused = 0;
    const edits = fc.array(
      fc.tuple(fc.nat({ max: source.length - 1 }), fc.constantFrom('', '0', '"', '{', '[', 'null', 'x', '9'.repeat(9))),
      { minLength: 1, maxLength: 3 },
    );
    fc.assert(
      fc.property(edits, fc.constantFrom(0, 1, 40), (edits, length) => {
        let text = source;
        for (const [at, insert] of edits) text = text.slice(0, at) + insert + text.slice(at + length);
        try {
          const tokenizer = made(new TextEncoder().encode(text));
          tokenizer.decode(tokenizer.encode('the thing 日本 😀'));
        } catch (error) {
          expect(error).toBeInstanceOf(HoldfastError);
          const { message } = error as Error;
          expect(message.length).toBeLessThan(1000);
          expect(message).not.toMatch(/\n/);
          refused++;
        }
      }),
      { seed: 8, numRuns },
    );
    expect(refused).toBeGreaterThan(numRuns / 4);
  });
});
