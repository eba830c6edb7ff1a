// Shares of host memory and disk, on a simulated machine, that chunks have and that moved activations have: the
// division that a run makes (memory/tiers/shares.ts), of a machine that need not be there.

import { bytesBelow, type StashHomes, sharesOf, stashHomes } from '../../memory/tiers/shares.ts';
import { leastDiskChunks, leastHostChunks } from '../../memory/tiers/tier-limits.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { isAllOnGPU, needBelow } from '../compile/candidate.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Machine } from './machine.ts';

/** Chunks that host memory holds, and where activations lie. Errors: HoldfastError where it and the disk are too small, with what would do. */
export function sharesBelow(fit: Fit, { disk }: Machine, hostBytes: number): { hostSlots: number; homes: StashHomes } {
  const { map, stashes } = fit;
  const need = needBelow(fit);
  const count = Math.max(need.held, 1);
  const isWhole = isAllOnGPU(fit);
  const shares = isWhole ? undefined : sharesOf(need, { host: hostBytes, disk: disk?.bytes ?? 0 });
  const homes = stashHomes(stashes, shares?.stashes ?? { host: 0, disk: 0 });
  if (isWhole && homes) return { hostSlots: count, homes };
  const held = Math.min(count, Math.floor((shares?.chunks.host ?? 0) / map.chunkBytes));
  const blocks = Math.floor((shares?.chunks.disk ?? 0) / map.chunkBytes);
  const hasDisk = disk !== undefined;
  if (
    !homes ||
    held < leastHostChunks(count, hasDisk, need.updates) ||
    blocks < leastDiskChunks(count, held, map.largestPut)
  ) {
    const all = bytesBelow(need);
    const onDisk = disk
      ? ` and ${Number.isFinite(disk.bytes) ? formatBytes(disk.bytes) : 'enough'} of disk`
      : ' and no disk';
    throw new HoldfastError(
      `${formatBytes(all)} lie below the GPU, and there are ${formatBytes(hostBytes)} of host memory${onDisk}; ` +
        `--host-memory ${Math.ceil(all / 1e6)}MB would do`,
    );
  }
  return { hostSlots: held, homes };
}
