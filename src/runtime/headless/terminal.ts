// The terminal: what is written to it and typed into it, and the signals that a person or a shell sends through it.

import os from 'node:os';
import process from 'node:process';
import { forTerminal } from '../../util/printable.ts';
import type { Terminal } from '../host.ts';
import { allOf } from './all-of.ts';

export const terminal: Terminal = {
  get interactive() {
    return process.stdout.isTTY === true;
  },
  get columns() {
    // A terminal that was not told its size says 0.
    return process.stdout.columns || 80;
  },
  write: (text) => write(process.stdout, text),
  warn: (text) => write(process.stderr, text),
  get isLost() {
    return failed;
  },
};

/** Called when nothing can be written any more: the terminal is closed, the reader of a pipe has gone, a disk is full. */
let onClosed = (reason: NodeJS.ErrnoException): void => {
  if (reason.code !== 'EPIPE') return;
  // Windows has no such signal.
  if (process.platform === 'win32') process.exit(1);
  endBy('SIGPIPE');
};
const watched = new Set<NodeJS.WriteStream>();
let failed = false;

/** The one door to both: what a file brings steers no terminal, whatever prints it. Where there is none, the text is as it is. */
function write(stream: NodeJS.WriteStream, text: string): void {
  // Without a listener, output that has nowhere to go ends the process, and what it has not saved is lost.
  if (!watched.has(stream)) stream.on('error', (reason) => closed(stream, reason));
  watched.add(stream);
  stream.write(stream.isTTY === true ? forTerminal(text) : text);
}

function closed(stream: NodeJS.WriteStream, reason: NodeJS.ErrnoException): void {
  if (stream === process.stdout && reason.code !== 'EPIPE' && !failed) {
    failed = true;
    write(
      process.stderr,
      `holdfast: standard output cannot be written to (${reason.message}); write it to another place\n`,
    );
  }
  onClosed(reason);
}

/** Whether all that was written to standard output is there, once that is known. */
export const isWritten = (): Promise<boolean> =>
  new Promise((resolve) => process.stdout.write('', () => setImmediate(() => resolve(!failed))));

export const readStandardInput = (most?: number, fix?: string): Promise<Uint8Array<ArrayBuffer>> =>
  allOf(process.stdin, 'standard input', most, fix);

/** At once, behind what is to be done at an end: an exit of Node's waits for threads, and one that opens a pipe may wait for ever. */
export function endBy(signal: NodeJS.Signals): void {
  process.once('exit', () => {
    // Node ignores a broken pipe until something has listened to it.
    process.on(signal, () => {});
    process.removeAllListeners(signal);
    process.kill(process.pid, signal);
  });
  process.exit(128 + os.constants.signals[signal]);
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
