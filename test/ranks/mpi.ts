// Runs of the built command line on several ranks over the machine's own MPI, for tests, and what their checkpoints hold. Where
// there is no mpiexec (Debian: apt-get install mpich) it says so, and what needs it does not run.

import { execFileSync, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { loadCheckpoint } from '../../src/formats/checkpoint.ts';
import { type Finished, root } from '../e2e/cli.ts';
import { testHost } from '../host.ts';

export const hasMpi = ((): boolean => {
  try {
    execFileSync('mpiexec', ['--version'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
})();
if (!hasMpi) console.log('no mpiexec here: runs on several ranks are not tested (Debian: apt-get install mpich)');

const isDeno = 'Deno' in globalThis;
const RUNTIME = [process.execPath, ...(isDeno ? ['run', '-A', '--unstable-webgpu'] : [])];
const HOLDFAST = path.join(root, 'dist/holdfast.js');

/** On a busy machine ranks wait for long, and say so. */
const WAITS = /^holdfast: rank \d+ of \d+: waiting for rank .*\n?/gm;

export interface Started {
  /** Without what the ranks say of their waits. */
  readonly finished: Promise<Finished>;
  /** Of the process that is a rank, once it is there. */
  pidOf(rank: number): Promise<number>;
}

/** `mpiexec` with arguments of its own for each rank. */
export function startRanks(
  ranks: readonly (readonly string[])[],
  watch?: (stdout: string) => void,
  env: Readonly<Record<string, string>> = {},
  program = HOLDFAST,
): Started {
  const parts = ranks.map((args) => ['-n', '1', ...RUNTIME, program, ...args]);
  const args = parts.flatMap((part, i) => (i === 0 ? part : [':', ...part]));
  const child = spawn('mpiexec', args, {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    watch?.(stdout);
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const finished = new Promise<Finished>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (status) => resolve({ status, stdout, stderr: stderr.replace(WAITS, '').trim() }));
  });
  const pidOf = async (rank: number): Promise<number> => {
    for (const pid of (await readdir('/proc')).filter((name) => /^\d+$/.test(name))) {
      const environment = await readFile(`/proc/${pid}/environ`, 'utf8').catch(() => '');
      const command = await readFile(`/proc/${pid}/cmdline`, 'utf8').catch(() => '');
      const isOurs = ranks[rank]?.every((word) => command.includes(word)) ?? false;
      if (isOurs && environment.split('\0').includes(`PMI_RANK=${rank}`)) return Number(pid);
    }
    throw new Error(`rank ${rank} is not there`);
  };
  return { finished, pidOf };
}

export const onRanks = (size: number, args: readonly string[]) =>
  startRanks(Array.from({ length: size }, () => args)).finished;

/** Of the latest checkpoint of a run, whatever the files that it lies in. */
export async function tensorSums(run: string): Promise<Map<string, string>> {
  const { weights, moment1, moment2 } = await loadCheckpoint(testHost.files, run);
  const sums = new Map<string, string>();
  for (const [kind, source] of Object.entries({ weights, moment1, moment2 })) {
    for (const name of source.names.toSorted()) {
      const sum = createHash('sha256');
      for await (const piece of source.read(name))
        sum.update(new Uint8Array(piece.buffer, piece.byteOffset, piece.byteLength));
      sums.set(`${kind} ${name}`, sum.digest('hex'));
    }
  }
  return sums;
}
