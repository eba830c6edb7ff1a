// A probe for how much GPU memory there is: WebGPU does not say, so it is tried, block by block, behind error scopes.
// Some drivers promise more than they have; what then fails later is met by a smaller budget (see Session).

import { GPUBufferUsage } from '../../gpu/constants.ts';
import type { Device } from '../../gpu/device.ts';

/** The first block; where one is refused, the next is half as large, down to the least. */
const BLOCK = 64 * 2 ** 20;
const LEAST_BLOCK = 64 * 1024;

/** Bytes that buffers could be made of, at most `wanted`. Nothing stays allocated. */
export async function probeMemory(device: Device, wanted: number): Promise<number> {
  const { gpu, allocator } = device;
  const blocks: GPUBuffer[] = [];
  let found = 0;
  try {
    for (let most = BLOCK; found < wanted && most >= LEAST_BLOCK; ) {
      const bytes = Math.ceil(Math.min(most, wanted - found) / 4) * 4;
      gpu.pushErrorScope('out-of-memory');
      const block = allocator.create('probe', bytes, GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_DST);
      if (await gpu.popErrorScope()) {
        allocator.destroy(block);
        most = bytes / 2;
      } else {
        blocks.push(block);
        found += bytes;
      }
    }
  } finally {
    for (const block of blocks) allocator.destroy(block);
  }
  return Math.min(found, wanted);
}
