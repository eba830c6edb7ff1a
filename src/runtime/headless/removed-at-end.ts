// Files that go with the process: at its exit, and where a signal ends it that nothing else listens to. What is killed
// leaves them to the next process.

import { rmdirSync, unlinkSync } from 'node:fs';
import process from 'node:process';
import { endBy } from './terminal.ts';

/** Files, and the folders that were made for them, outermost first. */
const files = new Map<string, readonly string[]>();
/** Deno's own listeners are not among those that are counted. */
const SIGNALS = 'Deno' in globalThis ? [] : (['SIGINT', 'SIGTERM', 'SIGHUP'] as const);
let isWatched = false;

/** The function that is returned forgets the file: it is removed, or stays. */
export function removeAtEnd(file: string, folders: readonly string[]): () => void {
  if (!isWatched) process.once('exit', removeAll);
  isWatched = true;
  // First of all: a listener that hears one signal is gone behind it.
  if (files.size === 0) for (const signal of SIGNALS) process.prependListener(signal, endUnheard);
  files.set(file, folders);
  return () => {
    if (files.delete(file) && files.size === 0)
      for (const signal of SIGNALS) process.removeListener(signal, endUnheard);
  };
}

function endUnheard(signal: NodeJS.Signals): void {
  if (process.listenerCount(signal) === 1) endBy(signal);
}

function removeAll(): void {
  for (const [file, folders] of files) {
    try {
      unlinkSync(file);
      for (const folder of folders.toReversed()) rmdirSync(folder);
    } catch {
      // The next process removes it; a folder that something lies in stays.
    }
  }
}
