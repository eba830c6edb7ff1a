// Files and folders that are dropped anywhere on the page: a run's checkpoint or a model is imported, all else is text to
// train on.

import { byId } from './page.ts';

const isCheckpoint = (file: File): boolean => /\.(zip|safetensors)$/i.test(file.name);

export function takeDrops(take: (files: File[], what: 'checkpoint' | 'text') => void): void {
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
    const given = [...(event.dataTransfer?.files ?? [])];
    // A folder that cannot be read is passed on as it came: what takes it says so.
    const all = filesOf(entries, given).catch(() => given);
    void all.then((files) => {
      if (files.length > 0) take(files, files.some(isCheckpoint) ? 'checkpoint' : 'text');
    });
  });
}

/** With those in the dropped folders; not in the folders there, which of a model's are other things. */
async function filesOf(entries: readonly (FileSystemEntry | null)[], given: readonly File[]): Promise<File[]> {
  const folders = entries.filter((entry) => entry instanceof FileSystemDirectoryEntry);
  if (folders.length === 0) return [...given];
  const files = entries.filter((entry) => entry instanceof FileSystemFileEntry);
  for (const folder of folders) {
    const reader = folder.createReader();
    for (;;) {
      // Some at a time, none when all were given.
      const more = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (more.length === 0) break;
      files.push(...more.filter((entry) => entry instanceof FileSystemFileEntry));
    }
  }
  return Promise.all(files.map((file) => new Promise<File>((resolve, reject) => file.file(resolve, reject))));
}
