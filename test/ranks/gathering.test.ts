// Gathers that begin ahead of their turn: on random plans, with messages, reads and work that take random times, all ranks come to
// the end, each gets in its turn what the owner had in its, and no more memory is under way than was planned. One that fails ends.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { CollectiveOperation, Operation } from '../../src/engine/compile/operations.ts';
import { CHANNELS, Communicator } from '../../src/engine/ranks/communicator.ts';
import { chunkGathersIn, gatheredBytes, isChunkGather, largestOf } from '../../src/engine/ranks/gather-order.ts';
import { Gathering, type GatherPort } from '../../src/engine/run/gathering.ts';
import type { Messages } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { StoppableWait } from '../../src/util/stoppable-wait.ts';
import { EVERY_CASE } from '../host.ts';
import { inProcess } from './in-process.ts';

const RUNS = EVERY_CASE ? 400 : 40;
const CHUNKS = 4;
const LIST = { kind: 'parameter', first: 0, chunks: CHUNKS } as const;

/** A gather; a sum over all ranks; a change of a chunk's value, on its owner. */
interface Planned {
  readonly what: 'gather' | 'sum' | 'change';
  readonly chunk: number;
}

const plans = fc.integer({ min: 2, max: 4 }).chain((size) =>
  fc.record({
    size: fc.constant(size),
    seed: fc.nat(10_000),
    owners: fc.array(fc.nat(size - 1), { minLength: CHUNKS, maxLength: CHUNKS }),
    planned: fc.array(
      fc.record<Planned>({
        what: fc.constantFrom('gather', 'gather', 'gather', 'gather', 'sum', 'change'),
        chunk: fc.nat(CHUNKS - 1),
      }),
      { minLength: 4, maxLength: 16 },
    ),
    passes: fc.integer({ min: 1, max: 2 }),
  }),
);

type Plan = typeof plans extends fc.Arbitrary<infer T> ? T : never;

/** Each of another size: what is taken for another chunk is found by its length, too. */
const wordsOf = (chunk: number) => 3 + 2 * chunk;

function operationsOf(planned: readonly Planned[], owners: readonly number[], rank: number): Operation[] {
  return planned.map(({ what, chunk }): CollectiveOperation => {
    const owner = at(owners, chunk);
    const access = what === 'change' && owner === rank ? 'update' : 'read';
    const piece = { ...{ tensor: '', chunk, row: 0, rows: 1, first: 0, offset: 0 }, size: wordsOf(chunk) };
    return {
      op: 'collective',
      collective: what === 'gather' ? 'all-gather' : 'reduce-scatter',
      ...{ axis: 'data', on: { chunk }, parts: [{ owner, offset: 0, bytes: 4 * wordsOf(chunk) }] },
      ...{ label: `${what} ${chunk}`, phase: 'forward', uses: [{ list: LIST, piece, access }] },
    };
  });
}

/** What a chunk holds after so many changes. */
const contents = (chunk: number, version: number) =>
  Uint32Array.from({ length: wordsOf(chunk) }, (_, i) => 1_000_000 * version + 1000 * chunk + i);

/** The same messages; what they have in memory over the channel of gathers is told as it begins and ends. */
function watched(messages: Messages, tell: (bytes: Uint8Array, way: Promise<void>) => void): Messages {
  const { rank, size, library } = messages;
  const told = (channel: number, bytes: Uint8Array, way: Promise<void>) => {
    if (channel === CHANNELS.gathers) tell(bytes, way);
    return way;
  };
  return {
    ...{ rank, size, library },
    send: (to, channel, bytes) => told(channel, bytes, messages.send(to, channel, bytes)),
    receive: (from, channel, into) => told(channel, into, messages.receive(from, channel, into)),
  };
}

const LOST = 'the device of this rank is lost';

