// What the ranks of a run tell rank 0 of their last step, and the timeline that shows them side by side.

import { beforeAll, expect, it } from 'vitest';
import type { Recording } from '../../src/engine/observe/recording.ts';
import { chromeTrace, type TraceEvent } from '../../src/engine/observe/timeline.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { rankRecord } from '../../src/train/run/rank-record.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { ranksInProcess } from './in-process.ts';

beforeAll(() => chooseVariants(1));

it('is whole on every rank, and drawn beside that of rank 0', async () => {
  const config = { model_type: 'gpt2', n_layer: 1, n_embd: 24, n_head: 2, n_positions: 8, vocab_size: 61 };
  const model = makeModel(parseConfig(config, 'gpt2'));
  const device = await testDevice();
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
  const trainers: Trainer[] = [];
  try {
    for (const ranks of ranksInProcess(3, 3)) {
      const shared = { ...ranks, chunkBytes: trainers[0]?.session.map.chunkBytes };
      trainers.push(await Trainer.create(device, model, { batch: 1, seq: 8, schedule, ranks: shared }));
    }
    await Promise.all(trainers.map((trainer) => trainer.setWeights(initialWeights(model, 1))));
    const ids = Int32Array.from({ length: 8 }, (_, i) => i);
    const micros = Array.from({ length: 3 }, () => ({ ids, targets: ids, batch: 1, seq: 8 }));
    const recordings: (Recording | undefined)[] = [undefined, undefined, undefined];
    const step = (rank: number) =>
      at(trainers, rank).start(micros, { recorded: (recording) => recordings.splice(rank, 1, recording) });
    await Promise.all([0, 1, 2].map(step));

    const records = await Promise.all(
      trainers.map((trainer, rank) => {
        if (!trainer.ranks) throw new Error('a trainer of several ranks has them');
        return rankRecord(trainer.ranks, trainer, recordings[rank]);
      }),
    );
    const { each } = at(records, 0);
    expect(each.map(({ rank }) => rank)).toEqual([0, 1, 2]);
    const sum = (of: 'sentBytes' | 'receivedBytes') => each.reduce((bytes, share) => bytes + share[of], 0);
    expect(sum('sentBytes')).toBe(sum('receivedBytes'));
    for (const { rank, sentBytes, planned, gpu, exchangeMemory, waits, step } of each) {
      expect(sentBytes).toBe(planned.sent);
      expect(gpu.predictedPeak).toBe(at(trainers, rank).session.fit.peak);
      expect(exchangeMemory.bytes).toBe(exchangeMemory.planned);
      expect(exchangeMemory.planned).toBeGreaterThan(0);
      if (!step) throw new Error('the step was recorded');
      expect(step.waits.network).toBeGreaterThan(0);
      expect(waits.network).toBeGreaterThan(0);
      const waited = Object.values(step.waits).reduce((a, b) => a + b, 0);
      expect(waited).toBeLessThanOrEqual(step.milliseconds + 0.1);
      expect(Object.keys(step.exchanges)).toEqual(
        expect.arrayContaining(['all-gather parameter', 'reduce-scatter gradient']),
      );
      const exchanged = Object.values(step.exchanges).reduce((a, b) => a + b, 0);
      expect(exchanged).toBeCloseTo(step.waits.network, 0);
      expect(step.phases.map(({ name }) => name)).toEqual(
        at(trainers, rank).session.fit.passes.step.phases.map(({ name }) => name),
      );
    }

    const [first] = recordings;
    if (!first) throw new Error('the step was recorded');
    const others = each.flatMap(({ rank, step }) => (step && rank > 0 ? [step] : []));
    const { traceEvents } = chromeTrace([first], others);
    const names = traceEvents
      .filter(({ name }) => name === 'process_name')
      .map(({ pid, args }) => [pid, args?.['name']]);
    expect(names).toEqual([
      [1, 'Holdfast, rank 0'],
      [2, 'Holdfast, rank 1'],
      [3, 'Holdfast, rank 2'],
    ]);
    const tracks = new Map<string, TraceEvent[]>();
    for (const event of traceEvents.filter(({ ph }) => ph === 'X')) {
      const key = `${event.pid} ${event.tid}`;
      tracks.set(key, [...(tracks.get(key) ?? []), event]);
    }
    // Slices of a track never overlap, by more than they are rounded.
    for (const slices of tracks.values()) {
      slices.slice(1).forEach(({ ts }, i) => {
        const { ts: before, dur = 0 } = at(slices, i);
        expect(ts).toBeGreaterThanOrEqual(before + dur - 1.5);
      });
    }
    const waits = traceEvents.filter(({ ph, name }) => ph === 'X' && name.startsWith('reduce-scatter gradient'));
    expect(new Set(waits.map(({ pid }) => pid))).toEqual(new Set([1, 2, 3]));
    // Alone, nothing of it is there.
    expect(JSON.stringify(chromeTrace([first]))).not.toContain('rank 0');
  } finally {
    for (const trainer of trainers) await trainer.destroy();
  }
});
