// Chat templates: what they are given, where they are found, and that whatever they say they end, in bounded memory, with a
// text or with one line. Where answers lie is turns.test.ts.

import { describe, expect, it } from 'vitest';
import { ChatRenderer } from '../../src/data/records/chat-template.ts';
import { findChatTemplate } from '../../src/data/records/find-template.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { MemoryFiles } from '../memory-files.ts';
import { TEMPLATES, template } from './chat-templates.ts';
import { filesOf } from './tokenizers.ts';

const HI = [{ role: 'user', content: 'Hi' }];
const render = (text: string) => new ChatRenderer(template(text)).render(HI);

function refusal(work: () => unknown): string {
  try {
    work();
  } catch (error) {
    expect(error).toBeInstanceOf(HoldfastError);
    expect((error as Error).message).not.toContain('\n');
    expect((error as Error).message.length).toBeLessThan(300);
    return (error as Error).message;
  }
  return '';
}

describe('what templates are given', () => {
  it.each([
    ['the tokens of the model', '{{ bos_token }}{{ eos_token }}', '<s></s>'],
    [
      'a day that stays the same',
      `{{ strftime_now('%d %b %Y, %A %B %e %% %Q') }}`,
      '07 Mar 2026, Saturday March  7 % %Q',
    ],
    ['ranges', '{% for i in range(1, 6, 2) %}{{ i }}{% endfor %}{{ range(3, 0, -1) | join(",") }}', '1353,2,1'],
    ['no tools', `{{ 'yes' if tools is none and not add_generation_prompt else 'no' }}`, 'yes'],
  ])('%s', (_, text, wanted) => {
    expect(render(text)).toBe(wanted);
  });

  it('BOS stands once: a conversation is encoded as the template writes it', () => {
    const text = new ChatRenderer(TEMPLATES.llama3).render(HI);
    expect(text.split('<|begin_of_text|>')).toHaveLength(2);
    expect(text.startsWith('<|begin_of_text|><|start_header_id|>system')).toBe(true);
    expect(text).toContain('Today Date: 07 Mar 2026');
  });
});

