// A stop that is asked for while the budgets of a run change, at each moment of the change: the run that it ends stays ended.

import { expect, test } from 'vitest';
import type { ActiveRun } from '../../src/browser/active-run.ts';
import { BudgetChanges } from '../../src/browser/budget-changes.ts';
import { type Deferred, deferred } from '../../src/util/deferred.ts';
import { HoldfastError } from '../../src/util/errors.ts';

const TICKS = 5;

async function ticks(count: number): Promise<void> {
  for (let i = 0; i < count; i++) await Promise.resolve();
}

/** A run that is open, and what opens it anew: each of them takes some turns of the loop. `isLive`: whether it takes budgets as it runs. */
function played(isLive: boolean) {
  let active: ActiveRun | undefined;
  let opened = 0;
  const begin = () => {
    opened++;
    const ended: Deferred<void> = deferred();
    const gate = { ended: false };
    const setMemory = async () => {
      await ticks(TICKS);
      if (gate.ended) throw new HoldfastError('the run has ended');
      return isLive;
    };
    const stop = () => {
      if (gate.ended) return;
      gate.ended = true;
      void ticks(TICKS).then(() => {
        active = undefined;
        ended.resolve();
      });
    };
    active = { id: 'one', paused: false, settings: {}, gate, ended: ended.promise, setMemory, stop } as never;
  };
  const open = {
    get active() {
      return active;
    },
    get needed() {
      if (!active) throw new HoldfastError('no run is open here');
      return active;
    },
    async stop() {
      const { needed } = open;
      needed.stop();
      await needed.ended;
    },
  };
  const problem = async () => {
    await ticks(TICKS);
    return undefined;
  };
  const resume = async () => {
    await ticks(TICKS);
    begin();
    await ticks(TICKS);
  };
  begin();
  return { open, changes: new BudgetChanges(open, { problem }, resume), opened: () => opened };
}

for (const isLive of [false, true])
  test(`a stop at any moment of a change ${isLive ? 'between two steps' : 'that opens the run anew'} is the end of the run`, async () => {
    let refusals = 0;
    for (let moment = 0; moment < 12 * TICKS; moment++) {
      const { open, changes } = played(isLive);
      const taken = [{ gpu: 1 }, { gpu: 2 }].map((memory) =>
        changes.take(memory).catch((error: unknown) => {
          expect(error).toBeInstanceOf(HoldfastError);
          refusals++;
        }),
      );
      await ticks(moment);
      await changes.stop();
      expect(open.active, `stopped at moment ${moment}`).toBeUndefined();
      await Promise.all(taken);
      expect(open.active, `after moment ${moment}`).toBeUndefined();
    }
    expect(refusals).toBeGreaterThan(0);
  });

test('with no stop the run is opened anew, once for each change', async () => {
  const { open, changes, opened } = played(false);
  await Promise.all([changes.take({ gpu: 1 }), changes.take({ gpu: 2 })]);
  expect(opened()).toBe(3);
  expect(open.active).toBeDefined();
  await changes.stop();
  await expect(changes.stop()).rejects.toThrow('no run is open here');
});
