// Generated text: as it may be shown on a terminal, and as it is elsewhere.

import type { Terminal } from '../runtime/host.ts';
import { printable } from '../util/printable.ts';

/** Writes it as it is where no terminal shows it: what reads a pipe gets the very text. */
export const writeGenerated = (terminal: Terminal, text: string): void =>
  terminal.write(terminal.interactive ? printable(text) : text);
