// A checkpoint: a folder that Hugging Face's libraries open (config.json, model.safetensors), with what
// resuming needs beside it (optimizer.safetensors, trainer_state.json). It is written under another name and
// renamed when whole: at every moment the newest complete checkpoint of a run is found, wherever it was cut off.
//
// Tensors come and go in pieces (tensor-source.ts): what is loaded is read from the files when it is asked for.

import { type Files, type FolderReader, join } from '../runtime/host.ts';
import { assert, HoldfastError, messageOf } from '../util/errors.ts';
import type { TensorSource } from '../util/tensor-source.ts';
import { readerOf, ZipFolder } from './archive.ts';
import { type ModelConfig, parseConfig } from './config.ts';
import { TensorFile, type TensorToWrite, writeTensors } from './safetensors.ts';

export type Shapes = ReadonlyMap<string, readonly number[]>;

export interface Weights {
  readonly config: ModelConfig;
  readonly weights: TensorSource;
  /** Of every tensor in `weights`. */
  readonly shapes: Shapes;
}

export interface Checkpoint extends Weights {
  /** Of the trained tensors, in their shapes. */
  readonly moment1: TensorSource;
  readonly moment2: TensorSource;
  /** Plain JSON: the trainer's, the data's and the report's state. */
  readonly state: unknown;
}

const PREFIX = 'checkpoint-';
const REPLACED = '.replaced';
const COMPLETE = /^checkpoint-(\d+)(\.replaced)?$/;
const PARTIAL = /^\.checkpoint-\d+\.partial$/;
const MOMENT1 = 'exp_avg.';
const MOMENT2 = 'exp_avg_sq.';
const OTHER_CHECKPOINT = 'the file is damaged, use another checkpoint';
const ARCHITECTURES = { gpt2: 'GPT2LMHeadModel', llama: 'LlamaForCausalLM' } as const;

/**
 * Writes `run`/checkpoint-`step`, then removes all others. Returns its path. An error, of the disk or of a
 * source, is passed on; the newest checkpoint that was whole before still is.
 */
export async function saveCheckpoint(files: Files, run: string, step: number, checkpoint: Checkpoint): Promise<string> {
  const target = join(run, `${PREFIX}${step}`);
  const partial = partialOf(run, step);
  await files.makeFolder(run);
  await keepOnly(files, run, (await checkpointsOf(files, run)).at(-1)?.path);
  try {
    await writeFolder(files, partial, checkpoint);
  } catch (error) {
    // The disk may be full: what nobody will read goes. The error above is the one that matters.
    await files.remove(partial).catch(() => {});
    throw error;
  }
  // A folder cannot be renamed onto another: the old one steps aside and still counts until the new one is there.
  if (await files.stat(target)) await files.rename(target, `${target}${REPLACED}`);
  await files.rename(partial, target);
  await keepOnly(files, run, target);
  return target;
}

const partialOf = (run: string, step: number): string => join(run, `.${PREFIX}${step}.partial`);

/** Removes every checkpoint of a run but one, and what was cut off while it was written or removed. */
async function keepOnly(files: Files, run: string, kept: string | undefined): Promise<void> {
  for (const name of await files.list(run)) {
    if (PARTIAL.test(name)) await files.remove(join(run, name));
  }
  for (const { step, path } of await checkpointsOf(files, run)) {
    if (path === kept) continue;
    // Half removed it must not pass for a checkpoint.
    await files.rename(path, partialOf(run, step));
    await files.remove(partialOf(run, step));
  }
}

async function writeFolder(files: Files, folder: string, checkpoint: Checkpoint): Promise<void> {
  const { config, weights, shapes, moment1, moment2, state } = checkpoint;
  const tensorsOf = (source: TensorSource, prefix: string): TensorToWrite[] =>
    source.names.map((name) => {
      const shape = shapes.get(name);
      assert(shape, `the checkpoint has no shape for ${name}`);
      return { name: prefix + name, dtype: 'F32', shape, read: () => source.read(name) };
    });
  await files.makeFolder(folder);
  const hub = { ...config, architectures: [ARCHITECTURES[config.model_type]], torch_dtype: 'float32' };
  await files.writeAtomic(join(folder, 'config.json'), `${JSON.stringify(hub, undefined, 2)}\n`);
  await writeTensors(files, join(folder, 'model.safetensors'), tensorsOf(weights, ''), { format: 'pt' });
  const moments = [...tensorsOf(moment1, MOMENT1), ...tensorsOf(moment2, MOMENT2)];
  await writeTensors(files, join(folder, 'optimizer.safetensors'), moments);
  await files.writeAtomic(join(folder, 'trainer_state.json'), `${JSON.stringify(state)}\n`);
}

/** The complete checkpoints of a run, oldest first; of one that is being replaced, the new one last. */
export async function checkpointsOf(files: FolderReader, run: string): Promise<{ step: number; path: string }[]> {
  if ((await files.stat(run))?.kind !== 'folder') return [];
  const found = (await files.list(run)).map((name) => ({ name, step: COMPLETE.exec(name)?.[1] }));
  return found
    .filter(({ step }) => step !== undefined)
    .sort((a, b) => Number(a.step) - Number(b.step) || b.name.length - a.name.length)
    .map(({ name, step }) => ({ step: Number(step), path: join(run, name) }));
}

/**
 * The weights in a folder: a checkpoint, a run (its latest checkpoint), or any Hugging Face folder with
 * config.json and model.safetensors; or in a zip of one of these. Errors: HoldfastError naming what is missing or does not fit.
 */
export async function loadWeights(from: Files, folder: string): Promise<Weights> {
  const files = await readerOf(from, folder);
  return weightsIn(files, await modelFolder(files, folder));
}

