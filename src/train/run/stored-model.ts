// The model of a run as it lies in memory, from its settings and from the headers of its model's files: what nothing trains is
// stored there as in them, or as is asked for. Weights are not read.

import { unsummed } from '../../formats/checkpoint/unsummed.ts';
import { loadWeights } from '../../formats/checkpoint.ts';
import type { ModelConfig } from '../../formats/config.ts';
import { makeModel } from '../../nn/index.ts';
import { type Model, withStored } from '../../nn/model.ts';
import type { FolderReader } from '../../runtime/host.ts';
import type { StoredElement } from '../../values/stored-elements.ts';
import { baseStorage } from './base-dtype.ts';
import { modelOf, type RunSettings } from './run-settings.ts';

/** How files hold weights, by their names. */
export type StoredAs = ReadonlyMap<string, StoredElement>;

/**
 * How the files in a folder hold its weights; undefined where they do not say. `as`: the model that they are wanted for, where it has
 * another head. Errors: HoldfastError naming what is missing or damaged.
 */
export async function storedIn(files: FolderReader, folder: string, as?: ModelConfig): Promise<StoredAs | undefined> {
  return (await loadWeights(unsummed(files), folder, as)).stored;
}

/** All weights of a model, stored alike. */
export const storedAll = ({ parameters }: Pick<Model, 'parameters'>, element: StoredElement): StoredAs =>
  new Map(parameters.map(({ name }) => [name, element]));

/** The model that a run trains. `stored`: how the files of its base hold it. @default all of it as f32 */
export function storedModel(settings: RunSettings, stored?: StoredAs): Model {
  const { lora, config } = settings;
  if (!lora) return modelOf(settings);
  const base = makeModel(config);
  return withStored(modelOf(settings), baseStorage(base, stored ?? storedAll(base, 'f32'), lora.baseDtype));
}
