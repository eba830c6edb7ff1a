// Addresses of models on the hub, in every form that people copy them in: one model each, or one line that says why not.

import { describe, expect, test } from 'vitest';
import { hubAddressIn, hubName, hubPlace } from '../../src/formats/remote/hub-address.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const SITE = 'https://huggingface.co';

test.each([
  ['hf://org/m', 'hf://org/m'],
  ['hf://org/m/', 'hf://org/m'],
  ['hf://org/m@v1.0', 'hf://org/m@v1.0'],
  ['hf://org/m@refs/pr/1', 'hf://org/m@refs/pr/1'],
  ['hf://org/m-GGUF/m.Q4_K_M.gguf', 'hf://org/m-GGUF/m.Q4_K_M.gguf'],
  ['hf://org/m-GGUF/m.gguf@v2', 'hf://org/m-GGUF/m.gguf@v2'],
  [`${SITE}/org/m`, 'hf://org/m'],
  [`${SITE}/Qwen/Qwen2.5-0.5B/`, 'hf://Qwen/Qwen2.5-0.5B'],
  ['http://huggingface.co/org/m', 'hf://org/m'],
  ['https://hf.co/org/m', 'hf://org/m'],
  ['HTTPS://HuggingFace.co/org/m?library=transformers#use', 'hf://org/m'],
  [`${SITE}/org/m@v1`, 'hf://org/m@v1'],
  [`${SITE}/org/m/tree/main`, 'hf://org/m@main'],
  [`${SITE}/org/m/tree/refs%2Fpr%2F1`, 'hf://org/m@refs/pr/1'],
  [`${SITE}/org/m/blob/v2/m.Q8_0.gguf`, 'hf://org/m/m.Q8_0.gguf@v2'],
  [`${SITE}/org/m/m.Q8_0.gguf`, 'hf://org/m/m.Q8_0.gguf'],
  [`${SITE}/org/m/tree`, 'hf://org/m@main'],
])('%s is %s', (text, place) => {
  const found = hubAddressIn(text);
  expect(found && hubPlace(found)).toBe(place);
  // Its name is the one that leads there again.
  expect(hubAddressIn(place)).toEqual(found);
  expect(found && `hf://${hubName(found)}`).toBe(place.replace(/\/[^/]*\.gguf/, ''));
});

test.each([
  'runs/run-1',
  'org/m',
  'C:\\models\\m',
  'https://elsewhere.example/org/m',
  'https://huggingface.co.example/org/m',
  // A folder of files, which is asked for as one.
  `${SITE}/org/m/resolve/main/`,
  `${SITE}/org/m/resolve/main/m.gguf`,
  'https://',
])('%s is none on the hub', (text) => {
  expect(hubAddressIn(text)).toBeUndefined();
});

describe('refused in one line', () => {
  test.each([
    ['hf://m', 'is no name on the hub; it must be like hf://ORG/NAME'],
    ['hf://', 'is no name on the hub'],
    ['hf://org/..', 'is no name on the hub'],
    ['hf://../m', 'is no name on the hub'],
    ['hf://org/../m', 'is no name on the hub'],
    ['hf://org/m/x.safetensors', 'is no name on the hub'],
    ['hf://org/m\n', 'is no name on the hub'],
    [`${SITE}/gpt2`, 'is no name on the hub'],
    [`${SITE}/datasets/org/d`, 'is no name on the hub'],
    [`${SITE}/spaces/org`, 'is no name on the hub'],
    [`${SITE}/org/m/discussions/3`, 'is no name on the hub'],
    [`${SITE}/org/m/tree/%`, 'is no name on the hub'],
    [`${SITE}/org/m/tree/main/onnx`, 'is a part of a model; name the model, hf://org/m@main, or a GGUF file in it'],
    [`${SITE}/org/m/blob/v1/config.json`, 'is a part of a model; name the model, hf://org/m@v1'],
    [`${SITE}/org/m/blob/v1/deep/m.gguf`, 'is a part of a model'],
    ['https://user:secret@huggingface.co/org', 'is no name on the hub'],
  ])('%s', (text, message) => {
    expect(() => hubAddressIn(text)).toThrow(HoldfastError);
    try {
      hubAddressIn(text);
    } catch (error) {
      expect(String(error)).toContain(message);
      expect(String(error)).not.toMatch(/\n|secret/);
    }
  });
});
