// Ollama's Modelfile: its template, in Go's language, writes what the model's own writes, in Jinja, with system messages and
// without, in one turn and several; what it stops at ends an answer; and where no template does, none is said.

import { describe, expect, test } from 'vitest';
import { BUILT_IN_TEMPLATES, ChatRenderer } from '../../../src/data/records/chat-template.ts';
import type { Message } from '../../../src/data/records/shapes.ts';
import { templateRunner } from '../../../src/data/records/template-runner.ts';
import { modelfileOf } from '../../../src/formats/gguf/modelfile.ts';
import { BYTE_VOCABULARY, type Vocabulary } from '../../../src/formats/gguf/vocabulary/vocabulary.ts';
import { say, TEMPLATES } from '../../data/chat-templates.ts';
import { entry } from '../../entry.ts';
import { ollamaText, partsOf } from './go-template.ts';

// In the structure of the published ones, written anew.
const CHATML = BUILT_IN_TEMPLATES.chatml;
/** A default system message in front of the first turn: SmolLM2's. */
const SMOLLM = `{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\nYou are "Smol", and help.<|im_end|>\\n' }}{% endif %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;
const LLAMA3 = `{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}`;
/** A system header in front of every conversation, with a date that stays: Llama 3.1's. */
const LLAMA31 = `{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set said = messages[0]['content'] | trim %}{% set turns = messages[1:] %}{% else %}{% set said = '' %}{% set turns = messages %}{% endif %}{{ '<|start_header_id|>system<|end_header_id|>\\n\\nKnown: December 2023\\nToday: 26 Jul 2024\\n\\n' + said + '<|eot_id|>' }}{% for message in turns %}{{ '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}`;
const GEMMA = `{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] + '\\n\\n' -%}{%- set turns = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set turns = messages -%}{%- endif -%}{%- for message in turns -%}{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' + (first if loop.first else '') + message['content'] | trim + '<end_of_turn>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}`;
/** Gemma 2's refuses system messages. */
const GEMMA2 = `{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system messages') }}{% endif %}${GEMMA}`;
const LLAMA2 = `{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}{% else %}{% set system = false %}{% set turns = messages %}{% endif %}{% for message in turns %}{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}{% else %}{{ ' ' + content | trim + ' ' + eos_token }}{% endif %}{% endfor %}`;
const MISTRAL = `{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\\n\\n' %}{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}{% for message in turns %}{% if message['role'] == 'user' %}{{ '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}`;
/** No blank in front of [/INST], and the system message in the last turn: Mistral v0.3's. */
const MISTRAL3 = MISTRAL.replace('loop.first', 'loop.last')
  .replace("' [/INST]'", "'[/INST]'")
  .replace("message['content'] + eos", "message['content'] | trim + eos");
/** An answer to come begins with reasoning, which those that were given have lost. */
const REASONS = CHATML.replace("'<|im_start|>assistant\\n'", "'<|im_start|>assistant\\n<think>\\n'");
/** What would be an action in Go's language. */
const BRACES = CHATML.replaceAll("'<|im_start|>' +", "'<|im_start|>{{{ ' + '{' +");

const DATE = '2026-03-07';

interface Case {
  readonly text: string;
  readonly bos?: string;
  readonly eos: string;
  readonly stops: readonly string[];
  readonly system?: string;
}

const IM = { eos: '<|im_end|>', stops: ['<|im_start|>', '<|im_end|>'] };
const LLAMA = { bos: '<|begin_of_text|>', eos: '<|eot_id|>', stops: ['<|start_header_id|>', '<|eot_id|>'] };
const INST = { bos: '<s>', eos: '</s>', stops: ['[INST]', '[/INST]', '</s>'] };
const TURN = { bos: '<bos>', eos: '<eos>', stops: ['<start_of_turn>', '<end_of_turn>', '<eos>'] };
const CASES: Record<string, Case> = {
  ...{ ChatML: { text: CHATML, ...IM }, reasoning: { text: REASONS, ...IM }, braces: { text: BRACES, ...IM } },
  'SmolLM2’s default system message': { text: SMOLLM, ...IM, system: 'You are "Smol", and help.' },
  'Qwen 2.5’s default system message': { text: TEMPLATES.chatml.text, ...IM, system: 'You are helpful.' },
  'Qwen 3': { text: TEMPLATES.qwen3.text, ...IM },
  ...{ 'Llama 3': { text: LLAMA3, ...LLAMA }, 'Llama 3.1': { text: LLAMA31, ...LLAMA } },
  ...{ Gemma: { text: GEMMA, ...TURN }, 'Llama 2': { text: LLAMA2, ...INST } },
  ...{ Mistral: { text: MISTRAL, ...INST }, 'Mistral v0.3': { text: MISTRAL3, ...INST } },
};

const fileOf = (vocabulary: Vocabulary) => modelfileOf('m.gguf', vocabulary, templateRunner);

/** Of a model with these tokens around a text. */
const modelfile = (chatTemplate: string | undefined, { eos = '', bos }: Partial<Case> = {}) =>
  fileOf({
    ...BYTE_VOCABULARY,
    tokens: [eos, bos ?? ''].map((text) => ({ text, kind: 3 })),
    specials: { eos: 0, ...(bos !== undefined && { bos: 1 }), addBos: bos !== undefined, addEos: false },
    ...(chatTemplate !== undefined && { chatTemplate }),
  });

const TALK = [
  say('user', 'What holds a ship?\nSay it.'),
  say('assistant', 'A rope.'),
  say('user', 'And "a" {{ .Rope }}?'),
];
TALK.push(say('assistant', 'A knot,\n\nor two.'), say('user', 'Thanks'));

describe.each(Object.keys(CASES))('%s', (name) => {
  const { text, bos = '', eos, stops, system } = entry(new Map(Object.entries(CASES)), name);
  const { text: written, notes } = modelfile(text, CASES[name]);
  const parts = partsOf(written);

  test.each([1, 3, 5])(
    '%d messages, with a system message and without, are those of the model’s own template',
    (count) => {
      for (const before of [[], [say('system', 'Be brief.\nBe kind.')]]) {
        const messages: Message[] = [...before, ...TALK.slice(0, count)];
        const renderer = new ChatRenderer({ name, text, bos, eos, date: DATE });
        const own = renderer.render(messages, { addGenerationPrompt: true });
        expect(own.startsWith(bos)).toBe(true);
        // Ollama begins a text with the model's first token by itself.
        expect(bos + ollamaText(parts.template ?? '', messages, parts.system)).toBe(own);
      }
    },
  );

  test('says the system message that the template adds by itself, and stops at what begins a turn and ends one', () => {
    expect(parts.system).toBe(system);
    expect(parts.stops).toEqual(stops);
    expect(notes).toEqual([]);
  });
});

test('where an answer ends with the token that ends a text, nothing else stops it: not what a next turn begins with', () => {
  const text =
    "{% if messages | length == 0 %}{{ raise_exception('none') }}{% endif %}{% for message in messages %}{{ '### ' + message['role'] + '\\n' + message['content'] }}{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\\n' }}{% endfor %}{{ '### assistant\\n' }}";
  expect(partsOf(modelfile(text, { eos: '</s>' }).text).stops).toEqual(['</s>']);
});

test('the token that begins a text is written where the tokenizer does not', () => {
  const { tokens, specials } = { tokens: ['</s>', '<s>'], specials: { eos: 0, bos: 1, addBos: false, addEos: false } };
  const vocabulary = { ...BYTE_VOCABULARY, tokens: tokens.map((text) => ({ text, kind: 3 })), specials };
  const { template = '' } = partsOf(fileOf({ ...vocabulary, chatTemplate: MISTRAL }).text);
  expect(ollamaText(template, [say('user', 'Hi')])).toBe('<s>[INST] Hi [/INST]');
});

const LATER = 'Ollama 0.30 and later runs the model’s own';

test('of a template that takes no system message, that is said', () => {
  const { text, notes } = modelfile(GEMMA2, TURN);
  expect(notes).toEqual([
    'the Modelfile’s TEMPLATE leaves system messages out, as the model’s chat template takes none',
  ]);
  const renderer = new ChatRenderer({ name: 'x', text: GEMMA2, bos: '<bos>', date: DATE });
  const own = renderer.render(TALK, { addGenerationPrompt: true });
  const { template = '' } = partsOf(text);
  expect(`<bos>${ollamaText(template, TALK)}`).toBe(own);
  expect(`<bos>${ollamaText(template, [say('system', 'Be brief.'), ...TALK])}`).toBe(own);
});

describe('where no template writes what the model’s own does, none is said, but why', () => {
  test.each<[string, string, Partial<Case>, string]>([
    ['Llama 3.2, which writes the date', TEMPLATES.llama3.text, LLAMA, 'it writes the date of the day'],
    [
      'the first question in other words where more follow',
      CHATML.replace("'<|im_start|>' +", "'<|im_start|>' + (messages | length | string) +"),
      IM,
      'it writes "3user\\nquestion 1<|im_e" where one of Ollama’s writes "1user',
    ],
    [
      'one that drops what was said',
      "{{ messages[-1]['content'] }}",
      {},
      'it refuses a conversation of questions and answers, or leaves some of it out',
    ],
    ['one that is none', '{{ messages', {}, 'it refuses a conversation of questions'],
    [
      'characters that a Modelfile cannot have',
      CHATML.replaceAll('<|', '<\u200b|'),
      {},
      'it writes "\u200b", which a Modelfile cannot have',
    ],
    [
      'quotes that end a text',
      SMOLLM.replace('"Smol"', '"""Smol"""'),
      IM,
      'it writes "\\"\\"\\"", which a Modelfile cannot have',
    ],
  ])('%s', (_, text, marks, why) => {
    const { text: written, notes } = modelfile(text, marks);
    const { template, system, stops } = partsOf(written);
    expect([template, system]).toEqual([undefined, undefined]);
    expect(notes).toEqual([expect.stringContaining(`does: ${why}`)]);
    expect(notes).toEqual([expect.stringContaining(LATER)]);
    if (marks.stops) expect(stops).toEqual(marks.stops);
  });
});

describe('of bytes', () => {
  const ofBytes = (chatTemplate: string) => {
    const { text, notes } = fileOf({ ...BYTE_VOCABULARY, chatTemplate });
    return { ...partsOf(text), notes };
  };

  test('the text behind an answer ends it', () => {
    const { text, notes } = modelfile(CHATML, IM);
    expect(ofBytes(CHATML)).toEqual({ ...partsOf(text), notes });
    const own = "{% for message in messages %}{{ '# ' + message['content'] + ' ##' }}{% endfor %}";
    const { template = '', stops } = ofBytes(own);
    expect(stops).toEqual(['##']);
    expect(ollamaText(template, TALK.slice(0, 3))).toBe(
      TALK.slice(0, 3)
        .map(({ content }) => `# ${content} ##`)
        .join(''),
    );
  });

  test('where none is known, no template is said', () => {
    // Its answers end with a token that bytes do not have.
    const { template, notes } = ofBytes(LLAMA2);
    expect(template).toBeUndefined();
    expect(notes).toEqual([expect.stringContaining('no text ends its answers')]);
    expect(ofBytes('{{ messages').stops).toEqual([]);
  });
});

test('a model without a chat template goes on with what it is given', () => {
  const { text, notes } = modelfile(undefined, { eos: '<eos>' });
  expect([text, notes]).toEqual(['FROM ./m.gguf\nTEMPLATE """{{ .Prompt }}"""\n', []]);
});
