// Names in a piece of WGSL, by its scopes alone: what it declares for the whole module, and what it uses that no
// scope of its own declares. No parser of the language: text that a compiler refuses gets some answer too.

import { at } from '../../src/util/at.ts';

/** Words, and single signs. Comments are gone before. */
const TOKEN = /[A-Za-z_]\w*|\d[\w.]*|\S/g;

const tokensOf = (text: string): string[] => text.replace(/\/\/.*$/gm, '').match(TOKEN) ?? [];

const isName = (token: string | undefined): boolean => token !== undefined && /^[A-Za-z_]/.test(token);

/** Of `var<storage, read> x`, the place of x; of `const x` and the like, the one behind. */
function nameAfter(tokens: readonly string[], keyword: number): number {
  if (tokens[keyword + 1] !== '<') return keyword + 1;
  return tokens.indexOf('>', keyword) + 1;
}

/** The names that a text declares for the module: functions, constants, variables, types. */
export function moduleNames(text: string): Set<string> {
  const tokens = tokensOf(text);
  const names = new Set<string>();
  let depth = 0;
  tokens.forEach((token, i) => {
    if (token === '{') depth++;
    if (token === '}') depth--;
    if (depth === 0 && /^(fn|const|var|alias|struct|override)$/.test(token)) {
      const name = tokens[nameAfter(tokens, i)];
      if (name !== undefined) names.add(name);
    }
  });
  return names;
}

/** The names that a text uses and does not declare in the scope: its own module names, those of others, WGSL's. */
export function freeNames(text: string): Set<string> {
  const tokens = tokensOf(text);
  const free = new Set<string>();
  /** Innermost last; a function's parameters and a loop's variable wait for the brace that opens its body. */
  const scopes: Set<string>[] = [];
  let waiting = new Set<string>();
  let isHead = false;
  /** Declared, and in scope from the end of the statement on. */
  let declaring: string | undefined;
  for (let i = 0; i < tokens.length; i++) {
    const token = at(tokens, i);
    if (token === 'enable') i = tokens.indexOf(';', i);
    else if (token === 'fn' || token === 'for') isHead = true;
    else if (token === 'struct') i = tokens.indexOf('{', i) - 1;
    else if (token === '@' && tokens[i + 1] === 'builtin') i += 4;
    else if (token === '{') {
      scopes.push(waiting);
      waiting = new Set();
      isHead = false;
    } else if (token === '}') {
      scopes.pop();
      waiting = new Set();
    } else if (token === ';') {
      if (declaring) (isHead ? waiting : scopes.at(-1))?.add(declaring);
      declaring = undefined;
    } else if (/^(let|var|const|override|alias)$/.test(token)) {
      // What stands between < and > of a variable is no name of a value.
      i = nameAfter(tokens, i);
      if (scopes.length > 0 || isHead) declaring = tokens[i];
    } else if (isName(token) && tokens[i - 1] !== '.' && tokens[i - 1] !== 'fn' && tokens[i - 1] !== '@') {
      // `name: type` is a parameter or a field.
      if (tokens[i + 1] === ':') waiting.add(token);
      else if (!waiting.has(token) && !scopes.some((scope) => scope.has(token))) free.add(token);
    }
  }
  return free;
}
