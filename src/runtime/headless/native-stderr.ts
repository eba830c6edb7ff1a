// Standard error while native code runs: Dawn writes notices there that tell a user nothing, past Node's streams, and has
// no switch for them. Not for long work: what anything writes meanwhile is held back until it is over, then passed on.
// Invariant: only what `withoutNoticesIn` leaves out is. Where it cannot be done, all is printed as it is.

import { closeSync, openSync, readFileSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import process from 'node:process';

const STDERR = 2;

/**
 * How limits are rounded down, once an adapter: none of them is used. Why an adapter of Vulkan's is none: `holdfast devices` says
 * which there are. Where in Dawn that was, with an empty line. And a driver's word on a window system.
 */
const NOTICES = [
  'Warning: max\\w+ artificially reduced from .*\n',
  'Warning: (?:vkCreateInstance|Vulkan) ?.*\n',
  ' - While initializing adapter .*\n',
  ' {4}at \\w+ \\(\\S*/dawn/native/vulkan/\\S+\\)\n\n?',
  'error: XDG_RUNTIME_DIR is invalid or not set in the environment\\.\n',
];

/** What is left of what was written to standard error. */
export const withoutNoticesIn = (text: string): string =>
  text.replaceAll(new RegExp(`^(?:${NOTICES.join('|')})`, 'gm'), '');

let last: Promise<unknown> = Promise.resolve();
let files = 0;

/** Runs `work` with the notices left out; one after the other, since there is one standard error. */
export function withoutNotices<T>(work: () => Promise<T>): Promise<T> {
  const result = last.then(async () => {
    const release = await holdBack().catch(() => undefined);
    try {
      return await work();
    } finally {
      release?.();
    }
  });
  last = result.catch(() => {});
  return result;
}

/** Sends file descriptor 2 to a file; what is returned brings it back and passes on what the file holds. */
async function holdBack(): Promise<() => void> {
  if (process.platform === 'win32') throw new Error("descriptors are not the system's own there");
  const libc = (await import('koffi')).default.load(null);
  const dup = libc.func('int dup(int)');
  const dup2 = libc.func('int dup2(int, int)');
  const close = libc.func('int close(int)');
  const name = path.join(os.tmpdir(), `holdfast-stderr-${process.pid}-${files++}`);
  const file = openSync(name, 'wx+', 0o600);
  const saved: number = dup(STDERR);
  if (saved < 0 || dup2(file, STDERR) < 0) {
    closeSync(file);
    rmSync(name, { force: true });
    throw new Error('standard error cannot be held back');
  }
  return () => {
    dup2(saved, STDERR);
    // Node warns, in its threads, where it closes what it has not opened.
    close(saved);
    closeSync(file);
    const rest = withoutNoticesIn(readFileSync(name, 'utf8'));
    rmSync(name, { force: true });
    if (rest !== '') process.stderr.write(rest);
  };
}
