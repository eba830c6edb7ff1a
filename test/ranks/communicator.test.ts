// What ranks do together is right for any number of them, any parts and any owners, whatever the order in which messages
// arrive: sums in the order of the ranks, parts from their owners, every byte counted.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Communicator, type OwnedPart, type RankWait } from '../../src/engine/ranks/communicator.ts';
import { answering, makeRanks } from '../../src/engine/ranks/ranks.ts';
import { at } from '../../src/util/at.ts';
import { expectMistake } from '../expect-mistake.ts';
import { EVERY_CASE } from '../host.ts';
import { inProcess } from './in-process.ts';

const RUNS = EVERY_CASE ? 300 : 30;

/** Parts with gaps between them, and an owner for each. */
const exchanges = fc.integer({ min: 2, max: 5 }).chain((size) =>
  fc.record({
    size: fc.constant(size),
    seed: fc.nat(1000),
    parts: fc.array(fc.record({ owner: fc.nat(size - 1), words: fc.integer({ min: 1, max: 9 }), gap: fc.nat(3) }), {
      minLength: 1,
      maxLength: 6,
    }),
    values: fc.array(fc.float({ noNaN: true, noDefaultInfinity: true, min: -1000, max: 1000 }), {
      minLength: 60,
      maxLength: 60,
    }),
  }),
);

function placed(parts: readonly { owner: number; words: number; gap: number }[]): OwnedPart[] {
  let end = 0;
  return parts.map(({ owner, words, gap }) => {
    const offset = end + 4 * gap;
    end = offset + 4 * words;
    return { owner, offset, bytes: 4 * words };
  });
}

const communicators = (size: number, seed: number) =>
  inProcess(size, seed).map((messages) => new Communicator(messages, 'data'));

/** Of a rank: others have other values in another order. */
const valuesOf = (values: readonly number[], rank: number, words: number) =>
  Float32Array.from({ length: words }, (_, i) => at(values, (i * (rank + 3) + rank) % values.length));

const bytesOf = (floats: Float32Array<ArrayBuffer>) => new Uint8Array(floats.buffer);

it('sums parts on their owners in the order of the ranks, and counts what was sent', async () => {
  await fc.assert(
    fc.asyncProperty(exchanges, async ({ size, seed, parts: drawn, values }) => {
      const parts = placed(drawn);
      const words = Math.max(...parts.map(({ offset, bytes }) => (offset + bytes) / 4));
      const before = Array.from({ length: size }, (_, rank) => valuesOf(values, rank, words));
      const after = before.map((floats) => floats.slice());
      const all = communicators(size, seed);
      await Promise.all(all.map((each, rank) => each.reduceScatter('test', bytesOf(at(after, rank)), parts)));
      for (const { owner, offset, bytes } of parts) {
        for (let i = offset / 4; i < (offset + bytes) / 4; i++) {
          const sum = before.reduce((whole, floats) => Math.fround(whole + at(floats, i)), 0);
          after.forEach((floats, rank) => {
            expect(at(floats, i)).toBe(rank === owner ? sum : at(at(before, rank), i));
          });
        }
      }
      const sent = parts.reduce((sum, { bytes }) => sum + (size - 1) * bytes, 0);
      const total = (count: 'sentBytes' | 'receivedBytes') => all.reduce((sum, { ledger }) => sum + ledger[count], 0);
      expect(total('sentBytes')).toBe(sent);
      expect(total('receivedBytes')).toBe(sent);
    }),
    { numRuns: RUNS, seed: 15 },
  );
});

it('gathers parts from their owners, and leaves what lies between them', async () => {
  await fc.assert(
    fc.asyncProperty(exchanges, async ({ size, seed, parts: drawn, values }) => {
      const parts = placed(drawn);
      const words = Math.max(...parts.map(({ offset, bytes }) => (offset + bytes) / 4));
      const before = Array.from({ length: size }, (_, rank) => valuesOf(values, rank, words));
      const after = before.map((floats) => floats.slice());
      const all = communicators(size, seed);
      await Promise.all(all.map((each, rank) => each.allGather('test', bytesOf(at(after, rank)), parts)));
      after.forEach((floats, rank) => {
        const expected = at(before, rank).slice();
        for (const { owner, offset, bytes } of parts) {
          expected.set(at(before, owner).subarray(offset / 4, (offset + bytes) / 4), offset / 4);
        }
        expect(floats).toEqual(expected);
      });
    }),
    { numRuns: RUNS, seed: 15 },
  );
});

