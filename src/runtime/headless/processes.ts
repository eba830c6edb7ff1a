// The identity of a process, as it is written into what other processes find: lock files, names of tier files. A
// number alone does not do: numbers are given out anew, and a folder may be shared by machines and containers that
// do not see each other's processes.
//
// Invariant: a process is said to be gone only if it is. Where that cannot be known, it counts as alive.

import { createHash } from 'node:crypto';
import { readFileSync, readlinkSync } from 'node:fs';
import os from 'node:os';
import process from 'node:process';
import { codeOf } from './file-errors.ts';

export interface ProcessIdentity {
  readonly pid: number;
  /** Names the machine and the space in which `pid` counts, in 12 hexadecimal digits. */
  readonly place: string;
  /** The system's start, and the process's after it, in ticks; '' where the system does not tell. */
  readonly started: string;
}

const BOOT = contentOf('/proc/sys/kernel/random/boot_id').replaceAll('-', '').slice(0, 8);

/** Of this process. */
export const SELF: ProcessIdentity = { pid: process.pid, place: placeName(), started: startOf(process.pid).started };

/** A process in a name of what it makes, and a number: three groups of a regular expression. */
export const OWNER = '([0-9a-f]{12})-(\\d+)-([0-9a-f.]*)-\\d+';

/** The process that those groups name. */
export function identityIn([place = '', pid, started = '']: readonly (string | undefined)[]): ProcessIdentity {
  return { place, pid: Number(pid), started };
}

/**
 * Makes a file or folder under a name with this process in it: numbers are counted up until one is free, since threads of one
 * process use some. Errors: those of `make`, but for EEXIST.
 */
export async function makeOwn<T>(
  pathOf: (owner: string) => string,
  make: (path: string) => Promise<T>,
): Promise<{ readonly path: string; readonly made: T }> {
  const { place, pid, started } = SELF;
  for (let number = 0; ; number++) {
    const path = pathOf(`${place}-${pid}-${started}-${number}`);
    try {
      return { path, made: await make(path) };
    } catch (error) {
      if (codeOf(error) !== 'EEXIST') throw error;
    }
  }
}

/** Whether the process has ended for certain. */
export function isGone({ pid, place, started }: ProcessIdentity): boolean {
  if (place !== SELF.place) return false;
  try {
    // Signal 0 is not delivered; only for a process that does not exist is it an error of that name.
    process.kill(pid, 0);
  } catch (error) {
    if (codeOf(error) === 'ESRCH') return true;
  }
  const found = startOf(pid);
  return found.ended || (started !== '' && found.started !== '' && started !== found.started);
}

/**
 * The machine's own number tells machines of one name apart; where there is none, the system's start does, and
 * after the next start this is another place. In containers process numbers count in a space of their own.
 */
function placeName(): string {
  const machine = contentOf('/etc/machine-id') || BOOT;
  let space = '';
  try {
    space = readlinkSync('/proc/self/ns/pid');
  } catch {
    // Only Linux has such spaces.
  }
  return createHash('sha256').update([os.hostname(), machine, space].join('\n')).digest('hex').slice(0, 12);
}

/** `ended`: it is dead, and its number still taken because its parent has not asked for its status. */
function startOf(pid: number): { started: string; ended: boolean } {
  // "PID (NAME) STATE PPID ...", the start being the 22nd; a name may hold spaces and parentheses.
  const stat = contentOf(`/proc/${pid}/stat`);
  const [state = '', ...rest] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const ticks = rest[18];
  return { started: ticks ? `${BOOT}.${ticks}` : '', ended: state === 'Z' || state === 'X' };
}

function contentOf(file: string): string {
  try {
    return readFileSync(file, 'utf8').trim();
  } catch {
    return '';
  }
}
