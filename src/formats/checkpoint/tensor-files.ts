// The files of a folder that hold its tensors: model.safetensors, or shards with an index beside them, as Hugging Face's
// libraries write what is large; found and opened. Knows files and stored names, no model.
//
// Invariant: each tensor lies in one file, and where there is an index, it and the headers say the same. An index is a
// claim like any other: what it names is looked for in the folder itself and nowhere else.

import { type FolderReader, join } from '../../runtime/host.ts';
import { readJSON } from '../../runtime/read-whole.ts';
import { HoldfastError, shortened } from '../../util/errors.ts';
import { check, namesTo, object, text } from '../../util/json.ts';
import { ListedFolder } from '../listed-folder.ts';
import { TensorFile } from '../safetensors.ts';
import { openQuantised } from './bitsandbytes.ts';
import { INDEX, WEIGHTS } from './folder.ts';
import { ModelTensors, type StoredTensors } from './model-tensors.ts';
import { INDEX_NAMES, type WholeName } from './shard-names.ts';

/** An index is in memory as a whole: this is a hundred times what the largest models have. */
const MOST_INDEX_BYTES = 64 * 2 ** 20;
const MOST_SHARDS = 10_000;

/** Metadata beside it, `total_size` for one, is not always right in files that are in use, and nothing depends on it. */
const INDEX_SCHEMA = object({ weight_map: namesTo(text) });

const GET_AGAIN = 'copy the folder of the model again';

/** The names of the files with a model's weights: one, or the index and its shards. Errors: HoldfastError. */
export async function weightFiles(files: FolderReader, folder: string): Promise<string[]> {
  if (await files.stat(join(folder, WEIGHTS))) return [WEIGHTS];
  return [INDEX, ...new Set((await readIndex(files, folder, WEIGHTS)).values())];
}

/** Opens them; their headers are read, and their data when asked for. Errors: HoldfastError naming the file. */
export async function openTensors(files: FolderReader, folder: string): Promise<StoredTensors> {
  if (files instanceof ListedFolder && files.weights) return files.weights;
  return openQuantised(await openFiles(files, folder, WEIGHTS));
}

/** The file of such a name, or its parts. Errors: as `openTensors`. */
export async function openFiles(files: FolderReader, folder: string, whole: WholeName): Promise<ModelTensors> {
  const single = join(folder, whole);
  if (await files.stat(single)) return new ModelTensors(single, [await TensorFile.open(files, single)]);
  const name = INDEX_NAMES[whole];
  const index = join(folder, name);
  const places = await readIndex(files, folder, whole);
  const tensorsIn = new Map<string, string[]>();
  for (const [tensor, shard] of places) {
    const tensors = tensorsIn.get(shard) ?? [];
    tensors.push(tensor);
    tensorsIn.set(shard, tensors);
  }
  const shards: TensorFile[] = [];
  // In the order of their numbers, as they were written.
  for (const [shard, tensors] of [...tensorsIn].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const path = join(folder, shard);
    if ((await files.stat(path))?.kind !== 'file') {
      const others = tensors.length > 1 ? ` and ${tensors.length - 1} more` : '';
      throw new HoldfastError(
        `${path} is missing: ${name} says that ${shortened(tensors[0] ?? '')}${others} are in it; ${GET_AGAIN}`,
      );
    }
    const file = await TensorFile.open(files, path);
    for (const tensor of tensors) {
      if (file.entries.has(tensor)) continue;
      throw new HoldfastError(`${path}: has no ${shortened(tensor)}, ${name} says that it is in it; ${GET_AGAIN}`);
    }
    for (const tensor of file.entries.keys()) {
      const place = places.get(tensor);
      if (place === shard) continue;
      const where = place === undefined ? 'in no shard' : `in ${place}`;
      throw new HoldfastError(`${path}: has ${shortened(tensor)}, ${name} says that it is ${where}; ${GET_AGAIN}`);
    }
    shards.push(file);
  }
  return new ModelTensors(index, shards);
}

/** The shard of each tensor. Errors: HoldfastError where there is no index, or it makes no sense. */
async function readIndex(files: FolderReader, folder: string, whole: WholeName): Promise<ReadonlyMap<string, string>> {
  const path = join(folder, INDEX_NAMES[whole]);
  const stat = await files.stat(path);
  if (!stat) {
    const pickled = await files.stat(join(folder, 'pytorch_model.bin'));
    const fix = pickled
      ? 'its pytorch_model.bin is a program as much as it is data: save it by save_pretrained of a newer Transformers'
      : 'name the folder of a model with its weights';
    throw new HoldfastError(`${folder}: there is no ${whole}, and no ${INDEX_NAMES[whole]}; ${fix}`);
  }
  const json = await readJSON(files, path, GET_AGAIN, MOST_INDEX_BYTES);
  const places = new Map(Object.entries(check(INDEX_SCHEMA, json, path).weight_map));
  const shards = new Set(places.values());
  if (shards.size === 0) throw new HoldfastError(`${path}: names no tensor; ${GET_AGAIN}`);
  if (shards.size > MOST_SHARDS) {
    throw new HoldfastError(`${path}: names ${shards.size} files, at most ${MOST_SHARDS} are read; ${GET_AGAIN}`);
  }
  for (const shard of shards) {
    if (/^[^/\\\p{Cc}]{1,200}\.safetensors$/u.test(shard)) continue;
    throw new HoldfastError(
      `${path}: ${JSON.stringify(shortened(shard))} is no name of a safetensors file in the same folder; ${GET_AGAIN}`,
    );
  }
  return places;
}
