// Models that a person brings along: the files of a folder as Hugging Face's libraries write it, a GGUF file, or either by its
// name on the hub, looked into before any weights are read, and kept in the site as a run that has weights alone. An adapter in PEFT's layout may come with
// one; it is kept below the model.
//
// Invariant: what `inspectModel` lets pass is a model that trains here, with the tokenizer that is its own; of the weights'
// files it has read no more than headers.

import { tokenizerOf } from '../data/open-tokenizer.ts';
import { findChatTemplate } from '../data/records/find-template.ts';
import { isZip, KEPT_GGUF, openZip, readerOf, storeFile, storeRest } from '../formats/archive.ts';
import { blobSource } from '../formats/byte-source.ts';
import { ADAPTER_CONFIG, ADAPTER_FILES, CONFIG, INDEX, modelFolder, WEIGHTS } from '../formats/checkpoint/folder.ts';
import { weightFiles } from '../formats/checkpoint/tensor-files.ts';
import { unsummed } from '../formats/checkpoint/unsummed.ts';
import { checkWeights, describeAdapter, loadWeights } from '../formats/checkpoint.ts';
import { dropoutIn, type ModelConfig } from '../formats/config.ts';
import { labelsIn } from '../formats/families/index.ts';
import { classesOf } from '../formats/families/labels.ts';
import { isGGUF, openGGUF } from '../formats/gguf/open.ts';
import { type ImportedFile, ListedFolder, listedBlob } from '../formats/listed-folder.ts';
import { preparationIn } from '../formats/preprocessor.ts';
import { type HubSource, openHubModel } from '../formats/remote/hub-model.ts';
import { makeModel } from '../nn/index.ts';
import { parameterCount } from '../nn/model.ts';
import { type Files, type FolderReader, type Host, join } from '../runtime/host.ts';
import { readJSON } from '../runtime/read-whole.ts';
import { withAdapter, withHeadOf } from '../train/run/open-model.ts';
import type { LoraSettings } from '../train/run/run-settings.ts';
import { modelOfWeights } from '../train/run/start-weights.ts';
import { firstFew, HoldfastError } from '../util/errors.ts';
import { importCheckpoint, type Store } from './import.ts';
import type { ChosenFile, ModelInfo, RunRecord } from './protocol.ts';
import { defaultRunName } from './runs.ts';

/** Below the folder of a model. */
const ADAPTER = 'adapter';
/** Of files with no folder around them. */
const UNNAMED = 'the model';
const WORDS = { verb: 'choose', wanted: "choose all files of a model's folder" } as const;

/** What a model is brought along as. */
export type ModelFiles = readonly ChosenFile[] | HubSource;

/** Told how many bytes of all have been stored. */
export type KeepProgress = (done: number, total: number) => void;

const PROGRESS_MS = 200;

/** The parts of what was chosen. */
export interface Chosen {
  /** What the person calls it, where the files say so. */
  readonly name: string | undefined;
  readonly files: ListedFolder;
  /** Of the model. */
  readonly folder: string;
  /** Its files alone. */
  readonly adapter: ListedFolder | undefined;
  /** What the model is in, where it is one GGUF file. */
  readonly gguf?: ImportedFile;
  /** Of what comes from elsewhere: see HubModel. */
  readonly source?: string;
}

/** Looks into what was chosen. Errors: HoldfastError naming what is missing, damaged, or not supported. */
export async function inspectFiles(host: Host, given: ModelFiles): Promise<ModelInfo> {
  return inspectChosen(await partsOf(host, given));
}

async function inspectChosen({ name, files, folder, adapter }: Chosen): Promise<ModelInfo> {
  const found = await inspect(files, folder, name ?? UNNAMED, adapter && { files: adapter, folder: adapter.path });
  return { name: name?.trim() || defaultRunName(found), ...found };
}

/** What a model is that is kept here, in the folder of a run. */
export async function inspectKept({ files }: Host, name: string, folder: string): Promise<ModelInfo> {
  const own = await adapterBeside(files, folder);
  const beside = own === undefined ? undefined : { files, folder: own };
  const reader = await readerOf(files, folder);
  const found = await inspect(reader, await modelFolder(reader, folder), name, beside);
  const adapter = found.adapter && own !== undefined && { adapter: { ...found.adapter, adapter: own } };
  return { name, from: folder, ...found, ...adapter };
}

