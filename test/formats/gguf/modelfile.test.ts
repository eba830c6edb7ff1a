// Ollama's Modelfile: its template, in Go's language, writes for a first turn what the model's own writes, in Jinja; and what it
// stops at ends an answer.

import { describe, expect, test } from 'vitest';
import { ChatRenderer, type ChatTemplate } from '../../../src/data/records/chat-template.ts';
import { endOfTurns } from '../../../src/data/records/turns.ts';
import { modelfileOf } from '../../../src/formats/gguf/modelfile.ts';
import { BYTE_VOCABULARY } from '../../../src/formats/gguf/vocabulary/vocabulary.ts';
import { entry } from '../../entry.ts';

/** In the structure of the published ones, written anew, without what Ollama does not know: dates and default systems. */
const CHATML = `{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}`;
const LLAMA3 = `{% for message in messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}`;
const GEMMA = `{{ bos_token }}{%- if messages[0]['role'] == 'system' -%}{%- set first = messages[0]['content'] + '\\n\\n' -%}{%- set turns = messages[1:] -%}{%- else -%}{%- set first = '' -%}{%- set turns = messages -%}{%- endif -%}{%- for message in turns -%}{{ '<start_of_turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\\n' + (first if loop.first else '') + message['content'] | trim + '<end_of_turn>\\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\\n' }}{%- endif -%}`;
const LLAMA2 = `{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] %}{% set turns = messages[1:] %}{% else %}{% set system = false %}{% set turns = messages %}{% endif %}{% for message in turns %}{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content | trim + ' [/INST]' }}{% else %}{{ ' ' + content | trim + ' ' + eos_token }}{% endif %}{% endfor %}`;
const MISTRAL = `{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\\n\\n' %}{% set turns = messages[1:] %}{% else %}{% set system = '' %}{% set turns = messages %}{% endif %}{% for message in turns %}{% if message['role'] == 'user' %}{{ '[INST] ' + (system if loop.first else '') + message['content'] + ' [/INST]' }}{% else %}{{ ' ' + message['content'] + eos_token }}{% endif %}{% endfor %}`;

type Turn = Readonly<Record<'System' | 'Prompt' | 'Response', string>>;

/** Text, fields, and conditions on them: what the templates have of Go's language. Anything else fails. */
function goTemplate(template: string, turn: Turn): string {
  const shown = [true];
  let text = '';
  for (const [i, part] of template.split(/\{\{ (.*?) \}\}/).entries()) {
    const isShown = shown.every(Boolean);
    const [, condition, name] = /^(if )?\.(System|Prompt|Response)$/.exec(part) ?? [];
    if (i % 2 === 0) text += isShown ? part : '';
    else if (part === 'end') expect(shown.splice(-1)).toHaveLength(1);
    else if (name === undefined) expect.fail(`{{ ${part} }}`);
    else if (condition) shown.push(turn[name as keyof Turn] !== '');
    else text += isShown ? turn[name as keyof Turn] : '';
  }
  expect(shown).toEqual([true]);
  return text;
}

/** The template and the stops of a Modelfile. */
function partsOf(modelfile: string) {
  const [, template = ''] = /^TEMPLATE """([\s\S]*?)"""$/m.exec(modelfile) ?? [];
  return { template, stops: [...modelfile.matchAll(/^PARAMETER stop "(.+)"$/gm)].map(([, stop]) => stop) };
}

const modelfile = (chatTemplate: string | undefined, eos = '') =>
  modelfileOf('m.gguf', {
    ...{ ...BYTE_VOCABULARY, tokens: [{ text: eos, kind: 3 }], specials: { eos: 0, addBos: true, addEos: false } },
    ...(chatTemplate !== undefined && { chatTemplate }),
  });

interface Case {
  readonly text: string;
  readonly bos: string;
  readonly eos: string;
  readonly stops: readonly string[];
}

