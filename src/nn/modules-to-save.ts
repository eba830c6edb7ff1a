// Modules that train whole beside a low-rank update, by PEFT's rules and names (`modules_to_save`): the head of a classifier,
// and what a file of another head has no weights of. Each is a copy of the base's own parameters, which stay as they are.
//
// Invariant: without the adapter the model computes with the base's parameters, with it with the copies in their place.

import { isNamed, type SavedParameter, savedName } from '../formats/adapter.ts';
import { familyOf, labelsIn, type ModelConfig } from '../formats/families/index.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import type { TensorSource } from '../values/tensor-source.ts';
import type { Model, Parameter } from './model.ts';

/** What PEFT names for every classifier of texts, whether the model has it or not. */
const USUAL: readonly string[] = ['classifier', 'score'];

/** Those that may be named: of a classifier its head, and what other heads of its family do without. */
function modulesIn(config: ModelConfig): string[] {
  const { classifier } = familyOf(config);
  if (!classifier || !labelsIn(config)) return [];
  const { head, lacking } = classifier;
  return [head, ...(lacking === undefined ? [] : [lacking])];
}

/** What trains whole where nothing else is said: a classifier's head, and with one that is drawn all that may be lacking. */
export const headModules = (config: ModelConfig, isNew: boolean): string[] =>
  modulesIn(config).slice(0, isNew ? undefined : 1);

/** The parameters of the modules that are named. Errors: HoldfastError for a name that is none of the model's. */
export function savedParameters(
  { config, parameters }: Pick<Model, 'config' | 'parameters'>,
  names: readonly string[],
  suffix: string,
): SavedParameter[] {
  const known = modulesIn(config);
  const found = known.filter((module) => names.some((name) => isNamed(module, name)));
  const stranger = names.find(
    (name) => !known.some((module) => isNamed(module, name)) && !(found.length > 0 && USUAL.includes(name)),
  );
  if (stranger !== undefined)
    throw new HoldfastError(
      `low-rank updates: ${shortened(stranger)} cannot train whole beside one; ${known.length > 0 ? `of this model ${known.join(' and ')} can` : 'only the head of a classifier can, and this model is none'}`,
    );
  const isSaved = ({ name }: Parameter) => found.some((module) => name.startsWith(`${module}.`));
  return parameters
    .filter(isSaved)
    .map(({ name, shape }) => ({ original: name, name: savedName(name, suffix), shape }));
}

/** The copies as they begin. */
export function initialCopies(base: TensorSource, saved: readonly SavedParameter[]): TensorSource {
  const originals = new Map(saved.map(({ name, original }) => [name, original]));
  return { names: [...originals.keys()], read: (name) => base.read(originals.get(name) ?? name) };
}
