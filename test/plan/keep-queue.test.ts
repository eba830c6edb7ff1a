// The queue of values to be kept: in order, whole, and before they change.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Keep, KeepQueue } from '../../src/engine/compile/keep-queue.ts';

const keep = (...chunks: number[]) => ({ chunks, frees: [] as number[] });

describe('KeepQueue', () => {
  it('gives what there is room for, in order, and asks before each', () => {
    const queue = new KeepQueue();
    for (const one of [keep(1, 2), keep(3), keep(4, 5, 6), keep(7)]) queue.add(one);
    let room = 4;
    const taken = [];
    for (const one of queue.fitting(() => room)) {
      taken.push(one);
      room -= one.chunks.length;
    }
    // The third has no room; the fourth would, and waits its turn.
    expect(taken).toEqual([keep(1, 2), keep(3)]);
    expect([...queue.all()]).toEqual([keep(4, 5, 6), keep(7)]);
    expect([...queue.fitting(() => 9)]).toEqual([]);
  });

  it('gives what is to change, with all before it', () => {
    const queue = new KeepQueue();
    for (const one of [keep(1), keep(2), keep(1), keep(3)]) queue.add(one);
    expect([...queue.before([9])]).toEqual([]);
    expect([...queue.before([1])]).toEqual([keep(1), keep(2), keep(1)]);
    expect([...queue.before([1, 2])]).toEqual([]);
    expect([...queue.before([3])]).toEqual([keep(3)]);
  });

  it('gives what makes useless below what is to change, with all before it', () => {
    const queue = new KeepQueue();
    const [first, second, third] = [keep(1), { chunks: [2], frees: [7] }, { chunks: [3], frees: [7] }];
    for (const one of [first, second, third]) queue.add(one);
    expect([...queue.before([3, 7])]).toEqual([first, second, third]);
    for (const one of [second, first]) queue.add(one);
    expect([...queue.before([7])]).toEqual([second]);
    expect([...queue.before([7])]).toEqual([]);
  });

  it('gives each once, in the order in which they came, whatever is asked', () => {
    const asks = fc.oneof(
      fc.record({
        add: fc.array(fc.nat(5), { minLength: 1, maxLength: 3 }),
        frees: fc.array(fc.nat(5), { maxLength: 1 }),
      }),
      fc.record({ before: fc.array(fc.nat(5), { maxLength: 2 }) }),
      fc.record({ room: fc.nat(6) }),
    );
    fc.assert(
      fc.property(fc.array(asks, { maxLength: 40 }), (some) => {
        const queue = new KeepQueue<Keep & { n: number }>();
        let added = 0;
        const taken: number[] = [];
        const waiting = new Map<number, { readonly add: readonly number[]; readonly frees: readonly number[] }>();
        const take = ({ n }: { n: number }) => {
          taken.push(n);
          waiting.delete(n);
        };
        for (const ask of some) {
          if ('add' in ask) {
            waiting.set(added, ask);
            queue.add({ chunks: ask.add, frees: ask.frees, n: added++ });
          } else if ('before' in ask) {
            for (const one of queue.before(ask.before)) take(one);
            for (const { add, frees } of waiting.values()) {
              for (const chunk of ask.before) expect([...add, ...frees]).not.toContain(chunk);
            }
          } else {
            let { room } = ask;
            for (const one of queue.fitting(() => room)) {
              room -= one.chunks.length;
              take(one);
            }
            expect(room).toBeGreaterThanOrEqual(0);
            const [next] = waiting.values();
            if (next) expect(next.add.length).toBeGreaterThan(room);
          }
        }
        expect(taken).toEqual(taken.map((_, i) => i));
        for (const one of queue.all()) take(one);
        expect(taken.length).toBe(added);
      }),
      { seed: 42, numRuns: 300 },
    );
  });

  it('forgets all where nothing is of use any more', () => {
    const queue = new KeepQueue();
    queue.add(keep(1));
    queue.clear();
    expect([[...queue.before([1])], [...queue.all()]]).toEqual([[], []]);
  });
});
