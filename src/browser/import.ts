// Files that a person chose, made into the folder of a run: checked whole before anything counts as there.

import { isZip, openZip, storeFile } from '../formats/archive.ts';
import { blobSource } from '../formats/byte-source.ts';
import {
  ADAPTER_CONFIG,
  ADAPTER_FILES,
  CHECKPOINT_FILES,
  COMPANIONS,
  CONFIG,
  checkpointFiles,
  INDEX,
  MOMENTS_INDEX,
  modelFolder,
  OWN_COMPANIONS,
  runStateName,
  SUMS,
  WEIGHTS,
} from '../formats/checkpoint/folder.ts';
import { checkpointsOf, loadCheckpoint, loadWeights, replaceBase } from '../formats/checkpoint.ts';
import type { ImportedFile } from '../formats/listed-folder.ts';
import { type Host, join } from '../runtime/host.ts';
import { modelOf } from '../train/run/run-settings.ts';
import { checkStep, type SavedState, savedState, withSettings } from '../train/run/saved-state.ts';
import { checkTrained, modelOfWeights } from '../train/run/start-weights.ts';
import { HoldfastError } from '../util/errors.ts';
import type { RunRecord } from './protocol.ts';

/** Files of one folder. */
export interface GivenFolder {
  readonly files: readonly ImportedFile[];
  /** Where it lies among what was chosen. Absent where that is not known. */
  readonly path?: string;
}

/** What was chosen: files by themselves, or in one zip those that its checkpoint or model has. */
export async function filesIn({ files }: Host, chosen: readonly File[]): Promise<GivenFolder> {
  const [first] = chosen;
  if (chosen.length === 1 && first && isZip(first.name)) {
    const zip = await openZip(blobSource(first, first.name), first.name, () => files.sha256());
    const isOfRun = (names: readonly string[]) => names.includes(CONFIG);
    if (zip.foldersWith(isOfRun).length === 0 && zip.foldersWith((names) => names.includes(ADAPTER_CONFIG)).length > 0)
      throw adapterAlone();
    const path = await modelFolder(zip, zip.path);
    return { files: zip.files(path), path };
  }
  return { files: chosen.map((file) => ({ name: file.name, bytes: file.size, open: () => file.stream() })) };
}

const adapterAlone = () =>
  new HoldfastError('this is an adapter without its model; bring the model first, and then the adapter beside it');

const noBase = () => Promise.reject(new HoldfastError('a model has no base'));

const isShard = (name: string): boolean => /\.safetensors$/i.test(name) && !isOwn(name);

const OWN: readonly string[] = [...CHECKPOINT_FILES, ...ADAPTER_FILES];

const isOwn = (name: string): boolean => OWN.includes(name);

/** Writes a file to a path, all of it. */
export type Store = (path: string, file: ImportedFile) => Promise<void>;

/**
 * Stores the checkpoint below `folder`, or a model, whose weights may be in shards. What else was chosen with it is left
 * out. `baseOf` finds the folder of the model that a low-rank update belongs to.
 */
export async function importCheckpoint(
  host: Host,
  folder: string,
  { files: given, path }: GivenFolder,
  baseOf: (state: SavedState) => Promise<string> = noBase,
  store: Store = (path, file) => storeFile(host.files, path, file),
): Promise<Pick<RunRecord, 'savedStep' | 'settings' | 'loss'>> {
  const { files } = host;
  const wanted = new Map<string, ImportedFile>();
  for (const file of given) {
    if (![...OWN, SUMS, INDEX, MOMENTS_INDEX, ...COMPANIONS].includes(file.name) && !isShard(file.name)) continue;
    if (wanted.has(file.name)) {
      throw new HoldfastError(`there are two files ${file.name}; choose those of one checkpoint's folder`);
    }
    wanted.set(file.name, file);
  }
  const weights = wanted.has(INDEX) && !wanted.has(WEIGHTS) ? INDEX : WEIGHTS;
  const ofRun = checkpointFiles([...wanted.keys()]);
  const trainsAdapter = ofRun?.includes(ADAPTER_CONFIG) === true && !wanted.has(weights);
  if (wanted.has(ADAPTER_CONFIG) && !trainsAdapter && !wanted.has(weights)) throw adapterAlone();
  const missing = trainsAdapter ? undefined : [CONFIG, weights].find((name) => !wanted.has(name));
  if (missing) {
    throw new HoldfastError(
      `there is no ${missing} among the ${given.length} files; choose all files of a checkpoint's folder, or a zip of them`,
    );
  }
  const resumable = ofRun !== undefined && (trainsAdapter || ofRun.includes(weights));
  // The step is known once the state is read.
  const target = resumable ? join(folder, '.checkpoint-0.partial') : folder;
  await files.makeFolder(target);
  for (const [name, file] of wanted) {
    const isOfCheckpoint = [...OWN, ...(ofRun ?? []), SUMS, ...OWN_COMPANIONS].includes(name);
    const isOfModel = name === CONFIG || name === weights || COMPANIONS.includes(name);
    if (resumable ? isOfCheckpoint : isOfModel || (weights === INDEX && isShard(name)))
      await store(join(target, name), file);
  }
  if (!trainsAdapter) {
    modelOfWeights(await loadWeights(files, target), 'the files');
  }
  if (!resumable) return { savedStep: 0 };
  const loaded = await loadCheckpoint(files, target);
  let state = await savedState(host, target);
  if (path !== undefined) checkStep(state, join(path, await runStateName(files, target)));
  if (trainsAdapter) {
    checkTrained(loaded, modelOf(state.settings));
    const from = await baseOf(state);
    state = withSettings(state, { ...state.settings, from });
    await replaceBase(files, target, state, from);
  }
  const { settings, trainer, history } = state;
  await files.rename(target, join(folder, `checkpoint-${trainer.step}`));
  const loss = history.steps.at(-1)?.loss;
  if ((await checkpointsOf(files, folder)).length !== 1)
    throw new Error('internal: the checkpoint is not where it was put');
  return { savedStep: trainer.step, settings, ...(loss === undefined ? {} : { loss }) };
}
