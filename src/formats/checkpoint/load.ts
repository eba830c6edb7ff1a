// Loading: the weights of a model, or a whole checkpoint to go on from, out of a run, a folder or a zip. Every file that
// is used is checked against the folder's sums first; tensors are read from the files when they are asked for.
//
// Of a run that goes on (opening.ts) `withWeights` and `holdCheckpoint` keep the files open, so that what they opened stays,
// and an adapter is read at once; other sources say that their folder has gone.

import { checkFolder } from '../../runtime/check-host.ts';
import { type Files, type FolderReader, join } from '../../runtime/host.ts';
import { MOST_SETTINGS_BYTES, readJSON } from '../../runtime/read-whole.ts';
import { finishing, HoldfastError } from '../../util/errors.ts';
import type { StoredElement } from '../../values/stored-elements.ts';
import { collect, sourceOf, type TensorSource } from '../../values/tensor-source.ts';
import { savedName } from '../adapter.ts';
import { readerOf } from '../archive.ts';
import { dropoutIn, type ModelConfig, parseConfig, storedAsIn } from '../config.ts';
import { familyOf, imagesIn, labelsIn } from '../families/index.ts';
import { classesOf, type Labels, labelsOf, unnamedLabels } from '../families/labels.ts';
import { type AdapterConfig, nameOfStored, parseAdapterConfig } from '../peft.ts';
import { type ImagePreparation, preparationIn } from '../preprocessor.ts';
import { TensorFile } from '../safetensors.ts';
import { type TokenizerFiles, tokenizerIn, tokenizerNames } from '../tokenizer-files.ts';
import { checkSums, readSums } from './checksums.ts';
import type { Checkpoint, LoadedCheckpoint, LoadedState, SavedWeights, Shapes } from './contents.ts';
import { floatsOf } from './floats.ts';
import {
  ADAPTER_CONFIG,
  ADAPTER_FILES,
  ADAPTER_WEIGHTS,
  CONFIG,
  checkOfRun,
  hasWeights,
  isAdapter,
  MOMENTS,
  MOST_STATE_BYTES,
  OTHER_CHECKPOINT,
  PREPROCESSOR,
  RUN_STATE,
  runStateName,
  TRAINER_STATE,
  WEIGHTS,
} from './folder.ts';
import { ModelTensors, type StoredTensors } from './model-tensors.ts';
import { type FoundFolder, openHeld, opening, openingAdapter } from './opening.ts';
import { openFiles, openTensors } from './tensor-files.ts';
import { MOMENT1, MOMENT2, namesOnce, weightNames } from './tensor-names.ts';

/**
 * The weights in a folder: a checkpoint, a run (its latest checkpoint), or any Hugging Face folder with
 * config.json and model.safetensors or its shards; or in a zip of these files. `as`: the model that they are wanted for, where it
 * has another head than theirs. Errors: HoldfastError naming what is missing, damaged or does not fit.
 */
export async function loadWeights(from: FolderReader, folder: string, as?: ModelConfig): Promise<SavedWeights> {
  checkFolder(from, folder);
  const wanted = as === undefined ? undefined : parseConfig(as, 'the configuration');
  const files = await readerOf(from, folder);
  return opening(files, folder, (at) => weightsIn(files, at, wanted && (() => wanted)));
}

/** What a model of this configuration is opened as, where that is another one. */
export type Wanted = (config: ModelConfig) => ModelConfig | Promise<ModelConfig>;

/** Weights whose files are kept open. */
export interface HeldWeights extends SavedWeights {
  /** Closes them: nothing of them may be read after. */
  release(): Promise<void>;
}

/** As `loadWeights`; they stay readable until they are released, also where their run removes the checkpoint. */
export async function holdWeights(from: Files, name: string, as?: ModelConfig): Promise<HeldWeights> {
  const { opened, release } = await openHeld(from, name, (files, folder) => weightsIn(files, folder, as && (() => as)));
  return { ...opened, release };
}

/** Lends the weights to `use`: they stay readable until it is over, also where their run removes the checkpoint. */
export async function withWeights<T>(
  from: Files,
  name: string,
  use: (weights: SavedWeights, found: FoundFolder) => Promise<T>,
  as?: Wanted,
): Promise<T> {
  const { opened, found, release } = await openHeld(from, name, (files, folder) => weightsIn(files, folder, as));
  return finishing(() => use(opened, found), release);
}

