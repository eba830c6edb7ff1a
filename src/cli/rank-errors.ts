// Mistakes on several ranks: the first of those that have come to the same one says it, with its number, and ends the job; a rank
// behind it is silent. One that fails alone says so itself, a moment later. Where a rank would leave before it has joined the
// others, they would wait for it for ever: it joins them first.

import { Communicator } from '../engine/ranks/communicator.ts';
import type { Host, Messages } from '../runtime/host.ts';
import { HoldfastError } from '../util/errors.ts';

/** Milliseconds for a rank before this one to come to the same mistake. */
const PATIENCE = 1_000;

/** Before what a rank of several says. */
export const nameOf = ({ rank, size }: Pick<Messages, 'rank' | 'size'>): string => `rank ${rank} of ${size}`;

/** Whether a rank before this one, which has failed, has failed too: that one says why. Called once, by ranks that fail. */
export async function isSaidBefore(messages: Messages): Promise<boolean> {
  const { rank, size } = messages;
  const failures = new Communicator(messages, 'failures');
  for (let behind = rank + 1; behind < size; behind++)
    // It may have ended.
    failures.send('a mistake', behind, new Uint8Array(1)).catch(() => {});
  if (rank === 0) return false;
  const before = Array.from({ length: rank }, async (_, other) => {
    await failures.receive('a mistake', other, new Uint8Array(1));
    return true;
  });
  const isSaid = await Promise.race([...before, moment(1).then(() => false)]);
  // That one waits for those before it, too, and ends the job when it has spoken: it is not ended from here.
  if (isSaid) await moment(2);
  return isSaid;
}

const moment = (times: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, times * PATIENCE));

/** Says what is wrong with the flags of this process: of a job, once. */
export async function sayBadFlags(host: Host, text: string): Promise<void> {
  const messages = await joinedRanks(host);
  if (messages && (await isSaidBefore(messages))) return;
  host.terminal.warn(messages ? text.replace(/^holdfast: /, `holdfast: ${nameOf(messages)}: `) : text);
}

/** Shows a help, which each process has: of a job, once. */
export async function showOnce(host: Host, help: string): Promise<void> {
  const messages = await joinedRanks(host);
  if (!messages || messages.rank === 0) host.terminal.write(help);
}

/** Undefined where this process is alone, or cannot join the others. */
async function joinedRanks(host: Host): Promise<Messages | undefined> {
  try {
    const messages = await host.joinRanks?.();
    return messages && messages.size > 1 ? messages : undefined;
  } catch (error) {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  }
}
