// Part of a training step that one place of a grid of ranks has: its part of the model and the programs of that part. A
// trainer is made of it, and a plan works out the same with no GPU. What copies of the model shard is no matter here
// (engine/ranks/sharding.ts).

import type { TaskName } from '../../data/tasks.ts';
import type { Ranks } from '../../engine/ranks/ranks.ts';
import { appliesAlone } from '../../engine/run/applied-alone.ts';
import type { Device } from '../../gpu/device.ts';
import type { GridPlace } from '../../graph/grid-place.ts';
import { endingsIn } from '../../graph/makers.ts';
import { trainingDtypeOf } from '../../memory/layout/chunk-map.ts';
import type { Model } from '../../nn/model.ts';
import { stageOf } from '../../nn/pipeline-parallel.ts';
import { checkRows, splitModel } from '../../nn/tensor-parallel.ts';
import { type StepOptions, type StepPrograms, traceStep } from './step-programs.ts';

/** The places of a rank along the axes that one copy of the model takes. */
export interface CopyPlaces {
  readonly tensor: GridPlace;
  readonly pipeline: GridPlace;
}

export interface StepPart {
  /** Its part of every layer. */
  readonly layers: Model;
  /** The layers of its stage, and of each its part. */
  readonly part: Model;
  readonly programs: StepPrograms;
}

export interface StepPartOptions extends Omit<StepOptions, 'place' | 'rows'> {
  /** Whether ranks that share layers each have some of the rows between them. @default all have all */
  readonly sequenceParallel?: boolean | undefined;
}

/** Errors: HoldfastError for a model, or micro-batches, that cannot be dealt out so. */
export function stepPart(
  model: Model,
  batch: number,
  seq: number,
  places: CopyPlaces | undefined,
  { sequenceParallel = false, ...options }: StepPartOptions = {},
): StepPart {
  const shares = places && places.tensor.size > 1;
  const layers = shares ? splitModel(model, places.tensor) : model;
  const rows = shares && sequenceParallel ? places.tensor : undefined;
  if (rows) checkRows(layers, batch * seq, rows.size);
  const programs = traceStep(layers, batch, seq, { ...options, rows, place: places?.pipeline });
  return { layers, part: programs.stages ? stageOf(layers, programs.stages) : layers, programs };
}

/** What `stepPart` gives on this device, for a model or one that differs from it in what the optimizer runs on. */
export async function stepPartOn(
  device: Device,
  model: Model,
  { batch, seq, places, ...options }: StepPartOptions & { batch: number; seq: number; places: CopyPlaces | undefined },
  signal?: AbortSignal,
): Promise<(model: Model) => StepPart> {
  const partOf = (model: Model, appliesAlone?: boolean) =>
    stepPart(model, batch, seq, places, { ...options, appliesAlone });
  // Weights of sixteen bits are read in other ways, each of which is compiled apart.
  const isTried = device.adapter.software || trainingDtypeOf(model.parameters) === 'f32';
  const alone = isTried && (await appliesAlone(device, () => endingsIn(partOf(model).programs.first), signal));
  return (model) => partOf(model, alone);
}

/** Whether a forward pass exchanges something, so that all ranks go through it together. */
export const writeTogether = ({ sharding, grid }: Pick<Ranks, 'sharding' | 'grid'>): boolean =>
  grid.tensor.size > 1 || grid.pipeline.size > 1 || (sharding.stage === 3 && sharding.size > 1);

/** Whether a rank writes text between steps, and so has memory for it: samples are those of rank 0, a task's problems all solve. */
export const writesText = (ranks: Pick<Ranks, 'rank' | 'sharding' | 'grid'>, task?: TaskName): boolean =>
  ranks.rank === 0 || task !== undefined || writeTogether(ranks);
