// Where answers lie in the text of a conversation, for templates of every structure that published models have; and what
// is refused. What stands in the spans is compared with texts written out by hand, and with what was said.

import { describe, expect, it, test } from 'vitest';
import { ChatRenderer } from '../../src/data/records/chat-template.ts';
import type { Message } from '../../src/data/records/shapes.ts';
import { TurnFinder } from '../../src/data/records/turns.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { EVERY_CASE } from '../host.ts';
import { say, TEMPLATES, template } from './chat-templates.ts';
import { expectSpans } from './conversation-spans.ts';

type Name = keyof typeof TEMPLATES;

const renderer = (name: Name) => new ChatRenderer(TEMPLATES[name]);

function answersOf(finder: TurnFinder, messages: readonly Message[], answersFrom = 0): string[] {
  const { text, answers } = finder.render({ kind: 'conversation', messages, answersFrom });
  return answers.map(({ begin, end }) => text.slice(begin, end));
}

const TALK = [say('user', 'Hi'), say('assistant', 'Hello!'), say('user', 'And 1+1?'), say('assistant', ' 2\n')];

describe('the answers of a conversation, with the ends of their turns', () => {
  it.each<[Name, string[]]>([
    ['chatml', ['Hello!<|im_end|>', ' 2\n<|im_end|>']],
    ['llama3', ['Hello!<|eot_id|>', '2<|eot_id|>']],
    ['llama3-first', ['Hello!<|eot_id|>', '2<|eot_id|>']],
    // The last answer alone has a block of reasoning, if an empty one: the model is to write it, too. (The library's
    // lstrip takes all space, whatever it is told to take.)
    ['qwen3', ['Hello!<|im_end|>', '<think>\n\n</think>\n\n2\n<|im_end|>']],
    ['mistral', [' Hello!</s>', '  2\n</s>']],
    ['gemma', ['Hello!<end_of_turn>', '2<end_of_turn>']],
  ])('%s', (name, wanted) => {
    expect(answersOf(new TurnFinder(renderer(name)), TALK)).toEqual(wanted);
  });

  it.each<Name>(['chatml', 'llama3', 'llama3-first', 'qwen3', 'mistral', 'gemma'])(
    '%s: with a system message',
    (name) => {
      const finder = new TurnFinder(renderer(name));
      const with_ = answersOf(finder, [say('system', 'Be brief.'), ...TALK]);
      expect(with_).toEqual(answersOf(finder, TALK));
    },
  );

  it('leaves the answers of the prompt out', () => {
    expect(answersOf(new TurnFinder(renderer('chatml')), TALK, 2)).toEqual([' 2\n<|im_end|>']);
  });

  it('finds reasoning where it is kept, and does not miss it where it is dropped', () => {
    const thought = (said: string, content: string) => say('assistant', `<think>\n${said}\n</think>\n\n${content}`);
    const talk = [say('user', 'Hi'), thought('old', 'Hello!'), say('user', 'And?'), thought('new thought', 'So.')];
    const finder = new TurnFinder(renderer('qwen3'));
    expect(answersOf(finder, talk)).toEqual(['Hello!<|im_end|>', '<think>\nnew thought\n</think>\n\nSo.<|im_end|>']);
    const field = [say('user', 'Hi'), { ...say('assistant', 'Yes.'), reasoning_content: 'in a field' }];
    expect(answersOf(finder, field)).toEqual(['<think>\nin a field\n</think>\n\nYes.<|im_end|>']);
  });

  it('finds answers between the replies of tools', () => {
    const talk = [say('user', 'Rain?'), say('assistant', '<tool_call>\n{"name": "f"}\n</tool_call>')];
    talk.push(say('tool', 'yes'), say('tool', 'no'), say('assistant', 'Perhaps.'));
    expect(answersOf(new TurnFinder(renderer('qwen3')), talk)).toEqual([
      '<tool_call>\n{"name": "f"}\n</tool_call><|im_end|>',
      '<think>\n\n</think>\n\nPerhaps.<|im_end|>',
    ]);
  });
});

test.each(Object.keys(TEMPLATES) as Name[])(
  '%s: whatever is said, even what looks like the template, spans are the answers, and the text is the template’s',
  (name) => expectSpans(TEMPLATES[name], name),
);

test('templates that were changed at random end with a text whose answers have what was said, or in one line', () => {
  const random = new Random(9, 'templates');
  const names = Object.keys(TEMPLATES) as Name[];
  let [accepted, refused] = [0, 0];
  for (let i = 0; i < (EVERY_CASE ? 10_000 : 300); i++) {
    const { text } = TEMPLATES[names[i % names.length] ?? 'chatml'];
    const [from, to, size] = [random.below(text.length), random.below(text.length), random.below(12)];
    const piece = random.below(2) === 0 ? '' : text.slice(from, from + size);
    const mutant = text.slice(0, to) + piece + text.slice(to + random.below(12));
    try {
      const finder = new TurnFinder(new ChatRenderer(template(mutant)));
      const answers = answersOf(finder, TALK);
      expect([answers.length, answers[0]?.includes('Hello!'), answers[1]?.includes('2')]).toEqual([2, true, true]);
      accepted++;
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      expect(error.message).not.toContain('\n');
      expect(error.message.length).toBeLessThan(500);
      refused++;
    }
  }
  expect(Math.min(accepted, refused)).toBeGreaterThan(50);
});

describe('is refused with the reason', () => {
  const refusal = (text: string, messages: readonly Message[] = TALK): string => {
    try {
      answersOf(new TurnFinder(new ChatRenderer(template(text))), messages);
    } catch (error) {
      expect(error).toBeInstanceOf(HoldfastError);
      return (error as Error).message;
    }
    return '';
  };
  const each = (body: string, end = '') => `{% for m in messages %}${body}{% endfor %}${end}`;
  it.each([
    ['contents that are changed', each(`{{ m.role + ':' + m.content | upper + ';\n' }}`), 'it changes what is said'],
    ['no end of a turn', each(`{{ m.role + ':' + m.content }}`), 'it writes nothing behind message 2'],
    [
      'answers left out',
      each(`{% if m.role == 'user' %}{{ m.content + ';' }}{% endif %}`),
      'it leaves out the answer in message 2',
    ],
    ['a message twice', each(`{{ m.content + m.content + ';' }}`), 'it writes a message twice'],
    [
      'another header for answers to come',
      each(`{{ m.role + ':' + m.content + ';' }}`, `{% if add_generation_prompt %}bot:{% endif %}`),
      'it writes something else in front of message 2',
    ],
    [
      'another end in the middle',
      each(
        `{{ m.role + ':' + m.content + (';' if m.role == 'user' else '!' if loop.last else '?') }}`,
        `{% if add_generation_prompt %}assistant:{% endif %}`,
      ),
      'it ends message 2 in another way',
    ],
  ])('%s', (_, text, reason) => {
    const message = refusal(text);
    expect(message).toContain(`the chat template does not show where answers begin and end: ${reason}`);
    expect(message).not.toContain('\n');
  });

  it('a conversation that begins with an answer, where the template writes no header alone', () => {
    const message = refusal(`{{ messages[0].content.strip() }}${each('{{ m.content }};')}`, [
      say('assistant', 'I begin'),
    ]);
    expect(message).toMatch(/begins with an answer|twice/);
  });
});
