// Shares of host memory and disk, on a simulated machine, that chunks have and that moved activations have: the
// division that a run makes (memory/tiers/shares.ts), of a machine that need not be there.

import { bytesBelow, leastHostBytes, type StashHomes, sharesOf, stashHomes } from '../../memory/tiers/shares.ts';
import { leastDiskChunks, leastHostChunks, type Spared, sparedChunks } from '../../memory/tiers/tier-limits.ts';
import { flagBytes, formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { isAllOnGPU, needBelow } from '../compile/candidate.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Machine } from './machine.ts';

interface SharesBelow {
  /** Chunks that host memory holds. */
  readonly hostSlots: number;
  /** Room for new values beside them. */
  readonly beside: Spared;
  readonly homes: StashHomes;
}

/** Without what is copied from the GPU, where all is there. Errors: as `divideBelow`. */
export function sharesBelow(fit: Fit, { disk }: Machine, hostBytes: number): SharesBelow {
  if (!isAllOnGPU(fit)) return divideBelow(fit, disk?.bytes, hostBytes);
  const homes = { offsets: [], onHost: 0, onDisk: 0, readers: 0, readerBytes: 0 };
  return { hostSlots: Math.max(needBelow(fit).held, 1), beside: { chunks: 0, slots: 0, onDisk: false }, homes };
}

/**
 * Where all lies that a run has below the GPU, copies too, by what it needs there. Errors: HoldfastError where host memory and disk
 * are too small, with what would do.
 */
export function divideBelow(
  fit: Fit,
  diskBytes: number | undefined,
  hostBytes: number,
  need = needBelow(fit),
): SharesBelow {
  const { map, stashes } = fit;
  const count = Math.max(need.held, 1);
  const shares = sharesOf(need, { host: hostBytes, disk: diskBytes ?? 0 });
  const homes = stashHomes(stashes, shares?.stashes ?? { host: 0, disk: 0 });
  const slots = Math.floor((shares?.chunks.host ?? 0) / map.chunkBytes);
  const held = Math.min(count, slots);
  const blocks = Math.floor((shares?.chunks.disk ?? 0) / map.chunkBytes);
  const hasDisk = diskBytes !== undefined;
  if (
    !homes ||
    held < leastHostChunks(count, hasDisk, need.updates) ||
    blocks < leastDiskChunks(count, held, map.largestPut)
  ) {
    const [all, least] = [bytesBelow(need), leastHostBytes(need, hasDisk)];
    const isDiskEnough = hasDisk && diskBytes >= all + (map.largestPut + 2) * map.chunkBytes;
    const onDisk = hasDisk ? `${formatBytes(diskBytes)} of` : 'no';
    const lie = `${formatBytes(all)} lie below the GPU, and`;
    if (isDiskEnough && hostBytes < least)
      throw new HoldfastError(
        `${lie} what passes through host memory on its way to disk has no room in ${formatBytes(hostBytes)} of it; ` +
          `give --host-memory ${flagBytes(least)} at least`,
      );
    throw new HoldfastError(
      `${lie} there are ${formatBytes(hostBytes)} of host memory and ${onDisk} disk; --host-memory ${flagBytes(all)} would do`,
    );
  }
  const { held: all, largestPut, updates, beside = 0, chunkBytes } = need;
  const spared = sparedChunks({ slots, blocks, held: all, largestPut, updates, beside, chunkBytes });
  return { hostSlots: held, beside: spared, homes };
}
