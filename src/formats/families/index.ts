// Questions about a model that its family answers: by its configuration, whichever family it is of.

import { HoldfastError, messageOf } from '../../util/errors.ts';
import type { Family, ModelShape, SeenImages } from './family.ts';
import type { Labels } from './labels.ts';
import FAMILIES, { type FamilyName, type ModelConfig } from './table.ts';

export type { FamilyName, ModelConfig } from './table.ts';
export { FAMILIES };

/** The names of the families, in the order of the table. */
export const FAMILY_NAMES = Object.keys(FAMILIES) as FamilyName[];

/** Errors: HoldfastError for what is no configuration of a family in the table. */
export function familyOf(config: ModelConfig): Family<ModelConfig> {
  const name = (config as ModelConfig | null | undefined)?.model_type as FamilyName;
  if (typeof name === 'string' && Object.hasOwn(FAMILIES, name)) return FAMILIES[name];
  throw new HoldfastError(
    `the configuration of the model is of no family that is supported (model_type); it must be one of ${FAMILY_NAMES.join(', ')}`,
  );
}

/** The images that a model looks at; undefined of one that reads text. */
export const imagesIn = (config: ModelConfig): SeenImages | undefined => familyOf(config).images?.(config);

/** The classes that a model tells apart; undefined of one that does something else. */
export const labelsIn = (config: ModelConfig): Labels | undefined => familyOf(config).classifier?.labels(config);

/** Errors: HoldfastError for a model that cannot go on with a text; `where` it is, where that is known. */
export function checkWriter(config: ModelConfig, where?: string): void {
  if (familyOf(config).writes) return;
  const writers = FAMILY_NAMES.filter((name) => FAMILIES[name].writes);
  throw new HoldfastError(
    `${where === undefined ? '' : `${where}: `}a ${config.model_type} model writes no text: it looks at all of its input at once; use one that does, such as ${writers.slice(0, 2).join(' or ')}`,
  );
}

/** Its sizes, whatever its family calls them. Errors: HoldfastError for what is no configuration, and for sizes that cannot be reckoned with. */
export function shapeOf(config: ModelConfig): ModelShape {
  const family = familyOf(config);
  try {
    return family.shape(config);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    throw new HoldfastError(
      `the configuration of the model has a size that is no number (${messageOf(error)}); give one as parseConfig makes it`,
    );
  }
}

/** The model with its first `layers` blocks alone. */
export function withLayers(config: ModelConfig, layers: number): ModelConfig {
  const { layersField } = familyOf(config).tensors(config);
  const types = 'layer_types' in config ? config.layer_types : undefined;
  return { ...config, [layersField]: layers, ...(types && { layer_types: types.slice(0, layers) }) };
}
