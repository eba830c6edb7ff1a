// What a Modelfile says, as Ollama reads it: its lines, and its template by the part of Go's language of templates that is used
// here (texts, fields, conditions, one range). Anything else fails.

import { expect } from 'vitest';
import type { Message } from '../../../src/data/records/shapes.ts';

/** The template, the system message and the stops of a Modelfile. */
export function partsOf(modelfile: string) {
  const said = (name: string) => new RegExp(`^${name} """([\\s\\S]*?)"""$`, 'm').exec(modelfile)?.[1];
  const stops = [...modelfile.matchAll(/^PARAMETER stop "(.+)"$/gm)].map(([, stop]) => stop);
  return { template: said('TEMPLATE'), system: said('SYSTEM'), stops };
}

interface Scope {
  readonly system: string;
  readonly messages: readonly Message[];
  /** Inside the range: which of the messages it is at. */
  readonly i?: number;
}

/** The text of a conversation. `fallback`: the system message of the Modelfile. */
export function ollamaText(template: string, messages: readonly Message[], fallback = ''): string {
  const isSystem = ({ role }: Message) => role === 'system';
  const all =
    fallback === '' || messages.some(isSystem) ? messages : [{ role: 'system', content: fallback }, ...messages];
  const system = all.filter(isSystem).map(({ content }) => content);
  const pieces = template.split(/\{\{ (.*?) \}\}/s).map((text, i) => ({ text, isAction: i % 2 === 1 }));
  let at = 0;
  /** Reads up to the end of a list, and gives what it writes, or nothing where it is not to be written. */
  function list(scope: Scope | undefined): string {
    let written = '';
    for (; at < pieces.length; at++) {
      const { text, isAction } = pieces[at] ?? expect.fail();
      if (isAction && /^(end|else\b.*)$/.test(text)) break;
      if (isAction) written += action(text, scope);
      else {
        expect(text).not.toContain('{{');
        written += scope ? text : '';
      }
    }
    return written;
  }
  function action(text: string, scope: Scope | undefined): string {
    if (text.startsWith('if ')) return condition(text.slice(3), scope);
    if (text === 'range .Messages' || text === 'range $i, $_ := .Messages') return range(scope);
    return scope ? String(resultOf(text, scope)) : '';
  }
  function range(scope: Scope | undefined): string {
    const begin = ++at;
    let written = '';
    for (const i of scope?.messages.keys() ?? []) {
      at = begin;
      written += list(scope && { ...scope, i });
    }
    at = begin;
    list(undefined);
    expect(pieces[at]?.text).toBe('end');
    return written;
  }
  function condition(expression: string, scope: Scope | undefined): string {
    at++;
    const holds = scope !== undefined && truth(resultOf(expression, scope));
    let written = list(holds ? scope : undefined);
    const rest = holds ? undefined : scope;
    const { text } = pieces[at] ?? expect.fail('an end is missing');
    if (text.startsWith('else if ')) written += condition(text.slice(8), rest);
    else if (text === 'else') {
      at++;
      written += list(rest);
    }
    expect(pieces[at]?.text).toBe('end');
    return written;
  }
  const written = list({ system: system.join('\n\n'), messages: all });
  expect(at).toBe(pieces.length);
  return written;
}

const truth = (value: unknown): boolean => value !== '' && value !== false && value !== 0;

function resultOf(expression: string, scope: Scope): string | boolean {
  const { system, messages, i } = scope;
  const message = i === undefined ? undefined : messages[i];
  const [, role] = /^eq \.Role "(\w+)"$/.exec(expression) ?? [];
  if (role !== undefined && message) return message.role === role;
  const [, braces] = /^"(\{+)"$/.exec(expression) ?? [];
  if (braces !== undefined) return braces;
  if (expression === '.Content' && message) return message.content;
  if (expression === (i === undefined ? '.System' : '$.System')) return system;
  if (expression === 'and $.System (eq $i 1)') return truth(system) && i === 1;
  if (expression === 'and $.System (eq (len (slice $.Messages $i)) 1)')
    return truth(system) && i === messages.length - 1;
  return expect.fail(`{{ ${expression} }}`);
}
