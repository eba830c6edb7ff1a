// The settings of a run whose model may tell classes apart, as its data has them: the head that learns, and what is done with
// images. Worked out of chosen files before anything is kept, for the page to show, and of the kept ones for the run.

import { namesOf } from '../data/classes.ts';
import { describeAdapter, loadPreparation } from '../formats/checkpoint.ts';
import { familyOf, labelsIn } from '../formats/families/index.ts';
import { ListedFolder, listedBlob } from '../formats/listed-folder.ts';
import { headModules } from '../nn/modules-to-save.ts';
import { type Files, type Host, join, type ReadingHost } from '../runtime/host.ts';
import { headFor } from '../train/run/class-data.ts';
import type { RunSettings } from '../train/run/run-settings.ts';
import type { ChosenFile, ClassesFound, TrainingText } from './protocol.ts';
import { topOf } from './run-files.ts';

/** With the head that the run's data needs, where its model has weights and the settings name no head. Errors: as `headFor`. */
export async function withClasses(host: Host, settings: RunSettings): Promise<RunSettings> {
  const { config, from, newHead } = settings;
  if (from === undefined || newHead || !familyOf(config).classifier) return settings;
  const images = await loadPreparation(host.files, from, config);
  return headed(host, host, { ...settings, ...(images && { images }) });
}

/** What of files that were chosen a model would learn. Errors: as `headFor`. */
export async function classesIn(
  host: Host,
  settings: RunSettings,
  given: TrainingText | readonly ChosenFile[],
): Promise<ClassesFound | undefined> {
  if (!familyOf(settings.config).classifier) return undefined;
  const { files, source } = chosenFiles(given, () => host.files.sha256());
  const found = await headed(host, { files }, { ...settings, data: [source] });
  const labels = labelsIn(found.config);
  if (!labels) return undefined;
  const { data: _, ...rest } = found;
  return {
    classes: Object.keys(labels.label2id).length,
    names: namesOf(labels),
    settings: { ...rest, data: settings.data },
  };
}

async function headed(host: Host, reading: ReadingHost, settings: RunSettings): Promise<RunSettings> {
  const { config, data, images, lora } = settings;
  const adapter = lora?.adapter === undefined ? undefined : await describeAdapter(host.files, lora.adapter, config);
  const head = await headFor(reading, config, data, { adapter, images });
  const whole = headModules(head.config, head.newHead);
  const isNew = lora && !adapter && whole.length > 0 && lora.modulesToSave === undefined;
  return {
    ...settings,
    config: head.config,
    ...(head.newHead && { newHead: true }),
    ...(isNew && { lora: { ...lora, modulesToSave: whole } }),
  };
}

/** Called so in messages. */
const DATA = 'the data';

function chosenFiles(
  given: TrainingText | readonly ChosenFile[],
  sha256: Files['sha256'],
): { readonly files: ReadingHost['files']; readonly source: string } {
  const isList = Array.isArray(given);
  const text = (typeof given === 'string' ? new Blob([given]) : given) as Blob;
  const chosen: readonly ChosenFile[] = isList ? given : [];
  const top = topOf(chosen);
  const listed = isList
    ? chosen.map(({ path, file }) => listedBlob(path.slice(top.length), file))
    : [listedBlob('text', text)];
  const folder = new ListedFolder(DATA, listed, sha256, { verb: 'choose', wanted: 'choose its folder' });
  const files = {
    read: (path: string) => folder.read(path),
    readRange: (path: string, offset: number, bytes: number) => folder.readRange(path, offset, bytes),
    stat: (path: string) => folder.stat(path),
    list: (path: string) => folder.list(path),
    sha256,
    open: async (path: string) => ({
      bytes: (await folder.stat(path))?.bytes ?? 0,
      readRange: (offset: number, bytes: number) => folder.readRange(path, offset, bytes),
      close: async () => {},
    }),
  };
  return { files, source: isList ? DATA : join(DATA, 'text') };
}
