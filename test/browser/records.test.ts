// Records of runs in IndexedDB, which several tabs change.

import { afterAll, expect, test } from 'vitest';
import type { RunRecord } from '../../src/browser/index.ts';
import { Runs } from '../../src/browser/runs.ts';
import { openBrowserHost } from '../../src/runtime/browser.ts';

const host = await openBrowserHost();
afterAll(() => host.close());

const [one, other] = [new Runs(host), new Runs(host)];
const recordOf = (id: string): RunRecord => ({
  ...{ id, name: 'first', created: 1, memory: {}, status: 'running', savedStep: 0 },
});

test('what two tabs change of a record at the same time is all there', async () => {
  const id = one.newId();
  await one.put(recordOf(id));
  await Promise.all([
    one.change(id, { savedStep: 10 }),
    other.change(id, { name: 'second' }),
    one.change(id, { status: 'finished' }),
  ]);
  expect(await other.get(id)).toMatchObject({ name: 'second', savedStep: 10, status: 'finished' });
  await one.remove(id);
});

test('a run that goes on by a record that was read before has the name that it was given since', async () => {
  const id = one.newId();
  await one.put(recordOf(id));
  const read = await one.whole(id);
  await other.change(id, { name: 'second' });
  await one.put({ ...read, savedStep: 20 });
  expect(await other.get(id)).toMatchObject({ name: 'second', savedStep: 20 });
  await one.remove(id);
});

test('a run that is removed while it is changed is gone', async () => {
  const id = one.newId();
  await one.put(recordOf(id));
  await Promise.allSettled([one.remove(id), other.change(id, { name: 'second' })]);
  await expect(other.change(id, { name: 'third' })).rejects.toThrow(`run ${id}: there is none`);
  expect(await one.list()).toEqual([]);
});
