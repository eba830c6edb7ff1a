// A device that is lost in the middle of a run without a budget: the run goes back to its last checkpoint by itself
// and ends with the losses of one that nothing disturbed.

import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { openDevice } from '../../src/gpu/device.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { RunSettings } from '../../src/train/run/run-settings.ts';
import { ADAPTER, EVERY_CASE } from '../host.ts';

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 8, n_embd: 16, n_layer: 1, n_head: 2 },
  'test',
);

/** Losses by step, and those that were run more than once. */
async function run(folder: string, name: string, loseAt?: number) {
  const text = join(folder, 'text.txt');
  await writeFile(text, 'the quick brown fox jumps over the lazy dog; '.repeat(40));
  const settings: RunSettings = {
    ...{ config, data: [text], batch: 2, seq: 8, accumulate: 1, steps: 8, lr: 1e-3, minLr: 1e-4, schedule: 'cosine' },
    ...{
      warmup: 0,
      clip: 1,
      weightDecay: 0.1,
      seed: 1,
      evalEvery: 0,
      sampleEvery: 0,
      saveEvery: 3,
      evalWindows: 2,
      sampleTokens: 20,
    },
  };
  const losses: number[] = [];
  const repeated: number[] = [];
  let lost = 0;
  // Other tests do not change the kernels that the runs of this one have chosen.
  const host = { ...headlessHost(), cacheFolder: join(folder, 'cache') };
  const device = await openDevice(host, { adapter: ADAPTER });
  const summary = await trainRun(host, device, settings, join(folder, name), {
    events: {
      step: ({ step, loss }) => {
        if (step in losses) repeated.push(step);
        losses[step] = loss;
        if (step === loseAt && lost === 0) device.gpu.destroy();
      },
      lost: () => lost++,
    },
  });
  if (device.status !== 'lost') device.close();
  return { losses, repeated, lost, final: summary.validationLoss };
}

test('goes back to the last checkpoint, with the same losses', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'holdfast-lost-'));
  try {
    const whole = await run(folder, 'whole');
    expect(whole).toMatchObject({ lost: 0, repeated: [] });
    // Before the first checkpoint, and after the one of step 3.
    const losses = [
      [1, 0],
      [4, 3],
    ] as const;
    for (const [loseAt, from] of EVERY_CASE ? losses : losses.slice(1)) {
      const disturbed = await run(folder, `lost at ${loseAt}`, loseAt);
      expect(disturbed.lost).toBe(1);
      expect(Math.min(...disturbed.repeated)).toBe(from);
      expect(disturbed.losses).toEqual(whole.losses);
      expect(disturbed.final).toBe(whole.final);
    }
  } finally {
    await rm(folder, { recursive: true });
  }
});
