// Saving: a checkpoint is written under another name and renamed when whole. At every moment the newest one that was
// saved, or a later one, is found, wherever the process ends or the power goes: files are synced, then the folder that
// names them, then it is renamed, then the run's folder synced, and only then does an older one go.
//
// Two are kept, a third lies beside them while it is written: what reads the newest keeps it for one save more. What is not a
// whole checkpoint of Holdfast's is never removed. Of several processes the first does all of this; the others write their shards
// (shards.ts) into the folder between.

import * as v from 'valibot';
import { checkFolder } from '../../runtime/check-host.ts';
import { type Files, join } from '../../runtime/host.ts';
import { readJSON } from '../../runtime/read-whole.ts';
import { checkWholeNumber, having, mapByName } from '../../util/arguments.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { anything, check, closed, object, optional, parsed, text } from '../../util/json.ts';
import type { TensorSource } from '../../values/tensor-source.ts';
import { parseConfig } from '../config.ts';
import { familyOf } from '../families/index.ts';
import { adapterConfigOf, storedNames } from '../peft.ts';
import { preprocessorFile } from '../preprocessor.ts';
import { writeTensors } from '../safetensors.ts';
import { readSums, SummedFolder, writeSums } from './checksums.ts';
import type { CheckpointToSave } from './contents.ts';
import {
  ADAPTER_CONFIG,
  ADAPTER_WEIGHTS,
  CONFIG,
  checkpointPath,
  checkpointsOf,
  type Found,
  isPartial,
  MOMENTS,
  OTHER_CHECKPOINT,
  PREPROCESSOR,
  partialPath,
  REPLACED,
  RUN_STATE,
  runStateName,
  TRAINER_STATE,
  WEIGHTS,
} from './folder.ts';
import { type CheckpointTensors, type OwnedTensor, type Writers, writeIndices, writeShards } from './shards.ts';
import { MOMENT1, MOMENT2 } from './tensor-names.ts';

/** Checkpoints that lie beside each other at once, while one is written. */
export const MOST_CHECKPOINTS = 3;

/** What stays besides, and what writes this one. */
export interface SaveOptions {
  /** A checkpoint that stays besides the two, if it is there. @default none */
  readonly best?: string | undefined;
  /** The processes that save it together: all of them call this. @default this one alone */
  readonly writers?: Writers | undefined;
}

const source = having<TensorSource>('a source of tensors', 'names', 'read');
const saveOptions = closed<SaveOptions>({ best: optional(text), writers: anything });
/** What JSON has a word for: what has none could not be read back. */
const state = v.custom<unknown>((value) => stateOf(value) !== undefined, 'plain JSON');
const config = parsed((json) => parseConfig(json, 'the checkpoint: config'));
const toSave = object({ config, state, shapes: mapByName, weights: source, moment1: source, moment2: source });

/**
 * Writes `run`/checkpoint-`step`, then removes all others but one. Returns its path. An error, of the disk or of a
 * source, is passed on, as is HoldfastError for a tensor without a shape, or not of it; what was whole before still is.
 */
export async function saveCheckpoint(
  files: Files,
  run: string,
  step: number,
  checkpoint: CheckpointToSave,
  options: SaveOptions = {},
): Promise<string> {
  checkFolder(files, run);
  checkWholeNumber(step, 'step');
  check(toSave, checkpoint, 'the checkpoint');
  check(saveOptions, options, 'the options of saving');
  const { best, writers } = options;
  const target = checkpointPath(run, step);
  const partial = partialPath(run, step);
  if (writers && writers.rank > 0) {
    await writers.exchange(FOLDER_IS_MADE, '');
    await writeShards(files, partial, checkpointTensors(checkpoint), writers, async () => {});
    return target;
  }
  await files.makeFolder(run);
  const before = await checkpointsOf(files, run);
  const kept = best === undefined ? [] : [best];
  await keepOnly(files, run, [...newestSteps(before, 2), ...kept]);
  try {
    await writeFolder(files, partial, checkpoint, writers);
    await files.syncFolder(partial);
  } catch (error) {
    await discard(files, partial);
    throw error;
  }
  // A folder cannot be renamed onto another: the old one steps aside and still counts until the new one is there.
  if (await files.stat(target)) await files.rename(target, await aside(files, target, before));
  await files.rename(partial, target);
  const earlier = before.filter((found) => found.step < step);
  await keepOnly(files, run, [target, ...newestSteps(earlier, 1), ...kept]);
  return target;
}

/** What all wait for before they write. */
const FOLDER_IS_MADE = 'the folder of a checkpoint';

/** The disk may be full: what will not be read goes. The error that led here is the one that matters. */
const discard = (files: Files, partial: string): Promise<void> => files.remove(partial).catch(() => {});

/** The newest checkpoint of each of the last `count` steps. */
function newestSteps(found: readonly Found[], count: number): string[] {
  return [...new Map(found.map(({ step, path }) => [step, path])).values()].slice(-count);
}

/** A free name for what lies where a checkpoint goes: of one that still counts, or of another's folder. */
async function aside(files: Files, target: string, found: readonly Found[]): Promise<string> {
  if (found.some(({ path }) => path === target)) return `${target}${REPLACED}`;
  for (let number = 1; ; number++) {
    const name = `${target}.incomplete-${number}`;
    if (!(await files.stat(name))) return name;
  }
}

