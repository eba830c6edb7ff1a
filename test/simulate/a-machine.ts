// A machine for tests of the simulator: no real one, its figures are round.

import type { Machine } from '../../src/engine/simulate/machine.ts';

export const MACHINE: Machine = {
  title: 'a machine',
  peakFlops: 1e12,
  reached: 0.5,
  memoryBytesPerSecond: 100e9,
  launchSeconds: 2e-6,
  gpuBytes: 8e9,
  hostBytes: 32e9,
  sharedMemory: false,
  hostMemory: { bytesPerSecond: 50e9, reached: 1 },
  link: { upBytesPerSecond: 10e9, downBytesPerSecond: 8e9, copies: 'duplex' },
  disk: { readBytesPerSecond: 3e9, writeBytesPerSecond: 2e9, bytes: 1e12 },
};
