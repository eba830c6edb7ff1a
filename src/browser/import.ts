// Files that a person chose, made into the folder of a run: checked whole before anything counts as there.

import { isZip, openZip, storeFile } from '../formats/archive.ts';
import { sourceOf } from '../formats/byte-source.ts';
import {
  CHECKPOINT_FILES,
  COMPANIONS,
  CONFIG,
  INDEX,
  modelFolder,
  SUMS,
  TOKENIZER_FILES,
  WEIGHTS,
} from '../formats/checkpoint/folder.ts';
import { checkpointsOf, checkWeights, loadCheckpoint, loadWeights } from '../formats/checkpoint.ts';
import type { ImportedFile } from '../formats/listed-folder.ts';
import { makeModel } from '../nn/index.ts';
import { type Host, join } from '../runtime/host.ts';
import { savedState } from '../train/saved-state.ts';
import { HoldfastError } from '../util/errors.ts';
import type { RunRecord } from './protocol.ts';

/** What was chosen: files by themselves, or in one zip those that its checkpoint or model has. */
export async function filesIn({ files }: Host, chosen: readonly File[]): Promise<ImportedFile[]> {
  const [first] = chosen;
  if (chosen.length === 1 && first && isZip(first.name)) {
    const zip = await openZip(sourceOf(first, first.name), first.name, () => files.sha256());
    return zip.files(await modelFolder(zip, zip.path));
  }
  return chosen.map((file) => ({ name: file.name, bytes: file.size, open: () => file.stream() }));
}

const isShard = (name: string): boolean => /\.safetensors$/i.test(name) && !isOwn(name);

const isOwn = (name: string): boolean => CHECKPOINT_FILES.some((own) => own === name);

/**
 * Stores the checkpoint below `folder`, or a model, whose weights may be in shards. What else was chosen with it is left
 * out.
 */
export async function importCheckpoint(
  host: Host,
  folder: string,
  given: readonly ImportedFile[],
): Promise<Pick<RunRecord, 'savedStep' | 'settings' | 'loss'>> {
  const { files } = host;
  const wanted = new Map<string, ImportedFile>();
  for (const file of given) {
    if (![...CHECKPOINT_FILES, SUMS, INDEX, ...COMPANIONS].includes(file.name) && !isShard(file.name)) continue;
    if (wanted.has(file.name)) {
      throw new HoldfastError(`there are two files ${file.name}; choose those of one checkpoint's folder`);
    }
    wanted.set(file.name, file);
  }
  const weights = wanted.has(INDEX) && !wanted.has(WEIGHTS) ? INDEX : WEIGHTS;
  const missing = [CONFIG, weights].find((name) => !wanted.has(name));
  if (missing) {
    throw new HoldfastError(
      `there is no ${missing} among the ${given.length} files; choose all files of a checkpoint's folder, or a zip of them`,
    );
  }
  const resumable = CHECKPOINT_FILES.every((name) => wanted.has(name));
  // The step is known once the state is read.
  const target = resumable ? join(folder, '.checkpoint-0.partial') : folder;
  await files.makeFolder(target);
  for (const [name, file] of wanted) {
    const isOfCheckpoint = isOwn(name) || name === SUMS || TOKENIZER_FILES.includes(name);
    const isOfModel = name === CONFIG || name === weights || COMPANIONS.includes(name);
    if (resumable ? isOfCheckpoint : isOfModel || (weights === INDEX && isShard(name)))
      await storeFile(files, join(target, name), file);
  }
  const { config, shapes } = await loadWeights(files, target);
  checkWeights(shapes, makeModel(config).parameters, 'the files');
  if (!resumable) return { savedStep: 0 };
  await loadCheckpoint(files, target);
  const { settings, trainer, history } = await savedState(host, target);
  await files.rename(target, join(folder, `checkpoint-${trainer.step}`));
  const loss = history.steps.at(-1)?.loss;
  if ((await checkpointsOf(files, folder)).length !== 1)
    throw new Error('internal: the checkpoint is not where it was put');
  return { savedStep: trainer.step, settings, ...(loss === undefined ? {} : { loss }) };
}
