// The flags of memory: budgets, the slow tier, the eviction policy.

import { type Command, InvalidArgumentError } from 'commander';
import type { Recovery } from '../engine/compile/recovery.ts';
import type { PolicyName } from '../engine/compile/schedule.ts';
import type { MemoryOptions } from '../engine/run/arrangement.ts';
import type { ActivationMode } from '../graph/activations.ts';
import type { AccumulateOrder } from '../graph/layer-major.ts';
import { ORDERS } from '../memory/plan/policies.ts';
import type { Host } from '../runtime/host.ts';
import { parseBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';
import { accumulateOrderOption, activationsOption, checked, recoveryOption } from './options.ts';

/** Where what has no room on the GPU lies, and what leaves it. */
export interface TierFlags {
  hostMemory?: number;
  disk?: string;
  diskLimit?: number;
  policy: PolicyName;
  prefetch: boolean;
}

export interface MemoryFlags extends TierFlags {
  gpuMemory?: number | 'auto';
  recovery?: Recovery;
  activations?: ActivationMode | 'auto';
  accumulateOrder?: AccumulateOrder | 'auto';
}

/** What one types: `opt`, `patrickstar`, `zero-offload`. */
export const policyFlag = (name: PolicyName): string => name.toLowerCase().replace(/ (order|split)$/, '');

const POLICIES: Readonly<Record<string, PolicyName>> = Object.fromEntries(
  (['planned', ...(Object.keys(ORDERS) as (keyof typeof ORDERS)[])] as const).map((name) => [policyFlag(name), name]),
);

const bytesOrAuto = (text: string) => (text === 'auto' ? text : parseBytes(text));

/** For commands that train, or plan it. `budget`: what --gpu-memory is; `argument`: of --activations. */
export function addMemoryOptions(command: Command, budget?: string, argument?: '[what]'): Command {
  return addBudgetOptions(command, budget)
    .addOption(activationsOption(argument))
    .addOption(accumulateOrderOption())
    .addOption(recoveryOption());
}

/** For commands that read a model: there are no activations to keep, and no state to lose. */
export function addBudgetOptions(
  command: Command,
  budget = 'the most GPU memory to use, as 64MB or 1.5GiB, or auto',
): Command {
  return command
    .option('--gpu-memory <bytes>', budget, checked(bytesOrAuto))
    .option(
      '--host-memory <bytes>',
      'the most host memory for what is not on the GPU; what it leaves lets AdamW there begin early',
      checked(parseBytes),
    )
    .option('--disk <dir>', 'folder for what fits into neither')
    .option('--disk-limit <bytes>', 'the most that may lie there', checked(parseBytes))
    .option(
      '--policy <name>',
      `which chunk leaves the GPU: ${Object.keys(POLICIES).join(', ')}`,
      checked(policy),
      'planned',
    )
    .option('--no-prefetch', 'read from disk only when needed');
}

function policy(name: string): PolicyName {
  const found = Object.hasOwn(POLICIES, name) ? POLICIES[name] : undefined;
  if (!found) throw new InvalidArgumentError(`It must be one of ${Object.keys(POLICIES).join(', ')}.`);
  return found;
}

/** Errors: HoldfastError for flags that mean nothing together. */
export function memoryFromFlags(host: Host, flags: MemoryFlags): MemoryOptions {
  const { gpuMemory, hostMemory, disk, prefetch, recovery, activations, accumulateOrder } = flags;
  if (gpuMemory === undefined) {
    const given =
      (hostMemory !== undefined && '--host-memory') ||
      (disk !== undefined && '--disk') ||
      (flags.policy !== 'planned' && '--policy') ||
      (!prefetch && '--no-prefetch');
    if (given) throw new HoldfastError(`${given}: without --gpu-memory all stays on the GPU; give a budget, or auto`);
  }
  return {
    ...(gpuMemory !== undefined && { gpu: gpuMemory }),
    ...tiersFromFlags(host, flags),
    ...(recovery && { recovery }),
    ...(activations && { activations }),
    ...(accumulateOrder && { accumulateOrder }),
  };
}

/** Errors: HoldfastError for a flag of a disk where there is none. */
export function tiersFromFlags(
  host: Host,
  { hostMemory, disk, diskLimit, policy, prefetch }: TierFlags,
): Pick<MemoryOptions, 'host' | 'disk' | 'policy' | 'prefetch'> {
  if (diskLimit !== undefined && disk === undefined) throw new HoldfastError('--disk-limit: give --disk, a folder');
  if (!prefetch && disk === undefined) throw new HoldfastError('--no-prefetch: is of a disk; give --disk, a folder');
  return {
    ...(hostMemory !== undefined && { host: hostMemory }),
    ...(disk !== undefined && {
      disk: {
        open: (bytes: number) => host.openBlockFile(disk, bytes),
        ...(diskLimit !== undefined && { limit: diskLimit }),
      },
    }),
    policy,
    prefetch,
  };
}
