import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { tokenizerOf } from '../../src/data/open-tokenizer.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const tokenizer = new ByteTokenizer();
const unicode = fc.string({ unit: 'binary' });

describe('ByteTokenizer', () => {
  test('gives one id per byte of UTF-8', () => {
    expect([...tokenizer.encode('aé')]).toEqual([97, 0xc3, 0xa9]);
    expect(tokenizer.encode(Uint8Array.of(0, 255))).toEqual(Int32Array.of(0, 255));
  });

  test('decodes what it encoded, byte order marks included', () => {
    expect(tokenizer.decode(tokenizer.encode('\ufeffa\ufeff'))).toBe('\ufeffa\ufeff');
    fc.assert(fc.property(unicode, (text) => tokenizer.decode(tokenizer.encode(text)) === text));
  });

  test('streams whole characters: each as soon as its last byte is there', () => {
    const decoder = tokenizer.stream();
    const pieces = Array.from(tokenizer.encode('aé€😀'), (id) => decoder.push(id));
    expect(pieces).toEqual(['a', '', 'é', '', '', '€', '', '', '', '😀']);
    expect(decoder.end()).toBe('');
  });

  test("the stream's pieces, joined, are decode()'s text, for any bytes, again and again", () => {
    const decoder = tokenizer.stream();
    const bytes = fc.oneof(
      fc.uint8Array(),
      unicode.map((text) => new TextEncoder().encode(text)),
    );
    fc.assert(
      fc.property(bytes, (ids) => {
        const text = Array.from(ids, (id) => decoder.push(id)).join('') + decoder.end();
        expect(text).toBe(tokenizer.decode(ids));
      }),
    );
  });

  test('an unfinished character ends as U+FFFD', () => {
    const decoder = tokenizer.stream();
    expect(decoder.push(0xe2) + decoder.push(0x82)).toBe('');
    expect(decoder.end()).toBe('\ufffd');
    expect(decoder.push(97)).toBe('a');
  });

  test('shows a token by itself, whatever it is', () => {
    expect([97, 32, 10, 0, 0xc3].map((id) => tokenizer.show(id))).toEqual(['a', ' ', '\\n', '0x00', '0xc3']);
    const shown = Array.from({ length: 256 }, (_, id) => tokenizer.show(id));
    expect(new Set(shown).size).toBe(256);
    expect(shown.join('')).toMatch(/^[ -~]+$/);
  });

  test('is what its identity makes', async () => {
    const made = await tokenizerOf(JSON.parse(JSON.stringify(tokenizer.identity)), undefined, 256, 'it');
    expect(made.encode('aé')).toEqual(tokenizer.encode('aé'));
    expect((await tokenizerOf(undefined, undefined, 256, 'it')).identity).toEqual(tokenizer.identity);
    // Of a model that reads no text.
    expect((await tokenizerOf(undefined, undefined, 0, 'it')).identity).toEqual(tokenizer.identity);
  });

  test.each([256, -1, 1.5])('refuses token %d', (id) => {
    expect(() => tokenizer.decode([id])).toThrow(HoldfastError);
    expect(() => tokenizer.stream().push(id)).toThrow(`token ${id} is not a byte`);
  });
});
