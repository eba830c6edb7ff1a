// Files that are dropped anywhere on the page: a run's checkpoint is imported, all else is text to train on.

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
    const files = [...(event.dataTransfer?.files ?? [])];
    if (files.length > 0) take(files, files.some(isCheckpoint) ? 'checkpoint' : 'text');
  });
}
