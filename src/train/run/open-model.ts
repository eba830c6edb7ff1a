// A model out of a folder, whatever the folder holds: a model, a run, or an adapter, with the base that it names; and further
// adapters to choose from when text is written. Not for training (start-weights.ts).

import { DEFAULT_TOKENIZER } from '../../data/tokenizer.ts';
import { besideAdapter } from '../../formats/checkpoint/load.ts';
import {
  checkWeights,
  type DescribedAdapter,
  type FoundFolder,
  type LoadedAdapter,
  loadAdapter,
  type SavedWeights,
  withWeights,
} from '../../formats/checkpoint.ts';
import type { ModelConfig } from '../../formats/config.ts';
import { familyOf, labelsIn } from '../../formats/families/index.ts';
import type { Labels } from '../../formats/families/labels.ts';
import type { TokenizerFiles } from '../../formats/tokenizer-files.ts';
import { makeModel } from '../../nn/index.ts';
import { DEFAULT_ADAPTER, loadedNames, mergedWeights, withLora } from '../../nn/lora.ts';
import { type Model, withStored } from '../../nn/model.ts';
import { checkFolder } from '../../runtime/check-host.ts';
import type { Files } from '../../runtime/host.ts';
import { callable } from '../../util/arguments.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { check, closed, namesTo, optional, text } from '../../util/json.ts';
import { collect, joined, restricted, sourceOf, type TensorSource, type Values } from '../../values/tensor-source.ts';
import { baseStorage } from './base-dtype.ts';
import { settingsIn } from './saved-state.ts';
import { checkAdapterTensors, outsideBody } from './start-weights.ts';

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
  /** The folder of what was named: of a run, the checkpoint. */
  readonly path: string;
  /** Whether its head is an adapter's alone: its base has another, or none. */
  readonly borrowsHead: boolean;
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

const modelSources = closed<ModelSources>({ base: optional(text), adapters: optional(namesTo(text)) });

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
  checkFolder(files, folder);
  check(modelSources, sources, 'the sources of a model');
  check(callable, use, 'use');
  const adapters = { ...sources.adapters };
  const itself = await besideAdapter(files, folder);
  if (!itself && sources.base !== undefined)
    throw new HoldfastError(`${folder}: is a model and has no base; leave out ${sources.base} as its base`);
  if (itself && adapters[DEFAULT_ADAPTER] === undefined) adapters[DEFAULT_ADAPTER] = folder;
  const base = itself ? await baseOf(files, folder, sources.base, itself.base) : folder;
  let loaded: [string, LoadedAdapter][] = [];
  let borrowsHead = false;
  // Once more where the base was replaced while it was opened.
  const asAdapted = async (config: ModelConfig): Promise<ModelConfig> => {
    loaded = [];
    for (const [name, path] of Object.entries(adapters)) loaded.push([name, await loadAdapter(files, path, config)]);
    const headed = withHeadOf(config, loaded.find(([, { labels }]) => labels)?.[1]);
    borrowsHead = headed !== config;
    return headed;
  };
  const lend = async (
    { config, weights, shapes, stored = new Map(), tokenizer: own }: SavedWeights,
    found: FoundFolder,
  ): Promise<T> => {
    const alone = makeModel(config);
    const isOutside = borrowsHead ? outsideBody(alone, shapes, base) : undefined;
    if (!isOutside) checkWeights(shapes, alone.parameters, base);
    let model = alone;
    const low: Values = new Map();
    for (const [name, adapter] of loaded) {
      model = withAdapter(model, adapter, name);
      const values = await collect(adapter.weights);
      const info = model.adapters?.at(-1);
      for (const [own, inFile] of info ? loadedNames(info) : []) {
        const found = values.get(inFile);
        if (found) low.set(own, found);
      }
      for (const { original, name } of info?.saved ?? []) {
        const found = low.get(name);
        if (found && isOutside?.(original) && !low.has(original)) low.set(original, found);
      }
    }
    const missing = alone.parameters.find(({ name }) => isOutside?.(name) && !low.has(name));
    if (missing) throw new HoldfastError(`${base}: there is no tensor ${missing.name}, nor in the adapter`);
    // PEFT's libraries save a tokenizer with an adapter, and no config.json.
    const tokenizer = itself?.tokenizer
      ? { ...(own?.modelIds && { modelIds: own.modelIds }), ...itself.tokenizer }
      : own;
    const ofBody = isOutside ? restricted(weights, (name) => !isOutside(name)) : weights;
    const all = low.size === 0 ? weights : joined(ofBody, sourceOf(low));
    const kept = withStored(model, baseStorage(model, isOutside ? ofNames(stored, ofBody) : stored, undefined));
    const ofAdapter = itself && loaded.find(([name]) => name === DEFAULT_ADAPTER)?.[1].path;
    const path = ofAdapter ?? found.folder;
    return use({ model: kept, weights: all, found, path, borrowsHead, ...(tokenizer && { tokenizer }) });
  };
  return withWeights(files, base, lend, asAdapted);
}