/**
 * A whole checkpoint, to resume from: a run's latest, one by itself, or a zip of its files. Errors: as `loadWeights`, and
 * where the moments are not those of the weights.
 */
export async function loadCheckpoint(from: Files, folder: string): Promise<LoadedCheckpoint> {
  checkFolder(from, folder);
  const files = await readerOf(from, folder);
  return opening(files, folder, (at) => checkpointIn(files, at));
}

/** A checkpoint whose files are kept open. */
export interface HeldCheckpoint extends LoadedCheckpoint {
  /** Closes them: nothing of it may be read after. */
  release(): Promise<void>;
}

/** As `loadCheckpoint`; it stays readable until it is released, also where its run removes it. */
export async function holdCheckpoint(from: Files, folder: string): Promise<HeldCheckpoint> {
  const { opened, release } = await openHeld(from, folder, checkpointIn);
  return { ...opened, release };
}

/**
 * The state of a checkpoint, and its configuration: no tensor of it is read. Errors: HoldfastError where they are missing
 * or damaged.
 */
export async function loadState(from: Files, folder: string): Promise<LoadedState> {
  const files = await readerOf(from, folder);
  return opening(files, folder, async (at) => {
    const stateName = await runStateName(files, at);
    await checkSums(files, at, [CONFIG, stateName]);
    await checkOfRun(files, at, stateName);
    const state = await jsonIn(files, at, stateName);
    return { config: await configIn(files, at), state, path: at, statePath: join(at, stateName) };
  });
}

/** The state of a run in Hugging Face's fields, as its newest checkpoint has it. Errors: as `loadState`. */
export async function loadTrainerState(from: Files, folder: string): Promise<unknown> {
  const files = await readerOf(from, folder);
  return opening(files, folder, async (at) => {
    await checkSums(files, at, [TRAINER_STATE]);
    return jsonIn(files, at, TRAINER_STATE);
  });
}

/** The tokenizer that a checkpoint or a model's folder has beside it, if any. Errors: as `loadWeights`. */
export async function loadTokenizer(from: FolderReader, folder: string): Promise<TokenizerFiles | undefined> {
  const files = await readerOf(from, folder);
  return opening(files, folder, (at) => checkedTokenizer(files, at, folder));
}

/** What is done with the images of the model that a name stands for, as a file beside it says, if one does. Errors: as `loadWeights`. */
export async function loadPreparation(
  from: FolderReader,
  name: string,
  config: ModelConfig,
): Promise<ImagePreparation | undefined> {
  if (!imagesIn(config)) return undefined;
  const files = await readerOf(from, name);
  return opening(files, name, (at) => preparationIn(files, at, config));
}

export interface FoundModel {
  readonly config: ModelConfig;
  /** Its tokenizer, where there is one beside it. */
  readonly tokenizer?: TokenizerFiles;
  /** The folder or zip with the weights that belong to it, if there are any. */
  readonly from?: string;
  /** Rates of dropout that its config.json has, and training here does not. @default none */
  readonly dropout?: readonly string[];
  /** What its config.json says that its weights are stored as. @default nothing */
  readonly storedAs?: StoredElement;
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
    const storedAs = storedAsIn(json);
    const path = files === from ? at : folder;
    const tokenizer = await checkedTokenizer(files, at, path);
    const said = { ...(dropout.length > 0 && { dropout }), ...(storedAs && { storedAs }) };
    const found = { config, ...(tokenizer && { tokenizer }), ...said };
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
  /** By the names of its parameters here, where it is the default one; in memory. */
  readonly weights: TensorSource;
  /** Of every tensor in `weights`. */
  readonly shapes: Shapes;
  /** Of one that has a classifier's head. */
  readonly labels?: Labels;
  /** The folder that it lies in. */
  readonly path: string;
}

/** An adapter without its weights. */
export type DescribedAdapter = Omit<LoadedAdapter, 'weights'>;

/**
 * The adapter in a folder of PEFT's, or in the latest checkpoint of a run that trains one; `config` is its model's. Errors:
 * HoldfastError where there is none, and naming what is missing, damaged or not supported.
 */
