// Every case of the reference, replayed in a browser: within the tolerances themselves, and where Node has the same
// adapter with the figures that it gives there, digit for digit.

import { expect, test } from 'vitest';
import { commands } from 'vitest/browser';
import type { ReplayResult } from '../../src/parity/replay-case.ts';
import { testDevice } from '../harness.ts';
import { CASES, expectSameInLeastBudget, IN_LEAST_BUDGET, REFERENCE } from '../model/least-budget.ts';
import { replayCase } from '../replay-case.ts';
import type { NodeFigures } from './node-figures.ts';

declare module 'vitest/browser' {
  interface BrowserCommands {
    nodeFigures(): Promise<NodeFigures>;
  }
}

const { cases, choices } = await commands.nodeFigures();

const replays = new Map<string, Promise<ReplayResult>>();

/** With all model data on the GPU. */
async function resident(name: string): Promise<ReplayResult> {
  const known = replays.get(name);
  if (known) return known;
  const made = replayCase(await testDevice(), `${REFERENCE}/${name}`, { choices });
  replays.set(name, made);
  return made;
}

test('there are cases', () => {
  expect(CASES).toContain('gpt2-tiny');
  if (cases) expect(cases.map((theirs) => theirs.case).sort()).toEqual(CASES);
});

test.each(CASES)('%s', async (name) => {
  const { metrics, worst, unchecked } = await resident(name);
  expect(worst).toBeLessThanOrEqual(1);
  expect(unchecked).toEqual([]);
  const theirs = cases?.find((other) => other.case === name)?.metrics;
  const values = (all: Iterable<[string, { value: number }]>) =>
    Object.fromEntries([...all].map(([metric, { value }]) => [metric, value]));
  if (theirs) expect(values(metrics)).toEqual(values(Object.entries(theirs)));
});

test.each(IN_LEAST_BUDGET)('%s in its smallest budget, with the same figures', async (name) => {
  await expectSameInLeastBudget(await testDevice(), name, await resident(name));
});

test('with AdamW on the host, in threads', async () => {
  const { worst } = await replayCase(await testDevice(), `${REFERENCE}/gpt2-tiny`, {
    choices,
    optimizerDevice: 'cpu',
  });
  expect(worst).toBeLessThanOrEqual(1);
});
