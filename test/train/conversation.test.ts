// A conversation: what the model is asked with, where an answer ends, what is left out where the context is full, and that a
// failure leaves it as it was.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { BUILT_IN_TEMPLATES, ChatRenderer } from '../../src/data/records/chat-template.ts';
import { endOfTurns } from '../../src/data/records/turns.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import type { GenerationOptions } from '../../src/train/inference/continuation.ts';
import { Conversation, type ConversationOptions } from '../../src/train/inference/conversation.ts';
import { Random } from '../../src/util/random.ts';
import { TEMPLATES } from '../data/chat-templates.ts';

const bytes = new ByteTokenizer();
const CHATML = { name: 'chatml', text: BUILT_IN_TEMPLATES.chatml, date: '2026-01-02' };

/** A model that answers what it is told to, and what it was asked with. */
function answering(capacity: number, answers: string[]) {
  const asked: { prompt: string; count: number; ids: number; adapter: string | undefined }[] = [];
  return {
    asked,
    capacity,
    async *generate(prompt: Int32Array, count: number, _: unknown, __: unknown, { adapter }: GenerationOptions = {}) {
      asked.push({ prompt: bytes.decode(prompt), count, ids: prompt.length, adapter });
      yield* bytes.encode(answers.shift() ?? 'y<|im_end|>').subarray(0, count);
    },
  };
}

const hold = (model: ReturnType<typeof answering>, options: Partial<ConversationOptions> = {}) =>
  new Conversation(model, bytes, { template: CHATML, tokens: 50, ...options }, new Random(1, 'x'));

async function ask(conversation: Conversation, text: string): Promise<string> {
  let answer = '';
  for await (const piece of conversation.answer(text)) answer += piece;
  return answer;
}

test('each answer is asked for with all that was said, and ends where the template ends a turn, or at a stop string', async () => {
  const model = answering(1000, ['one<|im_end|>\n<|im_start|>user', 'two STOP three']);
  const conversation = hold(model, { system: 'be brief', stop: [' STOP'] });
  expect(await ask(conversation, 'a?')).toBe('one');
  expect(await ask(conversation, 'b?')).toBe('two');
  const turn = (role: string, said: string) => `<|im_start|>${role}\n${said}<|im_end|>\n`;
  const first = turn('system', 'be brief') + turn('user', 'a?');
  const answer = '<|im_start|>assistant\n';
  expect(model.asked.map(({ prompt }) => prompt)).toEqual([
    first + answer,
    first + turn('assistant', 'one') + turn('user', 'b?') + answer,
  ]);
  expect(conversation.messages.map(({ content }) => content)).toEqual(['be brief', 'a?', 'one', 'b?', 'two']);
});

test('another adapter answers from where it is chosen on, with what was said before', async () => {
  const model = answering(1000, ['one<|im_end|>', 'two<|im_end|>', 'three<|im_end|>']);
  const conversation = hold(model, { adapter: 'first' });
  await ask(conversation, 'a?');
  conversation.adapter = 'none';
  await ask(conversation, 'b?');
  conversation.adapter = undefined;
  await ask(conversation, 'c?');
  expect(model.asked.map(({ adapter }) => adapter)).toEqual(['first', 'none', undefined]);
  expect(conversation.messages.map(({ content }) => content)).toEqual(['a?', 'one', 'b?', 'two', 'c?', 'three']);
});

test('the end of a turn, by template', () => {
  const ends = Object.fromEntries(
    Object.entries(TEMPLATES).map(([name, template]) => [name, endOfTurns(new ChatRenderer(template))]),
  );
  expect(ends).toMatchObject({ llama3: '<|eot_id|>', 'llama3-first': '<|eot_id|>', gemma: '<end_of_turn>' });
  const of = (text: string) => endOfTurns(new ChatRenderer({ name: 'x', date: '2026-01-02', text }));
  const loop = (body: string) => `{% for m in messages %}${body}{% endfor %}`;
  expect(of(loop("{{ m.role + ': ' + m.content + '\\n' }}"))).toBe('\n');
  expect(of(loop("{{ m.role + ': ' + m.content + ' </s> ' }}"))).toBe('</s>');
  expect(of(loop('{{ m.role }}: {{ m.content }}'))).toBeUndefined();
  expect(of("{{ raise_exception('no') }}")).toBeUndefined();
});

test('where the context is full, the oldest exchanges go, whole; the system’s message and the question stay', async () => {
  const said = fc.array(fc.string({ minLength: 1, maxLength: 30, unit: fc.constantFrom('a', 'b', ' ') }), {
    ...{ minLength: 1, maxLength: 8 },
  });
  const property = fc.asyncProperty(said, fc.integer({ min: 190, max: 420 }), async (questions, capacity) => {
    const model = answering(capacity, []);
    const conversation = hold(model, { system: 'S', tokens: 60 });
    const all: string[] = [];
    for (const question of questions) {
      all.push(question, 'y');
      expect(await ask(conversation, question)).toBe('y');
      const { prompt, ids, count } = model.asked.at(-1)!;
      expect(prompt.startsWith('<|im_start|>system\nS<|im_end|>\n<|im_start|>user\n')).toBe(true);
      expect(prompt).toContain(`<|im_start|>user\n${question}<|im_end|>\n<|im_start|>assistant\n`);
      // What is written fits behind it: nothing is dropped meanwhile.
      expect(ids + count - 1).toBeLessThanOrEqual(capacity);
      expect(count).toBeGreaterThan(0);
      const [system, ...kept] = conversation.messages.map(({ content }) => content);
      expect(system).toBe('S');
      expect(kept).toEqual(all.slice(all.length - kept.length));
      expect(kept.length % 2).toBe(0);
      expect(conversation.leftOut).toBe(all.length - kept.length);
    }
  });
  await fc.assert(property, { seed: 3, numRuns: 60 });
});

test('what does not fit by itself is refused, and what fails was not said', async () => {
  const model = answering(120, []);
  const conversation = hold(model);
  await ask(conversation, 'a');
  const before = conversation.messages;
  await expect(ask(conversation, 'x'.repeat(100))).rejects.toThrow(
    'the message has 150 tokens with what is around it, the context 120; say it in fewer words',
  );
  expect([conversation.messages, conversation.leftOut]).toEqual([before, 0]);
  model.generate = async function* () {
    yield 65;
    throw new Error('lost');
  };
  await expect(ask(conversation, 'b')).rejects.toThrow('lost');
  expect(conversation.messages.filter(({ content }) => content === 'b')).toEqual([]);
});

test('an answer that is not read to its end is kept as far as it was', async () => {
  const conversation = hold(answering(500, ['one two<|im_end|>']));
  for await (const piece of conversation.answer('a')) if (piece.includes('n')) break;
  expect(conversation.messages.map(({ content }) => content)).toEqual(['a', 'on']);
});

test('one that is gone on with asks as the one that was held', async () => {
  const held = answering(500, ['one<|im_end|>']);
  const conversation = hold(held, { system: 'S' });
  await ask(conversation, 'a?');
  const [, ...messages] = conversation.messages;
  await ask(conversation, 'b?');
  const model = answering(500, []);
  const other = hold(model, { system: 'S', messages });
  expect(await ask(other, 'b?')).toBe('y');
  expect(model.asked).toEqual(held.asked.slice(1));
  expect(other.messages).toEqual(conversation.messages);
});
