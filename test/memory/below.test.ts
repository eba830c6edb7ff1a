// All that lies below the GPU, opened: where that fails, the first error is the one that is told.

import { expect, test } from 'vitest';
import { Below } from '../../src/memory/tiers/below.ts';
import { MemoryBlockFile } from '../memory-files.ts';

const BYTES = 4096;
const need = { chunks: 8, held: 8, chunkBytes: BYTES, largestPut: 1, updates: 0, stashes: [] };

test('a file that is too small, and cannot be removed, is told to be too small', async () => {
  let removals = 0;
  const open = async () =>
    Object.assign(new MemoryBlockFile('/tier', BYTES), {
      remove: async () => {
        removals++;
        throw new Error('the file cannot be removed');
      },
    });
  await expect(Below.open(need, { host: 4 * BYTES, disk: { open } })).rejects.toThrow(/^disk limit 4096 bytes/);
  expect(removals).toBe(1);
});