describe('hostile templates end in one line', () => {
  const loop = (body: string, times = 100_000) => `{% for i in range(${times}) %}${body}{% endfor %}`;
  it.each([
    ['a loop in a loop in a loop', loop(loop(loop('x'))), 'it does not come to an end'],
    ['loops over nothing but themselves', loop(loop('')), 'it does not come to an end'],
    [
      'a loop over a range of its own making',
      `{% set r = range(100000) %}${loop('{% for j in r %}{% endfor %}')}`,
      'does not come to an end',
    ],
    [
      'a text that doubles',
      `{% set n = namespace(x='ab') %}${loop('{% set n.x = n.x ~ n.x %}', 100)}`,
      'it writes more than',
    ],
    [
      'a list that doubles',
      `{% set n = namespace(x=[1]) %}${loop('{% set n.x = n.x + n.x %}', 100)}`,
      'it makes a list of more than',
    ],
    ['a range without end', '{{ range(1000000000000) }}', 'it counts further than'],
    ['a range of no step', '{{ range(1, 5, 0) }}', 'it counts further than'],
    ['a macro of itself', '{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}', ''],
    ['a padding without end', `{{ 'a\nb' | indent(900000000) }}`, ''],
    ['one that refuses', `{{ raise_exception('not\nthese') }}`, 'it refuses: not these'],
    ['a function that is none', '{{ nothing() }}', ''],
    ['no template', '{% for %}', ''],
    ['an end that is missing', '{% if true %}', ''],
    ['nesting without end', `${'('.repeat(200_000)}`, ''],
    ['brackets without end', `{{ ${'['.repeat(100_000)} }}`, ''],
    ['one that is too long', 'x'.repeat(300_000), 'it has 300000 characters'],
  ])('%s', (name, text, wanted) => {
    if (name === 'nesting without end') {
      expect(render(text)).toBe(text);
      return;
    }
    const message = refusal(() => render(text));
    expect(message).toMatch(/^chat template of a test: ./);
    expect(message).toContain(wanted);
  });

  const ns = (start: string, body: string, times: number, then: string) =>
    `{% set ns = namespace(s=${start}) %}${loop(`{% set ns.s = ${body} %}`, times)}${then}`;
  const doubled = (then: string) => ns(`'a'`, 'ns.s ~ ns.s', 20, then);
  const dozens = (then: string) => doubled(loop(then, 5000));
  it.each([
    ['tojson of a list of shared lists', ns('[1]', '[ns.s, ns.s]', 26, '{{ ns.s|tojson|length }}')],
    ['dictionaries', ns('{}', '{"a": ns.s, "b": ns.s}', 26, '{{ ns.s|tojson|length }}')],
    ['a comparison', ns('[1]', '[ns.s, ns.s]', 26, `{{ ns.s == 'a' }}`)],
    ['a joint', ns('[1]', '[ns.s, ns.s]', 26, `{{ ns.s ~ ns.s }}`)],
    ['a search', ns('[1]', '[ns.s, ns.s]', 26, `{{ 1 in ns.s }}`)],
    ['a join', ns('[1]', '(ns.s, ns.s)', 26, `{{ ns.s|join }}`)],
    ['what is written', ns('[1]', '[ns.s, ns.s]', 26, `{{ ns.s }}`)],
    ['what a call shares', ns('[1]', 'namespace(a=ns.s, b=ns.s)', 26, '{{ ns.s|tojson }}')],
    ['items that share', ns('{}', '{"a": ns.s}.items() + {"b": ns.s}.items()', 26, '{{ ns.s|tojson }}')],
    ['a list of a namespace of itself', `{% set ns = namespace() %}{% set ns.s = [ns, ns] %}{{ ns.s }}`],
    ['a list that goes deep', ns('[1]', '[ns.s, 1]', 400, loop('{{ ns.s|tojson|length }}', 1000))],
    ['a longer split', ns(`'a'`, 'ns.s ~ ns.s', 26, `{{ ns.s.split('a')|length }}`)],
    ['a split', doubled(`{{ ns.s.split('a')|length }}`)],
    ['a split at blanks', ns(`'a '`, 'ns.s ~ ns.s', 20, '{{ ns.s.split()|length }}')],
    ['a split that is kept', doubled(`{% set f = ns.s.split %}{{ f('a')|length }}`)],
    ['a split of a call', doubled(`{% set f = ns.s.split %}{% call f('a') %}{% endcall %}`)],
    ['a replacement', doubled(`{{ ns.s.replace('a', ns.s)|length }}`)],
    ['a replacement of nothing', doubled(`{{ ns.s|replace('', 'abcdefgh')|length }}`)],
    ['a replacement by arguments of a list', doubled(`{{ ns.s|replace(*['a', ns.s])|length }}`)],
    ['a replacement of a block', doubled(`{% filter replace('a', ns.s) %}{{ ns.s }}{% endfilter %}`)],
    ['a replacement of itself', doubled(`{{ ns.s.replace(ns.s, '') }}`)],
    ['many replacements', dozens(`{{ ns.s.replace('a', 'b')|length }}`)],
    ['many searches', dozens(`{{ ns.s[:100000] ~ 'b' in ns.s }}`)],
    ['lines', ns(`'\na'`, 'ns.s ~ ns.s', 20, '{{ ns.s|indent(100) }}')],
    ['a text joined', doubled(`{{ ns.s|join('abcdefgh') }}`)],
    ['a list joined', `{{ range(100000)|join('${'a'.repeat(100)}') }}`],
    ['indented JSON', '{{ range(100000)|tojson(indent=100) }}'],
    ['separators', `{{ range(100000)|tojson(separators=('${'a'.repeat(100)}', '')) }}`],
    ['many that are written', `{% set r = range(50000) %}${loop('{{ r|string|length }}', 5000)}`],
    ['many that are sorted', `{% set r = range(50000) %}${loop('{{ r|sort|length }}', 5000)}`],
    ['many arguments', `{% macro m() %}{{ varargs|length }}{% endmacro %}${loop('{{ m(*range(50000)) }}', 5000)}`],
    ['many macros', loop(`{% macro m() %}${'{{ 1 }}'.repeat(20_000)}{% endmacro %}`, 50_000)],
  ])('%s: it is refused before it is done', (_, text) => {
    expect(refusal(() => render(text))).toMatch(
      /: it (writes more than|makes a (value|list) of more than|makes a value that holds itself|looks for more|does not come to an end)/,
    );
  });

  it('as much as 16 MiB of a conversation', () => {
    const content = 'a line of it\n'.repeat(2 ** 20);
    for (const name of ['chatml', 'llama3', 'qwen3'] as const) {
      const talk = [...HI, { role: 'assistant', content }];
      expect(new ChatRenderer(TEMPLATES[name]).render(talk).length).toBeGreaterThan(content.length);
    }
  });

  it.each([
    [`{{ [1, {'a': [2, 'x']}]|tojson(indent=2)|length }}`, '52'],
    [`{% filter replace('a', 'b') %}a{{ 'ca' }}{% endfilter %}`, 'bcb'],
    [`{% set f = 'a-b'.split %}{{ f('-')|join('+') }}{{ 'x y'.split()|last }}`, 'a+by'],
    [`{{ 'aaa'.replace('a', 'b', 2) ~ 'aaa'|replace('a', 'c', count=1) }}`, 'bbacaa'],
    [
      `{% set n = namespace(a=[]) %}{% for i in range(3) %}{% set n.a = n.a + [n.a|length] %}{% endfor %}{{ n.a }}`,
      '[0, 1, 2]',
    ],
  ])('small ones do as ever: %s', (text, wanted) => {
    expect(render(text)).toBe(wanted);
  });

  it('a long conversation is none of these', () => {
    const talk = Array.from({ length: 500 }, (_, i) => ({
      role: i % 2 ? 'assistant' : 'user',
      content: `${i} `.repeat(2000),
    }));
    for (const name of ['chatml', 'llama3', 'qwen3', 'mistral'] as const) {
      expect(new ChatRenderer(TEMPLATES[name]).render(talk)).toContain('498 499 '.slice(4));
    }
  });
});

