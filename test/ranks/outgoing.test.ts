// Values on their way to other ranks: whenever they come to lie in memory, and however long they take, they leave in the order in which
// they were given, in as much memory as was planned, and a room is filled anew only when what lay in it is taken.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Outgoing } from '../../src/engine/run/outgoing.ts';
import { EVERY_CASE } from '../host.ts';

const RUNS = EVERY_CASE ? 500 : 60;
const SIZE = 8;

const turns = async (count: number) => {
  for (let i = 0; i < count; i++) await new Promise<void>((resolve) => setImmediate(resolve));
};

const values = fc.array(
  fc.record({ size: fc.integer({ min: 1, max: SIZE }), there: fc.nat(6), taken: fc.nat(6), work: fc.nat(2) }),
  { minLength: 1, maxLength: 20 },
);

it('leave in their order, in the memory that was planned', async () => {
  let mostUnderWay = 0;
  await fc.assert(
    fc.asyncProperty(values, fc.integer({ min: 1, max: 4 }), async (given, most) => {
      const outgoing = new Outgoing({
        others: (what) => what,
        stop: (reason) => {
          throw reason;
        },
      });
      await outgoing.grow({ bytes: SIZE, most });
      const sent: number[] = [];
      const held = new Set<ArrayBuffer>();
      for (const [i, { size, there, taken, work }] of given.entries()) {
        const room = await outgoing.room(size);
        expect(room.bytes).toHaveLength(size);
        expect(held.has(room.room.buffer), 'memory that is filled anew').toBe(false);
        held.add(room.room.buffer);
        mostUnderWay = Math.max(mostUnderWay, held.size);
        const send = async () => {
          sent.push(i);
          await turns(taken);
          held.delete(room.room.buffer);
        };
        outgoing.send(room, send, turns(there));
        await turns(work);
        expect(outgoing.bytes).toBe(most * SIZE);
      }
      // Larger values have room once all of these are taken.
      await outgoing.grow({ bytes: 2 * SIZE, most });
      expect(held.size).toBe(0);
      expect(outgoing.bytes).toBe(most * 2 * SIZE);
      expect(sent).toEqual(given.map((_, i) => i));
    }),
    { numRuns: RUNS, seed: 15 },
  );
  expect(mostUnderWay).toBe(4);
});

it('tell what goes wrong with one on its way, and send nothing behind it', async () => {
  const reasons: unknown[] = [];
  const outgoing = new Outgoing({ others: (what) => what, stop: (reason) => reasons.push(reason) });
  await outgoing.grow({ bytes: SIZE, most: 2 });
  const lost = new Error('the device is lost');
  let sent = 0;
  const send = async () => {
    sent++;
  };
  outgoing.send(await outgoing.room(1), send, Promise.reject(lost));
  outgoing.send(await outgoing.room(1), send);
  await turns(3);
  expect(reasons).toEqual([lost, lost]);
  expect(sent).toBe(0);
});
