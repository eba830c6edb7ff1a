// What a run goes on from, which each rank reads by itself: on machines whose folders are not shared, or not yet alike, it
// may be another.

import { expect, it } from 'vitest';
import { makeModel } from '../../src/nn/index.ts';
import { beginningFacts, checkAlike } from '../../src/train/ranks.ts';
import { trainRun } from '../../src/train/run.ts';
import type { SavedState } from '../../src/train/saved-state.ts';
import { chooseVariants } from '../choose-variants.ts';
import { fileOf, floats } from '../formats/raw-tensors.ts';
import { testDevice } from '../harness.ts';
import { testHost } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { SETTINGS, TEXT } from '../saved-run.ts';
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

it('are the weights to start from, too: other ones are named before step 1', async () => {
  chooseVariants(1);
  const device = await testDevice();
  const { parameters } = makeModel(SETTINGS.config);
  const steps: number[] = [];
  const checks = ranksInProcess(2, 2).map((ranks, rank) => {
    const tensors = parameters.map(({ name, shape }) => {
      const values = new Float32Array(shape.reduce((a, b) => a * b, 1)).fill(0.5);
      // One value of one tensor.
      if (name === 'h.0.ln_1.bias') values[1] = rank;
      return [name, floats(shape, values)] as const;
    });
    const config = { model_type: 'gpt2', n_positions: 8, n_embd: 4, n_layer: 1, n_head: 2, vocab_size: 256 };
    const files = new MemoryFiles({
      'text.txt': TEXT,
      'm/config.json': JSON.stringify(config),
      'm/model.safetensors': fileOf(new Map(tensors)),
    });
    const events = { step: ({ step }: { step: number }) => void steps.push(step) };
    const settings = { ...SETTINGS, from: 'm', accumulate: 2, steps: 1, evalEvery: 0, sampleTokens: 0 };
    return trainRun(memoryHost(files), device, settings, 'run', { ranks, events });
  });
  await expect(Promise.race(checks)).rejects.toThrow(
    /^the weights to start from: sums:\w+.* on rank 0, sums:\w+.* on rank 1; it must be the same on all ranks$/,
  );
  expect(steps).toEqual([]);
});
