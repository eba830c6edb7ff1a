// What every test file leaves behind, where several run in one process: no mock, no global of its own, nothing on the GPU.

import { afterAll, vi } from 'vitest';
import { releaseDevice } from './harness.ts';

afterAll(async () => {
  vi.restoreAllMocks();
  vi.unstubAllGlobals();
  await releaseDevice();
});