const ofNames = <V>(values: ReadonlyMap<string, V>, { names }: TensorSource): Map<string, V> => {
  const own = new Set(names);
  return new Map([...values].filter(([name]) => own.has(name)));
};

/** The configuration of a model as it is with an adapter's head; the same where it tells these classes apart by itself. */
export function withHeadOf(config: ModelConfig, adapter: Pick<LoadedAdapter, 'labels'> | undefined): ModelConfig {
  const { classifier } = familyOf(config);
  const labels = adapter?.labels;
  if (!labels || !classifier) return config;
  const own = labelsIn(config);
  const isOwn = own && namesIn(own).join('\n') === namesIn(labels).join('\n');
  return isOwn ? config : classifier.tells(config, labels);
}

const namesIn = ({ id2label }: Labels): string[] => Object.values(id2label);

/** The model alone, its adapter made a part of the weights where it has one: what is exported. */
export async function mergedModel({ model, weights, tokenizer }: OpenedModel): Promise<SavedWeights> {
  return {
    config: model.config,
    shapes: new Map(model.parameters.map(({ name, shape }) => [name, shape])),
    weights: model.adapters ? await mergedWeights(model, weights) : weights,
    ...(tokenizer && { tokenizer }),
  };
}

/**
 * The chat template that a run on bytes was taught with, for what is exported: it has no tokenizer's files to have it. Undefined for
 * one that writes tokens of a tokenizer: bytes have none.
 */
export async function byteTemplateIn(files: Files, folder: string): Promise<string | undefined> {
  const { tokenizer = DEFAULT_TOKENIZER, records } = (await settingsIn(files, folder)) ?? {};
  if (tokenizer.kind !== 'byte' || !records?.template) return undefined;
  const { text, bos = '', eos = '' } = records.template;
  const needs = (mark: string, name: string) => mark !== '' && text.includes(name);
  return needs(bos, 'bos_token') || needs(eos, 'eos_token') ? undefined : text;
}

/** Errors: HoldfastError where the base of the adapter in a folder is not named, or not there. */
async function baseOf(
  files: Files,
  folder: string,
  given: string | undefined,
  own: string | undefined,
): Promise<string> {
  // A run's adapter names its base by what others know it by; where its files are here, the run knows.
  const from = given === undefined ? (await settingsIn(files, folder))?.from : undefined;
  if (from !== undefined && (await files.stat(from))) return from;
  const named = given ?? own;
  if (named !== undefined && (await files.stat(named))) return named;
  const problem = named === undefined ? 'names no base' : `belongs to ${shortened(named)}, which is not here`;
  throw new HoldfastError(`${folder}: its adapter ${problem}; name the folder of its model with --base`);
}

/** The model with an adapter of that name. Errors: HoldfastError naming the adapter's folder where it is none of this model. */
export function withAdapter(model: Model, { options, shapes, path }: DescribedAdapter, name = DEFAULT_ADAPTER): Model {
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
