// Plans for random traces: all are legal, none beats the bound, and the planner's are near the optimum.

import fc from 'fast-check';
import type { Highs } from 'highs';
import { beforeAll, describe, expect, it } from 'vitest';
import { exactBound, linearBound, loadSolver } from '../../src/memory/plan/bound.ts';
import { findGaps, type Gaps } from '../../src/memory/plan/gaps.ts';
import { checkPlan, makePlan } from '../../src/memory/plan/plan.ts';
import { planStep } from '../../src/memory/plan/planner.ts';
import { follow, ORDERS } from '../../src/memory/plan/policies.ts';
import { freeRoom, overfullRow, traffic } from './kept-gaps.ts';
import { randomOrder } from './random-order.ts';
import { problems, slotsOf, traceOf } from './traces.ts';

let highs: Highs;
beforeAll(async () => {
  highs = await loadSolver();
});

const EPSILON = 1e-6;

/** The fewest chunks moved, by trying every choice of gaps: the oracle for the solver's model. */
function exhaustive(gaps: Gaps): number {
  const open = gaps.list.filter(({ rowCount }) => rowCount > 0).map(({ index }) => index);
  let best = Number.POSITIVE_INFINITY;
  for (let bits = 0; bits < 2 ** open.length; bits++) {
    const keep = new Uint8Array(gaps.list.length).fill(1);
    open.forEach((gap, i) => {
      keep[gap] = (bits >> i) & 1;
    });
    if (overfullRow(gaps, keep) >= 0) continue;
    const { loads, stores } = traffic(gaps, keep);
    best = Math.min(best, loads + stores);
  }
  return best;
}

describe('random traces', () => {
  it('get a legal plan from every policy, which moves what its gaps say and no less than the bound', () => {
    fc.assert(
      fc.property(problems, ({ trace, slots }) => {
        const gaps = findGaps(trace, slots);
        const { chunks: bound } = linearBound(highs, gaps);
        const decisions = [
          ['planner', planStep(trace, slots)] as const,
          ...Object.entries(ORDERS).map(([name, order]) => [name, follow(trace, slots, order(trace, slots))] as const),
          ...[3, 7].map((seed) => [`order ${seed}`, follow(trace, slots, randomOrder(seed))] as const),
        ];
        for (const [name, decision] of decisions) {
          const cost = checkPlan(trace, makePlan(name, decision), slots);
          const counted = traffic(decision.gaps, decision.keep);
          expect(cost.loads * decision.steps, name).toBeCloseTo(counted.loads);
          expect(cost.stores * decision.steps, name).toBeCloseTo(counted.stores);
          expect(Math.min(0, ...freeRoom(decision.gaps, decision.keep)), name).toBe(0);
          // A schedule over several steps may beat every one that repeats after one; not the linear bound.
          expect(cost.loads + cost.stores, name).toBeGreaterThanOrEqual(bound - EPSILON);
        }
      }),
      { seed: 1, numRuns: 300 },
    );
  });

  it('have the optimum that trying all choices finds, between the linear bound and the planner', () => {
    let total = 0;
    let planned = 0;
    fc.assert(
      fc.property(problems, ({ trace, slots }) => {
        const gaps = findGaps(trace, slots);
        fc.pre(gaps.list.filter(({ rowCount }) => rowCount > 0).length <= 12);
        const optimum = exhaustive(gaps);
        expect(exactBound(highs, gaps, 10)?.chunks).toBe(optimum);
        expect(linearBound(highs, gaps).chunks).toBeLessThanOrEqual(optimum + EPSILON);
        const { loads, stores } = traffic(gaps, planStep(trace, slots).keep);
        expect(loads + stores).toBeGreaterThanOrEqual(optimum);
        total += optimum;
        planned += loads + stores;
      }),
      { seed: 2, numRuns: 200 },
    );
    expect(total).toBeGreaterThan(0);
    expect(planned / total).toBeLessThanOrEqual(1.05);
  });

  it('are planned the same each time', () => {
    fc.assert(
      fc.property(problems, ({ trace, slots }) => {
        expect(planStep(trace, slots).keep).toEqual(planStep(trace, slots).keep);
      }),
      { seed: 3, numRuns: 50 },
    );
  });
});

describe('the bound', () => {
  it.each([
    ['a b c d', 3, 2],
    ['A b a b a b', 1, 7],
    ['!a b a. c', 1, 4],
    ['!a b a. c', 2, 1],
    ['A B C', 3, 0],
    ['A B C', 2, 4],
  ])('of %s with %d slots is %d', (text, slots, chunks) => {
    const trace = traceOf(text);
    const gaps = findGaps(trace, slotsOf(trace, slots));
    expect(exhaustive(gaps)).toBe(chunks);
    expect(exactBound(highs, gaps, 10)).toMatchObject({ chunks, reached: true });
    expect(linearBound(highs, gaps).chunks).toBeLessThanOrEqual(chunks + EPSILON);
  });

  it('may lie below what whole chunks can reach', () => {
    // Three gaps of two rows each around a step of three, and room for one: half of each, or one whole.
    const trace = traceOf('a b c');
    const gaps = findGaps(trace, slotsOf(trace, 2));
    expect(linearBound(highs, gaps).chunks).toBeCloseTo(1.5);
    expect(exactBound(highs, gaps, 10)?.chunks).toBe(2);
  });
});
