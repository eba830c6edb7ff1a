// The rates that a plan goes by: measured once for a GPU and kept, the same in all parts of a run and in its replay, and never
// a reason for another bit. On the adapter under test, which stands for a GPU where one is meant.

import { beforeAll, describe, expect, test, vi } from 'vitest';
import { refitMemory } from '../../src/engine/compile/fit.ts';
import type { Rates } from '../../src/engine/compile/rates.ts';
import { keptAdapter, keptLimits, ratesOn, refreshRates } from '../../src/engine/observe/adapter-records.ts';
import { LINK_MEASURING_BYTES, MEASURING_BYTES, measuredLimits } from '../../src/engine/observe/device-rates.ts';
import { Adaptation } from '../../src/engine/run/adaptation.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import type { Device } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { loadRun, replayRun } from '../../src/parity/replay-run.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { RunOptions } from '../../src/train/run/run-events.ts';
import { defaultSettings, trainerOptions } from '../../src/train/run/run-settings.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { ranksInProcess } from '../ranks/in-process.ts';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});

/** `device` as one that the runtime chose by itself, by another name; where `software` is false, as a GPU. */
const as = (name: string, software: boolean): Device =>
  new Proxy(device, {
    get(real, key) {
      if (key === 'isDefault') return true;
      if (key === 'adapter') return { ...real.adapter, name, software };
      const value = real[key as keyof Device];
      return typeof value === 'function' ? value.bind(real) : value;
    },
  });

test('the link is measured within the budget alone, and what that takes is none of the run’s', async () => {
  const before = device.allocator.bytes;
  const within = async (gpu: number) => {
    const created = device.allocator.created;
    await measuredLimits(device, { gpu }, undefined);
    return device.allocator.created - created;
  };
  expect(await within(LINK_MEASURING_BYTES - 1)).toBe(0);
  expect(await within(LINK_MEASURING_BYTES)).toBe(3);
  expect(device.allocator.peak).toBe(before);
});

describe('the rates of an adapter', () => {
  const files = new MemoryFiles();
  const host = memoryHost(files);
  const record = '/cache/adapters.json';
  const made = async (work: () => Promise<unknown>) => {
    const before = device.allocator.created;
    await work();
    return device.allocator.created - before;
  };

  test('without a budget, or in one with no room for it, nothing is measured; its limits are kept', async () => {
    expect(await keptAdapter(host)).toBe(undefined);
    const gpu = as('a GPU', false);
    const count = await made(async () => {
      expect(await ratesOn(host, gpu, {}, false)).toBe(undefined);
      expect(await ratesOn(host, gpu, { gpu: MEASURING_BYTES - 1 }, false)).toBe(undefined);
    });
    expect(count).toBe(0);
    const { binding, buffer } = limitsOf(device);
    const { source, embedded } = device.adapter;
    expect(await keptAdapter(host)).toEqual({ name: 'a GPU', software: false, source, embedded, binding, buffer });
  });

  test('within a budget they are measured once, in the memory that is said, and kept', async () => {
    const gpu = as('a GPU', false);
    device.allocator.restartPeak();
    const least = device.allocator.bytes;
    const first = await ratesOn(host, gpu, { gpu: MEASURING_BYTES }, false);
    const { flops, memoryBytes, upBytes, downBytes, launchSeconds } = first as Required<Rates>;
    for (const rate of [flops, memoryBytes, upBytes, downBytes]) expect(rate).toBeGreaterThan(1e6);
    expect(launchSeconds).toBeLessThan(0.1);
    // What a run counts from here on does not have what measuring took.
    expect(device.allocator.bytes).toBe(least);
    expect(device.allocator.peak).toBe(least);
    const written = files.contents.get(record);
    for (const memory of [{ gpu: 1e6 }, { gpu: 1e12 }, { gpu: 'auto' }] as const)
      expect(await made(async () => expect(await ratesOn(host, gpu, memory, false)).toEqual(first))).toBe(0);
    expect(files.contents.get(record)).toBe(written);
    expect((await keptAdapter(host))?.rates).toEqual(first);
    expect((await keptLimits(host, gpu)).rates).toEqual(first);
    // A run without a budget leaves them as they are.
    await ratesOn(host, gpu, {}, false);
    expect((await keptAdapter(host))?.rates).toEqual(first);
  });

  test('a software adapter has typical ones, and the adapter that is chosen is the latest', async () => {
    const software = as('a CPU', true);
    const count = await made(async () => {
      expect(await ratesOn(host, software, { gpu: 1e12 }, false)).toBe(undefined);
      await refreshRates(host, software);
    });
    expect(count).toBe(0);
    expect(await keptAdapter(host)).toMatchObject({ name: 'a CPU', software: true });
    expect(await keptLimits(host, software)).toEqual(limitsOf(software));
    expect((await keptLimits(host, as('a GPU', false))).rates).not.toEqual(limitsOf(device).rates);
  });

  test('an adapter is found by what is asked for, of several the one that is chosen by itself', async () => {
    const found = async (wanted: string) => (await keptAdapter(host, wanted))?.name;
    expect(await found('a gpu')).toBe('a GPU');
    expect(await found(device.adapter.source.toUpperCase())).toBe('a CPU');
    expect(await found('software')).toBe(device.adapter.embedded ? 'a CPU' : undefined);
    expect(await found('none')).toBe(undefined);
  });

  test('a record that is none counts as not there', async () => {
    for (const broken of [
      '',
      '{',
      '[]',
      '{"adapters": {}, "chosen": 3}',
      recordOf({ binding: 3 }),
      recordOf({ rates: {} }),
    ]) {
      await files.writeAtomic(record, broken);
      expect(await keptAdapter(host)).toBe(undefined);
    }
    await files.writeAtomic(record, recordOf({}));
    expect(await keptAdapter(host)).toMatchObject({ name: 'a GPU' });
  });
});

