// Limits and rates that `holdfast plan` goes by where no machine is named, and times of steps: those of the adapter that would
// train are given, as far as a run or `bench` has left a record of it.

import { typicalRates } from '../../engine/compile/rates.ts';
import { type AdapterLimits, DEFAULT_LIMITS } from '../../engine/compile/workload.ts';
import { type AdapterRecord, keptAdapter, limitsIn } from '../../engine/observe/adapter-records.ts';
import type { Host } from '../../runtime/host.ts';
import { type KnownSteps, knownSteps } from '../../train/plan/step-times.ts';

/** What is known of an adapter. */
export interface PlanBasis {
  /** As the flag has it. */
  readonly wanted: string;
  /** Absent where nothing is kept of it. */
  readonly adapter?: AdapterRecord;
  readonly known: KnownSteps;
}

export async function planBasis(host: Host, wanted: string): Promise<PlanBasis> {
  const adapter = await keptAdapter(host, wanted);
  return adapter ? { wanted, adapter, known: await knownSteps(host, { adapter }) } : { wanted, known: { runs: {} } };
}

const isSoftware = ({ wanted, adapter }: PlanBasis): boolean => adapter?.software ?? wanted === 'software';

export function plannedLimits(basis: PlanBasis): AdapterLimits {
  const software = isSoftware(basis);
  return basis.adapter ? limitsIn(basis.adapter) : { ...DEFAULT_LIMITS, software, rates: typicalRates(software) };
}

/** `by the rates measured on NVIDIA H100`. */
export function describeRates(basis: PlanBasis): string {
  const { wanted, adapter } = basis;
  const typical = `rates typical of a ${isSoftware(basis) ? 'software adapter' : 'GPU'}`;
  if (!adapter)
    return `by ${typical}; a run or \`bench\` tells of ${wanted === 'auto' ? 'yours' : `that of --adapter ${wanted}`}`;
  const { name, software, rates } = adapter;
  if (rates) return `by the rates measured on ${name}`;
  const measuring = software ? '' : '; `bench`, or a run within a budget, measures its own';
  return `by the limits of ${name} and ${typical}${measuring}`;
}

/** The adapter, whether its rates were measured, and what they are, as JSON has them. */
export const ratesFacts = (basis: PlanBasis) => ({
  adapter: basis.adapter?.name ?? null,
  measured: basis.adapter?.rates !== undefined,
  ...plannedLimits(basis).rates,
});
