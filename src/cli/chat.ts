// `holdfast generate DIR --chat`: lines of the terminal, answered by the model as they come, until they end. What a
// conversation is, is train/conversation.ts.

import type { Host } from '../runtime/host.ts';
import type { Conversation } from '../train/conversation.ts';
import { assert, HoldfastError, messageOf } from '../util/errors.ts';

const PROMPT = '> ';

/** Empty lines are passed over. What cannot be answered is said on standard error, and the conversation goes on. */
export async function chat(host: Host, conversation: Conversation): Promise<void> {
  const { terminal, readLines } = host;
  assert(readLines, 'the command line has lines of a terminal');
  for await (const line of readLines(terminal.interactive ? PROMPT : '')) {
    if (line.trim() === '') continue;
    const before = conversation.leftOut;
    try {
      for await (const piece of conversation.answer(line)) terminal.write(piece);
      terminal.write('\n');
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      terminal.warn(`holdfast: ${messageOf(error)}\n`);
    }
    const gone = conversation.leftOut - before;
    if (gone > 0) terminal.warn(`holdfast: the context is full: ${gone} older messages were left out\n`);
  }
}
