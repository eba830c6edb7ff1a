// What a launcher (mpiexec, srun) tells a process of the job that it is a part of, by variables of the environment. Without
// a launcher no library is looked for.

import process from 'node:process';

/** How a process was started. */
export interface Launch {
  readonly rank: number;
  readonly size: number;
  /** By Open MPI's launcher; the others speak MPICH's protocol. */
  readonly isOpenMpi: boolean;
}

/** Undefined for a process that was started by itself. */
export function launchOf(environment: Readonly<Record<string, string | undefined>> = process.env): Launch | undefined {
  for (const [rank, size, isOpenMpi] of [
    ['OMPI_COMM_WORLD_RANK', 'OMPI_COMM_WORLD_SIZE', true],
    ['PMI_RANK', 'PMI_SIZE', false],
  ] as const) {
    const found = { rank: Number(environment[rank]), size: Number(environment[size]), isOpenMpi };
    if (Number.isSafeInteger(found.rank) && Number.isSafeInteger(found.size)) return found;
  }
  return undefined;
}
