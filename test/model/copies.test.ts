// Which copies of a chunk are valid: each fact of a legal state by an example that breaks it, and all of them behind every
// moment of runs within budgets, with tiers below, other work between the steps, and devices that are lost.

import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { ChunkCopies } from '../../src/engine/run/copies.ts';
import { Executor } from '../../src/engine/run/executor.ts';
import { Slots } from '../../src/engine/run/slots.ts';
import type { Device } from '../../src/gpu/device.ts';
import { Backing } from '../../src/memory/tiers/backing.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { fragileDevice } from './fragile.ts';
import {
  budgetFor,
  expectSame,
  leastHostUnder,
  MODELS,
  memoryDisk,
  type Outcome,
  openTrainer,
  run,
  train,
  type Work,
} from './runs.ts';

const BYTES = 1024;
const CHUNKS = 4;
const value = () => new Uint8Array(BYTES).fill(7);

/** Two slots on no device. */
function setup(durable: boolean): { copies: ChunkCopies; slots: Slots; backing: Backing } {
  const allocator = { createAll: (_: string, count: number) => Array.from({ length: count }, () => ({})) };
  const slots = new Slots({ allocator } as unknown as Device, 2, BYTES, CHUNKS);
  const backing = new Backing({ chunks: CHUNKS, chunkBytes: BYTES, hostLimit: CHUNKS * BYTES });
  return { copies: new ChunkCopies(slots, backing, CHUNKS, durable), slots, backing };
}

describe.each([true, false])('the copies of a chunk, durable: %s', (durable) => {
  test('are clean, dirty, on their way down, and below', async () => {
    const { copies, backing } = setup(durable);
    backing.setZero(0);
    expect(copies.exists(0)).toBe(true);
    expect(copies.exists(1)).toBe(false);
    copies.bring(0);
    expect([copies.onGPU(0), copies.isDirty(0), copies.below(0)]).toEqual([true, false, 'zero']);
    copies.check();
    copies.change(0);
    expect([copies.isDirty(0), copies.below(0)]).toEqual([true, durable ? 'zero' : 'nothing']);
    copies.check();
    copies.send([0]);
    // The zeros are out of date: a chunk that is brought again now must not be cleared.
    expect([copies.isDirty(0), copies.below(0)]).toEqual([false, 'staging']);
    copies.check();
    copies.drop(0);
    expect([copies.onGPU(0), copies.exists(0)]).toEqual([false, true]);
    await copies.put([{ chunk: 0, bytes: value() }]);
    copies.sent([0]);
    expect(copies.below(0)).toBe('host');
    copies.check();
    copies.bring(0);
    copies.change(0);
    copies.free(0);
    expect([copies.isDirty(0), copies.below(0)]).toEqual([false, durable ? 'host' : 'nothing']);
    copies.forgetBelow(0);
    expect(copies.exists(0)).toBe(false);
    copies.check();
  });

  test('that go down twice have arrived when the newer one has', () => {
    const { copies } = setup(durable);
    copies.bring(0);
    copies.change(0);
    copies.send([0]);
    copies.send([0]);
    copies.sent([0]);
    expect(copies.below(0)).toBe('staging');
    copies.sent([0]);
    expect(copies.below(0)).toBe('nothing');
  });

  test('all give way to a value that is given below', async () => {
    const { copies } = setup(durable);
    copies.bring(0);
    copies.change(0);
    await copies.replace(0, value());
    expect([copies.onGPU(0), copies.isDirty(0), copies.below(0)]).toEqual([false, false, 'host']);
    copies.check();
  });

  test('are not dropped where they are the only one, nor changed where there is none', async () => {
    const { copies } = setup(durable);
    expect(() => copies.change(0)).toThrow('changes on the GPU and is not there');
    copies.bring(0);
    copies.change(0);
    expect(() => copies.drop(0)).toThrow('would lose its newest value');
    copies.send([0]);
    await expect(copies.replace(0, value())).rejects.toThrow('on its way down');
  });

  test('are in no legal state when a value was lost on its way down', () => {
    const { copies } = setup(durable);
    copies.bring(0);
    copies.change(0);
    copies.send([0]);
    copies.sent([0]);
    expect(() => copies.check()).toThrow('chunk 0 is clean on the GPU and nowhere else');
  });

  test('are in no legal state when one goes and the slots alone know it', () => {
    const { copies, slots } = setup(durable);
    copies.bring(0);
    copies.change(0);
    slots.release(0);
    expect(() => copies.check()).toThrow('chunk 0 is dirty and not on the GPU');
  });
});

test('an old copy below a dirty one is legal only where a recovery needs it', async () => {
  for (const durable of [true, false]) {
    const { copies, backing } = setup(durable);
    copies.bring(0);
    copies.change(0);
    await backing.putAll([{ chunk: 0, bytes: value() }]);
    if (durable) copies.check();
    else expect(() => copies.check()).toThrow('a useless copy lies below: host');
  }
});

describe('every moment leaves a legal state', () => {
  const work: Work = { model: MODELS['gpt2, untied'], batch: 1, seq: 8, accumulate: 2, steps: 4, between: true };
  let real: Device;
  let wanted: Outcome;
  let choices: ChoiceRecord;
  let moments = 0;
  beforeAll(async () => {
    real = await testDevice();
    chooseVariants(1);
    ({ outcome: wanted, choices } = await run(real, work));
  });
  beforeEach(() => {
    chooseVariants(1);
    moments = 0;
    const { run: many } = Executor.prototype;
    vi.spyOn(Executor.prototype, 'run').mockImplementation(async function (this: Executor, from, to) {
      for (let moment = from; moment < to; moment++) {
        await many.call(this, moment, moment + 1);
        this.copies.check();
        moments++;
      }
    });
  });
  afterEach(() => {
    vi.restoreAllMocks();
  });

  const withDisk = (memory: MemoryOptions): MemoryOptions => {
    return { ...memory, host: leastHostUnder(real, work, memory), disk: memoryDisk() };
  };

  test('without a budget', async () => {
    const { outcome } = await run(real, work, { choices });
    expectSame(outcome, wanted, 'no budget');
    expect(moments).toBeGreaterThan(100);
  });

  describe.each(['step', 'checkpoint'] as const)('recovery %s', (recovery) => {
    test.each([0, 1 / 2])('of a run with %d of the model data on the GPU, above a disk', async (part) => {
      const memory = withDisk({ gpu: budgetFor(real, work, part, recovery), recovery });
      const { outcome } = await run(real, work, { memory, choices });
      expectSame(outcome, wanted, 'above a disk');
      expect(moments).toBeGreaterThan(100);
    });
  });

  test('and so on the device behind a lost one', async () => {
    const fragile = await fragileDevice(real);
    const memory = withDisk({ gpu: budgetFor(real, work, 0) });
    const trainer = await openTrainer(fragile.device, work, { memory, choices });
    try {
      const outcome = await train(trainer, work, async (pair) => {
        const half = moments;
        fragile.before = (call) => {
          if (call === 'submit' && moments > half + 60 * (pair + 1) && fragile.losses === pair) fragile.lose();
        };
      });
      expectSame(outcome, wanted, 'devices lost');
      expect(fragile.losses).toBe(2);
      trainer.session.executor.copies.check();
    } finally {
      await trainer.destroy();
    }
  });
});
