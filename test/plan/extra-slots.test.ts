// Extra slots: when they serve, held against a look at every byte and moment; which are worth having; and the table that
// says which chunk is in which slot, under whatever is asked of it.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { SlotTable } from '../../src/engine/compile/slot-table.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import {
  type ExtraSlots,
  extraSlots,
  type Occupied,
  type SlotRange,
  slotChanges,
  slotRanges,
  windowsIn,
  worthHaving,
} from '../../src/memory/plan/extra-slots.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { EVERY_CASE } from '../host.ts';

const RUNS = EVERY_CASE ? 2000 : 100;
const CHUNK = 8;

/** Arenas, and what lies in them when. */
const arenas = fc.array(fc.integer({ min: 0, max: 40 }), { minLength: 1, maxLength: 3 });
const problems = fc
  .integer({ min: 1, max: 14 })
  .chain((moments) =>
    fc.record({
      moments: fc.constant(moments),
      arenas,
      lives: fc.array(
        fc.record({
          arena: fc.nat(2),
          offset: fc.nat(36),
          bytes: fc.integer({ min: 1, max: 12 }),
          first: fc.nat(),
          last: fc.nat(),
        }),
        { maxLength: 8 },
      ),
    }),
  )
  .map(({ moments, arenas, lives }) => ({
    moments,
    ranges: slotRanges(arenas, CHUNK),
    occupied: lives.map((life): Occupied => {
      const [a, b] = [life.first % moments, life.last % moments];
      return { ...life, first: Math.min(a, b), last: Math.max(a, b) };
    }),
  }));

const isFree = ({ arena, offset }: SlotRange, occupied: readonly Occupied[], m: number): boolean =>
  !occupied.some(
    (one) =>
      one.arena === arena &&
      one.first <= m &&
      m <= one.last &&
      one.offset < offset + CHUNK &&
      offset < one.offset + one.bytes,
  );

describe('an extra slot', () => {
  test('lies within its arena, and overlaps no other', () => {
    expect(slotRanges([20, 7, 8], CHUNK)).toEqual([
      { arena: 0, offset: 0 },
      { arena: 0, offset: 8 },
      { arena: 2, offset: 0 },
    ]);
  });

  test('serves at just those moments at which nothing else lies in any of its bytes, step after step', () => {
    let served = 0;
    fc.assert(
      fc.property(problems, ({ moments, ranges, occupied }) => {
        const extra = extraSlots(windowsIn(ranges, CHUNK, occupied, moments), moments);
        const changes = slotChanges(extra);
        const until = new Map<number, number>();
        for (let now = 0; now < 3 * moments; now++) {
          const m = now % moments;
          const base = now - m;
          for (const { slot, until: end } of at(changes, m).opens) until.set(slot, base + end);
          for (const slot of at(changes, m).closes) until.delete(slot);
          const wanted = ranges.flatMap((range, slot) => (isFree(range, occupied, m) ? [slot] : []));
          expect([...until.keys()].sort((a, b) => a - b)).toEqual(wanted);
          expect(extra.open[m]).toBe(wanted.length);
          served += wanted.length;
          // It ends to serve when it was said to.
          const ends = [...until.keys()].map((slot) => {
            let next = now;
            while (next < now + 2 * moments && isFree(at(ranges, slot), occupied, next % moments)) next++;
            return next === now + 2 * moments ? Number.POSITIVE_INFINITY : next;
          });
          expect([...until.values()]).toEqual(ends);
        }
      }),
      { seed: 31, numRuns: RUNS },
    );
    expect(served).toBeGreaterThan(RUNS);
  });

  test('is left out where there are enough without it, and nowhere else', () => {
    let left = 0;
    fc.assert(
      fc.property(problems, fc.integer({ min: 1, max: 4 }), ({ moments, ranges, occupied }, most) => {
        const windows = windowsIn(ranges, CHUNK, occupied, moments);
        const chosen = worthHaving(windows, moments, most);
        const all = extraSlots(windows, moments).open;
        const { open } = extraSlots(
          chosen.map((slot) => at(windows, slot)),
          moments,
        );
        expect(open.map((count) => Math.min(count, most))).toEqual(all.map((count) => Math.min(count, most)));
        left += ranges.length - chosen.length;
      }),
      { seed: 32, numRuns: RUNS },
    );
    expect(left).toBeGreaterThan(RUNS);
  });
});

