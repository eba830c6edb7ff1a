// The folders of a run and of models: which of them are checkpoints, and which one a name stands for. Nothing here reads
// a tensor.
//
// Invariant: only a folder with all files of a checkpoint counts as one, with all shards of one that several ranks wrote. Hugging Face's Trainer names its folders
// "checkpoint-N", too: none of them is ever taken for one of Holdfast's, nor put before the model beside it.

import { type FolderReader, join } from '../../runtime/host.ts';
import { readWhole } from '../../runtime/read-whole.ts';
import { HoldfastError } from '../../util/errors.ts';
import { ListedFolder } from '../listed-folder.ts';
import { INDEX_NAMES, shardNames } from './shard-names.ts';

export const CONFIG = 'config.json';
export const WEIGHTS = 'model.safetensors';
/** The name of the index of weights in several files. */
export const INDEX = INDEX_NAMES[WEIGHTS];
export const ADAPTER_CONFIG = 'adapter_config.json';
export const ADAPTER_WEIGHTS = 'adapter_model.safetensors';
export const MOMENTS = 'optimizer.safetensors';
/** The name of the index of moments in several files. */
export const MOMENTS_INDEX = INDEX_NAMES[MOMENTS];
/** The name of the state of a run: what it goes on from besides weights and moments, and has to show. */
export const RUN_STATE = 'holdfast_state.json';
/** The name of the state in Hugging Face's fields. Earlier versions wrote one file of both, of this name. */
export const TRAINER_STATE = 'trainer_state.json';
export const SUMS = 'SHA256SUMS';
/** Of a state: a run's record is refused before it has more (train/run/check-settings.ts). */
export const MOST_STATE_BYTES = 2 ** 29;

/** What a checkpoint takes. Those of earlier versions have one state, and no SHA256SUMS. */
export const CHECKPOINT_FILES: readonly string[] = [CONFIG, WEIGHTS, MOMENTS, RUN_STATE, TRAINER_STATE];
/** What an adapter takes, in PEFT's layout. */
export const ADAPTER_FILES = [ADAPTER_CONFIG, ADAPTER_WEIGHTS] as const;

export const TOKENIZER = 'tokenizer.json';
/** A chat template in a file of its own. */
export const CHAT_TEMPLATE = 'chat_template.jinja';
/** All that tokenizers of Hugging Face's libraries, old ones too, read or write beside each other. */
export const TOKENIZER_FILES: readonly string[] = [
  TOKENIZER,
  'tokenizer_config.json',
  'special_tokens_map.json',
  'added_tokens.json',
  'generation_config.json',
  CHAT_TEMPLATE,
  'vocab.json',
  'merges.txt',
  'vocab.txt',
  'tokenizer.model',
];

/** What is done with images before a model sees them. */
export const PREPROCESSOR = 'preprocessor_config.json';

/** What may lie in a checkpoint besides, and is the model's own. */
export const OWN_COMPANIONS: readonly string[] = [...TOKENIZER_FILES, PREPROCESSOR];

/** What tokenizers, images and generation need beside a model, and training leaves as it is. */
export const COMPANIONS: readonly string[] = [...OWN_COMPANIONS, 'chat_template.json'];

export const OTHER_CHECKPOINT =
  'the file is damaged, use another checkpoint (a run goes on from the one before where this one is moved out of its folder)';

const PREFIX = 'checkpoint-';
/** The older of two of one step, while it is being replaced. */
export const REPLACED = '.replaced';
const CHECKPOINT = /^checkpoint-(\d+)(\.replaced)?$/;
const PARTIAL = /^\.checkpoint-\d+\.partial$/;

/** Where a checkpoint of a run lies, of so many steps. */
export const checkpointPath = (run: string, step: number): string => join(run, `${PREFIX}${step}`);

/** Where a checkpoint lies before it counts, and after. */
export const partialPath = (run: string, step: number): string => join(run, `.${PREFIX}${step}.partial`);

export const isPartial = (name: string): boolean => PARTIAL.test(name);

export interface Found {
  readonly step: number;
  readonly path: string;
}

