// Text as a terminal may show it: whatever a model or a file brings, it moves no cursor, rings no bell and turns no line around.

/** Control characters but line feeds, and what overrides or isolates the direction of text. */
const HOSTILE = /[\p{Cc}\u202a-\u202e\u2066-\u2069]/gu;

/** The text without control characters but line feeds: a tab is four spaces, any other is U+FFFD, as are overrides of direction. */
export const printable = (text: string): string =>
  text.replace(/\t/g, '    ').replace(HOSTILE, (character) => (character === '\n' ? character : '\ufffd'));

/** Erases the rest of the line. */
const ERASE = '\x1b[K';

/** `printable` text, with tabs, and with what a progress display steers a terminal by: a return at the front, and `ERASE`. */
export function forTerminal(text: string): string {
  const [, start = '', rest = ''] = /^(\r?)(.*)$/s.exec(text) ?? [];
  const shown = (part: string) => part.split('\t').map(printable).join('\t');
  return start + rest.split(ERASE).map(shown).join(ERASE);
}
