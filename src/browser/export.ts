// A run, or a model that was brought along, written for other programs as one file to download: its adapter in PEFT's layout,
// its model as a folder that Hugging Face's libraries load (an adapter made a part of it), or a GGUF file. The files are
// those of `holdfast export`.
//
// Invariant: what is written lies among the tab's exports alone (exports.ts).

import { templateRunner } from '../data/records/template-runner.ts';
import { storeFile } from '../formats/archive.ts';
import { checkSums } from '../formats/checkpoint/checksums.ts';
import { ADAPTER_CONFIG, ADAPTER_FILES, TOKENIZER_FILES } from '../formats/checkpoint/folder.ts';
import { exportModel, MAX_SHARD_BYTES } from '../formats/export.ts';
import { exportGGUF } from '../formats/gguf/export.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import { join } from '../runtime/host.ts';
import { readJSON } from '../runtime/read-whole.ts';
import { byteTemplateIn, mergedModel, type OpenedModel, withModel } from '../train/run/open-model.ts';
import { HoldfastError } from '../util/errors.ts';
import type { Exports } from './exports.ts';
import type { ModelExport } from './protocol.ts';
import { fileName, zipOf } from './run-files.ts';

/** What is exported. */
export interface Exported {
  /** What the person calls it. */
  readonly name: string;
  /** Of the latest checkpoint, or of the model. */
  readonly folder: string;
  /** Of the adapter; absent: it has none. */
  readonly adapter?: string;
  /** What the adapter's model is called. */
  readonly base: string | undefined;
}

/** Its model, and the chat template that only the run has. */
interface OpenedExport {
  readonly opened: OpenedModel;
  readonly chatTemplate: string | undefined;
}

/** Errors: HoldfastError where there is no such thing of the run. */
export async function exportFile(
  host: BrowserHost,
  exports: Exports,
  from: Exported,
  wanted: ModelExport,
): Promise<File> {
  const name = fileName(from.name);
  if (wanted.form === 'adapter') return adapterZip(host, exports, from, name);
  const { folder, adapter } = from;
  const adapters = adapter === undefined || adapter === folder ? {} : { adapters: { default: adapter } };
  const chatTemplate = await byteTemplateIn(host.files, adapter ?? folder);
  return withModel(host.files, folder, adapters, async (opened) => {
    const model = { opened, chatTemplate };
    return wanted.form === 'gguf'
      ? ggufFile(host, exports, model, wanted, name)
      : modelZip(host, exports, model, wanted, name);
  });
}

async function adapterZip(
  host: BrowserHost,
  exports: Exports,
  { name: run, adapter, base }: Exported,
  name: string,
): Promise<File> {
  const { files } = host;
  if (adapter === undefined) throw new HoldfastError(`“${run}” has no adapter: all of its model trains; export that`);
  const place = await exports.newPath();
  await files.makeFolder(place);
  try {
    const parts = [...ADAPTER_FILES, ...TOKENIZER_FILES];
    const names = (await files.list(adapter)).filter((each) => parts.includes(each));
    await checkSums(files, adapter, names);
    for (const each of names) {
      const file = await host.fileAt(join(adapter, each));
      await storeFile(files, join(place, each), { name: each, bytes: file.size, open: () => file.stream() });
    }
    // Where the base lies on this site means nothing elsewhere.
    const path = join(place, ADAPTER_CONFIG);
    const config = (await readJSON(files, path, 'train it again')) as Record<string, unknown>;
    const named = { ...config, ...(base !== undefined && { base_model_name_or_path: base }) };
    await files.writeAtomic(path, `${JSON.stringify(named, undefined, 2)}\n`);
    return await zipOf(host, exports, place, `${name}-adapter`);
  } finally {
    await files.remove(place);
  }
}

async function modelZip(
  host: BrowserHost,
  exports: Exports,
  { opened, chatTemplate }: OpenedExport,
  { dtype = 'f32' }: Extract<ModelExport, { form: 'model' }>,
  name: string,
): Promise<File> {
  const place = await exports.newPath();
  try {
    const weights = await mergedModel(opened);
    await exportModel(
      host.files,
      place,
      { weights, ...opened.found, chatTemplate },
      { dtype, maxShardBytes: MAX_SHARD_BYTES },
    );
    return await zipOf(host, exports, place, `${name}-model`);
  } finally {
    await host.files.remove(place);
  }
}

async function ggufFile(
  host: BrowserHost,
  exports: Exports,
  { opened, chatTemplate }: OpenedExport,
  { type = 'F16' }: Extract<ModelExport, { form: 'gguf' }>,
  name: string,
): Promise<File> {
  const path = `${await exports.newPath()}.gguf`;
  const model = { name, ...(await mergedModel(opened)), ...opened.found, chatTemplate };
  await exportGGUF(host.files, path, model, { type, modelfile: false, templates: templateRunner });
  return new File([await host.fileAt(path)], `${name}-${type}.gguf`, { type: 'application/octet-stream' });
}