/** The complete checkpoints of a run, oldest first; of one that is being replaced, the new one last. */
export async function checkpointsOf(files: FolderReader, run: string): Promise<Found[]> {
  if ((await files.stat(run))?.kind !== 'folder') return [];
  for (let names = await files.list(run); ; ) {
    const named = byStep(run, names);
    const complete: Found[] = [];
    for (const found of named) if (await isComplete(files, found.path)) complete.push(found);
    if (complete.length === named.length) return complete;
    // One may have gone between two looks, because a newer one is there.
    const now = await files.list(run);
    if (now.join('/') === names.join('/')) return complete;
    names = now;
  }
}

function byStep(run: string, names: readonly string[]): Found[] {
  return names
    .map((name) => ({ name, step: CHECKPOINT.exec(name)?.[1] }))
    .filter(({ step }) => step !== undefined)
    .sort((a, b) => Number(a.step) - Number(b.step) || b.name.length - a.name.length)
    .map(({ name, step }) => ({ step: Number(step), path: join(run, name) }));
}

/** The latest checkpoint of a run where it is incomplete, and what it lacks; undefined where it has all, or there is none. */
export async function incompleteIn(files: FolderReader, run: string): Promise<string | undefined> {
  if ((await files.stat(run))?.kind !== 'folder') return undefined;
  for (const { path } of byStep(run, await files.list(run)).reverse()) {
    if (await isComplete(files, path)) return undefined;
    const names = await files.list(path);
    if (!names.includes(RUN_STATE) && !names.includes(SUMS)) continue;
    const lacking = kindsOf(names, [RUN_STATE, TRAINER_STATE]).map((kind) =>
      kind.filter((name) => !names.includes(name)),
    );
    const [fewest = []] = lacking.sort((a, b) => a.length - b.length);
    return `${path} is incomplete: it has no ${fewest.join(', no ')}`;
  }
  return undefined;
}

/** Whether a folder has all files of a checkpoint, of any kind. */
async function isComplete(files: FolderReader, folder: string): Promise<boolean> {
  // It may go while it is looked at.
  const wanted = checkpointFiles(await files.list(folder).catch(() => []));
  if (!wanted || !(await hasFiles(files, folder, wanted))) return false;
  return wanted.includes(RUN_STATE) || (await isOfRun(files, folder));
}

/** What the checkpoint in a folder of these names takes. Undefined where some of it is missing. */
export function checkpointFiles(names: readonly string[]): readonly string[] | undefined {
  const states = names.includes(RUN_STATE) ? [RUN_STATE, TRAINER_STATE] : [TRAINER_STATE];
  return kindsOf(names, states).find((kind) => kind.every((name) => names.includes(name)));
}

/**
 * What checkpoints with these states take: one of a model, of a run that trains an adapter, whose base lies elsewhere, or of
 * several ranks, in shards as the names have them.
 */
function kindsOf(names: readonly string[], states: readonly string[]): string[][] {
  const [weights, moments] = [shardNames(WEIGHTS, names), shardNames(MOMENTS, names)];
  const tensors = [
    [WEIGHTS, MOMENTS],
    [...ADAPTER_FILES, MOMENTS],
    ...(weights.length > 0 && moments.length > 0 ? [[INDEX, ...weights, MOMENTS_INDEX, ...moments]] : []),
  ];
  return tensors.map((kind) => [CONFIG, ...kind, ...states]);
}

/** The name of the file with the state of a run in a checkpoint. */
export const runStateName = async (files: FolderReader, checkpoint: string): Promise<string> =>
  (await hasFiles(files, checkpoint, [RUN_STATE])) ? RUN_STATE : TRAINER_STATE;

/** Errors: HoldfastError where that file is there, with a state in Hugging Face's fields alone. */
export async function checkOfRun(files: FolderReader, checkpoint: string, stateName: string): Promise<void> {
  const path = join(checkpoint, stateName);
  if (stateName === RUN_STATE || (await isOfRun(files, checkpoint)) || !(await files.stat(path))) return;
  throw new HoldfastError(`${path}: has no state of a run, nor is there a ${RUN_STATE} beside it; ${OTHER_CHECKPOINT}`);
}

/** Whether a folder has an adapter instead of a model. */
export const isAdapter = async (files: FolderReader, folder: string): Promise<boolean> =>
  (await hasFiles(files, folder, ADAPTER_FILES)) && !(await hasWeights(files, folder));

