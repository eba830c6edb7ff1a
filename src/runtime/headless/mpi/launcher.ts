// Facts that a launcher (mpiexec, srun) tells a process of the job that it is a part of, by variables of the
// environment. Without a launcher no library is looked for.

import { fstatSync, readlinkSync } from 'node:fs';
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
 * closed the socket through which they talk, and where a launcher started several that can know nothing of each other.
 */
export function launchOf(environment: Environment = process.env, isSocket = isOpenSocket): Launch | undefined {
  const { OMPI_COMM_WORLD_SIZE, PMI_SIZE, PMI_FD, PMI_PORT, PMIX_RANK, SLURM_STEP_NUM_TASKS } = environment;
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
  if (PMI_PORT !== undefined) return { isOpenMpi: false };
  // Of srun alone: a batch script and an interactive shell are one process.
  const inStep = SLURM_STEP_NUM_TASKS === undefined ? {} : { size: Number(SLURM_STEP_NUM_TASKS) };
  // Of PMIx, which has no variable for their number: Open MPI speaks it.
  if (PMIX_RANK !== undefined) return { ...inStep, isOpenMpi: true };
  if (inStep.size === undefined || inStep.size <= 1) return undefined;
  throw new HoldfastError(
    `one of ${inStep.size} processes of srun, which tells MPI of none of the others; start them with srun --mpi=pmix (Open MPI) or ` +
      `--mpi=pmi2 (MPICH), or with mpiexec -n ${inStep.size}; runs of their own take srun -n 1 each`,
  );
}

/** Deno's fstat knows no descriptor that its process was started with; Linux does. */
function isOpenSocket(descriptor: number): boolean {
  try {
    if (!('Deno' in globalThis)) return fstatSync(descriptor).isSocket();
    return process.platform !== 'linux' || readlinkSync(`/proc/self/fd/${descriptor}`).startsWith('socket:');
  } catch {
    return false;
  }
}
