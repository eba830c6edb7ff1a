// The verdict on a run that is still to come: one sentence that says whether it fits the GPU and what this site may keep, and
// what to change where it does not. Worked out from the estimate alone.

import { type Estimate, formatBytes, type MemorySettings, type RunSettings } from '../src/browser/index.ts';

export interface FitVerdict {
  readonly fits: boolean;
  readonly text: string;
}

type Wanted = Pick<RunSettings, 'batch' | 'seq' | 'lora'> & {
  /** Bytes of the model that are not kept here yet. */
  readonly toKeep: number;
  /** Whether the length of a sequence can be chosen. */
  readonly reads: boolean;
  /** Whether it is one of the sizes to choose from, of which all is trained. */
  readonly isPreset?: boolean;
};

/** A run within these budgets: GPU memory against the smallest budget, what comes to lie on disk against the room there. */
export function verdictOn(
  { smallest, unlimited, modelData, checkpoints, room }: Estimate,
  { gpu, disk }: MemorySettings,
  { batch, seq, lora, toKeep, reads, isPreset = false }: Wanted,
): FitVerdict {
  const free = Math.max(0, room.quota - room.used);
  const tier = gpu === undefined || disk === undefined ? 0 : Math.min(disk, modelData);
  const onDisk = toKeep + checkpoints + tier;
  const isSmall = gpu !== undefined && gpu < smallest;
  if (!isSmall && onDisk <= free) {
    const budget =
      gpu === undefined
        ? `it takes ${formatBytes(unlimited)} of GPU memory without a budget, and works within ${formatBytes(smallest)}`
        : `the GPU budget is ${formatBytes(gpu)}, and ${formatBytes(smallest)} are enough`;
    return {
      fits: true,
      text: `It fits: ${budget}; on disk it takes ${formatBytes(onDisk)} at most of ${formatBytes(free)} that are free.`,
    };
  }
  const problems = [
    ...(isSmall ? [`the GPU budget is ${formatBytes(gpu)}, and ${formatBytes(smallest)} is the least that works`] : []),
    ...(onDisk > free
      ? [`on disk it takes up to ${formatBytes(onDisk)}, and this site may keep ${formatBytes(free)} more`]
      : []),
  ];
  const changes = [
    ...(isPreset ? ['choose a smaller model'] : lora ? [] : ['train by LoRA']),
    ...(isSmall ? ['raise the budget'] : []),
    ...(isSmall && batch > 1 ? ['use a smaller batch'] : []),
    ...(isSmall && reads && seq > 1 ? ['use a shorter context'] : []),
    ...(onDisk > free && tier > 0 ? ['give the disk tier less'] : []),
    ...(onDisk > free ? ['remove runs', 'make room on the disk'] : []),
  ];
  return { fits: false, text: `It does not fit: ${problems.join('; ')}: ${either(changes)}.` };
}

/** "a, b or c" */
const either = (all: readonly string[]): string =>
  [all.slice(0, -1).join(', '), ...all.slice(-1)].filter((part) => part !== '').join(' or ');
