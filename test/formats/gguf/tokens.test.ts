// The vocabulary of a GGUF file as a tokenizer: the ids of the tokenizer.json that the file was made of, on texts that are hard
// on tokenizers, and its special tokens; what llama.cpp would cut otherwise is refused by name.

import { describe, expect, test } from 'vitest';
import { HuggingFaceTokenizer } from '../../../src/data/huggingface/tokenizer.ts';
import type { GGUFValue } from '../../../src/formats/gguf/read-header.ts';
import { huggingFaceVocabulary } from '../../../src/formats/gguf/vocabulary/huggingface.ts';
import { tokenizerFilesOf } from '../../../src/formats/gguf/vocabulary/read.ts';
import { BYTE_VOCABULARY, vocabularyMetadata } from '../../../src/formats/gguf/vocabulary/vocabulary.ts';
import {
  filesOf,
  gpt2,
  hardTexts,
  type Json,
  LLAMA3,
  llama2,
  made,
  QWEN,
  SMALL,
  withPattern,
} from '../../data/tokenizers.ts';

/** What a file with this vocabulary says, in rows of which some are left over. */
function metadataOf(json: Json, companions: Record<string, unknown> = {}): Map<string, GGUFValue> {
  const vocabulary = huggingFaceVocabulary(filesOf(json, companions).contents, 'm');
  const metadata = vocabularyMetadata(vocabulary, vocabulary.tokens.length + 3, 'm');
  return new Map([...metadata].map(([key, { value }]) => [key, value]));
}

function reread(metadata: ReadonlyMap<string, GGUFValue>): HuggingFaceTokenizer {
  const files = tokenizerFilesOf(metadata, 'm.gguf').map(
    ([name, text]) => [name, new TextEncoder().encode(text)] as const,
  );
  return new HuggingFaceTokenizer({ path: 'm.gguf', sha256: '', contents: new Map(files) });
}

const ignoring = (json: Json): Json => ({ ...json, model: { ...json.model, ignore_merges: true } });

describe.each<[string, () => Json]>([
  ['GPT-2’s', gpt2],
  ['one that cuts as Llama 3’s', () => ignoring(withPattern(LLAMA3))],
  ['one that cuts as Qwen’s', () => withPattern(QWEN, { type: 'NFC' })],
  ['Llama 2’s kind', () => llama2()],
])('%s', (_, json) => {
  test('gives the same ids and texts', () => {
    const [own, found] = [made(json()), reread(metadataOf(json()))];
    const texts = [...hardTexts(), 'told<s>hold</s> ä'];
    for (const text of texts) {
      const ids = own.encode(text);
      expect([...found.encode(text)], text).toEqual([...ids]);
      expect(found.decode(ids)).toBe(own.decode(ids));
    }
  });
});

test('special tokens, the end of turns and the template are those of the file', () => {
  const companions = {
    'tokenizer_config.json': {
      bos_token: '<s>',
      eos_token: '</s>',
      add_bos_token: true,
      chat_template: '{{ bos_token }}',
    },
  };
  const metadata = metadataOf(llama2(), companions);
  const found = reread(metadata);
  expect(found.specials).toMatchObject({ bos: 1, eos: [2] });
  expect(found.addsBos).toBe(true);
  expect(new Map(tokenizerFilesOf(metadata, 'm')).get('chat_template.jinja')).toBe('{{ bos_token }}');
});

test('where a file does not say, BOS is what llama.cpp has for the way to cut a text', () => {
  const metadata = metadataOf(SMALL, { 'tokenizer_config.json': { bos_token: '<|endoftext|>' } });
  metadata.delete('tokenizer.ggml.add_bos_token');
  const names = ['gpt-2', 'llama-bpe', 'llama3', 'llama-v3', 'smaug-bpe', 'qwen2', 'tekken', 'gpt-4o', 'smollm'];
  const adding = names.filter((pre) => reread(metadata.set('tokenizer.ggml.pre', pre)).addsBos);
  expect(adding).toEqual(['llama-bpe', 'llama3', 'llama-v3', 'tekken']);
  metadata.set('tokenizer.ggml.pre', 'llama-bpe').set('tokenizer.ggml.add_bos_token', false);
  expect(reread(metadata).addsBos).toBe(false);
});

test('bytes have no tokenizer', () => {
  const metadata = [...vocabularyMetadata(BYTE_VOCABULARY, 256, 'm')].map(([key, { value }]) => [key, value] as const);
  expect(tokenizerFilesOf(new Map(metadata), 'm')).toEqual([]);
});

test.each<[string, GGUFValue | undefined, string]>([
  ['pre', 'deepseek-llm', 'm: tokenizer.ggml.pre is "deepseek-llm"; supported: gpt-2, llama-bpe'],
  ['pre', undefined, 'tokenizer.ggml.pre is missing; it must be a text'],
  ['model', 'bert', 'tokenizer.ggml.model is "bert"; supported: "gpt2", "llama"'],
  ['tokens', undefined, 'tokenizer.ggml.tokens is missing; it must be a list of strings'],
  ['tokens', ['a', 'a'], 'token_type has 50260 items for 2 tokens'],
  ['merges', [1, 2], 'tokenizer.ggml.merges is a list of 2; it must be a list of strings'],
  ['eos_token_id', -1, 'tokenizer.ggml.eos_token_id is -1; it must be an id'],
  ['add_bos_token', 3, 'tokenizer.ggml.add_bos_token is 3; it must be true or false'],
])('%s as %j is refused', (key, value, message) => {
  const metadata = metadataOf(gpt2());
  if (value === undefined) metadata.delete(`tokenizer.ggml.${key}`);
  else metadata.set(`tokenizer.ggml.${key}`, value);
  expect(() => tokenizerFilesOf(metadata, 'm')).toThrow(message);
});