/** What one rank does; of its reads, the one with this number fails. Returns the order of its gathers. */
async function onRank(
  { seed, owners, planned, passes }: Plan,
  messages: Messages,
  count: { ahead: number; most: number },
  lost?: number,
): Promise<string[]> {
  const { rank } = messages;
  const random = new Random(seed + rank, 'times of a rank');
  const waiting = (longest: number) => () =>
    new Promise<void>((resolve) => {
      const milliseconds = random.below(longest);
      if (milliseconds === 0) setImmediate(resolve);
      else setTimeout(resolve, milliseconds);
    });
  // Its work, and what comes from its GPU, is faster or slower than messages, and than others.
  const [work, read] = [waiting(at([1, 1, 4], random.below(3))), waiting(at([1, 12], random.below(2)))];
  const versions = new Array<number>(CHUNKS).fill(0);
  const operations = operationsOf(planned, owners, rank);
  const memory = gatheredBytes([{ operations }], messages.size);
  const underWay = new Map<Uint8Array, number>();
  const bytesUnderWay = () => [...underWay.keys()].reduce((sum, { length }) => sum + length, 0);
  let inTurn = -1;
  const communicator = new Communicator(
    watched(messages, (bytes, way) => {
      if (bytes.length !== 4 * inTurn) count.ahead++;
      underWay.set(bytes, (underWay.get(bytes) ?? 0) + 1);
      expect(bytesUnderWay()).toBeLessThanOrEqual(memory);
      count.most = Math.max(count.most, underWay.size);
      void way.then(() => {
        const left = (underWay.get(bytes) ?? 0) - 1;
        if (left > 0) underWay.set(bytes, left);
        else underWay.delete(bytes);
      });
    }),
    'data',
  );
  let reads = 0;
  const waits = new StoppableWait();
  const port: GatherPort = {
    isHere: () => random.below(3) > 0,
    readEarly: async (chunk, into) => {
      await work();
      // The value of now, there later; of two the second may be there first.
      const value = contents(chunk, at(versions, chunk));
      const there = read();
      const isLost = ++reads === lost;
      return async () => {
        await there;
        if (isLost) throw new Error(LOST);
        const isUnderWay = [...underWay.keys()].some(
          ({ buffer, byteOffset }) => buffer === into.buffer && byteOffset === into.byteOffset,
        );
        expect(isUnderWay, 'memory that is filled anew').toBe(false);
        into.set(new Uint8Array(value.buffer));
      };
    },
    others: (what) => waits.until(what),
    stop: (reason) => waits.stop(reason),
  };
  const gathering = new Gathering(port, communicator);
  for (let pass = 0; pass < passes; pass++) {
    await gathering.begin(operations);
    for (const [i, operation] of operations.entries()) {
      const { what, chunk } = at(planned, i);
      await work();
      if (what === 'change') versions[chunk] = at(versions, chunk) + 1;
      else if (isChunkGather(operation)) {
        inTurn = wordsOf(chunk);
        await gathering.run(operation, async (bytes) => {
          await work();
          expect(new Uint32Array(bytes.slice().buffer)).toEqual(contents(chunk, at(versions, chunk)));
        });
        inTurn = -1;
      } else {
        if (operation.op !== 'collective') throw new Error('all of them are');
        const { parts } = operation;
        await waits.until(communicator.reduceScatter('a sum', new Uint8Array(4 * wordsOf(chunk)), parts));
      }
    }
    // One turn of the event loop for what watches.
    await work();
    expect(bytesUnderWay()).toBe(0);
  }
  expect(gathering.bytes).toBe(memory);
  return chunkGathersIn(operations).map(({ operation, owner }) => `${operation.label} of ${owner}`);
}

it('comes to the end with the values of their turns, in any times, within the planned memory', async () => {
  /** Messages that were asked for or given before their turn, and the most that were under way at once on a rank. */
  const count = { ahead: 0, most: 0 };
  await fc.assert(
    fc.asyncProperty(plans, async (plan) => {
      const orders = await Promise.all(
        inProcess(plan.size, plan.seed).map((messages) => onRank(plan, messages, count)),
      );
      for (const order of orders) expect(order).toEqual(orders[0]);
    }),
    { numRuns: RUNS, seed: 15 },
  );
  expect(count.ahead).toBeGreaterThan(RUNS);
  // Of four ranks, one of each, and one that is being taken.
  expect(count.most).toBe(5);
});

it('ends on a rank that can read nothing more, which others wait for, and waits for them no longer', async () => {
  let ended = 0;
  await fc.assert(
    fc.asyncProperty(plans, fc.integer({ min: 1, max: 4 }), async (plan, lost) => {
      const [first] = inProcess(plan.size, plan.seed).map((messages, rank) => {
        const done = onRank(plan, messages, { ahead: 0, most: 0 }, rank === 0 ? lost : undefined);
        return done.catch((error: unknown) => error);
      });
      const outcome = await first;
      if (outcome instanceof Error) {
        expect(outcome.message).toBe(LOST);
        ended++;
      }
    }),
    { numRuns: RUNS, seed: 15 },
  );
  expect(ended).toBeGreaterThan(RUNS / 4);
});

it('a pass may have more gathers than a call takes arguments', () => {
  const gathers = Array.from({ length: 300_000 }, (_, i) => ({ bytes: 4 * (i % 1000) }));
  expect([largestOf(gathers), largestOf([])]).toEqual([3996, 0]);
});
