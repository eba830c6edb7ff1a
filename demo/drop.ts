// Files and folders that are dropped anywhere on the page: a run's checkpoint or zip, a model, or text to train on, by their
// names.

import type { ChosenFile } from '../src/browser/index.ts';
import { byId } from './page.ts';

export type Dropped = 'run' | 'model' | 'images' | 'text';

/** PNG, or what MNIST and CIFAR are published as. */
const IMAGES = /\.png$|-idx[13]-ubyte(\.gz)?$|(_batch(_\d)?|train|test)\.bin$/i;

export const areImages = (files: readonly ChosenFile[]): boolean => files.some(({ path }) => IMAGES.test(path));

/** What files are, by their names. */
function droppedKind(files: readonly ChosenFile[]): Dropped {
  const names = files.map(({ file }) => file.name);
  const isRun = names.includes('trainer_state.json') && names.includes('optimizer.safetensors');
  if (isRun || names.some((name) => /\.zip$/i.test(name))) return 'run';
  const isModel = (name: string) => /\.(safetensors|gguf)$/i.test(name) || /^(adapter_)?config\.json$/.test(name);
  if (names.some(isModel)) return 'model';
  return areImages(files) ? 'images' : 'text';
}

export function takeDrops(take: (files: ChosenFile[], what: Dropped) => void): void {
  const sign = byId('drop', HTMLElement);
  let inside = 0;
  const carriesFiles = ({ dataTransfer }: DragEvent) => dataTransfer?.types.includes('Files') ?? false;
  addEventListener('dragenter', (event) => {
    if (!carriesFiles(event)) return;
    inside++;
    sign.hidden = false;
  });
  addEventListener('dragleave', () => {
    inside = Math.max(0, inside - 1);
    sign.hidden = inside === 0;
  });
  addEventListener('dragover', (event) => {
    if (carriesFiles(event)) event.preventDefault();
  });
  addEventListener('drop', (event) => {
    if (!carriesFiles(event)) return;
    event.preventDefault();
    inside = 0;
    sign.hidden = true;
    // The list is empty once the event is over.
    const entries = [...(event.dataTransfer?.items ?? [])].map((item) => item.webkitGetAsEntry());
    const given = [...(event.dataTransfer?.files ?? [])].map((file) => ({ path: file.name, file }));
    // A folder that cannot be read is passed on as it came: what takes it says so.
    const all = droppedFiles(entries, given)
      .then(ofOneKind)
      .catch(() => given);
    void all.then((files) => {
      if (files.length > 0) take(files, droppedKind(files));
    });
  });
}

/** Folders in one of a model are other things, and in one of images its classes. */
function ofOneKind(files: ChosenFile[]): ChosenFile[] {
  const first = files.filter(({ path }) => path.split('/').length <= 2);
  return droppedKind(first) === 'text' && areImages(files) ? files : first;
}

/** With those in the dropped folders, and in the folders there. Errors: that of an entry which cannot be read. */
export async function droppedFiles(
  entries: readonly (FileSystemEntry | null)[],
  given: readonly ChosenFile[],
): Promise<ChosenFile[]> {
  const folders = entries.filter(isFolder);
  if (folders.length === 0) return [...given];
  const files = entries.filter(isFile);
  for (let folder = folders.pop(); folder; folder = folders.pop()) {
    const reader = folder.createReader();
    for (;;) {
      // Some at a time, none when all were given.
      const more = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (more.length === 0) break;
      files.push(...more.filter(isFile));
      folders.push(...more.filter(isFolder));
    }
  }
  return Promise.all(
    files.map(async (entry) => ({
      path: entry.fullPath.replace(/^\//, ''),
      file: await new Promise<File>((resolve, reject) => entry.file(resolve, reject)),
    })),
  );
}

const isFolder = (entry: FileSystemEntry | null): entry is FileSystemDirectoryEntry => entry?.isDirectory === true;
const isFile = (entry: FileSystemEntry | null): entry is FileSystemFileEntry => entry?.isFile === true;