it('agrees on words and truths', async () => {
  const all = communicators(3, 2);
  const said = await Promise.all(all.map((each, rank) => each.fromAll('words', ['', 'zwei', 'trois 3'][rank] ?? '')));
  for (const words of said) expect(words).toEqual(['', 'zwei', 'trois 3']);
  const first = await Promise.all(all.map((each) => each.fromFirst('words', `of rank ${each.rank}`)));
  expect(first).toEqual(['of rank 0', 'of rank 0', 'of rank 0']);
  expect(await Promise.all(all.map((each) => each.any('truth', each.rank === 2)))).toEqual([true, true, true]);
  expect(await Promise.all(all.map((each) => each.any('truth', false)))).toEqual([false, false, false]);
});

it('says which rank waits for which in what, while it waits', async () => {
  const told: RankWait[] = [];
  const [first, second] = inProcess(2).map(
    (messages) => new Communicator(messages, 'data', { patience: 5, tell: (wait) => told.push(wait) }),
  );
  const waiting = first?.barrier('the end of the test');
  await new Promise((resolve) => setTimeout(resolve, 40));
  expect(told.length).toBeGreaterThan(0);
  for (const wait of told) expect(wait).toMatchObject({ rank: 0, peer: 1, what: 'the end of the test' });
  await Promise.all([waiting, second?.barrier('the end of the test')]);
  const count = told.length;
  await new Promise((resolve) => setTimeout(resolve, 40));
  expect(told).toHaveLength(count);
});

it('takes a message before it is waited for, and tells of the wait alone', async () => {
  const told: RankWait[] = [];
  const [first, second] = inProcess(2).map(
    (messages) => new Communicator(messages, 'pipeline', { patience: 20, tell: (wait) => told.push(wait) }),
  );
  if (!first || !second) throw new Error('there are two ranks');
  const into = new Uint8Array(3);
  const arrives = second.receiveEarly('rows', 0, into);
  await new Promise((resolve) => setTimeout(resolve, 60));
  expect(told).toEqual([]);
  await first.send('rows', 1, Uint8Array.of(1, 2, 3));
  expect(second.ledger.receivedBytes).toBe(3);
  await arrives();
  expect([...into]).toEqual([1, 2, 3]);
  expect(told).toEqual([]);
});

it('tells which rank it answers until, when its own work is done', async () => {
  const told: RankWait[] = [];
  const ranks = inProcess(2).map((messages) =>
    makeRanks(messages, { stage: 2, watchdog: { patience: 5, tell: (wait) => told.push(wait) } }),
  );
  const what = 'the end of what rank 0 asks for';
  const saw = () => told.some((wait) => wait.rank === 1 && wait.peer === 0 && wait.what === what);
  // Its work goes on until the other one has told of it.
  const work = [
    async () => {
      for (let i = 0; i < 400 && !saw(); i++) await new Promise((resolve) => setTimeout(resolve, 5));
    },
    async () => {},
  ];
  const nothing = () => Promise.reject(new Error('nothing is asked for'));
  await Promise.all(ranks.map((each, rank) => answering(each, nothing, at(work, rank))));
  expect(saw()).toBe(true);
});

it('ranks that are no grid of the shape that is asked for, or are asked for by another name, are refused', async () => {
  const [messages] = inProcess(6);
  const make = makeRanks as (...given: unknown[]) => unknown;
  await expectMistake(
    () => make(messages, { stage: 2, tensor: 4 }),
    /^6 ranks are no grid of 4 x 1; start a multiple of 4$/,
  );
  await expectMistake(
    () => make(messages, { stage: 4 }),
    /^the options of ranks: stage is 4; it must be one of 0, 1, 2, 3$/,
  );
  await expectMistake(
    () => make(messages, { stage: 0, tensors: 2 }),
    /^the options of ranks: no option tensors; there are tensor, /,
  );
  await expectMistake(
    () => make(undefined, { stage: 0 }),
    /^messages is missing; it must be messages, as host.joinRanks gives$/,
  );
});