async function weightsIn(files: FolderReader, folder: string): Promise<Weights> {
  const config = await configIn(files, folder);
  const file = await TensorFile.open(files, join(folder, 'model.safetensors'));
  const names = new Map([...file.entries.keys()].map((stored) => [canonicalName(stored), stored]));
  const shapes = new Map([...names].map(([name, stored]) => [name, shapeOf(file, stored)]));
  return { config, weights: floatsOf(file, names), shapes };
}

/**
 * A whole checkpoint, to resume from: a run's latest, one by itself, or a zip of one of these. Errors: as `loadWeights`, and
 * where the moments are not those of the weights.
 */
export async function loadCheckpoint(from: Files, folder: string): Promise<Checkpoint> {
  const files = await readerOf(from, folder);
  const at = await modelFolder(files, folder);
  const loaded = await weightsIn(files, at);
  const statePath = join(at, 'trainer_state.json');
  const state = parseJSON(await files.read(statePath), statePath);
  const file = await TensorFile.open(files, join(at, 'optimizer.safetensors'));
  const moments = [MOMENT1, MOMENT2].map((prefix) => {
    const stored = [...file.entries.keys()].filter((name) => name.startsWith(prefix));
    const names = new Map(stored.map((name) => [name.slice(prefix.length), name]));
    for (const [name, stored] of names) {
      if (loaded.shapes.get(name)?.join() === shapeOf(file, stored).join()) continue;
      throw new HoldfastError(`${file.path}: ${stored} has no weight of its shape; ${OTHER_CHECKPOINT}`);
    }
    return floatsOf(file, names);
  });
  const [moment1, moment2] = moments as [TensorSource, TensorSource];
  if (
    moment1.names.length + moment2.names.length !== file.entries.size ||
    moment1.names.join() !== moment2.names.join()
  )
    throw new HoldfastError(`${file.path}: the two moments are not of the same tensors; ${OTHER_CHECKPOINT}`);
  return { ...loaded, moment1, moment2, state };
}

/** Tensors of a file by other names. Errors: HoldfastError naming one that holds whole numbers or float64. */
function floatsOf(file: TensorFile, names: ReadonlyMap<string, string>): TensorSource {
  for (const stored of names.values()) {
    const dtype = file.entries.get(stored)?.dtype;
    if (dtype === 'I32' || dtype === 'F64')
      throw new HoldfastError(`${file.path}: ${stored} is ${dtype}; weights and moments are F32, F16 or BF16`);
  }
  return {
    names: [...names.keys()],
    async *read(name) {
      const stored = names.get(name);
      assert(stored, `${file.path} has no tensor ${name}`);
      for await (const piece of file.pieces(stored)) yield piece as Float32Array<ArrayBuffer>;
    },
  };
}

function shapeOf(file: TensorFile, stored: string): readonly number[] {
  return file.entries.get(stored)?.shape ?? [];
}

/** The configuration in a model's folder or zip, and whether weights to start from are beside it. */
export async function loadConfig(from: Files, folder: string): Promise<{ config: ModelConfig; hasWeights: boolean }> {
  const files = await readerOf(from, folder);
  const at = await modelFolder(files, folder);
  const config = await configIn(files, at);
  return { config, hasWeights: (await files.stat(join(at, 'model.safetensors'))) !== undefined };
}

async function configIn(files: FolderReader, folder: string): Promise<ModelConfig> {
  const path = join(folder, 'config.json');
  return parseConfig(parseJSON(await files.read(path), path), path);
}

/** Checks that weights of these shapes are those of a model with these parameters. */
export function checkWeights(
  shapes: Shapes,
  parameters: readonly { name: string; shape: readonly number[] }[],
  from: string,
): void {
  for (const { name, shape } of parameters) {
    const found = shapes.get(name);
    if (!found) throw new HoldfastError(`${from}: there is no tensor ${name}; its config.json describes another model`);
    if (found.join() !== shape.join()) {
      throw new HoldfastError(
        `${from}: ${name} has shape [${found.join(', ')}], its config.json asks for [${shape.join(', ')}]`,
      );
    }
  }
  const known = new Set(parameters.map(({ name }) => name));
  const stranger = [...shapes.keys()].find((name) => !known.has(name));
  if (stranger) throw new HoldfastError(`${from}: tensor ${stranger} is no parameter of the model in its config.json`);
}

/** Names of which one is in every run, checkpoint and model. */
const isOfModel = (name: string) => name === 'config.json' || name === 'model.safetensors' || COMPLETE.test(name);

/** Where the files of a checkpoint or a model lie: in a run, in a folder, or in the only one of these in a zip. */
export async function modelFolder(files: FolderReader, path: string): Promise<string> {
  const folder = files instanceof ZipFolder ? files.only((names) => names.some(isOfModel)) : path;
  const kind = (await files.stat(folder))?.kind;
  if (kind !== 'folder')
    throw new HoldfastError(`${folder}: no such folder; name a run, a checkpoint, a model folder or a zip`);
  const latest = (await checkpointsOf(files, folder)).at(-1);
  if (latest) return latest.path;
  if (await files.stat(join(folder, 'config.json'))) return folder;
  throw new HoldfastError(
    `${folder}: holds neither a checkpoint nor a config.json; name a run, a checkpoint or a model folder`,
  );
}

/** Some writers put "transformer." before GPT-2's names and keep its mask buffers. */
function canonicalName(name: string): string {
  return name.replace(/^transformer\./, '');
}

function parseJSON(bytes: Uint8Array, path: string): unknown {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes));
  } catch (error) {
    throw new HoldfastError(`${path}: not JSON (${messageOf(error)}); ${OTHER_CHECKPOINT}`);
  }
}
