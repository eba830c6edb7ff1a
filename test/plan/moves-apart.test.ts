// Plans whose chunks move apart: as legal as before, of the same traffic, each load no later than it is needed and each drop no
// sooner than it could be; by hand, where what moves and when can be told.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { withMovesApart } from '../../src/memory/plan/moves-apart.ts';
import { checkPlan, makePlan, type Plan } from '../../src/memory/plan/plan.ts';
import { planStep } from '../../src/memory/plan/planner.ts';
import type { Trace } from '../../src/memory/plan/trace.ts';
import { at } from '../../src/util/at.ts';
import { EVERY_CASE } from '../host.ts';
import { problems, slotsOf, traceOf } from './traces.ts';

const RUNS = EVERY_CASE ? 5000 : 500;

const copyTimes = fc.record({ up: fc.nat(9), down: fc.nat(9), takesTurns: fc.boolean() });

/** Moments of a plan at which a chunk is told to do something, as `load 3 at 7`. */
const told = ({ moments }: Plan, what: 'load' | 'drop') =>
  moments.flatMap((moment, m) => moment[what].map((chunk) => ({ chunk, m })));

const planOf = (trace: Trace, slots: readonly number[]) => makePlan('planned', planStep(trace, slots));

describe('a plan whose chunks move apart', () => {
  it('is legal, and moves what it moved', () => {
    let moved = 0;
    fc.assert(
      fc.property(problems, fc.array(fc.nat(9), { minLength: 1 }), copyTimes, ({ trace, slots }, works, copies) => {
        const weighed = {
          ...trace,
          copies,
          moments: trace.moments.map((m, i) => ({ ...m, work: at(works, i % works.length) })),
        };
        const plan = planOf(weighed, slots);
        const apart = withMovesApart(weighed, plan, slots);
        const before = checkPlan(weighed, plan, slots);
        const { peakSlots: _, spareSlots: __, ...after } = checkPlan(weighed, apart, slots);
        expect(before).toMatchObject(after);
        const count = weighed.moments.length;
        const stepOf = (m: number) => Math.floor(m / count);
        const [needed, come] = [told(plan, 'load'), told(apart, 'load')];
        // Each comes in the step in which it is needed, and no later.
        for (const { chunk } of needed) {
          const own = (all: typeof come) => all.filter((one) => one.chunk === chunk).map(({ m }) => m);
          own(come).forEach((m, i) => {
            expect(m).toBeLessThanOrEqual(at(own(needed), i));
            expect(stepOf(m)).toBe(stepOf(at(own(needed), i)));
            moved += Number(m < at(own(needed), i));
          });
        }
        moved += Number(JSON.stringify(told(plan, 'drop')) !== JSON.stringify(told(apart, 'drop')));
      }),
      { seed: 41, numRuns: RUNS },
    );
    expect(moved).toBeGreaterThan(RUNS / 10);
  });

  // At the end chunks a to d are each needed once, of which one has stayed, and there is room for all of them from the middle on.
  const inBurst = (up: number) => ({
    ...traceOf('A B C D x x x x x x x x a b c d'),
    copies: { up, down: 1, takesTurns: false },
  });
  const burst = inBurst(1);
  const room = burst.moments.map((_, m) => (m < 6 ? 1 : 5));

  // At the end the link may take longer than the moment that it loads for.
  it.each([
    { up: 0, comes: [12, 14, 15] },
    { up: 1, comes: [11, 13, 14] },
    { up: 4, comes: [8, 12, 14] },
  ])('has its loads one after the other, each as late as the link allows: $up for each', ({ up, comes }) => {
    const trace = inBurst(up);
    const slots = room.map((count) => count + 1);
    const plan = planOf(trace, slots);
    const atTheEnd = (of: Plan) => told(of, 'load').flatMap(({ m }) => (m >= 6 ? [m] : []));
    expect(atTheEnd(plan)).toEqual([12, 14, 15]);
    expect(atTheEnd(withMovesApart(trace, plan, slots))).toEqual(comes);
  });

  it('stays as it is where there is no room', () => {
    const tight = slotsOf(burst, 2);
    const plan = planOf(burst, tight);
    expect(told(withMovesApart(burst, plan, tight), 'load').length).toBe(told(plan, 'load').length);
    expect(checkPlan(burst, withMovesApart(burst, plan, tight), tight).peakSlots).toBeLessThanOrEqual(2);
  });

  it('stays as it is where nothing moves', () => {
    const plan = planOf(burst, slotsOf(burst, 5));
    expect(withMovesApart(burst, plan, slotsOf(burst, 5))).toBe(plan);
  });
});
