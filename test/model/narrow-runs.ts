// What the tests of sixteen bits share, of parameters and of moments: a run has the same bits in any memory, losses close to those
// of the wider one, and goes on over a lost device and a new budget.

import { expect } from 'vitest';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { Trainer } from '../../src/train/step/trainer.ts';
import { EVERY_CASE } from '../host.ts';
import { fragileDevice } from './fragile.ts';
import { expectSame, leastBudget, openTrainer, run, train, type Work } from './runs.ts';

export type Run = Awaited<ReturnType<typeof run>>;

/** Fails where a run is another within one of the memories. `sampled`: how many of them where not every case is run. */
export async function runInAny(
  device: Device,
  work: Work,
  sampled: number,
  memoriesOf: (least: number, some: number) => readonly MemoryOptions[],
): Promise<Run> {
  const ran = await run(device, work);
  const least = leastBudget(device, work);
  const memories = memoriesOf(least, Math.floor(1.6 * least));
  for (const memory of EVERY_CASE ? memories : memories.slice(0, sampled)) {
    const found = await run(device, work, { memory, choices: ran.choices });
    expectSame(found.outcome, ran.outcome, JSON.stringify(memory));
  }
  return ran;
}

/** Fails where losses are those of the model in full width, or off by a hundredth. */
export async function expectClose(device: Device, work: Work, wide: Work['model'], { outcome, choices }: Run) {
  const full = await run(device, { ...work, model: wide }, { choices });
  const losses = (of: Run['outcome']) => of.steps.map(([loss]) => loss);
  expect(losses(outcome)).not.toEqual(losses(full.outcome));
  for (const [i, loss] of losses(full.outcome).entries()) {
    expect(Math.abs((losses(outcome)[i] ?? 0) / loss - 1), `step ${i}`).toBeLessThan(0.01);
  }
}

/**
 * A device, and how its trainer loses it. In the sample it is a pretended loss, behind which nothing is compiled again: the
 * real thing is in losses.test.ts.
 */
export async function losable(device: Device): Promise<{ device: Device; lose: (trainer: Trainer) => void }> {
  if (EVERY_CASE) return { device: await device.reopen(), lose: (trainer) => trainer.device.gpu.destroy() };
  const fragile = await fragileDevice(device);
  return { device: fragile.device, lose: () => fragile.lose() };
}

/** Fails where a lost device and a new budget on the way change a bit. */
export async function expectSameAfterLoss(device: Device, work: Work): Promise<void> {
  const { outcome, choices } = await run(device, work);
  const memory = { gpu: 2 * leastBudget(device, work), recovery: 'step' } as const;
  const { device: own, lose } = await losable(device);
  const trainer = await openTrainer(own, work, { memory, choices });
  try {
    const found = await train(trainer, work, async (pair) => {
      if (pair === 1) await trainer.setBudget(trainer.session.leastBudget);
      if (pair === 2) lose(trainer);
    });
    expectSame(found, outcome, 'lost and moved');
    expect(trainer.recoveries).toBe(1);
  } finally {
    await trainer.destroy();
    trainer.device.close();
  }
}
