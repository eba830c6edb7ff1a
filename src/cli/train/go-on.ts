// The command that goes on with a run that was cut short: with the flags of this one that no checkpoint keeps, where it is trained and
// in how much memory.

import { type MemoryFlags, policyFlag } from '../memory-flags.ts';
import { argument } from '../options.ts';
import { dashed, type IsGiven, type TrainFlags } from './flags.ts';

const NOT_KEPT = [
  'adapter',
  'gpuMemory',
  'hostMemory',
  'disk',
  'diskLimit',
  'policy',
  'prefetch',
  'recovery',
  'activations',
  'accumulateOrder',
] as const satisfies readonly ('adapter' | keyof MemoryFlags)[];

export function goOnCommand(out: string, flags: TrainFlags, given: IsGiven): string {
  const flagOf = (name: (typeof NOT_KEPT)[number]): string => {
    if (name === 'prefetch') return '--no-prefetch';
    return `--${dashed(name)} ${argument(name === 'policy' ? policyFlag(flags.policy) : `${flags[name]}`)}`;
  };
  return [`holdfast train --resume --out ${argument(out)}`, ...NOT_KEPT.filter(given).map(flagOf)].join(' ');
}
