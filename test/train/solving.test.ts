// What counts as solved: the whole answer, to the end of its line.

import { expect, test } from 'vitest';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { accuracyOn } from '../../src/train/inference/solving.ts';

/** Writes what it was told to behind each prompt. */
const writer = (answers: Record<string, string>) => ({
  async *generate(prompt: Int32Array, count: number) {
    const tokenizer = new ByteTokenizer();
    yield* [...tokenizer.encode(answers[tokenizer.decode(prompt)] ?? '')].slice(0, count);
  },
});

test('an answer counts if every byte of it is right and the line ends there', async () => {
  const problems = ['a', 'b', 'c', 'd'].map((prompt) => ({ prompt, answer: '12' }));
  expect(
    await accuracyOn(problems, writer({ a: '12\nmore', b: '12', c: '13\n', d: '123\n' }), new ByteTokenizer()),
  ).toBe(0.25);
  expect(await accuracyOn(problems.slice(0, 1), writer({ a: '12\n' }), new ByteTokenizer())).toBe(1);
});
