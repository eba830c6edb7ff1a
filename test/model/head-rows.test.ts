// Does it matter how many rows of logits are made at a time? To no bit of losses, norms and weights, with any variant of the
// kernels, also where the head lies in several chunks.

import { beforeAll, describe, expect, it, vi } from 'vitest';
import type { Device } from '../../src/gpu/device.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { expectSame, leastBudget, MODELS, run, type Work } from './runs.ts';

const most = vi.hoisted(() => ({ rows: Number.POSITIVE_INFINITY }));
vi.mock('../../src/graph/operators/head-tiles.ts', async (original) => ({
  ...(await original<typeof import('../../src/graph/operators/head-tiles.ts')>()),
  rowTile: (rows: number) => Math.min(rows, most.rows),
}));

/** Multiples of four: rows of any length then lie in fours of floats as they do in the whole. */
const ROWS = 24;

describe.each(Object.entries(MODELS).slice(0, EVERY_CASE ? undefined : THOROUGH ? 3 : 1))('%s', (_, model) => {
  let device: Device;
  beforeAll(async () => {
    device = await testDevice();
  });

  it.each(EVERY_CASE ? [1, 2, 3, 4] : [1])('with variants %d', async (seed) => {
    chooseVariants(seed);
    const work = (): Work => ({ model, batch: 3, seq: ROWS / 3, accumulate: 2, steps: 2 });
    most.rows = ROWS;
    const whole = traceStep(model, 3, ROWS / 3).first.instructions.length;
    const { outcome: wanted } = await run(device, work());
    for (const rows of EVERY_CASE ? [16, 8, 20] : [20]) {
      most.rows = rows;
      expect(traceStep(model, 3, ROWS / 3).first.instructions.length).toBeGreaterThan(whole);
      expectSame((await run(device, work())).outcome, wanted, `${rows} rows`);
    }
    const tight = work();
    expectSame((await run(device, tight, { memory: { gpu: leastBudget(device, tight) } })).outcome, wanted, 'tight');
  });
});
