// Loading: the weights of a model, or a whole checkpoint to go on from, out of a run, a folder or a zip. Every file that
// is used is checked against the folder's sums first; tensors are read from the files when they are asked for.
//
// A run that goes on replaces its checkpoints while they are read: the opening is begun again with what is there then.
// `withWeights` keeps the files open, so that what it opened stays; other sources say that their folder has gone.

import { savedName } from '../../nn/modules-to-save.ts';
import { type Files, type FolderReader, join } from '../../runtime/host.ts';
import { HoldfastError } from '../../util/errors.ts';
import { parseJSON } from '../../util/json.ts';
import type { StoredElement } from '../../util/stored-elements.ts';
import type { TensorSource } from '../../util/tensor-source.ts';
import { readerOf } from '../archive.ts';
import type { Checkpoint, LoadedCheckpoint, LoadedState, SavedWeights, Shapes } from '../checkpoint.ts';
import { dropoutIn, type ModelConfig, parseConfig } from '../config.ts';
import { familyOf, labelsIn } from '../families/index.ts';
import { classesOf, type Labels, labelsOf, unnamedLabels } from '../families/labels.ts';
import { type AdapterConfig, nameOfStored, parseAdapterConfig } from '../peft.ts';
import { TensorFile } from '../safetensors.ts';
import { type TokenizerFiles, tokenizerIn, tokenizerNames } from '../tokenizer-files.ts';
import { checkSums } from './checksums.ts';
import { floatsOf } from './floats.ts';
import {
  ADAPTER_CONFIG,
  ADAPTER_FILES,
  ADAPTER_WEIGHTS,
  adapterFolder,
  CONFIG,
  hasWeights,
  isAdapter,
  MOMENTS,
  modelFolder,
  OTHER_CHECKPOINT,
  STATE,
  SUMS,
  WEIGHTS,
} from './folder.ts';
import { ModelTensors, openFiles, openTensors, type StoredTensors, weightFiles } from './model-tensors.ts';
import { MOMENT1, MOMENT2, weightNames } from './tensor-names.ts';

/** Checkpoints that may be replaced while they are opened, one after the other. */
const MOST_REPLACED = 20;

/**
 * The weights in a folder: a checkpoint, a run (its latest checkpoint), or any Hugging Face folder with
 * config.json and model.safetensors or its shards; or in a zip of these files. `as`: the model that they are wanted for, where it
 * has another head than theirs. Errors: HoldfastError naming what is missing, damaged or does not fit.
 */
export async function loadWeights(from: FolderReader, folder: string, as?: ModelConfig): Promise<SavedWeights> {
  const files = await readerOf(from, folder);
  return opening(files, folder, (at) => weightsIn(files, at, as && (() => as)));
}

/** What a model of this configuration is opened as, where that is another one. */
export type Wanted = (config: ModelConfig) => ModelConfig | Promise<ModelConfig>;

/** Where a model was found: a folder of `files`, which may be the inside of a zip. */
export interface FoundFolder {
  readonly files: FolderReader;
  readonly folder: string;
}

/** Lends the weights to `use`: they stay readable until it is over, also where their run removes the checkpoint. */
export async function withWeights<T>(
  from: Files,
  name: string,
  use: (weights: SavedWeights, found: FoundFolder) => Promise<T>,
  as?: Wanted,
): Promise<T> {
  const files = await readerOf(from, name);
  const { weights, folder, release } = await opening(files, name, async (folder) => {
    const { held, release } = files === from ? await hold(from, folder) : { held: files, release: async () => {} };
    try {
      return { weights: await weightsIn(held, folder, as), folder, release };
    } catch (error) {
      await release();
      throw error;
    }
  });
  try {
    return await use(weights, { files, folder });
  } finally {
    await release();
  }
}

/**
 * A whole checkpoint, to resume from: a run's latest, one by itself, or a zip of its files. Errors: as `loadWeights`, and
 * where the moments are not those of the weights.
 */
