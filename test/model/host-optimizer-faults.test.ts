// A small training with AdamW on the host, with a fault at the n-th call of the device or the n-th move of the disk: a lost
// device costs nothing, and a disk that fails ends the run with one clear error, behind which no step is wrong.

import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { HostAdamW } from '../../src/kernels/host-adamw.ts';
import type { TrainingDtype } from '../../src/memory/layout/kinds.ts';
import { computedIn } from '../../src/nn/model.ts';
import type { BlockFile } from '../../src/runtime/host.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { FAULTS, type Fault, FaultyFile } from '../memory/block-files.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { fragileDevice } from './fragile.ts';
import {
  batchesOf,
  expectSame,
  leastBudget,
  leastHostUnder,
  type Outcome,
  openTrainer,
  run,
  SMALLEST,
  train,
  type Work,
} from './runs.ts';

const work: Work = {
  ...{ model: SMALLEST, batch: 1, seq: 8, accumulate: 1, steps: 4 },
  optimizerDevice: 'cpu',
};

let device: Device;
let wanted: Outcome;
let choices: ChoiceRecord;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(1);
  ({ outcome: wanted, choices } = await run(device, work));
});
beforeEach(() => chooseVariants(1));
afterEach(() => vi.restoreAllMocks());

/** The smallest budget, and the fewest chunks of host memory, above a file. */
function memoryOver(file: (bytes: number) => BlockFile, own = work): MemoryOptions {
  const gpu = leastBudget(device, own);
  const host = leastHostUnder(device, own, { gpu });
  return { gpu, host, disk: { open: async (size) => file(size) } };
}

const stride = EVERY_CASE ? 1 : 71;
/** Of the device's, of which there are more. */
const callStride = EVERY_CASE ? 1 : 211;

const ALL = { optimizerDevice: 'cpu' } as const;
const SOME = { optimizerDevice: 'auto', optimizerSplit: 4 } as const;

/** Updated on the host: all of it, or what is not on the GPU. */
const LOST: readonly (readonly [string, TrainingDtype, typeof ALL | typeof SOME])[] = [
  ['one budget', 'f32', ALL],
  ['no budget', 'f32', ALL],
  ['one budget', 'bf16', ALL],
  ['no budget', 'f16', ALL],
  ['one budget', 'f32', SOME],
  ['one budget', 'bf16', SOME],
];

test.each(LOST)('the device is lost at the n-th call, within %s, in %s, %o', async (budget, dtype, where) => {
  const own: Work = { ...work, model: computedIn(SMALLEST, dtype), ...where };
  const { outcome: wanted, choices } = await run(device, own);
  let n = 0;
  for (let struck = true; struck; n += callStride) {
    struck = false;
    const fragile = await fragileDevice(device);
    const memory = budget === 'no budget' ? {} : memoryOver((bytes) => new MemoryBlockFile('/tier', bytes), own);
    const trainer = await openTrainer(fragile.device, own, { memory, choices });
    let calls = 0;
    fragile.before = () => {
      if (calls++ !== n) return;
      struck = true;
      fragile.lose();
    };
    expectSame(await train(trainer, own), wanted, `lost at call ${n}`);
    expect(trainer.recoveries).toBe(Number(struck));
    fragile.before = undefined;
    await trainer.destroy();
  }
  expect(n).toBeGreaterThan(callStride);
});

describe.each(Object.entries(FAULTS) as [Fault, string][])('the disk: %s, %s', (fault) => {
  test('at the n-th move', async () => {
    let failures = 0;
    let n = 0;
    for (let fired = true; fired; n += stride) {
      let faulty: FaultyFile | undefined;
      const memory = memoryOver((bytes) => {
        faulty = new FaultyFile(new MemoryBlockFile('/tier', bytes), fault, n);
        return faulty;
      });
      const before = device.allocator.bytes;
      const opened = await openTrainer(device, work, { memory, choices }).catch((error: unknown) => error);
      const found =
        opened instanceof Error
          ? opened
          : await train(opened as Awaited<ReturnType<typeof openTrainer>>, work).catch((error: unknown) => error);
      fired = faulty?.fired ?? false;
      if (found instanceof Error) {
        failures++;
        expect(found, `${fault} at ${n}`).toBeInstanceOf(HoldfastError);
        expect(found.message).toContain('/tier');
      } else expectSame(found as Outcome, wanted, `${fault} at ${n}`);
      if (!(opened instanceof Error)) await (opened as Awaited<ReturnType<typeof openTrainer>>).destroy();
      expect(device.allocator.bytes, `${fault} at ${n}: bytes left`).toBe(before);
    }
    expect(n).toBeGreaterThan(2 * stride);
    expect(failures > 0).toBe(fault !== 'short');
  });
});

test('a submit that fails where the step is decided is the step’s error', async () => {
  const fragile = await fragileDevice(device);
  const trainer = await openTrainer(fragile.device, work, { choices });
  const [one, two] = leading(2, batchesOf(work));
  await trainer.start(one);
  await trainer.settle();
  fragile.before = (call) => {
    if (call === 'submit' && new Error().stack?.includes('markDecision')) throw new HoldfastError('no submit');
  };
  await expect(trainer.start(two)).rejects.toThrow('no submit');
  fragile.before = undefined;
  await trainer.destroy();
});

test('an update that fails behind a step that was told is the error of all that is asked for then', async () => {
  const trainer = await openTrainer(device, work, { choices });
  const [one, two] = leading(2, batchesOf(work));
  vi.spyOn(HostAdamW.prototype, 'update').mockImplementation(async () => {
    await new Promise((resolve) => setTimeout(resolve, 50));
    throw new HoldfastError('a thread failed');
  });
  await trainer.start(one);
  await expect(trainer.settle()).rejects.toThrow('a thread failed');
  await expect(collect(trainer.values('parameter'))).rejects.toThrow('a thread failed');
  await expect(trainer.start(two)).rejects.toThrow('a thread failed');
  await trainer.destroy();
});
