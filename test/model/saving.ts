// What the tests of faults share: a small training that saves a checkpoint in memory behind each step but the last, and one that
// goes on from such a checkpoint.

import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { type Checkpoint, saveCheckpoint } from '../../src/formats/checkpoint.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { StepMetrics, Trainer } from '../../src/train/step/trainer.ts';
import type { TrainerState } from '../../src/train/step/trainer-state.ts';
import { collect, sourceOf, type Values } from '../../src/values/tensor-source.ts';
import type { MemoryFiles } from '../memory-files.ts';
import { batchesOf, openTrainer, type Work } from './runs.ts';

/** What the steps of a training brought. */
export interface Trained {
  readonly metrics: readonly StepMetrics[];
  readonly weights: Values;
}

/** Of a checkpoint. */
export interface Content {
  readonly state: TrainerState;
  /** Weights and both moments. */
  readonly values: readonly [Values, Values, Values];
}

async function save(files: MemoryFiles, trainer: Trainer): Promise<void> {
  const { config, parameters } = trainer.model;
  await saveCheckpoint(files, 'run', trainer.step, {
    config,
    weights: trainer.values('parameter'),
    shapes: new Map(parameters.map(({ name, shape }) => [name, shape])),
    moment1: trainer.values('moment1'),
    moment2: trainer.values('moment2'),
    state: await trainer.state(),
  });
}

export const contentOf = async ({ weights, moment1, moment2, state }: Checkpoint): Promise<Content> => ({
  state: state as TrainerState,
  values: [await collect(weights), await collect(moment1), await collect(moment2)],
});

/** The steps of `work` that are left; a checkpoint behind each but the last, and then `saved`. */
export async function trainSaving(
  files: MemoryFiles,
  trainer: Trainer,
  work: Work,
  saved: () => Promise<void> = async () => {},
): Promise<Trained> {
  const metrics: StepMetrics[] = [];
  for (const batches of batchesOf(work).slice(trainer.step)) {
    if (metrics.length > 0) {
      await save(files, trainer);
      await saved();
    }
    metrics.push(await trainer.start(batches));
  }
  await trainer.settle();
  return { metrics, weights: await collect(trainer.values('parameter')) };
}

/** The steps behind a checkpoint, in another trainer, without a budget. */
export async function trainFrom(
  { state, values: [weights, moment1, moment2] }: Content,
  device: Device,
  work: Work,
  choices: ChoiceRecord,
): Promise<Trained> {
  const trainer = await openTrainer(device, work, { choices, weights: sourceOf(weights) });
  try {
    await trainer.setValues('moment1', sourceOf(moment1));
    await trainer.setValues('moment2', sourceOf(moment2));
    trainer.restore(state);
    const metrics: StepMetrics[] = [];
    for (const batches of batchesOf(work).slice(state.step)) metrics.push(await trainer.start(batches));
    return { metrics, weights: await collect(trainer.values('parameter')) };
  } finally {
    await trainer.destroy();
  }
}
