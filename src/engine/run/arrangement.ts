// Arrangement of a session within a budget, worked out before any of it is made: the options that say where model data
// lies, the fit into the budget, a schedule for each pass. What follows from it on a device is a session's
// (session.ts).

import type { Device } from '../../gpu/device.ts';
import { ACTIVATION_MODES, type ActivationMode } from '../../graph/activations.ts';
import { ACCUMULATE_ORDERS, type AccumulateOrder } from '../../graph/layer-major.ts';
import { ORDERS } from '../../memory/plan/policies.ts';
import { roomOf, type TierBytes } from '../../memory/tiers/shares.ts';
import { leastHostChunks } from '../../memory/tiers/tier-limits.ts';
import type { BlockFile } from '../../runtime/host.ts';
import { callable } from '../../util/arguments.ts';
import { check, closed, number, object, oneOf, optional, truth } from '../../util/json.ts';
import { realNumber } from '../../util/range.ts';
import { fitMemory } from '../compile/fit.ts';
import type { Fit } from '../compile/fitted.ts';
import type { FitOptions } from '../compile/least.ts';
import type { Pass, Passes } from '../compile/pass.ts';
import { type Rates, ratesSchema, typicalRates } from '../compile/rates.ts';
import { RECOVERIES, type Recovery } from '../compile/recovery.ts';
import { type PassSchedule, type Policy, schedule } from '../compile/schedule.ts';
import type { AdapterLimits, Workload } from '../compile/workload.ts';
import { probeMemory } from './probe.ts';

/** Budgets, tiers and policy: where model data lies. No result depends on them. */
export interface MemoryOptions {
  /**
   * Bytes of GPU memory, for everything; `auto`: as much as can be had, and no budget where all has room. Absent: all model data stays on the GPU, as
   * long as there is memory for it.
   */
  readonly gpu?: number | 'auto';
  /**
   * What becomes of a block's activations before its backward pass; `auto`: for each block, what takes the least time
   * within the budget. Changes no bit. @default 'auto'
   */
  readonly activations?: ActivationMode | 'auto';
  /**
   * How the micro-batches of a step go through the model: one after the other (`batch`), or all of them a layer at a time
   * (`layer`), which moves parameters once a step and keeps the activations of all; `auto`: whichever takes the least time
   * within the budget. Changes no bit. @default 'auto'
   */
  readonly accumulateOrder?: AccumulateOrder | 'auto';
  /**
   * Bytes of host memory for chunks. Beside a GPU, what it leaves lets updates on the host begin while the backward pass runs: as many
   * as it has room for new values of. @default no limit, and nothing more than is needed is taken
   */
  readonly host?: number;
  /** The slow tier. @default none */
  readonly disk?: { readonly open: (bytes: number) => Promise<BlockFile>; readonly limit?: number };
  /** The eviction policy. @default 'planned' */
  readonly policy?: Policy;
  /** Whether chunks on disk are read before they are needed. @default true */
  readonly prefetch?: boolean;
  /**
   * `step`: every step's state is also kept below the GPU, and a lost device costs one step at most. `checkpoint`:
   * it is not, which moves fewer bytes. `auto`: it is, where a step takes at most a twentieth longer for that, by the rates.
   * Without a budget nothing is kept below. @default 'auto'
   */
  readonly recovery?: Recovery;
  /**
   * What the device computes and moves a second, which says which plan takes the least time: of `measureRates`, or another
   * run's. @default what is typical of a GPU, or of a software adapter
   */
  readonly rates?: Rates;
  /**
   * Whether the rates are set right by what warm-up and the first steps take, and the plan is made again where that saves a
   * twentieth of a step or more. Changes no bit; ranks, which plan alike, and what lies on a disk keep their plan. @default false
   */
  readonly adapts?: boolean;
}