const CASES: Record<string, Case> = {
  ChatML: { text: CHATML, bos: '', eos: '<|im_end|>', stops: ['<|im_start|>', '<|im_end|>'] },
  'Llama 3': {
    ...{ text: LLAMA3, bos: '<|begin_of_text|>', eos: '<|eot_id|>' },
    stops: ['<|start_header_id|>', '<|eot_id|>'],
  },
  Gemma: { text: GEMMA, bos: '<bos>', eos: '<eos>', stops: ['<start_of_turn>', '<end_of_turn>', '<eos>'] },
  'Llama 2': { text: LLAMA2, bos: '<s>', eos: '</s>', stops: ['[INST]', '[/INST]', '</s>'] },
  Mistral: { text: MISTRAL, bos: '<s>', eos: '</s>', stops: ['[INST]', '[/INST]', '</s>'] },
};

describe.each(Object.keys(CASES))('%s', (name) => {
  const { text, bos, eos, stops } = entry(new Map(Object.entries(CASES)), name);
  const { template, stops: written } = partsOf(modelfile(text, eos));
  const jinja: ChatTemplate = { name, text, bos, eos, date: '2026-03-07' };
  const [system, user] = ['Be brief.', 'What holds a ship?\nSay it.'];

  // Ollama begins a text with the model's first token by itself.
  test.each(['', system])('with the system message %j', (content) => {
    const messages = [
      ...(content === '' ? [] : [{ role: 'system' as const, content }]),
      { role: 'user' as const, content: user },
    ];
    const wanted = new ChatRenderer(jinja).render(messages, { addGenerationPrompt: true });
    expect(wanted.startsWith(bos)).toBe(true);
    const turn = { System: content, Prompt: user, Response: '' };
    const [before = '', behind] = template.split('{{ .Response }}');
    const expected = wanted.slice(bos.length);
    expect(goTemplate(before, turn)).toBe(expected);
    // Behind [/INST] the blank is the model's to write.
    const answered = new ChatRenderer(jinja).render([...messages, { role: 'assistant', content: 'A rope.' }]);
    const whole = goTemplate(template, {
      ...turn,
      Response: name === 'Llama 2' || name === 'Mistral' ? ' A rope.' : 'A rope.',
    });
    expect(whole.replace(/ ?<\/s>$/, '</s>')).toBe(answered.slice(bos.length).replace(/ ?<\/s>$/, '</s>'));
    expect(stops.some((stop) => behind?.startsWith(stop))).toBe(true);
  });

  test('stops at what begins a turn and what ends one', () => {
    expect(written).toEqual(stops);
  });
});

test('of bytes, the text behind an answer ends it: where it is not known, no template is said to be the model’s', () => {
  const ofBytes = (text: string) => {
    const renderer = new ChatRenderer({ name: 'x', text, date: '2026-03-07' });
    return partsOf(modelfileOf('m.gguf', { ...BYTE_VOCABULARY, chatTemplate: text }, () => endOfTurns(renderer)));
  };
  expect(ofBytes(CHATML)).toEqual(partsOf(modelfile(CHATML, '<|im_end|>')));
  expect(ofBytes(LLAMA3)).toEqual(partsOf(modelfile(LLAMA3, '<|eot_id|>')));
  // Its answers end with a token that bytes do not have.
  expect(ofBytes(LLAMA2)).toEqual({ template: '', stops: [] });
  const own = "{% for message in messages %}{{ '# ' + message['content'] + ' ##' }}{% endfor %}";
  expect(ofBytes(own)).toEqual({ template: '', stops: ['##'] });
  expect(modelfileOf('m.gguf', { ...BYTE_VOCABULARY, chatTemplate: CHATML })).toBe('FROM ./m.gguf\n');
});

test('a model without a chat template goes on with what it is given, and one that is not known keeps its own', () => {
  expect(partsOf(modelfile(undefined, '<eos>'))).toEqual({ template: '{{ .Prompt }}', stops: [] });
  expect(modelfile('{{ messages }}', '<eos>')).toBe('FROM ./m.gguf\nPARAMETER stop "<eos>"\n');
});