export async function loadAdapter(from: FolderReader, folder: string, config: ModelConfig): Promise<LoadedAdapter> {
  checkFolder(from, folder);
  return openAdapter(from, folder, parseConfig(config, 'the configuration'), async (adapter) => ({
    ...adapter,
    weights: sourceOf(await collect(adapter.weights)),
  }));
}

/** What the adapter is that `loadAdapter` loads: of its weights, the header alone is read. Errors: as there. */
export const describeAdapter = (from: FolderReader, folder: string, config: ModelConfig): Promise<DescribedAdapter> =>
  openAdapter(from, folder, config, async ({ weights: _, ...adapter }) => adapter);

async function openAdapter<T>(
  from: FolderReader,
  folder: string,
  config: ModelConfig,
  use: (adapter: LoadedAdapter) => Promise<T>,
): Promise<T> {
  const files = await readerOf(from, folder);
  const found = await openingAdapter(files, folder, async (at) => use(await adapterIn(files, at, config)));
  if (found) return found;
  throw new HoldfastError(`${folder}: there is no adapter; name a folder with ${ADAPTER_FILES.join(' and ')}`);
}

/** What lies beside the adapter in a folder; undefined where the folder has none. */
export async function besideAdapter(from: Files, folder: string): Promise<BesideAdapter | undefined> {
  const files = await readerOf(from, folder);
  return openingAdapter(files, folder, async (at) => {
    await checkSums(files, at, [ADAPTER_CONFIG]);
    const { base, revision } = parseAdapterConfig(await jsonIn(files, at, ADAPTER_CONFIG), join(at, ADAPTER_CONFIG));
    return { base, revision, tokenizer: await checkedTokenizer(files, at, folder) };
  });
}

/** What an adapter says of the model that it belongs to. */
export interface BesideAdapter {
  /** The name or folder of the base, if it says one. */
  readonly base: string | undefined;
  /** The base's, if it says one. */
  readonly revision: string | undefined;
  /** The tokenizer that it was trained with, where there is one beside it. */
  readonly tokenizer: TokenizerFiles | undefined;
}

async function adapterIn(files: FolderReader, folder: string, config: ModelConfig): Promise<LoadedAdapter> {
  await checkSums(files, folder, ADAPTER_FILES);
  const parsed = parseAdapterConfig(await jsonIn(files, folder, ADAPTER_CONFIG), join(folder, ADAPTER_CONFIG));
  const path = join(folder, ADAPTER_WEIGHTS);
  const file = new ModelTensors(path, [await TensorFile.open(files, path)]);
  const names = namesOnce(file, (stored) => nameOfStored(stored, config));
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
    await checkSums(files, folder, [CONFIG]);
    const labels = labelsIn(await configIn(files, folder));
    if (labels && classesOf(labels) === count) return labels;
  }
  const own = labelsIn(base);
  return own && classesOf(own) === count ? own : labelsOf(unnamedLabels(count));
}

async function checkpointIn(files: FolderReader, folder: string): Promise<LoadedCheckpoint> {
  const stateName = await runStateName(files, folder);
  await checkSums(files, folder, [...new Set([MOMENTS, stateName, TRAINER_STATE, PREPROCESSOR])]);
  await checkOfRun(files, folder, stateName);
  const isTrained = await isAdapter(files, folder);
  const loaded = isTrained ? await trainedAdapterIn(files, folder) : await weightsIn(files, folder);
  const state = await jsonIn(files, folder, stateName);
  const sums = await readSums(files, folder);
  const paths = { path: folder, statePath: join(folder, stateName) };
  return { ...loaded, ...(await momentsIn(files, folder, loaded)), state, ...paths, ...(sums && { sums }) };
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
  const names = await tokenizerNames(files, folder);
  await checkSums(files, folder, names.length === 0 ? [] : [CONFIG, ...names]);
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
  const isState = name === RUN_STATE || name === TRAINER_STATE;
  return readJSON(files, path, OTHER_CHECKPOINT, isState ? MOST_STATE_BYTES : MOST_SETTINGS_BYTES);
}

function shapeOf(tensors: StoredTensors, stored: string): readonly number[] {
  return tensors.entries.get(stored)?.shape ?? [];
}
