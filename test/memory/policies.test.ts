// Eviction on traces so small that the best schedule is known by hand; and what the checker of plans refuses.

import { describe, expect, it } from 'vitest';
import { findGaps } from '../../src/memory/plan/gaps.ts';
import { checkPlan, makePlan, type Plan, printPlan } from '../../src/memory/plan/plan.ts';
import { planStep } from '../../src/memory/plan/planner.ts';
import {
  type Decision,
  fifo,
  follow,
  gemini,
  lru,
  ORDERS,
  type Order,
  opt,
  patrickStar,
} from '../../src/memory/plan/policies.ts';
import { peakDemand, printTrace, slotsUnder, type Trace } from '../../src/memory/plan/trace.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { leading } from '../entry.ts';
import { checkTrace } from '../plan/check-trace.ts';
import { traffic } from '../plan/kept-gaps.ts';
import { slotsOf, traceOf } from '../plan/traces.ts';

const costOf = (trace: Trace, slots: number, decide: (trace: Trace, slots: readonly number[]) => Decision) => {
  const list = slotsOf(trace, slots);
  const { loads, stores, peakSlots } = checkPlan(trace, makePlan('test', decide(trace, list)), list);
  return { loads, stores, peakSlots };
};
const by = (order: Order) => (trace: Trace, slots: readonly number[]) => follow(trace, slots, order);

describe('policies', () => {
  it('move nothing where all fits', () => {
    const trace = traceOf('a B c A');
    for (const make of Object.values(ORDERS))
      expect(costOf(trace, 3, by(make(trace, slotsOf(trace, 3))))).toMatchObject({ loads: 0, stores: 0 });
    expect(costOf(trace, 3, planStep)).toEqual({ loads: 0, stores: 0, peakSlots: 3 });
  });

  it('split a step of more moments than a call takes arguments', () => {
    const trace = traceOf('a b c');
    const long: Trace = { ...trace, moments: Array.from({ length: 100_000 }, () => trace.moments).flat() };
    const order = ORDERS['ZeRO-Offload split'](long, slotsOf(long, 2));
    const common = { kind: 'parameter', now: 2, arrived: 0, lastUse: 0, nextUse: 3, stepEnd: 3, dirty: false } as const;
    const resident = (chunk: number) => ({ chunk, ...common });
    // One of the three stays; of the others, one at a time is there.
    expect([1, 2].map((chunk) => order(resident(0), resident(chunk)) > 0)).toEqual([true, true]);
  });

  it('follow Belady around the end of the step, where LRU loads everything', () => {
    const trace = traceOf('a b c d');
    expect(costOf(trace, 3, by(lru))).toMatchObject({ loads: 4, stores: 0 });
    expect(costOf(trace, 3, by(fifo))).toMatchObject({ loads: 4, stores: 0 });
    // Repeating only after three steps, it loads four chunks in them; repeating each step, two is the least.
    expect(costOf(trace, 3, by(opt)).loads).toBeCloseTo(4 / 3);
    expect(costOf(trace, 3, planStep).loads).toBe(2);
  });

  it('drop what is clean and store what is dirty, once for each change', () => {
    // a is written once and read twice; with one slot it comes and goes each time.
    const trace = traceOf('A b a b a b');
    expect(costOf(trace, 1, planStep)).toEqual({ loads: 6, stores: 1, peakSlots: 1 });
  });

  it('neither store what is free nor load what will be overwritten', () => {
    const trace = traceOf('!a b a. c');
    expect(costOf(trace, 1, planStep)).toEqual({ loads: 3, stores: 1, peakSlots: 1 });
    // With a second slot a never moves; b stays beside it, and c, which is clean, comes anew each step.
    expect(costOf(trace, 2, planStep)).toEqual({ loads: 1, stores: 0, peakSlots: 2 });
    expect(costOf(traceOf('!a a. !b b. !c c.'), 1, by(lru))).toEqual({ loads: 0, stores: 0, peakSlots: 1 });
  });

  it('tell Gemini’s order from PatrickStar’s by what the next step needs', () => {
    // At the end of a step all of the next one is equally far for Gemini: it drops a, which comes first.
    const trace = traceOf('a b c d');
    expect(costOf(trace, 3, by(patrickStar)).loads).toBeCloseTo(4 / 3);
    expect(costOf(trace, 3, by(gemini)).loads).toBe(2);
    // Within a step they agree.
    const palindrome = traceOf('a b c d c b a');
    expect(costOf(palindrome, 2, by(gemini)).loads).toBe(costOf(palindrome, 2, by(patrickStar)).loads);
  });

  it('take write-backs into account where Belady does not', () => {
    // One slot for a or b between their uses. Belady drops a, which is used later but dirty: a load and a
    // store. Dropping b instead is a load.
    const trace = traceOf('A b c b A b c b a');
    const gaps = findGaps(trace, slotsOf(trace, 2));
    const planned = costOf(trace, 2, planStep);
    const belady = costOf(trace, 2, by(opt));
    expect(planned.loads + planned.stores).toBeLessThanOrEqual(belady.loads + belady.stores);
    expect(traffic(gaps, planStep(trace, slotsOf(trace, 2)).keep)).toEqual({
      loads: planned.loads,
      stores: planned.stores,
    });
  });

  it('refuse slots that do not hold what one operator needs, and say how many bytes would do', () => {
    const trace = traceOf('a bcd a');
    expect(peakDemand(trace)).toBe(30);
    expect(() => planStep(trace, slotsUnder(trace, 29))).toThrow(HoldfastError);
    expect(() => follow(trace, slotsUnder(trace, 29), lru)).toThrow(
      /bcd needs 3 chunks of 10 bytes .* room for 2: 30 bytes are enough/,
    );
    expect(() => planStep(trace, slotsUnder(trace, 30))).not.toThrow();
  });
});

