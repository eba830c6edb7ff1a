// What a process knows of its launcher, from the variables that those of MPICH, Open MPI and Slurm set.

import { once } from 'node:events';
import { readdirSync, readlinkSync } from 'node:fs';
import { createServer } from 'node:net';
import process from 'node:process';
import { expect, it } from 'vitest';
import { launchOf } from '../../src/runtime/headless/mpi/launcher.ts';

it('tells a lone process, and the launchers of two kinds of MPI', () => {
  const open = () => true;
  expect(launchOf({}, open)).toBeUndefined();
  expect(launchOf({ PMI_RANK: '1', PMI_SIZE: '4', PMI_FD: '6' }, open)).toEqual({ size: 4, isOpenMpi: false });
  // mpiexec -pmi-port: the library asks for the number of ranks.
  expect(launchOf({ PMI_ID: '1', PMI_PORT: 'host:46639' }, open)).toEqual({ isOpenMpi: false });
  expect(launchOf({ OMPI_COMM_WORLD_RANK: '0', OMPI_COMM_WORLD_SIZE: '2' }, open)).toEqual({
    size: 2,
    isOpenMpi: true,
  });
});

it('names what came between it and its launcher, where they need to talk', () => {
  const closed = () => false;
  expect(() => launchOf({ PMI_SIZE: '2', PMI_FD: '6' }, closed)).toThrow(/npx closes .* mpiexec -pmi-port/);
  expect(launchOf({ PMI_SIZE: '1', PMI_FD: '6' }, closed)).toEqual({ size: 1, isOpenMpi: false });
});

it.runIf(process.platform === 'linux')('sees by itself whether its socket is open, in any runtime', async () => {
  const server = createServer().listen(0);
  await once(server, 'listening');
  const isSocket = (descriptor: string): boolean => {
    try {
      return readlinkSync(`/proc/self/fd/${descriptor}`).startsWith('socket:');
    } catch {
      return false;
    }
  };
  const PMI_FD = readdirSync('/proc/self/fd').find(isSocket);
  expect(launchOf({ PMI_SIZE: '2', PMI_FD })).toEqual({ size: 2, isOpenMpi: false });
  expect(() => launchOf({ PMI_SIZE: '2', PMI_FD: '99999' })).toThrow('npx closes');
  server.close();
});

it('knows the processes of srun: over PMIx, and without it that there are others', () => {
  const step = { SLURM_PROCID: '0', SLURM_NTASKS: '4', SLURM_STEP_NUM_TASKS: '4' };
  expect(launchOf({ ...step, PMIX_RANK: '0' })).toEqual({ size: 4, isOpenMpi: true });
  expect(launchOf({ ...step, PMI_RANK: '0', PMI_SIZE: '4', PMI_FD: '6' }, () => true)).toMatchObject({ size: 4 });
  expect(() => launchOf(step)).toThrow(
    /^one of 4 processes of srun, which tells MPI of none of the others; start them with srun --mpi=pmix .* mpiexec -n 4;/,
  );
  // A batch script of a job for four, and a step of one.
  expect(launchOf({ SLURM_PROCID: '0', SLURM_NTASKS: '4' })).toBeUndefined();
  expect(launchOf({ ...step, SLURM_STEP_NUM_TASKS: '1' })).toBeUndefined();
  expect(launchOf({ ...step, SLURM_STEP_NUM_TASKS: '1', PMIX_RANK: '0' })).toEqual({ size: 1, isOpenMpi: true });
});
