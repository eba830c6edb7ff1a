// A measurement of what steps cost on a device: two small real steps, one whose time is mostly that of its dispatches, and one
// that computes; and what its link does.

import { RandomWindows } from '../../data/batches.ts';
import { loadChoices } from '../../engine/compile/choices.ts';
import { flopsOf } from '../../engine/compile/pass-figures.ts';
import { measureLinkRates } from '../../engine/observe/device-rates.ts';
import { parseConfig } from '../../formats/config.ts';
import type { Device } from '../../gpu/device.ts';
import { makeModel } from '../../nn/index.ts';
import { initialWeights } from '../../nn/initialise.ts';
import type { Host } from '../../runtime/host.ts';
import { median } from '../../util/median.ts';
import { STEP_READS } from '../step/stepper.ts';
import { Trainer } from '../step/trainer.ts';
import { costsOf, type StepCosts, type TimedStep } from './step-times.ts';

const PROBES = [
  { n_layer: 1, n_embd: 32, n_head: 2, seq: 32, batch: 2 },
  { n_layer: 1, n_embd: 128, n_head: 4, seq: 128, batch: 4 },
] as const;
/** Steps before these compile. */
const WARM_STEPS = 2;
const LEAST_STEPS = 3 * STEP_READS;
const LEAST_MS = 500;

/** Undefined when it is not wanted any more. */
export async function measureStepCosts(
  host: Host,
  device: Device,
  wanted: () => boolean = () => true,
): Promise<StepCosts | undefined> {
  const timed: TimedStep[] = [];
  for (const probe of PROBES) {
    const found = wanted() ? await timeSteps(host, device, probe, wanted) : undefined;
    if (!found) return undefined;
    timed.push(found);
  }
  return { ...costsOf(timed as [TimedStep, TimedStep]), link: await measureLinkRates(device) };
}

/**
 * Milliseconds of a step, by the times at which steps were known to have ended: several may be told at once, as many as are
 * under way. The median, since a moment at which the machine did something else says nothing of the next.
 */
export function stepMs(ends: readonly number[]): number {
  const periods = ends.slice(STEP_READS).map((end, i) => (end - (ends[i] ?? end)) / STEP_READS);
  return median(periods);
}

/** Undefined when it is not wanted any more. */
async function timeSteps(
  host: Host,
  device: Device,
  { seq, batch, ...shape }: (typeof PROBES)[number],
  wanted: () => boolean,
): Promise<TimedStep | undefined> {
  const model = makeModel(
    parseConfig({ model_type: 'gpt2', vocab_size: 256, n_positions: seq, ...shape }, 'the probe'),
  );
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1e6 } as const;
  const trainer = await Trainer.create(device, model, {
    batch,
    seq,
    schedule,
    choices: await loadChoices(host, device),
  });
  const underWay: Promise<unknown>[] = [];
  try {
    await trainer.setWeights(initialWeights(model, 1));
    const batches = new RandomWindows(
      Int32Array.from({ length: 4096 }, (_, i) => (i * 31) % 256),
      batch,
      seq,
      1,
    );
    const ends: number[] = [];
    for (let done = 0; wanted(); done++) {
      while (underWay.length < STEP_READS) underWay.push(trainer.start([batches.next()]));
      await underWay.shift();
      if (done < WARM_STEPS) continue;
      const now = performance.now();
      ends.push(now);
      const [begun = now] = ends;
      if (ends.length <= LEAST_STEPS || now - begun < LEAST_MS) continue;
      const pass = trainer.session.fit.passes.step;
      return { dispatches: pass.operations.length, flops: flopsOf(pass), seconds: stepMs(ends) / 1000 };
    }
    return undefined;
  } finally {
    await Promise.allSettled(underWay);
    await trainer.destroy();
  }
}