export async function loadCheckpoint(from: Files, folder: string): Promise<LoadedCheckpoint> {
  const files = await readerOf(from, folder);
  return opening(files, folder, async (at) => {
    await checkSums(files, at, [MOMENTS, STATE]);
    const loaded = (await isAdapter(files, at)) ? await trainedAdapterIn(files, at) : await weightsIn(files, at);
    const state = await jsonIn(files, at, STATE);
    return { ...loaded, ...(await momentsIn(files, at, loaded)), state, path: at };
  });
}

/**
 * The state of a checkpoint, and its configuration: no tensor of it is read. Errors: HoldfastError where they are missing
 * or damaged.
 */
export async function loadState(from: Files, folder: string): Promise<LoadedState> {
  const files = await readerOf(from, folder);
  return opening(files, folder, async (at) => {
    await checkSums(files, at, [CONFIG, STATE]);
    return { config: await configIn(files, at), state: await jsonIn(files, at, STATE), path: at };
  });
}

/** The tokenizer that a checkpoint or a model's folder has beside it, if any. Errors: as `loadWeights`. */
export async function loadTokenizer(from: FolderReader, folder: string): Promise<TokenizerFiles | undefined> {
  const files = await readerOf(from, folder);
  return opening(files, folder, (at) => checkedTokenizer(files, at, folder));
}

export interface FoundModel {
  readonly config: ModelConfig;
  /** Its tokenizer, where there is one beside it. */
  readonly tokenizer?: TokenizerFiles;
  /** The folder or zip with the weights that belong to it, if there are any. */
  readonly from?: string;
  /** Rates of dropout that its config.json has, and training here does not. @default none */
  readonly dropout?: readonly string[];
}

/** A model to start from: a configuration, and the weights in the same place. Errors: as `loadWeights`. */
export async function findModel(from: FolderReader, folder: string): Promise<FoundModel> {
  const files = await readerOf(from, folder);
  return opening(files, folder, async (at) => {
    await checkSums(files, at, [CONFIG]);
    if (await isAdapter(files, at)) throw notAModel(at);
    const json = await jsonIn(files, at, CONFIG);
    const config = parseConfig(json, join(at, CONFIG));
    const dropout = dropoutIn(json);
    const path = files === from ? at : folder;
    const tokenizer = await checkedTokenizer(files, at, path);
    const found = { config, ...(tokenizer && { tokenizer }), ...(dropout.length > 0 && { dropout }) };
    return (await hasWeights(files, at)) ? { ...found, from: path } : found;
  });
}

// ---- One folder ------------------------------------------------------------------------------------------------

const notAModel = (folder: string) =>
  new HoldfastError(
    `${folder}: holds an adapter and not its model; name the model that it belongs to, or merge the two`,
  );

/** An adapter in PEFT's layout. */
export interface LoadedAdapter extends AdapterConfig {
  /** By the names of its parameters here, where it is the default one. */
  readonly weights: TensorSource;
  /** Of every tensor in `weights`. */
  readonly shapes: Shapes;
  /** Of one that has a classifier's head. */
  readonly labels?: Labels;
  /** The folder that it lies in. */
  readonly path: string;
}

/**
 * The adapter in a folder of PEFT's, or in the latest checkpoint of a run that trains one; `config` is its model's. Errors:
 * HoldfastError where there is none, and naming what is missing, damaged or not supported.
 */
export async function loadAdapter(from: FolderReader, folder: string, config: ModelConfig): Promise<LoadedAdapter> {
  const files = await readerOf(from, folder);
  const at = await adapterFolder(files, folder);
  if (at === undefined)
    throw new HoldfastError(`${folder}: there is no adapter; name a folder with ${ADAPTER_FILES.join(' and ')}`);
  return adapterIn(files, at, config);
}