const bytes = optional(number(realNumber(0, Number.MAX_VALUE)));
const memoryOptions = closed<MemoryOptions>({
  gpu: bytes,
  activations: optional(oneOf([...ACTIVATION_MODES, 'auto'])),
  accumulateOrder: optional(oneOf([...ACCUMULATE_ORDERS, 'auto'])),
  host: bytes,
  disk: optional(closed<NonNullable<MemoryOptions['disk']>>({ open: callable, limit: bytes })),
  policy: optional(oneOf(['planned', ...(Object.keys(ORDERS) as (keyof typeof ORDERS)[])])),
  prefetch: optional(truth),
  recovery: optional(oneOf(RECOVERIES)),
  rates: optional(ratesSchema),
  adapts: optional(truth),
});

/** Errors: HoldfastError naming the first that is no budget, or no way that there is. Whether a budget is enough shows later. */
export function checkMemory(memory: MemoryOptions): void {
  check(object({}), memory, 'the memory options');
  const { gpu, host, disk, policy } = memory;
  const limited = (bytes: unknown) => (bytes === Number.POSITIVE_INFINITY ? undefined : bytes);
  const shown = {
    ...{ gpu: gpu === 'auto' ? undefined : limited(gpu), host: limited(host) },
    ...{
      disk: typeof disk === 'object' && disk ? { ...disk, limit: limited(disk.limit) } : disk,
      policy: typeof policy === 'function' ? undefined : policy,
    },
  };
  check(memoryOptions, { ...memory, ...shown }, 'the memory options');
}

/** What is tried next where the GPU has less memory than was asked of it. */
export const SHRINK = 0.8;
/** Chunks of disk reads begun before they are needed, as long as nothing better is known. */
const READ_AHEAD = 4;

/** What a budget comes to. */
export interface Arrangement<P extends Passes> {
  readonly memory: Readonly<MemoryOptions>;
  readonly fit: Fit<P>;
  readonly schedules: ReadonlyMap<Pass, PassSchedule>;
  readonly readAhead: number;
}

/** What a fit goes by on a device. `memory`: its rates, where they are known. */
export function limitsOf({ adapter }: Device, { rates }: Pick<MemoryOptions, 'rates'> = {}): AdapterLimits {
  const { maxStorageBufferBindingSize: binding, maxBufferSize: buffer } = adapter.limits;
  const { software } = adapter;
  return { binding, buffer, software, rates: rates ?? typicalRates(software) };
}

/** Bytes below the GPU, by the budgets there. */
export const bytesBelowOf = ({ host, disk }: MemoryOptions): TierBytes => ({
  host: host ?? Number.POSITIVE_INFINITY,
  disk: disk ? (disk.limit ?? Number.POSITIVE_INFINITY) : 0,
});

/** What a fit goes by of the budgets below the GPU. `updates`: chunks that an update there holds. */
export function optionsOf(memory: MemoryOptions, updates = 0): FitOptions {
  const { recovery, host, disk } = memory;
  const below = host === undefined ? undefined : roomOf(bytesBelowOf(memory));
  const mostChunk =
    disk && host !== undefined ? host / leastHostChunks(Number.POSITIVE_INFINITY, true, updates) : undefined;
  return { recovery, below, ...(mostChunk !== undefined && { mostChunk }) };
}

/** What all model data on the GPU needs, or as much of it as there is; undefined when there is enough. */
export async function autoBudget(device: Device, workload: Workload): Promise<number | undefined> {
  const { peak } = fitMemory(workload, limitsOf(device), undefined);
  const found = await probeMemory(device, peak);
  return found < peak ? Math.floor(found * SHRINK) : undefined;
}

/** The schedules of a fit. */
export function arrange<P extends Passes>(fit: Fit<P>, memory: MemoryOptions): Arrangement<P> {
  const { policy = 'planned', prefetch = true } = memory;
  const schedules = new Map(
    Object.values(fit.passes).map((pass) => [pass, schedule(pass.trace, fit.slots, policy, pass.extra)]),
  );
  return { memory, fit, schedules, readAhead: prefetch ? READ_AHEAD : 0 };
}
