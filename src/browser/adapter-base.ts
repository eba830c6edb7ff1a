// The model that an imported low-rank update belongs to, among those of this site: known by the sum of its weights' values,
// wherever it was brought from and whatever it is called here. Not how the update is stored (import.ts).

import { checkWeights, loadWeights } from '../formats/checkpoint.ts';
import { FAMILIES, shapeOf } from '../formats/families/index.ts';
import { makeModel } from '../nn/index.ts';
import type { Files } from '../runtime/host.ts';
import { SummedSource } from '../train/base-identity.ts';
import type { SavedState } from '../train/saved-state.ts';
import { HoldfastError } from '../util/errors.ts';

/** A folder of this site with weights that do not change any more. */
export interface KeptModel {
  readonly name: string;
  readonly folder: string;
}

/** The folder of the base. Errors: HoldfastError where it is not here, which says what it is. */
export async function baseHere(
  files: Files,
  { settings, base }: Pick<SavedState, 'settings' | 'base'>,
  kept: readonly KeptModel[],
): Promise<string> {
  const { config, from } = settings;
  const wanted = JSON.stringify(config);
  const alike: string[] = [];
  // Where it lay before, it most likely lies still.
  for (const { name, folder } of [...kept].sort((a, b) => Number(b.folder === from) - Number(a.folder === from))) {
    const found = await loadWeights(files, folder).catch((error: unknown) => {
      if (error instanceof HoldfastError) return undefined;
      throw error;
    });
    if (!found || JSON.stringify(found.config) !== wanted) continue;
    checkWeights(found.shapes, makeModel(config).parameters, name);
    if ((await new SummedSource(found.weights, files).sum()) === base) return folder;
    alike.push(`“${name}”`);
  }
  const { layers, width } = shapeOf(config);
  const others = alike.length > 0 ? `, and ${alike.join(', ')} has other weights` : '';
  throw new HoldfastError(
    `this run trains a low-rank update of a model that is not here (${FAMILIES[config.model_type].label} of ${layers} layers, width ${width})${others}; bring that model and keep it first: train it once, or import its zip`,
  );
}
