// A terminal of commands that run in the process of a test: keeps what they write.

import type { Terminal } from '../src/runtime/host.ts';

export interface RecordedTerminal extends Terminal {
  /** On standard output. */
  out: string;
  /** On standard error. */
  said: string;
}

export function recordedTerminal(): RecordedTerminal {
  const terminal: RecordedTerminal = {
    ...{ interactive: false, columns: 80, out: '', said: '' },
    write: (text) => {
      terminal.out += text;
    },
    warn: (text) => {
      terminal.said += text;
    },
  };
  return terminal;
}
