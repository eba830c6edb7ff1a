// Text that a model writes: where it begins, where it ends, and that nothing of what ends it is seen.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { ByteTokenizer, type Tokenizer } from '../../src/data/tokenizer.ts';
import { StopStrings, type WritingOptions, writeText } from '../../src/train/inference/writing.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { llama2, made } from '../data/tokenizers.ts';

/** A model that writes these ids, and what it was asked with. */
function writer(ids: readonly number[]) {
  const prompts: number[][] = [];
  return {
    prompts,
    async *generate(prompt: Int32Array, count: number) {
      prompts.push([...prompt]);
      yield* ids.slice(0, count);
    },
  };
}

async function pieces(ids: readonly number[], tokenizer: Tokenizer, prompt: string, options: WritingOptions) {
  const model = writer(ids);
  const found: string[] = [];
  for await (const piece of writeText(model, tokenizer, prompt, options, new Random(1, 'x'))) found.push(piece);
  return { found, prompt: model.prompts[0] };
}

const bytes = new ByteTokenizer();
const llama = made(llama2(), { 'generation_config.json': { eos_token_id: [2, 7] } });

test('any of the end tokens ends the text, and is not shown', async () => {
  const the = [...llama.encode('the')];
  for (const end of [2, 7]) {
    const { found } = await pieces([...the, ...the, end, ...the], llama, 'a', { tokens: 50 });
    expect(found.join('')).toBe(' the the');
  }
});

test('an empty prompt is the token that begins a text, alone; without one, it is refused', async () => {
  const { found, prompt } = await pieces([...llama.encode('the')], llama, '', { tokens: 5 });
  expect(prompt).toEqual([1]);
  expect(found.join('')).toBe(' the');
  await expect(pieces([65], bytes, '', { tokens: 5 })).rejects.toThrow(HoldfastError);
});

test('the text goes on after the prompt: its first word keeps its space', async () => {
  const { found, prompt } = await pieces([...llama.encode('the')], llama, 'a thing', { tokens: 5 });
  expect(prompt).toEqual([1, ...llama.encode('a thing')]);
  expect(found.join('')).toBe(' the');
});

test('the text before the first stop string, in whole characters, however it comes', async () => {
  const text = fc.array(fc.constantFrom('a', 'b', 'é', '😀', ' '), { maxLength: 25 }).map((parts) => parts.join(''));
  const stops = fc.array(
    text.filter((stop) => stop !== ''),
    { maxLength: 3 },
  );
  const property = fc.asyncProperty(text, stops, async (text, stop) => {
    const { found } = await pieces([...bytes.encode(text)], bytes, 'x', { tokens: 200, stop });
    const ends = stop.map((string) => text.indexOf(string)).filter((at) => at >= 0);
    expect(found.join('')).toBe(text.slice(0, Math.min(text.length, ...ends)));
    for (const piece of found) expect(piece).toMatch(/^[^\ufffd]+$/);
  });
  await fc.assert(property, { seed: 11, numRuns: 300 });
});

test('nothing of a stop string is shown before it is known whether it is one', () => {
  const stops = new StopStrings(['END', 'STOP']);
  expect(['a', 'E', 'N', 'x', 'S', 'TO', 'P!'].map((piece) => stops.push(piece))).toEqual([
    'a',
    '',
    '',
    'ENx',
    '',
    '',
    '',
  ]);
  expect([stops.found, stops.end()]).toEqual([true, '']);
});

test('an empty stop string is refused', async () => {
  await expect(pieces([65], bytes, 'a', { tokens: 5, stop: [''] })).rejects.toThrow('a stop string is empty');
});
