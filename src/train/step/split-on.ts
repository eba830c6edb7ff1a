// The choice of where AdamW runs, on a device: by what it and this host reach, which is measured where it is not known.

import { measuredLimits } from '../../engine/observe/device-rates.ts';
import { autoBudget, limitsOf, type MemoryOptions } from '../../engine/run/arrangement.ts';
import type { Device } from '../../gpu/device.ts';
import type { Threads } from '../../runtime/host.ts';
import { chooseSplit, type SplitSearch } from './optimizer-split.ts';

/** The split that takes the least time within the budget, by what this device and this host reach. */
export async function splitOn(
  device: Device,
  { memory: { gpu, ...rest }, ...search }: Omit<SplitSearch, 'limits' | 'memory'> & { readonly memory: MemoryOptions },
  threads: Threads | undefined,
): Promise<number> {
  const budget = gpu === 'auto' ? await autoBudget(device, search.workloadOf(search.model)) : gpu;
  const memory = budget === undefined ? rest : { ...rest, gpu: budget };
  const limits = budget === undefined ? limitsOf(device) : await measuredLimits(device, memory, threads);
  return chooseSplit({ ...search, memory, limits }).split;
}
