// Facts that a launcher (mpiexec, srun) tells a process of the job that it is a part of, by variables of the
// environment. Without a launcher no library is looked for.

import { fstatSync } from 'node:fs';
import process from 'node:process';
import { HoldfastError } from '../../../util/errors.ts';

/** How a process was started. */
export interface Launch {
  /** Absent where only the library has it. */
  readonly size?: number;
  /** By Open MPI's launcher; the others speak MPICH's protocol. */
  readonly isOpenMpi: boolean;
}

type Environment = Readonly<Record<string, string | undefined>>;

/**
 * Undefined for a process that was started by itself. Errors: HoldfastError where a process between it and the launcher has
 * closed the socket through which they talk.
 */
export function launchOf(environment: Environment = process.env, isSocket = isOpenSocket): Launch | undefined {
  const { OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMI_FD, PMI_PORT } = environment;
  if (OMPI_COMM_WORLD_SIZE !== undefined) return { size: Number(OMPI_COMM_WORLD_SIZE), isOpenMpi: true };
  if (PMI_SIZE !== undefined) {
    const size = Number(PMI_SIZE);
    if (size > 1 && PMI_FD !== undefined && !isSocket(Number(PMI_FD)))
      throw new HoldfastError(
        'npx closes what mpiexec opens for its ranks; start them with mpiexec -pmi-port -n ... npx holdfast ..., ' +
          'or without npx: mpiexec -n ... node_modules/.bin/holdfast ...',
      );
    return { size, isOpenMpi: false };
  }
  return PMI_PORT === undefined ? undefined : { isOpenMpi: false };
}

function isOpenSocket(descriptor: number): boolean {
  try {
    return fstatSync(descriptor).isSocket();
  } catch {
    return false;
  }
}
