// Answers that call tools: learned whole where the template writes the calls, refused with their place where it does not.

import { describe, expect, it } from 'vitest';
import { readDocuments, type TrainOn } from '../../src/data/records/read-records.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { TEMPLATES, template } from './chat-templates.ts';
import { listed } from './held-documents.ts';

/** With the structure of Qwen 2.5's. */
const QWEN = template(`{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {{- '<|im_start|>assistant' }}
        {%- if message.content %}{{- '\\n' + message.content }}{%- endif %}
        {%- for tool_call in message.tool_calls or [] %}
            {%- if tool_call.function is defined %}{%- set tool_call = tool_call.function %}{%- endif %}
            {{- '\\n<tool_call>\\n{"name": "' + tool_call.name + '", "arguments": ' + tool_call.arguments | tojson + '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`);

/** With that of Qwen 3's, which puts an empty block of reasoning into the last message alone, be it of calls. */
const QWEN3 = {
  ...QWEN,
  text: QWEN.text.replace(
    '{%- for tool_call',
    `{%- if loop.last %}{{- '\\n<think>\\n\\n</think>\\n' }}{%- endif %}{%- for tool_call`,
  ),
};

/** With the structure of Mistral's: the calls in place of the content. */
const MISTRAL = template(
  `{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}{{ '[INST] ' + m.content + '[/INST]' }}{% elif m.tool_calls %}{{ '[TOOL_CALLS] [' }}{% for call in m.tool_calls %}{{ call.function | tojson }}{{ ', ' if not loop.last else ']' + eos_token }}{% endfor %}{% elif m.role == 'tool' %}{{ '[TOOL_RESULTS] ' + m.content + '[/TOOL_RESULTS]' }}{% else %}{{ ' ' + m.content + eos_token }}{% endif %}{% endfor %}`,
);

const call = (city: string) => ({ id: 'c', type: 'function', function: { name: 'rain', arguments: { city } } });
const asked = { role: 'user', content: 'Rain?' };
const talk = (answer: Record<string, unknown>) => [
  asked,
  { role: 'assistant', ...answer },
  { role: 'tool', content: 'yes' },
  { role: 'assistant', content: 'It rains.' },
];

async function learnedOf(chosen: typeof QWEN, messages: readonly unknown[], trainOn: TrainOn = 'answers') {
  const records = [{ messages: [asked, { role: 'assistant', content: 'No.' }] }, { messages }];
  const content = records.map((record) => JSON.stringify(record)).join('\n');
  const host = memoryHost(new MemoryFiles({ 'd.jsonl': content }));
  const tokenizer = new ByteTokenizer();
  const { documents } = await readDocuments(host, ['d.jsonl'], tokenizer, { trainOn, template: chosen });
  const [, found] = await listed(documents);
  return tokenizer.decode((found?.ids ?? []).filter((_, t) => found?.learned[t]));
}

const written = (city: string) => `<tool_call>\n{"name": "rain", "arguments": {"city": "${city}"}}\n</tool_call>`;
const REST = 'It rains.<|im_end|>';

describe('where the template writes them, calls are learned through the end of the turn', () => {
  it.each<[string, Record<string, unknown>, string]>([
    ['alone', { content: null, tool_calls: [call('Bonn')] }, `${written('Bonn')}<|im_end|>`],
    ['without content', { tool_calls: [call('Bonn')] }, `${written('Bonn')}<|im_end|>`],
    [
      'two, behind words',
      { content: 'Look:', tool_calls: [call('Bonn'), call('Ulm')] },
      `Look:\n${written('Bonn')}\n${written('Ulm')}<|im_end|>`,
    ],
    ['no calls in a list', { content: 'None.', tool_calls: [] }, 'None.<|im_end|>'],
    ['not to be learned', { content: null, tool_calls: [call('Bonn')], weight: 0 }, ''],
  ])('%s', async (_, answer, learned) => {
    expect(await learnedOf(QWEN, talk(answer))).toBe(learned + REST);
    expect(await learnedOf(QWEN, talk(answer).slice(0, 2))).toBe(learned);
  });

  it('also where the template writes the last message in another way', async () => {
    const messages = talk({ content: null, tool_calls: [call('Bonn')] });
    const last = '<think>\n\n</think>\n\n';
    expect(await learnedOf(QWEN3, messages.slice(0, 2))).toBe(`${last}${written('Bonn')}<|im_end|>`);
    expect(await learnedOf(QWEN3, messages.slice(0, 3))).toBe(`${written('Bonn')}<|im_end|>`);
  });

  it('in place of the content, and between others', async () => {
    const messages = [...talk({ content: '', tool_calls: [call('Bonn')] }), ...talk({ tool_calls: [call('Ulm')] })];
    const calls = (city: string) => `[TOOL_CALLS] [{"name": "rain", "arguments": {"city": "${city}"}}]</s>`;
    expect(await learnedOf(MISTRAL, messages)).toBe(`${calls('Bonn')} It rains.</s>${calls('Ulm')} It rains.</s>`);
  });
});

describe('are refused with the line and the reason', () => {
  const refusal = async (...[chosen, messages, trainOn]: Parameters<typeof learnedOf>) => {
    const error = await learnedOf(chosen, messages, trainOn).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(HoldfastError);
    return (error as Error).message;
  };
  const LEFT_OUT =
    'd.jsonl:2: the chat template leaves out the tool calls of message 2; use one that writes them, or leave the record out';

  it.each<[string, Record<string, unknown>]>([
    ['content that is null', { content: null, tool_calls: [call('Bonn')] }],
    ['no content', { tool_calls: [call('Bonn')] }],
    ['content that would be learned without them', { content: 'Look:', tool_calls: [call('Bonn')] }],
    ['the field of older records', { content: null, function_call: { name: 'rain', arguments: '{}' } }],
  ])('where the template leaves them out: %s', async (_, answer) => {
    for (const trainOn of ['answers', 'all'] as const)
      expect(await refusal(TEMPLATES.chatml, talk(answer), trainOn)).toBe(LEFT_OUT);
  });

  it('calls that are none', async () => {
    expect(await refusal(QWEN, talk({ tool_calls: 'rain()' }))).toBe(
      'd.jsonl:2: messages[1].tool_calls is "rain()"; it must be a call with a name',
    );
    expect(await refusal(QWEN, talk({ tool_calls: [{ function: {} }] }))).toBe(
      'd.jsonl:2: messages[1].tool_calls[0] is an object; it must be a call with a name',
    );
  });
});
