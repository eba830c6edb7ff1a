// The picture of step times over budgets: its axes say what is drawn, however near each other the values are.

import { describe, expect, test } from 'vitest';
import { renderSweep } from '../../src/report/sweep.ts';

const textsOf = (svg: string): string[] =>
  [...svg.matchAll(/<text class="muted"[^>]*>([^<]*)</g)].map(([, text = '']) => text);

describe.each([
  [
    [6e6, 38e6],
    [0.36, 0.45],
  ],
  [
    [100e6, 101e6],
    [0.9999, 1],
  ],
  [
    [1e6, 1e6],
    [2, 2],
  ],
  [
    [1e6, 1e12],
    [1e-4, 7200],
  ],
])('of budgets %j and seconds %j', (budgets, seconds) => {
  const [least = 0, most = 0] = budgets;
  const [fast = 0, slow = 0] = seconds;
  const points = [
    { budget: least, seconds: slow },
    { budget: most, seconds: fast },
  ];
  const texts = textsOf(renderSweep('a model', [{ label: 'a machine', points, resident: fast, has: most }], 'all'));

  test.each([
    ['budgets', /^[\d.]+ [KMGT]?B$/],
    ['seconds', /^[\d.]+ (ms|s|h)$/],
  ])('%s are marked, each mark once, and not too many', (_, unit) => {
    const marks = texts.filter((text) => unit.test(text));
    expect(marks.length).toBeGreaterThanOrEqual(2);
    expect(marks.length).toBeLessThanOrEqual(30);
    expect(new Set(marks).size).toBe(marks.length);
  });
});
