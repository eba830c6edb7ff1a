// A model out of a folder, whatever the folder holds: a model, a run, or an adapter, with the base that it names; and further
// adapters to choose from when text is written. Not for training (start-weights.ts).

import { besideAdapter } from '../formats/checkpoint/load.ts';
import {
  checkWeights,
  type FoundFolder,
  type LoadedAdapter,
  loadAdapter,
  type SavedWeights,
  withWeights,
} from '../formats/checkpoint.ts';
import type { TokenizerFiles } from '../formats/tokenizer-files.ts';
import { makeModel } from '../nn/index.ts';
import { adapterParameter, DEFAULT_ADAPTER, mergedWeights, withLora } from '../nn/lora.ts';
import { type Model, withStored } from '../nn/model.ts';
import type { Files } from '../runtime/host.ts';
import { HoldfastError, shortened } from '../util/errors.ts';
import { collect, joined, sourceOf, type TensorSource, type Values } from '../util/tensor-source.ts';
import { baseStorage } from './base-dtype.ts';
import { checkAdapterTensors } from './start-weights.ts';

/** A model, and its weights, those of its adapters among them. */
export interface OpenedModel {
  /** With its adapters, and its weights stored as they are in its files: it is not to be trained. */
  readonly model: Model;
  /** Of all its parameters; readable while it is lent. */
  readonly weights: TensorSource;
  /** The adapter's tokenizer, else the model's, where there is one beside it. */
  readonly tokenizer?: TokenizerFiles;
  /** Where the model lies: of an adapter, its base. */
  readonly found: FoundFolder;
}

/** What else belongs to a model. */
export interface ModelSources {
  /** The folder of an adapter's base. @default the one that it names */
  readonly base?: string | undefined;
  /**
   * Folders of adapters by their names; the one called 'default' is in use where none is named, and an adapter's own
   * folder is that one. @default none
   */
  readonly adapters?: Readonly<Record<string, string>>;
}

/**
 * Lends the model in a folder to `use`, as `withWeights` does. Adapters are read into memory. Errors: HoldfastError naming
 * the folder, and what is missing, damaged, not supported or of another model.
 */
export async function withModel<T>(
  files: Files,
  folder: string,
  sources: ModelSources,
  use: (opened: OpenedModel) => Promise<T>,
): Promise<T> {
  const adapters = { ...sources.adapters };
  const itself = await besideAdapter(files, folder);
  if (!itself && sources.base !== undefined)
    throw new HoldfastError(`${folder}: is a model and has no base; leave ${sources.base} out`);
  if (itself && adapters[DEFAULT_ADAPTER] === undefined) adapters[DEFAULT_ADAPTER] = folder;
  const base = itself ? await baseOf(files, folder, sources.base ?? itself.base) : folder;
  return withWeights(files, base, async ({ config, weights, shapes, stored = new Map(), tokenizer: own }, found) => {
    let model = makeModel(config);
    checkWeights(shapes, model.parameters, base);
    const low: Values = new Map();
    for (const [name, path] of Object.entries(adapters)) {
      const adapter = await loadAdapter(files, path, config);
      model = withAdapter(model, adapter, name);
      const values = await collect(adapter.weights);
      for (const { weight, a, b } of model.adapters?.at(-1)?.linears ?? []) {
        for (const [which, own] of [['A', a] as const, ['B', b] as const]) {
          const found = values.get(adapterParameter(weight, which));
          if (found) low.set(own, found);
        }
      }
    }
    const tokenizer = itself?.tokenizer ?? own;
    const all = low.size === 0 ? weights : joined(weights, sourceOf(low));
    const kept = withStored(model, baseStorage(model, stored, undefined));
    return use({ model: kept, weights: all, found, ...(tokenizer && { tokenizer }) });
  });
}

/** The model alone, its adapter made a part of the weights where it has one: what is exported. */
export async function mergedModel({ model, weights, tokenizer }: OpenedModel): Promise<SavedWeights> {
  return {
    config: model.config,
    shapes: new Map(model.parameters.map(({ name, shape }) => [name, shape])),
    weights: model.adapters ? await mergedWeights(model, weights) : weights,
    ...(tokenizer && { tokenizer }),
  };
}

/** Errors: HoldfastError where the base of the adapter in a folder is not named, or not there. */
async function baseOf(files: Files, folder: string, base: string | undefined): Promise<string> {
  if (base !== undefined && (await files.stat(base))) return base;
  const named = base === undefined ? 'names no base' : `belongs to ${shortened(base)}, which is not here`;
  throw new HoldfastError(`${folder}: its adapter ${named}; name the folder of its model with --base`);
}

/** The model with an adapter of that name. Errors: HoldfastError naming the adapter's folder where it is none of this model. */
export function withAdapter(model: Model, { options, shapes, path }: LoadedAdapter, name = DEFAULT_ADAPTER): Model {
  try {
    // By the names in its file, whatever it is called here.
    const alone = withLora(makeModel(model.config), options);
    for (const info of alone.adapters ?? []) checkAdapterTensors(shapes, info, path);
  } catch (error) {
    if (error instanceof HoldfastError && !error.message.startsWith(path))
      throw new HoldfastError(`${path}: ${error.message}`);
    throw error;
  }
  return withLora(model, options, name);
}