describe('checkTrace', () => {
  it('refuses a read of what is free', () => {
    expect(() => traceOf('!a a. a')).toThrow('which is free');
    expect(() => traceOf('a !a a.')).toThrow('turn 1');
    expect(() => traceOf('b !a a')).toThrow('never freed');
  });

  it('refuses what does not exist and what is freed without use', () => {
    const trace = traceOf('a b');
    expect(() => checkTrace({ ...trace, lists: [] })).toThrow('chunk 0 of 0');
    const [start] = leading(1, trace.moments);
    expect(() => checkTrace({ ...trace, moments: [{ ...start, frees: [1] }] })).toThrow('does not use it');
  });

  it('is printed a moment a line', () => {
    expect(printTrace(traceOf('!aB a.'))).toBe(
      [
        'chunks of 10 bytes: 2 parameter; + write, ! overwrite',
        '    0 !aB: parameter 0!, parameter 1+ (non-model 0 B)',
        '    1 a.: parameter 0, frees parameter 0 (non-model 0 B)',
      ].join('\n'),
    );
  });
});

describe('checkPlan', () => {
  const trace = traceOf('!a B a. c');
  const slots = slotsOf(trace, 2);
  const none = { store: [], drop: [], load: [], claim: [] };
  /** a beside b; b leaves for c and comes back. */
  const good: Plan = {
    policy: 'by hand',
    steps: 1,
    start: [{ chunk: 2, dirty: false }],
    moments: [
      { ...none, claim: [0] },
      { ...none, drop: [2], load: [1] },
      none,
      { ...none, store: [1], drop: [1], load: [2] },
    ],
  };
  const change = (at: number, moment: Partial<Plan['moments'][number]>): Plan => ({
    ...good,
    moments: good.moments.map((old, i) => (i === at ? { ...old, ...moment } : old)),
  });

  it('counts what a good plan moves', () => {
    const moved = { loads: 2, stores: 1, h2dBytes: 20, d2hBytes: 10 };
    expect(checkPlan(trace, good, slots)).toEqual({ ...moved, peakSlots: 2, spareSlots: 0 });
    const more = slots.map((count, m) => count + (m === 0 ? 1 : 2));
    expect(checkPlan(trace, good, more)).toEqual({ ...moved, peakSlots: 2, spareSlots: 1 });
    expect(printPlan(trace, good)).toBe(
      [
        'by hand, every step; starts with parameter 2',
        '    0 claim parameter 0',
        '    1 drop parameter 2; load parameter 1',
        '    3 store parameter 1; drop parameter 1; load parameter 2',
      ].join('\n'),
    );
  });

  it.each<[string, Plan, string]>([
    ['a moment is missing', { ...good, moments: good.moments.slice(1) }, 'not as many moments'],
    ['a slot too many is used', change(1, { drop: [] }), '3 chunks on the GPU, slots for 2'],
    ['a chunk is not there', change(1, { load: [] }), 'not on the GPU for a write'],
    ['a claimed slot is read', change(1, { load: [], claim: [1] }), 'holds no value for a write'],
    ['a claim serves nothing', change(2, { drop: [1], store: [1], claim: [2] }), 'claimed and not overwritten'],
    ['a dirty chunk is dropped', change(3, { store: [] }), 'dropped while dirty'],
    ['a dirty chunk is dropped before it is free', change(2, { drop: [0] }), 'dropped while dirty'],
    ['a clean chunk is stored', change(1, { store: [2] }), 'stored, but clean'],
    ['what is not there is stored', change(0, { store: [1] }), 'stored, but not on the GPU'],
    ['what is free is stored', change(3, { store: [0, 1] }), 'stored, but not on the GPU'],
    ['what is not there is dropped', change(0, { drop: [1] }), 'dropped, but not on the GPU'],
    ['what is there is loaded', change(2, { load: [1] }), 'already on the GPU'],
    ['what is there is claimed', change(2, { claim: [1] }), 'already on the GPU'],
    ['a chunk changes hands at the end', { ...good, start: [{ chunk: 2, dirty: true }] }, 'dropped while dirty'],
    ['the end is not the start', { ...good, start: [] }, 'dropped, but not on the GPU'],
    ['a chunk is left over', change(3, { drop: [], store: [] }), 'as it did not start'],
    [
      'the start has one that is gone',
      { ...change(0, { drop: [1] }), start: [...good.start, { chunk: 1, dirty: false }] },
      'chunks that are gone',
    ],
  ])('refuses a plan when %s', (_, plan, message) => {
    expect(() => checkPlan(trace, plan, slots)).toThrow(new RegExp(message));
  });
});
