// A checkpoint: a folder that Hugging Face's libraries open (config.json, model.safetensors), with what
// resuming needs beside it (optimizer.safetensors, trainer_state.json). It is written under another name and
// renamed when whole: a run's folder holds complete checkpoints and nothing else, whenever it is cut off.

import { type Files, join } from '../runtime/host.ts';
import { HoldfastError, messageOf } from '../util/errors.ts';
import { type ModelConfig, parseConfig } from './config.ts';
import { parse, serialize } from './safetensors.ts';

export type TensorMap = Map<string, Float32Array<ArrayBuffer>>;
export type Shapes = ReadonlyMap<string, readonly number[]>;

export interface Weights {
  readonly config: ModelConfig;
  readonly weights: TensorMap;
  readonly shapes: Shapes;
}

export interface Checkpoint extends Weights {
  readonly moment1: TensorMap;
  readonly moment2: TensorMap;
  /** Plain JSON: the trainer's, the data's and the report's state. */
  readonly state: unknown;
}

const PREFIX = 'checkpoint-';
const ARCHITECTURES = { gpt2: 'GPT2LMHeadModel', llama: 'LlamaForCausalLM' } as const;

/** Writes `run`/checkpoint-`step` and removes the older ones. Returns its path. */
export async function saveCheckpoint(files: Files, run: string, step: number, checkpoint: Checkpoint): Promise<string> {
  const name = `${PREFIX}${step}`;
  const partial = join(run, `.${name}.partial`);
  const { config, weights, shapes, moment1, moment2, state } = checkpoint;
  const withShapes = (tensors: TensorMap, prefix: string) =>
    [...tensors].map(([key, data]) => [prefix + key, { shape: shapes.get(key) ?? [data.length], data }] as const);
  await files.remove(partial);
  await files.makeFolder(partial);
  const hub = { ...config, architectures: [ARCHITECTURES[config.model_type]], torch_dtype: 'float32' };
  await files.writeAtomic(join(partial, 'config.json'), `${JSON.stringify(hub, undefined, 2)}\n`);
  await files.writeAtomic(join(partial, 'model.safetensors'), serialize(withShapes(weights, ''), { format: 'pt' }));
  const moments = [...withShapes(moment1, 'exp_avg.'), ...withShapes(moment2, 'exp_avg_sq.')];
  await files.writeAtomic(join(partial, 'optimizer.safetensors'), serialize(moments));
  await files.writeAtomic(join(partial, 'trainer_state.json'), `${JSON.stringify(state)}\n`);
  const target = join(run, name);
  await files.remove(target);
  await files.rename(partial, target);
  for (const other of await checkpointsOf(files, run)) {
    if (other.step !== step) await files.remove(other.path);
  }
  return target;
}

/** The complete checkpoints of a run, oldest first. */
export async function checkpointsOf(files: Files, run: string): Promise<{ step: number; path: string }[]> {
  if ((await files.stat(run))?.kind !== 'folder') return [];
  const names = (await files.list(run)).filter((name) => /^checkpoint-\d+$/.test(name));
  return names
    .map((name) => ({ step: Number(name.slice(PREFIX.length)), path: join(run, name) }))
    .sort((a, b) => a.step - b.step);
}

/**
 * The weights in a folder: a checkpoint, a run (its latest checkpoint), or any Hugging Face folder with
 * config.json and model.safetensors. Errors: HoldfastError naming what is missing or does not fit.
 */
export async function loadWeights(files: Files, folder: string): Promise<Weights> {
  const at = await resolve(files, folder);
  const config = await loadConfig(files, at);
  const path = join(at, 'model.safetensors');
  const tensors = parse(await files.read(path), path);
  const weights: TensorMap = new Map();
  const shapes = new Map<string, readonly number[]>();
  for (const [name, { data, shape }] of tensors) {
    if (!(data instanceof Float32Array)) throw new HoldfastError(`${path}: ${name} is not a floating-point tensor`);
    weights.set(canonicalName(name), data as Float32Array<ArrayBuffer>);
    shapes.set(canonicalName(name), shape);
  }
  return { config, weights, shapes };
}

/** A whole checkpoint, to resume from. */
export async function loadCheckpoint(files: Files, folder: string): Promise<Checkpoint> {
  const at = await resolve(files, folder);
  const loaded = await loadWeights(files, at);
  const statePath = join(at, 'trainer_state.json');
  const optimizerPath = join(at, 'optimizer.safetensors');
  const state = parseJSON(await files.read(statePath), statePath);
  const moment1: TensorMap = new Map();
  const moment2: TensorMap = new Map();
  for (const [name, { data }] of parse(await files.read(optimizerPath), optimizerPath)) {
    if (!(data instanceof Float32Array)) throw new HoldfastError(`${optimizerPath}: ${name} is not f32`);
    const moment = name.startsWith('exp_avg_sq.') ? moment2 : moment1;
    moment.set(name.replace(/^exp_avg(_sq)?\./, ''), data as Float32Array<ArrayBuffer>);
  }
  return { ...loaded, moment1, moment2, state };
}

export async function loadConfig(files: Files, folder: string): Promise<ModelConfig> {
  const path = join(folder, 'config.json');
  return parseConfig(parseJSON(await files.read(path), path), path);
}

/** Checks that the weights are those of a model with these parameters. */
export function checkWeights(
  weights: Weights,
  parameters: readonly { name: string; shape: readonly number[] }[],
  from: string,
): void {
  for (const { name, shape } of parameters) {
    const found = weights.shapes.get(name);
    if (!found) throw new HoldfastError(`${from}: there is no tensor ${name}; its config.json describes another model`);
    if (found.join() !== shape.join()) {
      throw new HoldfastError(
        `${from}: ${name} has shape [${found.join(', ')}], its config.json asks for [${shape.join(', ')}]`,
      );
    }
  }
  const known = new Set(parameters.map(({ name }) => name));
  const stranger = [...weights.weights.keys()].find((name) => !known.has(name));
  if (stranger) throw new HoldfastError(`${from}: tensor ${stranger} is no parameter of the model in its config.json`);
}

async function resolve(files: Files, folder: string): Promise<string> {
  const kind = (await files.stat(folder))?.kind;
  if (kind !== 'folder')
    throw new HoldfastError(`${folder}: no such folder; name a run, a checkpoint or a model folder`);
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
    throw new HoldfastError(`${path}: not JSON (${messageOf(error)}); the file is damaged, use another checkpoint`);
  }
}
