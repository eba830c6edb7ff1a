// Ranks in one process, for tests of what they do together: messages that arrive in turns of the event loop, at random
// times, in the order of their channel and in no other.

import { makeRanks, type RankOptions, type Ranks } from '../../src/engine/ranks/ranks.ts';
import type { ZeroStage } from '../../src/engine/ranks/sharding.ts';
import type { Messages } from '../../src/runtime/host.ts';
import { Random } from '../../src/util/random.ts';

/** What was sent and not received yet, or is waited for and was not sent yet. */
interface Route {
  readonly sent: { bytes: Uint8Array; taken: () => void }[];
  readonly awaited: { into: Uint8Array; filled: () => void }[];
}

/** The messages of each of `size` ranks. */
export function inProcess(size: number, seed = 1): Messages[] {
  const random = new Random(seed, 'delays of messages');
  const routes = new Map<string, Route>();
  const match = ({ sent, awaited }: Route): void => {
    while (sent[0] && awaited[0]) {
      const [{ bytes, taken }, { into, filled }] = [sent[0], awaited[0]];
      sent.shift();
      awaited.shift();
      if (bytes.length !== into.length) throw new Error(`${bytes.length} bytes were sent, ${into.length} are awaited`);
      setTimeout(() => {
        into.set(bytes);
        taken();
        filled();
      }, random.below(3));
    }
  };
  const routeOf = (from: number, to: number, channel: number): Route => {
    const key = `${from} ${to} ${channel}`;
    const route = routes.get(key) ?? { sent: [], awaited: [] };
    routes.set(key, route);
    return route;
  };
  return Array.from({ length: size }, (_, rank) => ({
    rank,
    size,
    library: 'in process',
    send: (to, channel, bytes) =>
      new Promise((taken) => {
        const route = routeOf(rank, to, channel);
        route.sent.push({ bytes, taken });
        match(route);
      }),
    receive: (from, channel, into) =>
      new Promise((filled) => {
        const route = routeOf(from, rank, channel);
        route.awaited.push({ into, filled });
        match(route);
      }),
  }));
}

/** Ranks that share a model by a stage, or in a grid. */
export const ranksInProcess = (size: number, stage: ZeroStage, shape: Omit<RankOptions, 'stage'> = {}): Ranks[] =>
  inProcess(size).map((messages) => makeRanks(messages, { stage, ...shape }));
