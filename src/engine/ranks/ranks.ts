// `Ranks`: the processes that train one model together, as one of them sees them: its place, and a communicator for each
// thing that has an order of its own. Made once a process; what a step exchanges is collectives.ts's affair.

import type { Messages } from '../../runtime/host.ts';
import { Communicator, type Watchdog } from './communicator.ts';
import type { Sharding, ZeroStage } from './sharding.ts';

/** Several processes that train one model together: this one, and how it talks to the others. */
export interface Ranks extends Sharding {
  /** For the collectives of steps. */
  readonly step: Communicator;
  /** For what a run decides: all ranks ask the same in the same order. */
  readonly control: Communicator;
  /** For values that only their owner has, asked for by rank 0. */
  readonly state: Communicator;
}

export function makeRanks(messages: Messages, stage: ZeroStage, watchdog?: Watchdog): Ranks {
  const { rank, size } = messages;
  const over = (channel: 'step' | 'control' | 'state') => new Communicator(messages, channel, watchdog);
  return { rank, size, stage, step: over('step'), control: over('control'), state: over('state') };
}

const ASK = 1;
const END = 0;

/** What is asked of an owner. */
export interface ChunkBytes {
  readonly chunk: number;
  readonly offset: number;
}

/** Brings bytes that only their owner has: for rank 0, while the others answer. */
export async function askOwner(
  { state }: Ranks,
  owner: number,
  { chunk, offset }: ChunkBytes,
  into: Uint8Array<ArrayBuffer>,
): Promise<void> {
  const what = `chunk ${chunk} for rank 0`;
  await state.send(what, owner, new Uint8Array(Uint32Array.of(ASK, chunk, offset, into.length).buffer));
  await state.receive(what, owner, into);
}

/** Ends what the other ranks answer. */
export async function endAnswers({ state, size }: Ranks): Promise<void> {
  const end = () => new Uint8Array(Uint32Array.of(END, 0, 0, 0).buffer);
  await Promise.all(Array.from({ length: size - 1 }, (_, i) => state.send('the end of the state', i + 1, end())));
}

/** Answers rank 0 until it has all. */
export async function answer(
  { state }: Ranks,
  read: (asked: ChunkBytes, into: Uint8Array<ArrayBuffer>) => Promise<void>,
): Promise<void> {
  for (;;) {
    const words = new Uint32Array(4);
    await state.receive('what rank 0 asks for', 0, new Uint8Array(words.buffer));
    const [asks = END, chunk = 0, offset = 0, length = 0] = words;
    if (asks === END) return;
    const bytes = new Uint8Array(length);
    await read({ chunk, offset }, bytes);
    await state.send(`chunk ${chunk} for rank 0`, 0, bytes);
  }
}
