// HTML as text into which nothing can be put unescaped: the one door through which names, figures and texts come into
// a page. What is markup already is an `Html`, which only this file makes: no value from a file can pretend to be one.
//
// Invariant: a value stands as text, or in the double quotes of an attribute that neither runs, loads nor styles
// anything; elsewhere in a template it is our own mistake. Scripts and styles go to `pageOf`, which lets only these run.

import { assert } from '../util/errors.ts';

/** Markup: text that goes into a page as it is. */
class Html {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  toString(): string {
    return this.#text;
  }
}

export type { Html };

/** Types end where files begin: whatever else comes is text, too. */
export type HtmlPart = string | number | Html | readonly HtmlPart[];

/** Attributes whose values are only shown, drawn or looked up. */
const HARMLESS = /^@(?:class|id|title|width|content|aria-[a-z]+|data-[a-z]+|d|x|y|cx|cy|height|viewBox)$/;

/** Lists stand one after the other. */
export function html(pieces: TemplateStringsArray, ...parts: readonly HtmlPart[]): Html {
  let text = pieces[0] ?? '';
  let state = after('text', text);
  parts.forEach((part, i) => {
    assert(
      state === 'text' || HARMLESS.test(state),
      `a value in the wrong place of HTML (${state}): ${text.slice(-40)}`,
    );
    text += escaped(part) + pieces[i + 1];
    state = after(state, pieces[i + 1] ?? '');
  });
  assert(state === 'text', `HTML that ends in a ${state}: ${text.slice(-40)}`);
  return new Html(text);
}

/** JSON as data of the page, for `document.getElementById(id).textContent`. */
export function dataOf(id: string, value: unknown): Html {
  // In a script element only "<" can end the data: escaped, "</script" and "<!--" are plain text.
  const json = JSON.stringify(value).replaceAll('<', '\\u003c');
  return new Html(`<script type="application/json" id="${escaped(id)}">${json}</script>`);
}

export interface Page {
  readonly title: string;
  /** Of ours, as the scripts are: nothing of a run may come into either. */
  readonly styles: readonly string[];
  readonly scripts: readonly string[];
  readonly body: Html;
}

/** A whole page that loads nothing and runs these scripts alone, after its body. */
export async function pageOf({ title, styles, scripts, body }: Page): Promise<string> {
  const style = elementText('style', styles.join('\n'));
  const texts = scripts.map((script) => elementText('script', script));
  const policy = [
    "default-src 'none'",
    `script-src ${(await Promise.all(texts.map(hash))).join(' ')}`,
    `style-src ${await hash(style)}`,
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
  ].join('; ');
  const head = html`<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="${policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>${title}</title>`;
  return `<!doctype html>
<html lang="en">
<head>
${head}
<style>${style}</style>
</head>
<body>
${body}
${texts.map((text) => `<script>${text}</script>`).join('\n')}
</body>
</html>
`;
}

function escaped(part: unknown): string {
  if (part instanceof Html) return part.toString();
  if (Array.isArray(part)) return part.map(escaped).join('');
  const entities: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return String(part).replace(/[&<>"']/g, (character) => entities[character] ?? character);
}

/** Where a template stands after a piece: in 'text', in a 'tag', or in the value of an '@attribute'. */
function after(state: string, piece: string): string {
  let at = 0;
  let now = state;
  while (at < piece.length) {
    const rest = piece.slice(at);
    if (now === 'text') {
      const opened = /<(?!\/?(?:script|style)\b)[a-z/!]/i.exec(rest);
      assert(opened || !rest.includes('<'), `scripts and styles go to pageOf: ${rest.slice(0, 40)}`);
      if (!opened) break;
      at += opened.index + 1;
      now = 'tag';
    } else if (now === 'tag') {
      const [all, name] = /^[^>"']*?(?:([\w-]+)="|>)/.exec(rest) ?? [];
      if (all === undefined) break;
      at += all.length;
      now = name === undefined ? 'text' : `@${name}`;
    } else {
      const end = rest.indexOf('"');
      if (end < 0) break;
      at += end + 1;
      now = 'tag';
    }
  }
  return now;
}

/** Of an element whose text is not escaped, in the form that is hashed: as the browser reads it. */
function elementText(name: string, text: string): string {
  assert(!/<\/(?:script|style)|<!--/i.test(text), `a ${name} whose text ends it, or comments out its end`);
  return text.replaceAll(/\r\n?/g, '\n');
}

async function hash(text: string): Promise<string> {
  const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(text));
  return `'sha256-${btoa(String.fromCharCode(...new Uint8Array(digest)))}'`;
}
