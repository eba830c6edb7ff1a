// Checkpoints that all ranks write at the same time, each whole tensors of its own: whatever the grid and the stage of ZeRO, what
// is read again is what was there, to the bit, and other numbers of ranks go on from it. And how tensors are dealt out.

import fc from 'fast-check';
import { beforeAll, describe, expect, it } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import type { ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { assignWriters } from '../../src/engine/ranks/writers.ts';
import { loadCheckpoint, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import type { Device } from '../../src/gpu/device.ts';
import { writersOf } from '../../src/train/run/ranks.ts';
import type { Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles } from '../memory-files.ts';
import { batchesOf, LARGEST, MODELS, openTrainer, type Work } from '../model/runs.ts';
import { ranksInProcess } from './in-process.ts';
import type { Grid } from './pipeline.ts';

let device: Device;
let choices: ChoiceRecord = {};
beforeAll(async () => {
  device = await testDevice();
});

const MODEL = EVERY_CASE ? LARGEST : MODELS['gpt2, tied'];
const WORK: Work = { model: MODEL, batch: 1, seq: 8, accumulate: 4, steps: 1 };

/** Trainers of a grid, in one process. */
async function onGrid<T>(
  { size, zero = 0, ...shape }: Grid,
  use: (trainers: readonly Trainer[]) => Promise<T>,
): Promise<T> {
  const trainers: Trainer[] = [];
  try {
    for (const ranks of ranksInProcess(size, zero, shape)) {
      const chunkBytes = trainers[0]?.session.map.chunkBytes;
      const work = { ...WORK, accumulate: Math.ceil(WORK.accumulate / ranks.grid.data.size) };
      trainers.push(await openTrainer(device, work, { choices, ranks: { ...ranks, chunkBytes } }));
      choices = at(trainers, 0).choices.record();
    }
    return await use(trainers);
  } finally {
    for (const trainer of trainers) await trainer.destroy();
  }
}

const valuesOf = async (trainer: Trainer) => ({
  parameter: await collect(trainer.values('parameter')),
  moment1: await collect(trainer.values('moment1')),
  moment2: await collect(trainer.values('moment2')),
});

const ranksOf = ({ ranks }: Trainer) => {
  if (!ranks) throw new Error('it is one of several');
  return ranks;
};

/** All of them, at the same time. */
const save = (trainers: readonly Trainer[], files: MemoryFiles) =>
  Promise.all(
    trainers.map((trainer) =>
      trainer.share(() =>
        saveCheckpoint(
          files,
          'run',
          1,
          {
            config: MODEL.config,
            weights: trainer.values('parameter'),
            shapes: new Map(MODEL.parameters.map(({ name, shape }) => [name, shape])),
            moment1: trainer.values('moment1'),
            moment2: trainer.values('moment2'),
            state: { format: 'holdfast 1', step: 1 },
          },
          { writers: writersOf(ranksOf(trainer), trainer) },
        ),
      ),
    ),
  );

const GRIDS: [string, Grid][] = [
  ['2 ranks, ZeRO 2', { size: 2, zero: 2 }],
  ['4 ranks, ZeRO 3', { size: 4, zero: 3 }],
  ['2 x 2 that share layers, ZeRO 3', { size: 4, tensor: 2, zero: 3 }],
  ['2 stages of 2, ZeRO 1', { size: 4, pipeline: 2, zero: 1 }],
  ['2 stages of 2 that share layers', { size: 4, pipeline: 2, tensor: 2 }],
  ['2 ranks, all of them whole', { size: 2, zero: 0 }],
];

describe('a checkpoint of all ranks', () => {
  it.each(EVERY_CASE ? GRIDS : GRIDS.slice(2, 3))('%s: what is read is what was there', async (_, grid) => {
    const files = new MemoryFiles();
    const [saved, bytes] = await onGrid(grid, async (trainers) => {
      const [first = []] = batchesOf(WORK);
      await Promise.all(trainers.map((trainer) => trainer.start(first)));
      const sent = () => trainers.reduce((sum, trainer) => sum + ranksOf(trainer).state.ledger.sentBytes, 0);
      await save(trainers, files);
      const bytes = sent();
      const [values] = await Promise.all(trainers.map((trainer) => trainer.collect(() => valuesOf(trainer))));
      return [values, bytes] as const;
    });
    const { weights, moment1, moment2 } = await loadCheckpoint(files, 'run');
    expect({
      parameter: await collect(weights),
      moment1: await collect(moment1),
      moment2: await collect(moment2),
    }).toEqual(saved);
    // Every rank has written something.
    const names = await files.list('run/checkpoint-1');
    expect(names).toContain(`model-0000${grid.size}-of-0000${grid.size}.safetensors`);
    // What every rank has is not sent.
    if (grid.size === 2 && grid.zero === 0) expect(bytes).toBe(0);
    const all = 12 * MODEL.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    expect(bytes).toBeLessThan(all);

    const again = async (other: Grid) =>
      onGrid(other, async (trainers) => {
        const found = await Promise.all(
          trainers.map(async (trainer) => {
            const loaded = await loadCheckpoint(files, 'run');
            await trainer.setWeights(loaded.weights);
            await trainer.setValues('moment1', loaded.moment1);
            await trainer.setValues('moment2', loaded.moment2);
            return trainer.collect(() => valuesOf(trainer));
          }),
        );
        return found[0];
      });
    const others: ZeroStage[] = EVERY_CASE ? [0, 3] : [3];
    for (const size of EVERY_CASE ? [1, 2, 3, 4] : [1, 3])
      for (const zero of others) expect(await again({ size, zero }), `${size} ranks, ZeRO ${zero}`).toEqual(saved);
  });
});

describe('the tensors of a checkpoint', () => {
  const cases = fc.integer({ min: 1, max: 6 }).chain((size) =>
    fc.record({
      size: fc.constant(size),
      tensors: fc.array(
        fc.record({
          bytes: fc.integer({ min: 0, max: 1000 }),
          held: fc.array(fc.integer({ min: 0, max: 1000 }), { minLength: size, maxLength: size }),
        }),
        { maxLength: 40 },
      ),
    }),
  );
  const dealt = (size: number, tensors: readonly { bytes: number; held: readonly number[] }[]) => {
    const named = tensors.map(({ bytes, held }, i) => ({ name: `${i}`, bytes, held: new Map(held.entries()) }));
    const ranks = Array.from({ length: size }, (_, rank) => rank);
    return { named, writers: assignWriters(named, ranks) };
  };

  it('have one writer each, and no rank writes more than its share and one tensor', () => {
    fc.assert(
      fc.property(cases, ({ size, tensors }) => {
        const { named, writers } = dealt(size, tensors);
        expect(writers.size).toBe(tensors.length);
        const loads = Array.from({ length: size }, () => 0);
        for (const { name, bytes } of named) loads[writers.get(name) ?? -1]! += bytes;
        const total = loads.reduce((a, b) => a + b, 0);
        expect(total).toBe(tensors.reduce((sum, { bytes }) => sum + bytes, 0));
        const largest = Math.max(0, ...tensors.map(({ bytes }) => bytes));
        expect(Math.max(...loads)).toBeLessThanOrEqual(total / size + largest);
      }),
      { seed: 15 },
    );
  });

  it('are written where they lie, while that is even', () => {
    const each = (rank: number) => ({ bytes: 10, held: [0, 1, 2].map((other) => (other === rank ? 10 : 0)) });
    const { named, writers } = dealt(3, [2, 0, 1, 1, 0, 2].map(each));
    for (const { name, held } of named) expect(held.get(writers.get(name) ?? -1)).toBe(10);
  });
});
