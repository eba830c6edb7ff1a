// A model whose blocks several ranks have, one part behind the other: which stage each parameter belongs to, as the programs of
// the model are cut (graph/pipeline.ts), and the part of the model that a stage is. Checkpoints, and the order in which the
// gradient's norm adds up, follow from it.

import { blocksOf } from '../graph/activations.ts';
import type { GridPlace } from '../graph/grid-place.ts';
import { parameterStages, type Stages, stagesOf } from '../graph/pipeline.ts';
import type { Program } from '../graph/program.ts';
import { type ChunkMap, packChunks } from '../memory/layout/chunk-map.ts';
import { leastChunkBytes } from '../memory/layout/layout.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import type { Model } from './model.ts';

/** How a model is dealt out, as one of the stages sees it. */
export interface ModelStages extends Stages {
  readonly place: GridPlace;
  /** By the name of a parameter: one, or the first and the last for a table that reads tokens and tells them apart. */
  readonly ofParameter: ReadonlyMap<string, readonly number[]>;
  /** Bytes of the smallest chunk in which every tensor of any stage can lie. */
  readonly leastChunk: number;
}

/** Errors: HoldfastError for more stages than blocks. */
export function checkStages(blocks: number, stages: number): void {
  if (stages <= blocks) return;
  const each = `the model has ${blocks} ${blocks === 1 ? 'block' : 'blocks'}, and each stage needs one`;
  throw new HoldfastError(`--pipeline-parallel ${stages}: ${each}; give at most ${blocks}`);
}

/** `program`: of a training step of the whole model. Errors: HoldfastError for more stages than blocks. */
export function modelStages(model: Model, program: Program, place: GridPlace): ModelStages {
  const { size } = place;
  checkStages(blocksOf(program).length, size);
  const stages = stagesOf(program, size);
  const uses = parameterStages(program, stages);
  const ofParameter = new Map(
    model.parameters.map(({ name }) => {
      const found = uses.get(name) ?? [0];
      // The head and the embedding.
      assert(
        found.every((stage) => found.length === 1 || stage === 0 || stage === size - 1),
        `${name} is in a block`,
      );
      return [name, found];
    }),
  );
  return { ...stages, place, ofParameter, leastChunk: leastChunkBytes(model.parameters) };
}

const isOn = ({ ofParameter }: ModelStages, { name }: { readonly name: string }, stage: number): boolean =>
  ofParameter.get(name)?.includes(stage) ?? false;

/** Whether two stages have it. */
export const isTied = ({ ofParameter }: ModelStages, { name }: { readonly name: string }): boolean =>
  (ofParameter.get(name)?.length ?? 0) > 1;

/** The stage whose value counts: both have the same. */
export const ownerIn = ({ ofParameter }: ModelStages, { name }: { readonly name: string }): number =>
  ofParameter.get(name)?.[0] ?? 0;

/** Those that a stage has, what another one has too before the others, so that it lies alike in the chunks of both. */
export function onStage<P extends { readonly name: string }>(
  all: readonly P[],
  stages: ModelStages,
  stage = stages.place.rank,
): P[] {
  const own = all.filter((parameter) => isOn(stages, parameter, stage));
  return [
    ...own.filter((parameter) => isTied(stages, parameter)),
    ...own.filter((parameter) => !isTied(stages, parameter)),
  ];
}

/** What a stage has of a model. */
export const stageOf = (model: Model, stages: ModelStages, stage = stages.place.rank): Model => ({
  ...model,
  parameters: onStage(model.parameters, stages, stage),
});

/** How another stage has its parameters in chunks, which are of the size of the first one's. */
export const stageMap = (
  { parameters }: Model,
  { leastChunk }: Pick<ModelStages, 'leastChunk'>,
  chunkBytes: number,
): ChunkMap => packChunks(parameters, true, chunkBytes, leastChunk);