/** Removes every other checkpoint of a run, and what was cut off while it was written or removed. */
async function keepOnly(files: Files, run: string, kept: readonly string[]): Promise<void> {
  // What stays is on the disk before anything goes.
  await files.syncFolder(run);
  for (const name of await files.list(run)) if (isPartial(name)) await files.remove(join(run, name));
  for (const { step, path } of await checkpointsOf(files, run)) {
    if (kept.includes(path)) continue;
    // Half removed it must not pass for a checkpoint.
    await files.rename(path, partialPath(run, step));
    await files.syncFolder(run);
    await files.remove(partialPath(run, step));
  }
}

/** The tensors of a source by the names that they have in files. */
function tensorsOf(
  { shapes }: Pick<CheckpointToSave, 'shapes'>,
  source: TensorSource,
  nameOf: (name: string) => string,
  dtype: 'F32' | 'BF16' = 'F32',
): OwnedTensor[] {
  return source.names.map((name) => {
    const shape = shapes.get(name);
    if (!shape) throw new HoldfastError(`the checkpoint has no shape for ${name}; give it in shapes`);
    return { parameter: name, tensor: { name: nameOf(name), dtype, shape, read: () => source.read(name) } };
  });
}

function checkpointTensors(checkpoint: CheckpointToSave): CheckpointTensors {
  const { weights, moment1, moment2, momentsIn, adapter } = checkpoint;
  const dtype = momentsIn === 'bf16' ? 'BF16' : 'F32';
  const stored = adapter && storedNames(adapter.info);
  return {
    weights: tensorsOf(checkpoint, weights, (name) => stored?.get(name) ?? name),
    moments: [
      ...tensorsOf(checkpoint, moment1, (name) => MOMENT1 + name, dtype),
      ...tensorsOf(checkpoint, moment2, (name) => MOMENT2 + name, dtype),
    ],
  };
}

async function writeFolder(
  files: Files,
  folder: string,
  checkpoint: CheckpointToSave,
  writers: Writers | undefined,
): Promise<void> {
  const { config, state, trainerState = {}, adapter, tokenizer, images } = checkpoint;
  const tensors = checkpointTensors(checkpoint);
  await files.makeFolder(folder);
  const summed = new SummedFolder(files, folder);
  const hub = {
    ...config,
    // Others end a text by them; llama.cpp's own converter reads them nowhere else.
    ...tokenizer?.modelIds,
    architectures: [familyOf(config).architecture(config)],
    torch_dtype: 'float32',
  };
  await summed.writeText(CONFIG, indented(hub));
  if (adapter) {
    const file = adapterConfigOf(adapter.info, config, adapter.base, adapter.revision);
    await summed.writeText(ADAPTER_CONFIG, indented(file));
  }
  if (writers) {
    assert(!adapter, 'PEFT reads an adapter from one file');
    await writers.exchange(FOLDER_IS_MADE, '');
    const sums = await writeShards(files, folder, tensors, writers, () => discard(files, folder));
    for (const [name, sum] of sums) summed.sums.set(name, sum);
    await writeIndices(files, folder, summed, tensors, writers);
  } else {
    const only = (owned: readonly OwnedTensor[]) => owned.map(({ tensor }) => tensor);
    await writeTensors(summed, adapter ? ADAPTER_WEIGHTS : WEIGHTS, only(tensors.weights), { format: 'pt' });
    await writeTensors(summed, MOMENTS, only(tensors.moments));
  }
  for (const [name, bytes] of tokenizer?.contents ?? []) await summed.writeBytes(name, bytes);
  const preprocessor = preprocessorFile(images, config);
  if (preprocessor !== undefined) await summed.writeText(PREPROCESSOR, preprocessor);
  await summed.writeText(TRAINER_STATE, indented(trainerState));
  await summed.writeText(RUN_STATE, stateText(state));
  await summed.finish();
}

/** As others write it, for people to read. */
const indented = (json: object): string => `${JSON.stringify(json, undefined, 2)}\n`;
const stateText = (state: unknown): string => `${stateOf(state)}\n`;

/** As JSON; undefined where it has no word for it. */
function stateOf(state: unknown): string | undefined {
  try {
    return JSON.stringify(state);
  } catch {
    return undefined;
  }
}

/** Gives a checkpoint that does not count yet another state of its run. Its other files keep their sums. */
export async function replaceState(files: Files, folder: string, state: unknown): Promise<void> {
  await replaceTexts(files, folder, new Map([[await runStateName(files, folder), stateText(state)]]));
}

/** As `replaceState`, of a checkpoint of an adapter; it says from then on that its base lies at `base`. */
export async function replaceBase(files: Files, folder: string, state: unknown, base: string): Promise<void> {
  const path = join(folder, ADAPTER_CONFIG);
  const config = (await readJSON(files, path, OTHER_CHECKPOINT)) as Record<string, unknown>;
  const named = { ...config, base_model_name_or_path: base };
  const texts = [
    [await runStateName(files, folder), stateText(state)],
    [ADAPTER_CONFIG, indented(named)],
  ] as const;
  await replaceTexts(files, folder, new Map(texts));
}

async function replaceTexts(files: Files, folder: string, texts: ReadonlyMap<string, string>): Promise<void> {
  const sums = await readSums(files, folder);
  const found = new Map(sums);
  for (const [name, text] of texts) {
    await files.writeAtomic(join(folder, name), text);
    const sum = await files.sha256();
    sum.update(new TextEncoder().encode(text));
    found.set(name, sum.hex());
  }
  if (sums) await writeSums(files, folder, found);
}
