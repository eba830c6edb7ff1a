// Runs the built command line in a process of its own, under the runtime that runs the tests.

import { type ChildProcess, spawn } from 'node:child_process';
import os from 'node:os';
import path from 'node:path';
import { ADAPTER } from '../host.ts';

const isDeno = 'Deno' in globalThis;
export const root = path.resolve(import.meta.dirname, '../..');

/** The flags of a model that trains in no time. */
export const TINY = [
  ...['--layers', '1', '--width', '16', '--heads', '2', '--context', '16'],
  ...['--batch', '2', '--eval-windows', '2'],
];

export interface Finished {
  status: number | null;
  stdout: string;
  stderr: string;
}

export interface Options {
  input?: string | Uint8Array;
  /** Called with all of standard output so far, as it grows. */
  watch?: (stdout: string, child: ChildProcess) => void;
  cwd?: string;
  env?: Record<string, string>;
}

/** `holdfast ARGS`; commands that use a device get the adapter under test. */
export function holdfast(args: readonly string[], options: Options = {}): Promise<Finished> {
  return start(args, options).finished;
}

const ON_DEVICES = ['train', 'finetune', 'eval', 'generate', 'parity', 'bench'];

/** Whether a command uses a device, and does not say which. */
export const usesDevice = (args: readonly string[]): boolean =>
  ON_DEVICES.includes(args[0] ?? '') && !args.includes('--adapter') && !args.includes('--help');

/** The same, for tests that do something to the process while it runs. */
export function start(
  args: readonly string[],
  options: Options = {},
): { child: ChildProcess; finished: Promise<Finished> } {
  const adapter = usesDevice(args) ? ['--adapter', ADAPTER] : [];
  const runtime = isDeno ? ['run', '-A', '--unstable-webgpu'] : [];
  const child = spawn(process.execPath, [...runtime, path.join(root, 'dist/holdfast.js'), ...args, ...adapter], {
    cwd: options.cwd ?? root,
    // Mesa's drivers say at each start that there is none.
    env: { XDG_RUNTIME_DIR: os.tmpdir(), ...process.env, ...options.env },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    options.watch?.(stdout, child);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  child.stdin.on('error', () => {}); // a command that ends early does not read its input
  child.stdin.end(options.input ?? '');
  const finished = new Promise<Finished>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (status) => {
      resolve({ status, stdout, stderr: stderr.trim() });
    });
  });
  return { child, finished };
}

/** The JSON objects of a `--json` run. */
export function records(stdout: string): Record<string, unknown>[] {
  return stdout
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line));
}
