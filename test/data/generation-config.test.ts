// What generation_config.json says of how a model's text is drawn: what is done, and what is told as not done.

import { expect, test } from 'vitest';
import { advisedSampling } from '../../src/data/huggingface/generation-config.ts';

const advised = (json: unknown) =>
  advisedSampling({
    ...{ path: 'm', sha256: '' },
    contents: new Map([['generation_config.json', new TextEncoder().encode(JSON.stringify(json))]]),
  });

test('temperature, top-k and top-p are those of text that is sampled', () => {
  const qwen = {
    do_sample: true,
    temperature: 0.7,
    top_k: 20,
    top_p: 0.8,
    repetition_penalty: 1.05,
    eos_token_id: [1],
  };
  expect(advised(qwen)).toEqual({ temperature: 0.7, topK: 20, topP: 0.8, notApplied: ['repetition_penalty 1.05'] });
  expect(advised({ temperature: 0.7, top_k: 20 })).toEqual({ notApplied: [] });
  // What is not said is what it is in Hugging Face's library.
  expect(advised({ do_sample: true, top_p: 0.95 })).toEqual({ temperature: 1, topK: 50, topP: 0.95, notApplied: [] });
  expect(advised({ do_sample: true, top_k: 0 })).toEqual({ temperature: 1, topP: 1, notApplied: [] });
});

test('what changes nothing is not told', () => {
  const plain = {
    repetition_penalty: 1,
    num_beams: 1,
    min_p: null,
    suppress_tokens: [],
    transformers_version: '4.51.0',
  };
  expect(advised(plain)).toEqual({ notApplied: [] });
  expect(advised({ num_beams: 4, suppress_tokens: [3] })).toEqual({ notApplied: ['num_beams 4', 'suppress_tokens'] });
});

test('nothing is said by a file that is not there, and what is no object is refused', () => {
  expect(advisedSampling(undefined)).toEqual({ notApplied: [] });
  expect(() => advised({ do_sample: true, temperature: '1' })).toThrow(
    'm: generation_config.json: temperature is "1"; it must be a number, 0 or more, that float32 holds',
  );
  expect(() => advised({ do_sample: true, top_k: 50.5 })).toThrow(
    'top_k is 50.5; it must be a whole number, 0 or more',
  );
  expect(() => advised({ do_sample: true, top_p: 0 })).toThrow('generation_config.json: top_p is 0; it must be');
  expect(() => advised([])).toThrow('m: generation_config.json is a list of 0; it must be an object');
});
