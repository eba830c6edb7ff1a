// `holdfast generate DIR --chat`: lines of the terminal, answered by the model as they come, until they end; those that begin
// with a slash are commands. What a conversation is, is train/inference/conversation.ts.

import { adapterInUse, checkAdapter, NO_ADAPTER } from '../nn/lora.ts';
import type { Model } from '../nn/model.ts';
import type { Host } from '../runtime/host.ts';
import type { Conversation } from '../train/inference/conversation.ts';
import { assert, HoldfastError, messageOf, oneLine, shortened } from '../util/errors.ts';
import { writeGenerated } from './printable.ts';

const PROMPT = '> ';

const HELP = `/adapter NAME   answer with this adapter from here on; none: without one
/adapter        which adapters there are, and which is in use
/help           this list
//TEXT          say /TEXT
`;

type Adapted = Pick<Model, 'adapters'>;

/**
 * Empty lines are passed over. What cannot be answered is said on standard error, as is what commands tell, and the conversation
 * goes on.
 */
export async function chat(host: Host, conversation: Conversation, model: Adapted): Promise<void> {
  const { terminal, readLines } = host;
  assert(readLines, 'the command line has lines of a terminal');
  for await (const line of readLines(terminal.interactive ? PROMPT : '')) {
    if (line.trim() === '') continue;
    const before = conversation.leftOut;
    try {
      if (isCommand(line)) terminal.warn(obey(line, conversation, model));
      else {
        for await (const piece of conversation.answer(line.replace(/^\/\//, '/'))) writeGenerated(terminal, piece);
        terminal.write('\n');
      }
    } catch (error) {
      if (!(error instanceof HoldfastError)) throw error;
      terminal.warn(`holdfast: ${oneLine(messageOf(error))}\n`);
    }
    const gone = conversation.leftOut - before;
    if (gone > 0) terminal.warn(`holdfast: the context is full: ${gone} older messages were left out\n`);
  }
}

const isCommand = (line: string): boolean => line.startsWith('/') && !line.startsWith('//');

/** What there is to say of it. Errors: HoldfastError for what is no command, and for an adapter that is not there. */
function obey(line: string, conversation: Conversation, model: Adapted): string {
  const [command = '', ...names] = line.trim().split(/\s+/);
  if (command === '/help') return HELP;
  if (command !== '/adapter')
    throw new HoldfastError(
      `${shortened(command)}: is no command; there are /adapter and /help, and a line that begins with // is said with one /`,
    );
  const { adapters = [] } = model;
  if (adapters.length === 0)
    throw new HoldfastError('/adapter: the model has no adapters; give some with --lora NAME=DIR');
  if (names.length > 1) throw new HoldfastError('/adapter: takes one name');
  const [name] = names;
  if (name !== undefined) {
    checkAdapter(model, name);
    conversation.adapter = name;
  }
  const inUse = adapterInUse(model, conversation.adapter);
  const all = [...adapters.map((adapter) => adapter.name), NO_ADAPTER];
  return `adapters: ${all.map((each) => (each === inUse ? `${each} (in use)` : each)).join(', ')}\n`;
}
