// The terminal: what is written to it and typed into it, and the signals that a person or a shell sends through it.

import process from 'node:process';
import { forTerminal } from '../../util/printable.ts';
import type { Terminal } from '../host.ts';
import { allOf } from './all-of.ts';

export const terminal: Terminal = {
  get interactive() {
    return process.stdout.isTTY === true;
  },
  get columns() {
    return process.stdout.columns ?? 80;
  },
  write: (text) => write(process.stdout, text),
  warn: (text) => write(process.stderr, text),
};

/** Called when the terminal is closed or the reader of a pipe has gone. */
let onClosed = (): void => process.exit(141);
const watched = new Set<NodeJS.WriteStream>();

/** The one door to both: what a file brings steers no terminal, whatever prints it. Where there is none, the text is as it is. */
function write(stream: NodeJS.WriteStream, text: string): void {
  // Without a listener, output that has nowhere to go ends the process, and what it has not saved is lost.
  if (!watched.has(stream)) stream.on('error', () => onClosed());
  watched.add(stream);
  stream.write(stream.isTTY === true ? forTerminal(text) : text);
}

export const readStandardInput = (most?: number, fix?: string): Promise<Uint8Array<ArrayBuffer>> =>
  allOf(process.stdin, 'standard input', most, fix);

/** At once, behind what is to be done at an end: an exit of Node's waits for threads, and one that opens a pipe may wait for ever. */
function endBy(signal: 'SIGINT' | 'SIGTERM'): void {
  process.once('exit', () => {
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
  process.exit(130);
}

export function onInterrupt(callback: () => void): void {
  let interrupted = false;
  const interrupt = () => {
    if (!interrupted) callback();
    interrupted = true;
  };
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    process.on(signal, () => (interrupted ? endBy(signal) : interrupt()));
  }
  // A closed terminal sends one, its shell another, and what is written fails from then on: that is one request.
  process.on('SIGHUP', interrupt);
  onClosed = interrupt;
}