describe('where templates are found', () => {
  const config = (value: unknown) => JSON.stringify(value);
  const files = new MemoryFiles({
    'new/chat_template.jinja': 'new',
    'new/tokenizer_config.json': config({ chat_template: 'old', bos_token: { content: '<b>' }, eos_token: '<e>' }),
    'old/tokenizer_config.json': config({ chat_template: 'old', bos_token: null }),
    'named/tokenizer_config.json': config({
      chat_template: [
        { name: 'rag', template: 'r' },
        { name: 'default', template: 'd' },
      ],
    }),
    'unnamed/tokenizer_config.json': config({
      chat_template: [
        { name: 'a', template: 'r' },
        { name: 'b', template: 'd' },
      ],
    }),
    'wrong/tokenizer_config.json': config({ chat_template: 7 }),
    'none/config.json': '{}',
    'mine.jinja': 'mine',
  });
  const find = (model?: string, name?: string) => findChatTemplate(files, { model, name, date: '2026-01-02' });
  const date = '2026-01-02';

  it.each<[string, string | undefined, string | undefined, unknown]>([
    ['a file of the model', 'new', undefined, { name: 'of new', text: 'new', bos: '<b>', eos: '<e>', date }],
    ['a field of its tokenizer', 'old', undefined, { name: 'of old', text: 'old', date }],
    ['the default of several', 'named', undefined, { name: 'of named', text: 'd', date }],
    ['none', 'none', undefined, undefined],
    ['no model', undefined, undefined, undefined],
    [
      'a file that is named, with the marks of the model',
      'new',
      'mine.jinja',
      { name: 'mine.jinja', text: 'mine', bos: '<b>', eos: '<e>', date },
    ],
    ['another model', 'old', 'new', { name: 'new', text: 'new', bos: '<b>', eos: '<e>', date }],
  ])('%s', async (_, model, name, wanted) => {
    expect(await find(model, name)).toEqual(wanted);
  });

  it('what lies beside the tokenizer is the model’s, and else what is in its folder, with the marks of the tokenizer', async () => {
    const beside = (contents: Record<string, unknown>) => filesOf({}, contents);
    const marks = { 'tokenizer_config.json': {}, 'special_tokens_map.json': { bos_token: { content: '<s>' } } };
    const own = beside({ ...marks, 'chat_template.jinja': new TextEncoder().encode('own') });
    const path = 'model/tokenizer.json';
    expect(await findChatTemplate(files, { tokenizer: own, model: 'new', date })).toEqual({
      ...{ name: `of ${path}`, text: 'own', bos: '<s>', date },
    });
    expect(await findChatTemplate(files, { tokenizer: beside(marks), model: 'new', date })).toEqual({
      ...{ name: 'of new', text: 'new', bos: '<s>', eos: '<e>', date },
    });
    expect(await findChatTemplate(files, { tokenizer: beside({}), date })).toBeUndefined();
    expect(await findChatTemplate(files, { tokenizer: own, name: 'mine.jinja', date })).toEqual({
      ...{ name: 'mine.jinja', text: 'mine', bos: '<s>', date },
    });
  });

  it('one that comes along', async () => {
    const chatml = await find(undefined, 'chatml');
    expect(chatml && new ChatRenderer(chatml).render(HI, { addGenerationPrompt: true })).toBe(
      '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n',
    );
  });

  it.each<[string | undefined, string | undefined, string]>([
    ['unnamed', undefined, 'unnamed/tokenizer_config.json: chat_template is a list of 2 with no "default"'],
    ['wrong', undefined, 'wrong/tokenizer_config.json: chat_template is 7; it must be a text'],
    [undefined, 'nowhere', 'chat template nowhere: nothing is there; name chatml, a file, or'],
    [undefined, 'none', 'chat template none: the folder has none'],
  ])('refuses %s, %s', async (model, name, wanted) => {
    await expect(find(model, name)).rejects.toThrow(wanted);
    await expect(find(model, name)).rejects.toThrow(HoldfastError);
  });
});
