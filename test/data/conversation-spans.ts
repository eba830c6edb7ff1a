// Conversations at random through a chat template: the spans of the answers are what was said, and the ends of their turns.

import fc from 'fast-check';
import { expect } from 'vitest';
import { ChatRenderer, type ChatTemplate } from '../../src/data/records/chat-template.ts';
import { TurnFinder } from '../../src/data/records/turns.ts';
import { say, type TEMPLATES } from './chat-templates.ts';

const content = fc.string({
  unit: fc.constantFrom(
    ...['a', 'B', ' ', '\n', '<', '|', 'é', '\u{1f600}', '\ue000', '0'],
    ...['</s>', '[INST]', '<|im_end|>', '<end_of_turn>'],
  ),
});
const conversation = fc
  .tuple(fc.option(content), fc.array(fc.tuple(content, content), { minLength: 1, maxLength: 4 }))
  .map(([system, turns]) => [
    ...(system === null ? [] : [say('system', system)]),
    ...turns.flatMap(([asked, answer]) => [say('user', asked), say('assistant', answer)]),
  ]);

const ENDS = {
  ...{ chatml: '<|im_end|>', llama3: '<|eot_id|>', 'llama3-first': '<|eot_id|>', qwen3: '<|im_end|>' },
  mistral: '</s>',
  gemma: '<end_of_turn>',
};

/** `like`: the template of ours that it writes answers as. */
export function expectSpans(template: ChatTemplate, like: keyof typeof TEMPLATES): void {
  const plain = new ChatRenderer(template);
  const finder = new TurnFinder(plain);
  const property = fc.property(conversation, (messages) => {
    const { text, answers } = finder.render({ kind: 'conversation', messages, answersFrom: 0 });
    expect(text).toBe(plain.render(messages));
    const said = messages.filter(({ role }) => role === 'assistant').map(({ content }) => content);
    expect(answers).toHaveLength(said.length);
    for (const [i, { begin, end }] of answers.entries()) {
      const found = text.slice(begin, end);
      const own = said[i] ?? '';
      const isLast = i === said.length - 1;
      const wanted = {
        chatml: own,
        llama3: own.trim(),
        'llama3-first': own.trim(),
        qwen3: isLast ? `<think>\n\n</think>\n\n${own.trimStart()}` : own,
        mistral: ` ${own}`,
        gemma: own.trim(),
      }[like];
      expect(found).toBe(wanted + ENDS[like]);
    }
  });
  fc.assert(property, { seed: 4, numRuns: 150 });
}