describe.each(FAMILY_NAMES)('%s within a budget', (family) => {
  const sizes = { layers: 2, width: 32, heads: 4, context: 16, vocabulary: 90 };
  const model = makeModel(configOfShape({ family, ...sizes }));
  const programs = traceStep(model, 4, model.shape.context);
  const workload = trainingWorkload(model, programs, 1, undefined, { activations: 'keep' });
  const { peak, residents, map } = fitMemory(workload, DEFAULT_LIMITS, undefined);
  const fit = fitMemory(workload, DEFAULT_LIMITS, peak - (residents * map.chunkBytes) / 2);

  test('has extra slots, in which a step moves less', () => {
    const { trace, extra } = fit.passes.step;
    const moved = (...slots: [ExtraSlots?]) => {
      const { h2d, d2h } = schedule(trace, fit.slots, 'planned', ...slots).moved;
      return h2d + d2h;
    };
    expect(moved(extra)).toBeLessThan(moved());
  });
});

describe('the table of slots', () => {
  const ALWAYS = 2;
  const ARENAS = [0, 0, 0, 1];
  const CHUNKS = 9;
  const steps = fc.array(
    fc.record({
      action: fc.constantFrom(
        'take' as const,
        'take' as const,
        'take' as const,
        'release' as const,
        'open' as const,
        'close' as const,
      ),
      which: fc.nat(),
      stays: fc.integer({ min: 1, max: 9 }),
    }),
    { minLength: 30, maxLength: 60 },
  );

  test('never gives a chunk a slot that does not serve, and never loses what is in one', () => {
    let moved = 0;
    let made = 0;
    fc.assert(
      fc.property(steps, (all) => {
        const table = new SlotTable(ALWAYS, ARENAS, CHUNKS);
        const serves = new Set<number>();
        /** By slot: whose bytes are in it. */
        const bytes = new Map<number, number>();
        const isIn = (chunk: number) => bytes.get(table.of(chunk)) === chunk;
        for (const [now, { action, which, stays }] of all.entries()) {
          const residents = table.residents();
          const absent = [...Array(CHUNKS).keys()].filter((chunk) => !table.holds(chunk));
          const extra = which % ARENAS.length;
          if (action === 'take' && table.free > 0 && absent.length > 0) {
            const chunk = at(absent, which % absent.length);
            const same = table.take(chunk, now + stays);
            if (same) expect(isIn(chunk)).toBe(true);
            bytes.set(table.of(chunk), chunk);
          } else if (action === 'release' && residents.length > 0) {
            table.release(at(residents, which % residents.length));
          } else if (action === 'open') {
            table.open(extra, now + stays);
            serves.add(extra);
          } else if (action === 'close') {
            serves.delete(extra);
            const chunk = table.close(extra);
            if (chunk === undefined) {
              // Now an activation lies there.
              bytes.delete(ALWAYS + extra);
            } else if (table.free === 0) {
              table.release(chunk);
              bytes.delete(ALWAYS + extra);
            } else {
              const copies = table.move(chunk, now + stays);
              for (const { from, to } of copies) {
                const arenaOf = (slot: number) => (slot < ALWAYS ? `${slot} alone` : at(ARENAS, slot - ALWAYS));
                expect(arenaOf(from)).not.toBe(arenaOf(to));
                bytes.set(to, bytes.get(from) as number);
              }
              moved++;
              if (copies.length > 1) made++;
              bytes.delete(ALWAYS + extra);
            }
          }
          table.check();
          expect(table.free).toBe(ALWAYS + serves.size - table.residents().length);
          for (const chunk of table.residents()) {
            const slot = table.of(chunk);
            expect(isIn(chunk)).toBe(true);
            expect(slot < ALWAYS || serves.has(slot - ALWAYS)).toBe(true);
          }
        }
      }),
      { seed: 33, numRuns: RUNS },
    );
    expect(moved).toBeGreaterThan(RUNS / 10);
    expect(made).toBeGreaterThan(0);
  });

  test('gives a chunk a slot that serves long enough, and no longer than it must', () => {
    const table = new SlotTable(1, [0, 0, 0], 4);
    table.open(0, 10);
    table.open(1, 20);
    table.open(2, 5);
    table.take(0, 8);
    table.take(1, 15);
    table.take(2, 30);
    table.take(3, 30);
    expect([0, 1, 2, 3].map((chunk) => table.of(chunk))).toEqual([1, 2, 0, 3]);
  });

  test('knows bytes again only where no activation was', () => {
    const table = new SlotTable(0, [0], 1);
    table.open(0, 10);
    expect(table.take(0, 5)).toBe(false);
    table.release(0);
    expect(table.take(0, 5)).toBe(true);
    table.release(0);
    expect(table.close(0)).toBe(undefined);
    table.open(0, 20);
    expect(table.take(0, 15)).toBe(false);
  });
});