/** The adapter that was brought along with the model in a folder, if one was. */
export async function adapterBeside(files: FolderReader, folder: string): Promise<string | undefined> {
  const path = join(folder, ADAPTER);
  return (await files.stat(join(path, ADAPTER_CONFIG))) ? path : undefined;
}

/** A model that can be kept. Errors: as `inspectFiles`. */
export async function openModel(host: Host, given: ModelFiles): Promise<Chosen & { readonly name: string }> {
  const chosen = await partsOf(host, given);
  const { name } = await inspectChosen(chosen);
  return { ...chosen, name };
}

/**
 * Keeps a model, and the adapter with it, in `folder`; of one from elsewhere, the rest of it. Errors: HoldfastError; what was
 * written is the caller's to remove.
 */
export async function importModel(
  host: Host,
  folder: string,
  { name, files, folder: from, adapter, gguf }: Chosen & { readonly name: string },
  progress: KeepProgress = () => {},
): Promise<Pick<RunRecord, 'name' | 'savedStep' | 'settings' | 'loss'>> {
  const given = gguf ? [gguf] : files.files(from);
  const store = storing(host, given, progress);
  const found = gguf
    ? await keepGGUF(host, folder, gguf, store)
    : await importCheckpoint(host, folder, { files: given, path: from }, undefined, store);
  if (adapter) {
    const beside = join(folder, ADAPTER);
    await host.files.makeFolder(beside);
    for (const file of adapter.files(adapter.path)) await storeFile(host.files, join(beside, file.name), file);
  }
  return { name, ...found };
}

/** Stores files, and says how many bytes of all there are. */
function storing(host: Host, given: readonly ImportedFile[], progress: KeepProgress): Store {
  const total = given.reduce((sum, { bytes }) => sum + bytes, 0);
  let [done, said] = [0, 0];
  const count = (bytes: number) => {
    done += bytes;
    const now = performance.now();
    if (now - said <= PROGRESS_MS && done !== total) return;
    said = now;
    progress(done, total);
  };
  return (path, file) => storeRest(host, path, file, count);
}

/** Keeps it as it is. Errors: HoldfastError where its weights are not those of a model here. */
async function keepGGUF(
  { files }: Host,
  folder: string,
  file: ImportedFile,
  store: Store,
): Promise<Pick<RunRecord, 'savedStep'>> {
  await files.makeFolder(folder);
  await store(join(folder, KEPT_GGUF), file);
  const { config, shapes } = await loadWeights(files, folder);
  checkWeights(shapes, makeModel(config).parameters, file.name);
  return { savedStep: 0 };
}

/** Whether a zip has an adapter and no model, as a run's is exported; several, which a model cannot take, too. Errors: HoldfastError for what is no zip. */
export async function isAdapterZip(host: Host, file: File): Promise<boolean> {
  return isZip(file.name) && adaptersAlone(await unzipped(host, { path: file.name, file })).length > 0;
}

const unzipped = ({ files }: Host, { path, file }: ChosenFile): Promise<ListedFolder> =>
  openZip(blobSource(file, path), lastOf(path), () => files.sha256());

/** The folders of adapters in a zip that has no model. */
const adaptersAlone = (zip: ListedFolder): string[] =>
  zip.foldersWith((names) => names.includes(CONFIG) || hasModel(names)).length > 0 ? [] : zip.foldersWith(hasAdapter);

const hasModel = (names: readonly string[]): boolean => names.includes(WEIGHTS) || names.includes(INDEX);
const hasAdapter = (names: readonly string[]): boolean => names.includes(ADAPTER_CONFIG);

