// Lines of standard input as they come: for a conversation, where the next one is not there before the last was answered.
// Not for text that is read as a whole (readStandardInput).
//
// Invariant: of what comes through a pipe, one line is held at most, and no endless one.

import process from 'node:process';
import { createInterface } from 'node:readline';
import { HoldfastError } from '../../util/errors.ts';

/** More than any context holds. */
const MOST_CHARACTERS = 2 ** 24;

/**
 * On a terminal, each is asked for with `prompt`. They end with the input, or with an interrupt. Errors: HoldfastError for a line
 * of a pipe that is too long.
 */
export async function* readLines(prompt: string): AsyncGenerator<string> {
  if (process.stdin.isTTY !== true || process.stdout.isTTY !== true) return yield* linesOf(process.stdin);
  const reader = createInterface({ input: process.stdin, output: process.stdout, prompt });
  let isOpen = true;
  reader.on('close', () => {
    isOpen = false;
  });
  // The terminal is then as it was: a second interrupt ends the process.
  reader.on('SIGINT', () => reader.close());
  const lines = reader[Symbol.asyncIterator]();
  try {
    for (;;) {
      if (isOpen) reader.prompt();
      const { done, value } = await lines.next();
      if (done) break;
      yield value;
    }
  } finally {
    reader.close();
    process.stdout.write('\n');
  }
}

async function* linesOf(stream: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  const withoutReturn = (line: string) => line.replace(/\r$/, '');
  let line = '';
  for await (const piece of stream) {
    const parts = decoder.decode(piece, { stream: true }).split('\n');
    for (const [i, part] of parts.entries()) {
      line += part;
      if (line.length > MOST_CHARACTERS) {
        throw new HoldfastError(
          `standard input: a line of more than ${MOST_CHARACTERS} characters; each line is one message, end it with a line feed`,
        );
      }
      if (i === parts.length - 1) break;
      yield withoutReturn(line);
      line = '';
    }
  }
  line += decoder.decode();
  if (line !== '') yield withoutReturn(line);
}
