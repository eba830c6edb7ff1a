// Processes that write a checkpoint together, in this one.

import { Communicator } from '../../src/engine/ranks/communicator.ts';
import type { Writers } from '../../src/formats/checkpoint.ts';
import { inProcess } from '../ranks/in-process.ts';

/** So many, which deal the tensors out like this. */
export function writersOf(size: number, writerOf: (name: string) => number): Writers[] {
  return inProcess(size).map((messages) => {
    const control = new Communicator(messages, 'control');
    return { rank: messages.rank, size, writerOf, exchange: (what, text) => control.fromAll(what, text) };
  });
}
