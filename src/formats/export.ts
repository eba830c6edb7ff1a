// A model written for others: a folder that Hugging Face's libraries load, in the type and the file sizes that are asked
// for, with the files of its tokenizer beside it. Not a checkpoint: nothing in it resumes a run, whose bits stay float32.
//
// Invariant: the folder is there whole or not at all, and no tensor is in memory whole.

import { type Files, type FolderReader, join } from '../runtime/host.ts';
import { readJSON } from '../runtime/read-whole.ts';
import { HoldfastError } from '../util/errors.ts';
import { isObject } from '../util/json.ts';
import { CHAT_TEMPLATE, COMPANIONS, CONFIG, INDEX, WEIGHTS } from './checkpoint/folder.ts';
import { indexText, shardName } from './checkpoint/shard-names.ts';
import type { SavedWeights } from './checkpoint.ts';
import { familyOf, labelsIn } from './families/index.ts';
import { writeNewFolder } from './new-folder.ts';
import { type TensorToWrite, writeTensors } from './safetensors.ts';
import { elementBytes, elements } from './safetensors-header.ts';

/** What weights can be saved as, by the names that Hugging Face's libraries have for them. */
export const SAVED_DTYPES = {
  f32: { stored: 'F32', torch: 'float32' },
  bf16: { stored: 'BF16', torch: 'bfloat16' },
  f16: { stored: 'F16', torch: 'float16' },
} as const;

/** What weights can be saved as. */
export type SavedDtype = keyof typeof SAVED_DTYPES;

/** Bytes of tensors in one file, as `save_pretrained` has it. */
export const MAX_SHARD_BYTES = 5e9;

export interface ExportOptions {
  readonly dtype: SavedDtype;
  /** Of tensors in a file; a larger tensor has one of its own. */
  readonly maxShardBytes: number;
  /** Ends the writing, with nothing left of it. */
  readonly interrupted?: () => boolean;
}

/** Weights, and the folder that they were found in. */
export interface ExportedModel {
  readonly weights: SavedWeights;
  readonly files: FolderReader;
  readonly folder: string;
  /** Of a run on bytes: it has no tokenizer's files to have it. It comes before what lies in the folder. */
  readonly chatTemplate?: string | undefined;
}

/** What was written. */
export interface ExportSummary {
  readonly tensors: number;
  /** Of tensors, without headers. */
  readonly bytes: number;
  /** Names of the weights' files. */
  readonly shards: readonly string[];
}

const COPY_BYTES = 4 * 2 ** 20;

/** Writes the model to `out`, a folder that is not there or empty. Errors: HoldfastError; nothing is left of it then. */
export async function exportModel(
  files: Files,
  out: string,
  model: ExportedModel,
  options: ExportOptions,
): Promise<ExportSummary> {
  const interrupted = options.interrupted ?? (() => false);
  async function* uninterrupted<T>(pieces: AsyncIterable<T>): AsyncGenerator<T> {
    for await (const piece of pieces) {
      if (interrupted()) throw new HoldfastError(`${out}: interrupted; nothing is left of it`);
      yield piece;
    }
  }
  return writeNewFolder(files, out, (folder) => writeModel(files, folder, model, options, uninterrupted));
}

async function writeModel(
  files: Files,
  folder: string,
  { weights: { config, weights, shapes, tokenizer }, files: from, folder: source, chatTemplate }: ExportedModel,
  { dtype, maxShardBytes }: ExportOptions,
  uninterrupted: <T>(pieces: AsyncIterable<T>) => AsyncIterable<T>,
): Promise<ExportSummary> {
  const { stored, torch } = SAVED_DTYPES[dtype];
  const labels = labelsIn(config);
  // Ids of tokens and whatever else others read of it stay.
  const path = join(source, CONFIG);
  const given = await readJSON(from, path, 'write it again');
  const hub = {
    ...(isObject(given) ? given : config),
    // An adapter may have learned to end a text by others.
    ...tokenizer?.modelIds,
    architectures: [familyOf(config).architecture(config)],
    // A head that came with an adapter has classes of its own.
    ...(labels && { ...labels, num_labels: undefined }),
    // Its name since Transformers 5.
    [isObject(given) && 'dtype' in given ? 'dtype' : 'torch_dtype']: torch,
    // Weights in four bits are written widened.
    quantization_config: undefined,
  };
  await files.writeAtomic(join(folder, CONFIG), `${JSON.stringify(hub, undefined, 2)}\n`);
  for (const name of COMPANIONS) await copyFile(from, join(source, name), files, join(folder, name));
  // An adapter may bring one along.
  for (const [name, bytes] of tokenizer?.contents ?? []) await files.writeAtomic(join(folder, name), bytes);
  if (chatTemplate !== undefined) await files.writeAtomic(join(folder, CHAT_TEMPLATE), chatTemplate);
  const tensors = weights.names.map(
    (name): TensorToWrite => ({
      ...{ name, dtype: stored, shape: shapes.get(name) ?? [] },
      read: () => uninterrupted(weights.read(name)),
    }),
  );
  const parts = shardsOf(tensors, maxShardBytes);
  const bytes = tensors.reduce((sum, tensor) => sum + bytesOf(tensor), 0);
  const named = parts.map((part, i) => ({
    name: parts.length === 1 ? WEIGHTS : shardName(WEIGHTS, i, parts.length),
    part,
  }));
  for (const { name, part } of named) await writeTensors(files, join(folder, name), part, { format: 'pt' });
  if (named.length > 1) {
    const places = named.flatMap(({ name, part }) => part.map((tensor) => [tensor.name, name] as const));
    await files.writeAtomic(join(folder, INDEX), indexText(places, bytes));
  }
  return { tensors: tensors.length, bytes, shards: named.map(({ name }) => name) };
}

const bytesOf = ({ dtype, shape }: TensorToWrite): number => elements(shape) * elementBytes(dtype);

/** In their order, each file as full as can be. */
function shardsOf(tensors: readonly TensorToWrite[], most: number): TensorToWrite[][] {
  const shards: TensorToWrite[][] = [];
  let left = 0;
  for (const tensor of tensors) {
    const bytes = bytesOf(tensor);
    const last = shards.at(-1);
    if (last && bytes <= left) last.push(tensor);
    else {
      shards.push([tensor]);
      left = most;
    }
    left -= bytes;
  }
  return shards;
}

/** Does nothing where there is none. */
async function copyFile(from: FolderReader, path: string, files: Files, target: string): Promise<void> {
  const stat = await from.stat(path);
  if (stat?.kind !== 'file') return;
  const stream = await files.writeStream(target);
  try {
    for (let at = 0; at < stat.bytes; at += COPY_BYTES) {
      await stream.write(await from.readRange(path, at, Math.min(COPY_BYTES, stat.bytes - at)));
    }
    await stream.commit();
  } catch (error) {
    await stream.abort();
    throw error;
  }
}