/** What is kept of an adapter, with these fields, as its file. */
const recordOf = (changes: object) => {
  const adapter = { name: 'a GPU', software: false, binding: 2 ** 30, buffer: 2 ** 30, ...changes };
  return JSON.stringify({ adapters: { 'memory | a GPU': adapter }, chosen: { memory: 'memory | a GPU' } });
};

describe('a run', () => {
  chooseVariants(3);
  /** Arithmetic that costs nothing, and a link that does; and the reverse. */
  const COMPUTES: Rates = { flops: 1e15, upBytes: 1e7, downBytes: 1e7, launchSeconds: 0 };
  const MOVES: Rates = { flops: 1e8, upBytes: 1e12, downBytes: 1e12, launchSeconds: 0 };
  const config = configOfShape({ family: 'gpt2', layers: 3, width: 32, heads: 2, context: 32, vocabulary: 256 });
  const gpu = 400_000;
  const MORE = 500_000;
  const settings = defaultSettings({
    ...{ config, data: ['text.txt'], batch: 4, steps: 4, warmup: 0, sampleTokens: 0, evalWindows: 2, evalEvery: 0 },
    saveEvery: 2,
  });
  const fresh = () => new MemoryFiles({ 'text.txt': 'hold fast, hold on; '.repeat(30) });

  /** The modes of its activations, once it is made; and how it ends. */
  async function start(files: MemoryFiles, options: RunOptions, on = device) {
    let seen: { modes: readonly string[]; rates: Rates | undefined } | undefined;
    const events: RunOptions['events'] = {
      ready({ trainer: { session } }) {
        seen = { modes: session.fit.workload.activations?.modes ?? [], rates: session.memory.rates };
      },
    };
    const summary = await trainRun(memoryHost(files), on, settings, 'run', { ...options, events });
    return { ...seen, loss: summary.validationLoss };
  }

  test('treats activations as takes the least time by its rates, with the same bits', async () => {
    const [computes, moves] = [fresh(), fresh()];
    const one = await start(computes, { memory: { gpu, rates: COMPUTES } });
    for (const [path, bytes] of computes.contents) if (path.startsWith('/cache/')) moves.contents.set(path, bytes);
    const other = await start(moves, { memory: { gpu, rates: MOVES } });
    expect(one.modes).not.toEqual(other.modes);
    expect(other.loss).toBe(one.loss);
    const weights = 'run/checkpoint-4/model.safetensors';
    expect(moves.contents.get(weights)).toEqual(computes.contents.get(weights));
  });

  test('on a GPU goes by what is kept of it, in any budget', async () => {
    const files = fresh();
    await files.writeAtomic('/cache/adapters.json', recordOf({ rates: MOVES }));
    const gpuRun = await start(files, { memory: { gpu }, until: 2 }, as('a GPU', false));
    expect(gpuRun.rates).toEqual(MOVES);
    expect((await savedState(memoryHost(files), 'run')).rates).toEqual(MOVES);
  });

  test('on a GPU whose first steps show other rates plans by those, keeps them for the runs that come, and goes on by them', async () => {
    const files = fresh();
    const warmedUp = vi.spyOn(Adaptation.prototype, 'warmedUp').mockReturnValue(MOVES);
    await files.writeAtomic('/cache/adapters.json', recordOf({ rates: COMPUTES }));
    const on = as('a GPU', false);
    const begun = await start(files, { memory: { gpu }, until: 3 }, on);
    expect(begun.rates).toEqual(COMPUTES);
    expect((await keptAdapter(memoryHost(files)))?.rates).toEqual(MOVES);
    expect((await savedState(memoryHost(files), 'run')).rates).toEqual(MOVES);
    const resumed = await start(files, { memory: { gpu }, resume: true }, on);
    expect(resumed.rates).toEqual(MOVES);
    warmedUp.mockRestore();
    const undisturbed = await start(fresh(), { memory: { gpu, rates: COMPUTES } });
    expect(resumed.loss).toBe(undisturbed.loss);
  });

  test('goes by them in another budget, too', async () => {
    const model = makeModel(config);
    const modes = await Promise.all(
      [COMPUTES, MOVES].map(async (rates) => {
        const trainer = await Trainer.create(device, model, {
          ...trainerOptions(settings),
          memory: { gpu, rates },
        });
        try {
          const { fit } = trainer.session;
          const refitted = refitMemory(fit, limitsOf(device, { rates }), MORE, { recovery: 'step' });
          await trainer.setBudget(MORE);
          expect(trainer.session.fit.workload.activations?.modes).toEqual(refitted.workload.activations?.modes);
          return refitted.workload.activations?.modes;
        } finally {
          await trainer.destroy();
        }
      }),
    );
    expect(modes[0]).not.toEqual(modes[1]);
  });

  test('has on all ranks those of the first one', async () => {
    const files = fresh();
    const create = vi.spyOn(Trainer, 'create');
    const memories = [{ gpu, rates: COMPUTES }, { gpu }];
    await Promise.all(
      ranksInProcess(2, 2).map((ranks, rank) =>
        trainRun(memoryHost(files), device, { ...settings, accumulate: 2 }, 'run', {
          ranks,
          until: 1,
          memory: at(memories, rank),
        }),
      ),
    );
    expect(create.mock.calls.map(([, , { memory }]) => memory?.rates)).toEqual([COMPUTES, COMPUTES]);
    create.mockRestore();
  });

  test('keeps its rates in its checkpoints: what goes on makes the same plan, and so does a replay', async () => {
    const files = fresh();
    const begun = await start(files, { memory: { gpu, rates: COMPUTES }, until: 2 });
    expect((await savedState(memoryHost(files), 'run')).rates).toEqual(COMPUTES);
    const resumed = await start(files, { memory: { gpu }, resume: true });
    expect(resumed).toMatchObject({ modes: begun.modes, rates: COMPUTES });
    const create = vi.spyOn(Trainer, 'create');
    const run = await loadRun(memoryHost(files), 'run');
    expect((await replayRun(device, run, { memory: { gpu } })).sameBits).toBe(true);
    await run.release();
    expect(create.mock.calls.map(([, , { memory }]) => memory)).toEqual([{ gpu, rates: COMPUTES }]);
    create.mockRestore();
    // Another adapter is another one's rates.
    const elsewhere = await start(files, { memory: { gpu }, resume: true }, as('another', true));
    expect(elsewhere.rates).toBe(undefined);
    expect(elsewhere.modes).not.toEqual(begun.modes);
  });
});
