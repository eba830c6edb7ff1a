// The tensors of a checkpoint that several processes write at the same time, each a file of those that are its own, with one
// index over all: `model-00001-of-00002.safetensors` and its like, and the same of the moments. Whole tensors, as Hugging Face's
// libraries read them; which of the processes writes which is decided by the caller. The folder around it is save.ts.
//
// Invariant: nothing says that a shard is there before it is, whole, on the disk of the first process, which has the sums of
// all of them.

import { type Files, join } from '../../runtime/host.ts';
import { at } from '../../util/at.ts';
import { HoldfastError, messageOf } from '../../util/errors.ts';
import { type TensorToWrite, writeTensors } from '../safetensors.ts';
import { elementBytes, elements } from '../safetensors-header.ts';
import { SummedFolder } from './checksums.ts';
import { MOMENTS, WEIGHTS } from './folder.ts';
import { INDEX_NAMES, indexText, shardName } from './shard-names.ts';

/** The processes that write one checkpoint together, as one of them sees them. */
export interface Writers {
  readonly rank: number;
  readonly size: number;
  /** Which of them writes a tensor: its weights, and what belongs to them. */
  writerOf(name: string): number;
  /** What each says, by rank. All come here in the same order. */
  exchange(what: string, text: string): Promise<readonly string[]>;
}

/** A tensor of a parameter. */
export interface OwnedTensor {
  readonly parameter: string;
  readonly tensor: TensorToWrite;
}

/** What is written into files of such names. */
export interface CheckpointTensors {
  readonly weights: readonly OwnedTensor[];
  readonly moments: readonly OwnedTensor[];
}

/** What one of them says when it has written. */
interface Told {
  readonly sums: readonly (readonly [name: string, sum: string])[];
  readonly error?: string;
}

/**
 * Writes the shards of this process into a folder that the first one has made, and gets the sums of all. Errors: as the disk's
 * and the sources', on the first process that has one; the others wait to be ended with it, after `remove` on the first.
 */
export async function writeShards(
  files: Files,
  folder: string,
  tensors: CheckpointTensors,
  writers: Writers,
  remove: () => Promise<void>,
): Promise<Map<string, string>> {
  const { rank } = writers;
  const summed = new SummedFolder(files, folder);
  let failure: { readonly error: unknown } | undefined;
  try {
    await writeOwn(summed, WEIGHTS, tensors.weights, writers);
    await writeOwn(summed, MOMENTS, tensors.moments, writers);
    // Their names, before the first process says that they are there.
    await files.syncFolder(folder);
  } catch (error) {
    failure = { error };
  }
  const own: Told = { sums: [...summed.sums], ...(failure && { error: messageOf(failure.error) }) };
  const told = (await writers.exchange('the shards of a checkpoint', JSON.stringify(own))).map(
    (text): Told => JSON.parse(text),
  );
  const failed = told.findIndex(({ error }) => error !== undefined);
  if (failed < 0) return new Map(told.flatMap(({ sums }) => sums));
  if (rank === 0) await remove();
  await writers.exchange('the end of a checkpoint that cannot be written', '');
  if (failed !== rank) await writers.exchange(`the end of rank ${failed}`, '');
  throw failure?.error ?? new HoldfastError(`rank ${failed}: ${at(told, failed).error}`);
}

async function writeOwn(
  summed: SummedFolder,
  whole: typeof WEIGHTS | typeof MOMENTS,
  tensors: readonly OwnedTensor[],
  writers: Writers,
): Promise<void> {
  const shards = shardsOf(tensors, writers);
  const part = shards.findIndex(({ rank }) => rank === writers.rank);
  if (part < 0) return;
  const metadata = whole === WEIGHTS ? { format: 'pt' } : {};
  await writeTensors(summed, shardName(whole, part, shards.length), at(shards, part).tensors, metadata);
}

/** The shards of the ranks that write any tensor, in their order. */
function shardsOf(tensors: readonly OwnedTensor[], { size, writerOf }: Writers) {
  const byRank = Array.from({ length: size }, (_, rank) => ({ rank, tensors: [] as TensorToWrite[] }));
  for (const { parameter, tensor } of tensors) at(byRank, writerOf(parameter)).tensors.push(tensor);
  return byRank.filter(({ tensors }) => tensors.length > 0);
}

/**
 * On the first process, when all have written: the indices. Errors: HoldfastError for a shard that is not in the folder, as
 * where the others have another one of this name.
 */
export async function writeIndices(
  files: Files,
  folder: string,
  summed: SummedFolder,
  tensors: CheckpointTensors,
  writers: Writers,
): Promise<void> {
  const all = [
    [WEIGHTS, tensors.weights],
    [MOMENTS, tensors.moments],
  ] as const;
  for (const [whole, owned] of all) {
    const shards = shardsOf(owned, writers);
    const places: [string, string][] = [];
    for (const [part, { rank, tensors }] of shards.entries()) {
      const name = shardName(whole, part, shards.length);
      if ((await files.stat(join(folder, name)))?.kind !== 'file')
        throw new HoldfastError(
          `${join(folder, name)}: rank ${rank} has written it, and it is not here; give --out a folder that all ranks share`,
        );
      places.push(...tensors.map((tensor): [string, string] => [tensor.name, name]));
    }
    const bytes = owned.reduce((sum, { tensor: { shape, dtype } }) => sum + elements(shape) * elementBytes(dtype), 0);
    await summed.writeText(INDEX_NAMES[whole], indexText(places, bytes));
  }
}
