// The model that an imported low-rank update belongs to, among those of this site: known by the sum of its weights' values,
// wherever it was brought from and whatever it is called here. Not how the update is stored (import.ts).

import { checkWeights, loadWeights } from '../formats/checkpoint.ts';
import { FAMILIES, shapeOf } from '../formats/families/index.ts';
import { makeModel } from '../nn/index.ts';
import type { Host } from '../runtime/host.ts';
import { isSameBase, SummedSource } from '../train/run/base-identity.ts';
import { modelOf, type RunSettings } from '../train/run/run-settings.ts';
import type { SavedState } from '../train/run/saved-state.ts';
import { startWeights } from '../train/run/start-weights.ts';
import { finishing, HoldfastError } from '../util/errors.ts';
import { sourceOf } from '../values/tensor-source.ts';

/** A folder of this site with weights that do not change any more. */
export interface KeptModel {
  readonly name: string;
  readonly folder: string;
}

/** The folder of the base. Errors: HoldfastError where it is not here, which says what it is. */
export async function baseHere(
  host: Host,
  { settings, base }: Pick<SavedState, 'settings' | 'base'>,
  kept: readonly KeptModel[],
): Promise<string> {
  const { config, from } = settings;
  const alike: string[] = [];
  // Where it lay before, it most likely lies still.
  for (const each of [...kept].sort((a, b) => Number(b.folder === from) - Number(a.folder === from))) {
    const sum = await (settings.newHead ? sumWithNewHead : sumOf)(host, settings, each);
    if (sum === undefined) continue;
    if (isSameBase(sum, base)) return each.folder;
    alike.push(`“${each.name}”`);
  }
  const { layers, width } = shapeOf(config);
  const others = alike.length > 0 ? `, and ${alike.join(', ')} has other weights` : '';
  throw new HoldfastError(
    `this run trains a low-rank update of a model that is not here (${FAMILIES[config.model_type].label} of ${layers} layers, width ${width})${others}; bring that model and keep it first: train it once, or import its zip`,
  );
}

type SumOf = (host: Host, settings: RunSettings, model: KeptModel) => Promise<string | undefined>;

/** Undefined for another model. Errors: HoldfastError for one whose weights are not all there. */
const sumOf: SumOf = async ({ files }, { config }, { name, folder }) => {
  const found = await unlessRefused(loadWeights(files, folder));
  if (!found || JSON.stringify(found.config) !== JSON.stringify(config)) return undefined;
  checkWeights(found.shapes, makeModel(config).parameters, name);
  return new SummedSource(found.weights, files).sum();
};

/**
 * The sum of a base that has another head: the head of this run, as it was drawn, takes its place. Undefined where it
 * does not fit.
 */
const sumWithNewHead: SumOf = async (host, settings, { folder }) => {
  const noAdapter = sourceOf(new Map());
  const began = startWeights(host, { ...settings, from: folder }, modelOf(settings), noAdapter);
  return unlessRefused(began.then(({ base, release }) => finishing(base, release)));
};

const unlessRefused = <T>(work: Promise<T>): Promise<T | undefined> =>
  work.catch((error: unknown) => {
    if (error instanceof HoldfastError) return undefined;
    throw error;
  });
