// Every case of the reference, replayed in a browser: within the tolerances themselves, and where Node has the same
// adapter with the figures that it gives there, digit for digit.

import { expect, test } from 'vitest';
import { commands } from 'vitest/browser';
import { replayCase } from '../../src/parity/replay-case.ts';
import { testDevice } from '../harness.ts';
import { testHost } from '../host.ts';
import type { NodeFigures } from './node-figures.ts';

declare module 'vitest/browser' {
  interface BrowserCommands {
    nodeFigures(): Promise<NodeFigures>;
  }
}

const FOLDER = 'test/fixtures/reference';
const { cases, choices } = await commands.nodeFigures();

const folders = await testHost.files.list(FOLDER);
const found = await Promise.all(folders.map((name) => testHost.files.stat(`${FOLDER}/${name}/ref.json`)));
const names = folders.filter((_, i) => found[i]);

test('there are cases', () => {
  expect(names).toContain('gpt2-tiny');
  if (cases) expect(cases.map((theirs) => theirs.case).sort()).toEqual(names);
});

test.each(names)('%s', async (name) => {
  const { metrics, worst, unchecked } = await replayCase(testHost, await testDevice(), `${FOLDER}/${name}`, {
    choices,
  });
  expect(worst).toBeLessThanOrEqual(1);
  expect(unchecked).toEqual([]);
  const theirs = cases?.find((other) => other.case === name)?.metrics;
  const values = (all: Iterable<[string, { value: number }]>) =>
    Object.fromEntries([...all].map(([metric, { value }]) => [metric, value]));
  if (theirs) expect(values(metrics)).toEqual(values(Object.entries(theirs)));
});

test('with AdamW on the host, in threads', async () => {
  const { worst } = await replayCase(testHost, await testDevice(), `${FOLDER}/gpt2-tiny`, {
    choices,
    optimizerDevice: 'cpu',
  });
  expect(worst).toBeLessThanOrEqual(1);
});