/** Of files from one folder, its name; of a zip or a GGUF file, theirs. Zips of adapters may lie beside those of the model. */
async function partsOf(host: Host, given: ModelFiles): Promise<Chosen> {
  if ('hub' in given) {
    const { name, source, files, gguf } = await openHubModel(given, () => host.files.sha256());
    const called = name.replace(/\.gguf$/i, '');
    return { name: called, source, files, folder: files.path, adapter: undefined, ...(gguf && { gguf }) };
  }
  /** By the folders that they were found in. */
  const adapters: (readonly [string, ListedFolder])[] = [];
  const ofModel: ChosenFile[] = [];
  for (const chosen of given) {
    const zip = isZip(chosen.path) ? await unzipped(host, chosen) : undefined;
    const alone = zip ? adaptersAlone(zip) : [];
    if (!zip || alone.length === 0) ofModel.push(chosen);
    else for (const folder of alone) adapters.push([folder, zip.part(folder, ADAPTER_FILES, lastOf(chosen.path))]);
  }
  const [first, second] = ofModel;
  const packed =
    first && !second && isZip(first.path) ? await unzipped(host, first) : listOf(ofModel, () => host.files.sha256());
  const isHere = packed.foldersWith(hasModel).length > 0;
  const ggufs = isHere ? [] : ofModel.filter(({ path }) => isGGUF(path));
  if (ggufs.length > 1) {
    const paths = firstFew(ggufs.map(({ path }) => path));
    throw new HoldfastError(
      `there are ${ggufs.length} GGUF files (${paths}); choose one of them, which is a whole model`,
    );
  }
  const beside = packed.foldersWith(hasAdapter);
  for (const folder of beside) adapters.push([folder, packed.part(folder, ADAPTER_FILES, lastOf(folder))]);
  if (adapters.length > 1) {
    const folders = firstFew(adapters.map(([folder]) => folder));
    throw new HoldfastError(
      `there are ${adapters.length} adapters (${folders}); choose a model with one of them (${ADAPTER_CONFIG})`,
    );
  }
  const [gguf] = ggufs;
  const adapter = adapters[0]?.[1];
  if (gguf) {
    const name = lastOf(gguf.path);
    const files = await openGGUF(blobSource(gguf.file, name), name, () => host.files.sha256());
    const { file } = gguf;
    const whole = { name: file.name, bytes: file.size, open: () => file.stream() };
    return { name: name.replace(/\.gguf$/i, ''), files, folder: files.path, adapter, gguf: whole };
  }
  if (adapter && !isHere)
    throw new HoldfastError('this is an adapter without its model; choose both, or bring the model first');
  // A run that trained an adapter has its model's config.json beside it.
  const isSuch =
    beside.length === 0 ? (names: readonly string[]) => names.includes(CONFIG) || hasModel(names) : hasModel;
  const folder = packed.only(isSuch);
  const name = folder === UNNAMED ? undefined : lastOf(folder).replace(/\.zip$/i, '');
  return { name, files: packed, folder, adapter };
}

const lastOf = (path: string): string => path.replace(/^.*\//s, '');

/** Files that all lie in one folder are called by it. */
function listOf(given: readonly ChosenFile[], sha256: Files['sha256']): ListedFolder {
  const [top = ''] = given[0]?.path.split('/') ?? [];
  const together = given.every(({ path }) => path.startsWith(`${top}/`));
  const files = given.map(({ path, file }) => listedBlob(together ? path.slice(top.length + 1) : path, file));
  return new ListedFolder(together ? top : UNNAMED, files, sha256, WORDS);
}

async function inspect(
  from: FolderReader,
  folder: string,
  name: string,
  beside: { readonly files: FolderReader; readonly folder: string } | undefined,
): Promise<Omit<ModelInfo, 'name'>> {
  const listed = from instanceof ListedFolder ? from.weights : undefined;
  const files = listed ? from : unsummed(from);
  const { config, shapes, stored = new Map(), tokenizer: companions } = await loadWeights(files, folder);
  const model = modelOfWeights({ config, shapes }, name);
  const labels = labelsIn(config);
  const images = await preparationIn(files, folder, config);
  const tokenizer = await tokenizerOf(undefined, companions, model.shape.vocabulary, name);
  let bytes = listed?.bytes ?? 0;
  for (const file of listed ? [] : await weightFiles(files, folder))
    bytes += (await files.stat(join(folder, file)))?.bytes ?? 0;
  const path = join(folder, CONFIG);
  const dropout = dropoutIn(await readJSON(files, path, WORDS.wanted));
  const template = await findChatTemplate(files, { tokenizer: companions, model: folder, date: '2000-01-01' });
  return {
    config,
    parameters: parameterCount(model),
    bytes,
    stored: Object.fromEntries(stored),
    ...(labels && { classes: classesOf(labels) }),
    ...(images && { images }),
    ...(tokenizer.files && { tokens: tokenizer.vocabulary }),
    chats: template !== undefined,
    ...(dropout.length > 0 && { dropout }),
    ...(beside && { adapter: await adapterIn(beside.files, beside.folder, config) }),
  };
}

async function adapterIn(files: FolderReader, folder: string, config: ModelConfig): Promise<LoraSettings> {
  const adapter = await describeAdapter(files, folder, config);
  withAdapter(makeModel(withHeadOf(config, adapter)), adapter);
  return adapter.options as LoraSettings;
}
