// A small training whose n-th read or write of the slow tier goes wrong, for every n until it runs through, and one
// whose n-th allocation fails. Each brings what an undisturbed one brings, or it ends in one error that says what to
// do, nothing goes on behind it, everything that was made is given back, and the last checkpoint is whole: it goes on to
// the same bits.

import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { checkpointsOf, loadCheckpoint } from '../../src/formats/checkpoint.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { BlockFile } from '../../src/runtime/host.ts';
import type { StepMetrics, Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { FAULTS, type Fault, FaultyFile } from '../memory/block-files.ts';
import { MemoryBlockFile, MemoryFiles } from '../memory-files.ts';
import { type Fragile, fragileDevice } from './fragile.ts';
import { batchesOf, leastBudget, leastHostUnder, openTrainer, SMALLEST, type Work } from './runs.ts';
import { type Content, contentOf, type Trained, trainFrom, trainSaving } from './saving.ts';

const isDeno = 'Deno' in globalThis;
const work: Work = { model: SMALLEST, batch: 1, seq: 8, accumulate: 1, steps: 3 };
type Recovery = 'step' | 'checkpoint';
const onHost: Work = { ...work, optimizerDevice: 'cpu' };
const inBackward: Work = { ...onHost, update: 'in-backward', clip: 0 };
const WAYS: readonly (readonly [string, Work, Recovery])[] = [
  ['recovery step', work, 'step'],
  ['recovery checkpoint', work, 'checkpoint'],
  ['AdamW on the host', onHost, 'step'],
  ...(EVERY_CASE ? [['AdamW on the host, inside the backward pass', inBackward, 'checkpoint'] as const] : []),
];

let device: Device;
let choices: ChoiceRecord;
beforeAll(async () => {
  device = await testDevice();
  chooseVariants(1);
  const trainer = await openTrainer(device, work);
  choices = trainer.choices.record();
  await trainer.destroy();
});
beforeEach(() => chooseVariants(1));
afterEach(() => {
  vi.restoreAllMocks();
});

/** The smallest budget, and the fewest chunks of host memory, above a file. */
function memoryOver(file: (bytes: number) => BlockFile, own: Work, recovery: Recovery): MemoryOptions {
  const gpu = leastBudget(device, own, recovery);
  const host = leastHostUnder(device, own, { gpu, recovery });
  // Else it is how these train anyway.
  const asked = own.optimizerDevice === 'cpu' ? {} : { recovery };
  return { gpu, ...asked, host, disk: { open: async (size) => file(size) } };
}

const path = '/tier/block-file';
/** What the checkpoints of an undisturbed run hold, by their steps, and what it brought. */
async function undisturbed(own: Work): Promise<{ outcome: Trained; saved: Map<number, Content> }> {
  const saved = new Map<number, Content>();
  const files = new MemoryFiles();
  const trainer = await openTrainer(device, own, { choices });
  const outcome = await trainSaving(files, trainer, own, async () => {
    saved.set(trainer.step, await contentOf(await loadCheckpoint(files, 'run')));
  });
  await trainer.destroy();
  expect([...saved.keys()]).toEqual([1, 2]);
  return { outcome, saved };
}

const WHAT_TO_DO = /make space on (it|that disk)|check that disk|choose another folder|resume from the last checkpoint/;

/** It names the file and says what to do. */
function expectClear(error: unknown, run: string): void {
  expect(error, run).toBeInstanceOf(HoldfastError);
  expect((error as Error).message, run).toContain(path);
  expect((error as Error).message, run).toMatch(WHAT_TO_DO);
}

/** Behind an error, a step brings an error of that kind, or, if nothing was lost, what it brings in any run. */
async function expectNoWrongStep(trainer: Trainer, wanted: readonly StepMetrics[], run: string): Promise<void> {
  const { step } = trainer;
  if (step >= work.steps) return;
  const found = await trainer.start(at(batchesOf(work), step)).catch((error: Error) => error);
  if (found instanceof Error) expectClear(found, `${run}: the step behind it`);
  else expect(found, `${run}: the step behind it`).toEqual(wanted[step]);
}

describe.each(Object.entries(FAULTS) as [Fault, string][])('the slow tier: %s, %s', (fault) => {
  // The first three, then few.
  const stride = EVERY_CASE ? 1 : 89;

  test.each(WAYS)('at the n-th move, %s', async (_, own, recovery) => {
    const wanted = await undisturbed(own);
    let failures = 0;
    let savedNone = 0;
    let n = 0;
    for (let fired = true; fired; n += n < 3 ? 1 : stride) {
      let memory: MemoryBlockFile | undefined;
      let faulty: FaultyFile | undefined;
      const files = new MemoryFiles();
      const file = (bytes: number) => {
        memory = new MemoryBlockFile(path, bytes);
        faulty = new FaultyFile(memory, fault, n);
        return faulty;
      };
      const before = device.allocator.bytes;
      const run = `${fault} at ${n}`;
      let trainer: Trainer | undefined;
      const scenario = async () => {
        trainer = await openTrainer(device, own, { memory: memoryOver(file, own, recovery), choices });
        return await trainSaving(files, trainer, own);
      };
      const found = await scenario().then(
        (outcome) => ({ outcome, error: undefined }),
        (error: unknown) => ({ outcome: undefined, error }),
      );
      fired = faulty?.fired ?? false;
      if (found.error === undefined) expect(found.outcome, run).toEqual(wanted.outcome);
      else {
        failures++;
        expectClear(found.error, run);
        if (trainer) await expectNoWrongStep(trainer, wanted.outcome.metrics, run);
      }
      await trainer?.destroy();
      expect(memory?.removed, `${run}: the file is gone`).toBe(true);
      expect(device.allocator.bytes, `${run}: bytes left`).toBe(before);
      if ((await checkpointsOf(files, 'run')).length > 0) {
        const content = await contentOf(await loadCheckpoint(files, 'run'));
        const { step } = content.state;
        expect(content, run).toEqual(wanted.saved.get(step));
        if (found.error === undefined) continue;
        const { metrics, weights } = wanted.outcome;
        const resumed = await trainFrom(content, device, own, choices);
        expect(resumed, `${run}: resumed`).toEqual({ metrics: metrics.slice(step), weights });
      } else savedNone++;
    }
    expect(n).toBeGreaterThan(20);
    expect(failures > 0, `${failures} of ${n} runs failed`).toBe(fault !== 'short');
    if (!isDeno) expect(savedNone).toBeLessThan(failures || 1);
  });
});

describe('an allocation that fails', () => {
  const kinds = {
    'for lack of memory': (fragile: Fragile) => fragile.exhaust(),
    'at once': () => {
      throw new RangeError('not now');
    },
  };

  test.each(Object.entries(kinds))('%s, at every buffer: one error, and nothing is left', async (_, fail) => {
    const fragile = await fragileDevice(device);
    let n = 0;
    for (let failed = true; failed; n++) {
      let file: MemoryBlockFile | undefined;
      const memory = memoryOver(
        (bytes) => {
          file = new MemoryBlockFile(path, bytes);
          return file;
        },
        work,
        'step',
      );
      let buffers = 0;
      fragile.before = (call) => {
        if (call === 'createBuffer' && buffers++ === n) fail(fragile);
      };
      const found = await openTrainer(fragile.device, work, { memory, choices }).catch((error) => error);
      fragile.before = undefined;
      failed = found instanceof Error;
      if (failed) {
        expect(found, `buffer ${n}`).toBeInstanceOf(HoldfastError);
        expect(found.message).toMatch(/does not fit into the GPU's memory|cannot be made \(not now\)/);
        expect(found.message).toContain('use a smaller batch, context or model');
      } else await found.destroy();
      expect(fragile.device.allocator.bytes, `buffer ${n}`).toBe(0);
      expect(file?.removed, `buffer ${n}`).toBe(true);
    }
    // Slots, staging, arenas, small tensors, uniforms, the readback ring.
    expect(n).toBeGreaterThan(20);
  });

  test('in a recovery ends the run with one error', async () => {
    const fragile = await fragileDevice(device);
    const memory = memoryOver((bytes) => new MemoryBlockFile(path, bytes), work, 'step');
    const trainer = await openTrainer(fragile.device, work, { memory, choices });
    const [one, two] = leading(2, batchesOf(work));
    await trainer.start(one);
    fragile.lose();
    fragile.before = (call) => {
      if (call === 'createBuffer') fragile.exhaust();
    };
    const errors = await Promise.all([one, two].map((batches) => trainer.start(batches).catch((error) => error)));
    expect(errors[0]).toBeInstanceOf(HoldfastError);
    expect(errors[0].message).toMatch(/does not fit into the GPU's memory/);
    expect(errors[1]).toBe(errors[0]);
    await trainer.destroy();
    expect(fragile.device.allocator.bytes).toBe(0);
  });
});

test('limits that cannot work leave no file behind', async () => {
  let file: MemoryBlockFile | undefined;
  const memory = memoryOver(
    (bytes) => {
      file = new MemoryBlockFile(path, bytes);
      return file;
    },
    work,
    'step',
  );
  await expect(openTrainer(device, work, { memory: { ...memory, host: 1000 }, choices })).rejects.toThrow(
    /host memory limit 1000 bytes: .* need at least/,
  );
  expect(file?.removed ?? true).toBe(true);
});