/** What lies beside the adapter in a folder; undefined where the folder has none. */
export async function besideAdapter(from: Files, folder: string): Promise<BesideAdapter | undefined> {
  const files = await readerOf(from, folder);
  const at = await adapterFolder(files, folder);
  if (at === undefined) return undefined;
  const { base } = parseAdapterConfig(await jsonIn(files, at, ADAPTER_CONFIG), join(at, ADAPTER_CONFIG));
  return { base, tokenizer: await checkedTokenizer(files, at, folder) };
}

/** What an adapter says of the model that it belongs to. */
export interface BesideAdapter {
  /** The name or folder of the base, if it says one. */
  readonly base: string | undefined;
  /** The tokenizer that it was trained with, where there is one beside it. */
  readonly tokenizer: TokenizerFiles | undefined;
}

async function adapterIn(files: FolderReader, folder: string, config: ModelConfig): Promise<LoadedAdapter> {
  await checkSums(files, folder, ADAPTER_FILES);
  const parsed = parseAdapterConfig(await jsonIn(files, folder, ADAPTER_CONFIG), join(folder, ADAPTER_CONFIG));
  const path = join(folder, ADAPTER_WEIGHTS);
  const file = new ModelTensors(path, [await TensorFile.open(files, path)]);
  const names = new Map([...file.entries.keys()].map((stored) => [nameOfStored(stored, config), stored]));
  const shapes = new Map([...names].map(([name, stored]) => [name, shapeOf(file, stored)]));
  const labels = await labelsBeside(files, folder, config, shapes);
  return { ...parsed, weights: floatsOf(files, folder, file, names), shapes, ...(labels && { labels }), path: folder };
}

/** The classes that the head of an adapter tells apart: by their names, where its model's configuration lies beside it. */
async function labelsBeside(
  files: FolderReader,
  folder: string,
  base: ModelConfig,
  shapes: Shapes,
): Promise<Labels | undefined> {
  const head = familyOf(base).classifier?.head;
  const [count] = shapes.get(savedName(`${head}.weight`)) ?? [];
  if (count === undefined) return undefined;
  if (await files.stat(join(folder, CONFIG))) {
    const labels = labelsIn(await configIn(files, folder));
    if (labels && classesOf(labels) === count) return labels;
  }
  const own = labelsIn(base);
  return own && classesOf(own) === count ? own : labelsOf(unnamedLabels(count));
}

async function trainedAdapterIn(
  files: FolderReader,
  folder: string,
): Promise<SavedWeights & { adapter: AdapterConfig }> {
  await checkSums(files, folder, [CONFIG]);
  const config = await configIn(files, folder);
  const { weights, shapes, path: _, ...adapter } = await adapterIn(files, folder, config);
  const tokenizer = await checkedTokenizer(files, folder, folder);
  return { config, weights, shapes, adapter, ...(tokenizer && { tokenizer }) };
}

async function weightsIn(files: FolderReader, folder: string, as: Wanted = (config) => config): Promise<SavedWeights> {
  if (await isAdapter(files, folder)) throw notAModel(folder);
  await checkSums(files, folder, [CONFIG, WEIGHTS]);
  const config = await as(await configIn(files, folder));
  const tensors = await openTensors(files, folder);
  const names = await weightNames(tensors, config);
  const shapes = new Map([...names].map(([name, stored]) => [name, shapeOf(tensors, stored)]));
  const stored = new Map<string, StoredElement>(
    [...names].map(([name, stored]) => [name, tensors.packed(stored)?.element ?? 'f32']),
  );
  const tokenizer = await checkedTokenizer(files, folder, folder);
  return { config, weights: floatsOf(files, folder, tensors, names), shapes, stored, ...(tokenizer && { tokenizer }) };
}

/** `path`: what it is called. */
async function checkedTokenizer(
  files: FolderReader,
  folder: string,
  path: string,
): Promise<TokenizerFiles | undefined> {
  await checkSums(files, folder, await tokenizerNames(files, folder));
  return tokenizerIn(files, folder, path);
}

