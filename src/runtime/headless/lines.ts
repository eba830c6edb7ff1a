// Lines of standard input as they come: for a conversation, where the next one is not there before the last was answered.
// Not for text that is read as a whole (readStandardInput).

import process from 'node:process';
import { createInterface } from 'node:readline';

/** On a terminal, each is asked for with `prompt`. They end with the input, or with an interrupt. */
export async function* readLines(prompt: string): AsyncGenerator<string> {
  const isTerminal = process.stdin.isTTY === true && process.stdout.isTTY === true;
  const reader = createInterface({ input: process.stdin, ...(isTerminal && { output: process.stdout, prompt }) });
  let isOpen = true;
  reader.on('close', () => {
    isOpen = false;
  });
  // The terminal is then as it was: a second interrupt ends the process.
  reader.on('SIGINT', () => reader.close());
  const lines = reader[Symbol.asyncIterator]();
  try {
    for (;;) {
      if (isTerminal && isOpen) reader.prompt();
      const { done, value } = await lines.next();
      if (done) break;
      yield value;
    }
  } finally {
    reader.close();
    if (isTerminal) process.stdout.write('\n');
  }
}
