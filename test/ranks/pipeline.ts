// A small training on the stages of a pipeline, all of them in one process over one device, and what every stage must agree on:
// losses, norms, evaluations, texts, the memory that was predicted, and the bytes that the plan says. For tests of pipelines.

import { expect } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { EXCHANGE_AXES, type GridShape } from '../../src/engine/ranks/grid.ts';
import type { ZeroStage } from '../../src/engine/ranks/sharding.ts';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { joinedMicroBatches } from '../../src/parity/replay-case.ts';
import type { Generator } from '../../src/train/inference/generator.ts';
import type { Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { collect, type TensorSource } from '../../src/values/tensor-source.ts';
import { batchesOf, type Outcome, openTrainer, type Work, write } from '../model/runs.ts';
import { ranksInProcess } from './in-process.ts';

export interface Grid extends GridShape {
  readonly size: number;
  readonly zero?: ZeroStage;
}

/** `work`: of one rank, whose micro-batches the copies of the model share. The outcome is that of rank 0. */
export async function runStages(
  device: Device,
  work: Work,
  { size, zero = 0, ...shape }: Grid,
  choices: ChoiceRecord,
  memory: (rank: number) => MemoryOptions = () => ({}),
  weights?: TensorSource,
): Promise<{ readonly outcome: Outcome }> {
  const trainers: Trainer[] = [];
  try {
    for (const ranks of ranksInProcess(size, zero, shape)) {
      const before = device.allocator.bytes;
      const chunkBytes = trainers[0]?.session.map.chunkBytes;
      const own = { ...work, accumulate: work.accumulate / ranks.grid.data.size };
      const options = {
        choices,
        memory: memory(ranks.rank),
        ranks: { ...ranks, chunkBytes },
        ...(weights && { weights }),
      };
      const trainer = await openTrainer(device, own, options);
      trainers.push(trainer);
      expect(device.allocator.bytes - before, 'counted memory').toBe(trainer.session.fit.peak);
    }
    const outcomes = await Promise.all(trainers.map((trainer) => trainTogether(trainer, work)));
    const first = at(outcomes, 0);
    for (const { steps, evaluations, texts } of outcomes)
      expect({ steps, evaluations, texts }).toEqual({
        steps: first.steps,
        evaluations: first.evaluations,
        texts: first.texts,
      });
    return { outcome: first };
  } finally {
    for (const trainer of trainers) await trainer.destroy();
  }
}

async function trainTogether(trainer: Trainer, work: Work): Promise<Outcome> {
  const steps: (readonly [number, number, boolean])[] = [];
  const micros = batchesOf(work);
  for (let begun = 0; begun < micros.length; begun += 2) {
    const pair = micros.slice(begun, begun + 2).map((batches) => trainer.start(batches));
    for (const { loss, gradNorm, skipped } of await Promise.all(pair)) steps.push([loss, gradNorm, skipped]);
  }
  expectCounted(trainer, micros.length);
  // Of one batch, and of more than neighbours may be apart.
  const evaluations = [at(micros, micros.length - 1)[0], joinedMicroBatches(micros.flat())];
  const losses = [];
  for (const batch of evaluations) losses.push(await trainer.evaluate(batch));
  const texts = work.between ? [await write(trainer.generator as Generator)] : [];
  const [parameter, moment1, moment2] = (await trainer.collect(async () => [
    await collect(trainer.values('parameter')),
    await collect(trainer.values('moment1')),
    await collect(trainer.values('moment2')),
  ])) ?? [new Map(), new Map(), new Map()];
  return { steps, evaluations: losses, texts, between: [], parameter, moment1, moment2 };
}

/** Along every axis, what was sent and got is what the plan of a step says. */
function expectCounted({ ranks, session }: Trainer, steps: number): void {
  for (const axis of EXCHANGE_AXES) {
    const place = ranks?.grid[axis];
    if (!ranks || !place) continue;
    const { sent, received } = networkBytes(session.fit.passes.step.operations, place, axis);
    const { sentBytes, receivedBytes } = ranks.step[axis].ledger;
    expect([sentBytes, receivedBytes], `${axis} axis of rank ${ranks.rank}`).toEqual([steps * sent, steps * received]);
  }
}
