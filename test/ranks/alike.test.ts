// What a run goes on from, which each rank reads by itself: on machines whose folders are not shared, or not yet alike, it
// may be another.

import { expect, it } from 'vitest';
import { beginningFacts, checkAlike } from '../../src/train/ranks.ts';
import type { SavedState } from '../../src/train/saved-state.ts';
import { testHost } from '../host.ts';
import { ranksInProcess } from './in-process.ts';

const saved = (step: number, seed = 1) => ({ trainer: { step, control: [] }, sampling: seed }) as unknown as SavedState;

/** What rank 0 says of them. */
async function found(...states: (SavedState | undefined)[]): Promise<unknown> {
  const ranks = ranksInProcess(states.length, 0);
  const checks = ranks.map(async (each, rank) => {
    await checkAlike(each, await beginningFacts(testHost, states[rank]));
  });
  // The others wait: the first ends them.
  return Promise.race([Promise.all(checks), checks[0]?.then(() => new Promise(() => {}))]);
}

it('is the same on all ranks', async () => {
  await found(saved(4), saved(4));
  await found(undefined, undefined, undefined);
});

it('is named where it is not: another step, another run of as many, none', async () => {
  await expect(found(saved(4), saved(2))).rejects.toThrow(
    /^checkpoint: step 4 \(\w{16}\) on rank 0, step 2 \(\w{16}\) on rank 1; it must be the same on all ranks$/,
  );
  await expect(found(saved(4), saved(4), saved(4, 2))).rejects.toThrow(
    /^checkpoint: step 4 \(\w{16}\) on rank 0, step 4 \(\w{16}\) on rank 2;/,
  );
  await expect(found(saved(4), undefined)).rejects.toThrow(/step 4 \(\w{16}\) on rank 0, none on rank 1;/);
});