async function momentsIn(
  files: FolderReader,
  folder: string,
  { shapes }: SavedWeights,
): Promise<Pick<Checkpoint, 'moment1' | 'moment2'>> {
  const file = await openFiles(files, folder, MOMENTS);
  const moments = [MOMENT1, MOMENT2].map((prefix) => {
    const stored = [...file.entries.keys()].filter((name) => name.startsWith(prefix));
    const names = new Map(stored.map((name) => [name.slice(prefix.length), name]));
    for (const [name, stored] of names) {
      if (shapes.get(name)?.join() === shapeOf(file, stored).join()) continue;
      throw new HoldfastError(`${file.pathOf(stored)}: ${stored} has no weight of its shape; ${OTHER_CHECKPOINT}`);
    }
    return floatsOf(files, folder, file, names);
  });
  const [moment1, moment2] = moments as [TensorSource, TensorSource];
  if (
    moment1.names.length + moment2.names.length !== file.entries.size ||
    moment1.names.join() !== moment2.names.join()
  )
    throw new HoldfastError(`${file.path}: the two moments are not of the same tensors; ${OTHER_CHECKPOINT}`);
  return { moment1, moment2 };
}

async function configIn(files: FolderReader, folder: string): Promise<ModelConfig> {
  return parseConfig(await jsonIn(files, folder, CONFIG), join(folder, CONFIG));
}

async function jsonIn(files: FolderReader, folder: string, name: string): Promise<unknown> {
  const path = join(folder, name);
  return parseJSON(await files.read(path), path, OTHER_CHECKPOINT);
}

function shapeOf(tensors: StoredTensors, stored: string): readonly number[] {
  return tensors.entries.get(stored)?.shape ?? [];
}

// ---- A run that goes on ----------------------------------------------------------------------------------------

/** Opens the folder that a name stands for; where it is replaced or removed meanwhile, the one it stands for then. */
async function opening<T>(files: FolderReader, folder: string, open: (at: string) => Promise<T>): Promise<T> {
  for (let attempt = 0; ; attempt++) {
    const at = await modelFolder(files, folder);
    const before = await identity(files, at);
    try {
      return await open(at);
    } catch (error) {
      const same = before !== undefined && before === (await identity(files, at));
      if (same || attempt === MOST_REPLACED) throw error;
    }
  }
}

/** Tells two checkpoints of one name apart; undefined where there is none any more. */
async function identity(files: FolderReader, folder: string): Promise<string | undefined> {
  try {
    return new TextDecoder().decode(await files.read(join(folder, SUMS)));
  } catch {
    return (await files.stat(folder)) ? '' : undefined;
  }
}

/** The files of a model, kept open: a reader of that folder alone, until it is released. */
async function hold(files: Files, folder: string): Promise<{ held: FolderReader; release: () => Promise<void> }> {
  const open = new Map<string, Awaited<ReturnType<Files['open']>>>();
  const release = async () => {
    for (const file of open.values()) await file.close();
  };
  try {
    for (const name of [
      CONFIG,
      ...(await weightFiles(files, folder)),
      ...(await tokenizerNames(files, folder)),
      SUMS,
    ]) {
      const path = join(folder, name);
      // What is missing is named where it is asked for.
      if (await files.stat(path)) open.set(path, await files.open(path));
    }
  } catch (error) {
    await release();
    throw error;
  }
  const at = (path: string) => {
    const file = open.get(path);
    if (!file) throw new HoldfastError(`cannot read ${path}: it does not exist`);
    return file;
  };
  const held: FolderReader = {
    read: (path) => at(path).readRange(0, at(path).bytes),
    readRange: (path, ...range) => at(path).readRange(...range),
    async stat(path) {
      const file = open.get(path);
      return file ? { kind: 'file', bytes: file.bytes } : files.stat(path);
    },
    list: (path) => files.list(path),
    sha256: () => files.sha256(),
  };
  return { held, release };
}
