// Saving: a checkpoint is written under another name and renamed when whole. At every moment the newest one that was
// saved, or a later one, is found, wherever the process ends or the power goes: files are synced, then the folder that
// names them, then it is renamed, then the run's folder synced, and only then does an older one go.
//
// Two are kept, a third lies beside them while it is written: what reads the newest keeps it for one save more, and a
// run that diverges has one from before. What is not a whole checkpoint of Holdfast's is never removed.

import { type Files, join } from '../../runtime/host.ts';
import { assert } from '../../util/errors.ts';
import { parseJSON } from '../../util/json.ts';
import type { TensorSource } from '../../util/tensor-source.ts';
import type { CheckpointToSave } from '../checkpoint.ts';
import { familyOf } from '../families/index.ts';
import { adapterConfigOf, storedNames } from '../peft.ts';
import { type TensorToWrite, writeTensors } from '../safetensors.ts';
import { readSums, SummedFolder, writeSums } from './checksums.ts';
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
  partialPath,
  REPLACED,
  STATE,
  WEIGHTS,
} from './folder.ts';
import { MOMENT1, MOMENT2 } from './tensor-names.ts';

/**
 * Writes `run`/checkpoint-`step`, then removes all others but one. Returns its path. An error, of the disk or of a
 * source, is passed on; what was whole before still is.
 * @param beside the one that stays. @default the newest of an earlier step
 * @param best another that stays, if it is there. @default none
 */
export async function saveCheckpoint(
  files: Files,
  run: string,
  step: number,
  checkpoint: CheckpointToSave,
  beside?: string,
  best?: string,
): Promise<string> {
  const target = checkpointPath(run, step);
  const partial = partialPath(run, step);
  await files.makeFolder(run);
  const before = await checkpointsOf(files, run);
  const kept = best === undefined ? [] : [best];
  await keepOnly(files, run, [...newestSteps(before, 2), ...(beside === undefined ? [] : [beside]), ...kept]);
  try {
    await writeFolder(files, partial, checkpoint);
    await files.syncFolder(partial);
  } catch (error) {
    // The disk may be full: what will not be read goes. The error above is the one that matters.
    await files.remove(partial).catch(() => {});
    throw error;
  }
  // A folder cannot be renamed onto another: the old one steps aside and still counts until the new one is there.
  if (await files.stat(target)) await files.rename(target, await aside(files, target, before));
  await files.rename(partial, target);
  const earlier = before.filter((found) => found.step < step);
  const other = earlier.find(({ path }) => path === beside)?.path ?? newestSteps(earlier, 1)[0];
  await keepOnly(files, run, [target, ...(other === undefined ? [] : [other]), ...kept]);
  return target;
}

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

async function writeFolder(files: Files, folder: string, checkpoint: CheckpointToSave): Promise<void> {
  const { config, weights, shapes, moment1, moment2, momentsIn = 'f32', state, adapter, tokenizer } = checkpoint;
  const tensorsOf = (
    source: TensorSource,
    nameOf: (name: string) => string,
    dtype: 'F32' | 'BF16' = 'F32',
  ): TensorToWrite[] =>
    source.names.map((name) => {
      const shape = shapes.get(name);
      assert(shape, `the checkpoint has no shape for ${name}`);
      return { name: nameOf(name), dtype, shape, read: () => source.read(name) };
    });
  await files.makeFolder(folder);
  const summed = new SummedFolder(files, folder);
  const hub = { ...config, architectures: [familyOf(config).architecture(config)], torch_dtype: 'float32' };
  await summed.writeText(CONFIG, `${JSON.stringify(hub, undefined, 2)}\n`);
  if (adapter) {
    const stored = storedNames(adapter.info);
    const file = adapterConfigOf(adapter.info, config, adapter.base);
    await summed.writeText(ADAPTER_CONFIG, `${JSON.stringify(file, undefined, 2)}\n`);
    const tensors = tensorsOf(weights, (name) => stored.get(name) ?? name);
    await writeTensors(summed, ADAPTER_WEIGHTS, tensors, { format: 'pt' });
  } else
    await writeTensors(
      summed,
      WEIGHTS,
      tensorsOf(weights, (name) => name),
      { format: 'pt' },
    );
  const dtype = momentsIn === 'bf16' ? 'BF16' : 'F32';
  const moments = [
    ...tensorsOf(moment1, (name) => MOMENT1 + name, dtype),
    ...tensorsOf(moment2, (name) => MOMENT2 + name, dtype),
  ];
  await writeTensors(summed, MOMENTS, moments);
  for (const [name, bytes] of tokenizer?.contents ?? []) await summed.writeBytes(name, bytes);
  await summed.writeText(STATE, stateText(state));
  await summed.finish();
}

const stateText = (state: unknown): string => `${JSON.stringify(state)}\n`;

/** Gives a checkpoint that does not count yet another state. Its other files keep their sums. */
export const replaceState = (files: Files, folder: string, state: unknown): Promise<void> =>
  replaceTexts(files, folder, new Map([[STATE, stateText(state)]]));

/** The same of one that trains an adapter, and says where its base lies now. */
export async function replaceBase(files: Files, folder: string, state: unknown, base: string): Promise<void> {
  const path = join(folder, ADAPTER_CONFIG);
  const config = parseJSON(await files.read(path), path, OTHER_CHECKPOINT) as Record<string, unknown>;
  const named = { ...config, base_model_name_or_path: base };
  const texts = [
    [STATE, stateText(state)],
    [ADAPTER_CONFIG, `${JSON.stringify(named, undefined, 2)}\n`],
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
