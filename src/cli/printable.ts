// Generated text as a terminal may show it: whatever a model writes, it moves no cursor and rings no bell.

import type { Terminal } from '../runtime/host.ts';

/** The text without control characters but line feeds: a tab is four spaces, any other is U+FFFD. */
export const printable = (text: string): string => text.replace(/\t/g, '    ').replace(/[^\P{Cc}\n]/gu, '\ufffd');

/** Writes it as it is where no terminal shows it: what reads a pipe gets the very text. */
export const writeGenerated = (terminal: Terminal, text: string): void =>
  terminal.write(terminal.interactive ? printable(text) : text);
