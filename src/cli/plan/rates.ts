// Limits and rates that `holdfast plan` goes by where no machine is named: those of the adapter that runs here are given, as
// far as a run or `bench` has left a record of it.

import { type AdapterLimits, DEFAULT_LIMITS } from '../../engine/compile/workload.ts';
import { type AdapterRecord, limitsIn } from '../../engine/observe/adapter-records.ts';

export const plannedLimits = (adapter: AdapterRecord | undefined): AdapterLimits =>
  adapter ? limitsIn(adapter) : DEFAULT_LIMITS;

/** `by the rates measured on NVIDIA H100`. */
export function describeRates(adapter: AdapterRecord | undefined): string {
  if (!adapter) return 'by rates typical of a GPU; a run or `bench` tells of yours';
  const { name, software, rates } = adapter;
  if (rates) return `by the rates measured on ${name}`;
  return software
    ? `by the limits of ${name} and rates typical of a software adapter`
    : `by the limits of ${name} and rates typical of a GPU; \`bench\`, or a run within a budget, measures its own`;
}

/** The adapter, whether its rates were measured, and what they are, as JSON has them. */
export const ratesFacts = (adapter: AdapterRecord | undefined) => ({
  adapter: adapter?.name ?? null,
  measured: adapter?.rates !== undefined,
  ...plannedLimits(adapter).rates,
});
