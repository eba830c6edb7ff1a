// The budgets of a page as the engine has them: the disk tier is a file of the site.

import type { MemoryOptions } from '../engine/run/arrangement.ts';
import type { BrowserHost } from '../runtime/browser.ts';
import type { MemorySettings } from './protocol.ts';

export function memoryOptions(
  host: BrowserHost,
  { gpu, host: hostLimit, disk, recovery, policy }: MemorySettings,
): MemoryOptions {
  return {
    ...(gpu === undefined ? {} : { gpu }),
    ...(hostLimit === undefined ? {} : { host: hostLimit }),
    ...(disk === undefined
      ? {}
      : { disk: { limit: disk, open: (bytes: number) => host.openBlockFile('tiers', bytes) } }),
    ...(recovery === undefined ? {} : { recovery }),
    ...(policy === undefined ? {} : { policy }),
  };
}