async function hasFiles(files: FolderReader, folder: string, names: readonly string[]): Promise<boolean> {
  for (const name of names) if ((await files.stat(join(folder, name)))?.kind !== 'file') return false;
  return true;
}

/** Whether weights lie in the folder, in one file or several. */
export async function hasWeights(files: FolderReader, folder: string): Promise<boolean> {
  if (files instanceof ListedFolder && files.weights) return true;
  for (const name of [WEIGHTS, INDEX]) if (await hasFiles(files, folder, [name])) return true;
  return false;
}

const isModel = async (files: FolderReader, folder: string): Promise<boolean> =>
  (await hasFiles(files, folder, [CONFIG])) && (await hasWeights(files, folder));

const isOfModel = (name: string): boolean => [CONFIG, WEIGHTS, INDEX].includes(name) || CHECKPOINT.test(name);

/**
 * The folder with the files of a model that a name stands for: a run's latest checkpoint, or the folder itself; in a zip,
 * of the only one in it. Errors: HoldfastError where there is neither.
 */
export async function modelFolder(files: FolderReader, path: string): Promise<string> {
  const folder = files instanceof ListedFolder ? files.only((names) => names.some(isOfModel)) : path;
  const kind = (await files.stat(folder))?.kind;
  if (kind !== 'folder')
    throw new HoldfastError(
      `${folder}: ${kind ? 'is no folder, nor a zip or .gguf file' : 'no such folder'}; name a run, a checkpoint, a model folder, a zip or a .gguf file`,
    );
  const latest = (await checkpointsOf(files, folder)).at(-1)?.path;
  // A run may lie in the folder of the model that it began with.
  if (latest !== undefined) return latest;
  if (await files.stat(join(folder, CONFIG))) return folder;
  const foreign = byStep(folder, await files.list(folder)).reverse();
  for (const { path } of foreign) if (await isModel(files, path)) return path;
  throw new HoldfastError(
    `${folder}: holds neither a checkpoint nor a config.json; name a run, a checkpoint or a model folder`,
  );
}

/**
 * The folder with the adapter that a name stands for: the folder itself, or the latest checkpoint of a run that trains
 * one; undefined where it stands for something else. Errors: HoldfastError for an adapter in another library's layout.
 */
export async function adapterFolder(files: FolderReader, path: string): Promise<string | undefined> {
  if (await isAdapter(files, path)) return path;
  if ((await files.stat(path))?.kind !== 'folder') return undefined;
  for (const [name, writer] of FOREIGN_ADAPTERS) {
    if (!(await files.stat(join(path, name)))) continue;
    throw new HoldfastError(
      `${join(path, name)}: an adapter as ${writer} writes it; PEFT's layout is read (${ADAPTER_FILES.join(', ')}), convert it`,
    );
  }
  for (;;) {
    const latest = (await checkpointsOf(files, path)).at(-1)?.path;
    if (latest === undefined || (await hasWeights(files, latest))) return undefined;
    // One with neither has gone, because a newer one is there.
    if (await isAdapter(files, latest)) return latest;
  }
}

const FOREIGN_ADAPTERS = [
  ['adapters.safetensors', 'mlx-lm'],
  ['adapters.npz', 'mlx-lm'],
  ['adapter_model.bin', 'an old PEFT, pickled,'],
  ['pytorch_lora_weights.safetensors', 'diffusers'],
] as const;

/** Whether the one state of a checkpoint of an earlier version is Holdfast's. One that is damaged counts: what loads it says so. */
async function isOfRun(files: FolderReader, checkpoint: string): Promise<boolean> {
  const path = join(checkpoint, TRAINER_STATE);
  let bytes: Uint8Array;
  try {
    bytes = await readWhole(files, path, MOST_STATE_BYTES, { fix: OTHER_CHECKPOINT });
  } catch (error) {
    // It may go while it is looked at.
    if (await files.stat(path)) throw error;
    return false;
  }
  try {
    const state = JSON.parse(new TextDecoder().decode(bytes)) as { format?: unknown } | null;
    return typeof state?.format === 'string' && state.format.startsWith('holdfast ');
  } catch {
    return true;
  }
}
