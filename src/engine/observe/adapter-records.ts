// Records of this machine's adapters, kept beside the kernel choices: their limits and, of GPUs, their rates as they were
// measured once. A run goes by them, and what is planned with no GPU does.
//
// Invariant: rates are measured once for an adapter and then kept, so that runs of the same settings make the same plan, until a run
// whose steps showed other rates plans by those: the runs behind it begin with them.

import { type Device, isAsked } from '../../gpu/device.ts';
import type { Host } from '../../runtime/host.ts';
import { namesTo, number, object, optional, type Schema, text, truth } from '../../util/json.ts';
import { wholeNumber } from '../../util/range.ts';
import { adapterKey, readCache, runtimeKey, writeCache } from '../compile/adapter-cache.ts';
import { type Rates, ratesSchema, typicalRates } from '../compile/rates.ts';
import type { AdapterLimits } from '../compile/workload.ts';
import { limitsOf, type MemoryOptions } from '../run/arrangement.ts';
import { MEASURING_BYTES, measureRates, withHostRate } from './device-rates.ts';

/** What is kept of an adapter. */
export interface AdapterRecord {
  readonly name: string;
  readonly software: boolean;
  /** By which it is found where it is asked for by name; records of earlier versions have neither. */
  readonly source?: string;
  readonly embedded?: boolean;
  /** Bytes of one binding, and of one buffer. */
  readonly binding: number;
  readonly buffer: number;
  /** Absent: they were not measured, and are taken as typical. */
  readonly rates?: Rates;
}

interface Records {
  readonly adapters: Readonly<Record<string, AdapterRecord>>;
  /** By the runtime: the key of the adapter that it chooses where none is asked for, as it last did. */
  readonly chosen: Readonly<Record<string, string>>;
}

const FILE = 'adapters.json';
/** Whole operands of kernels lie in bindings: of less than WebGPU allows everywhere, or more than can be addressed, nothing is planned. */
const size = number(wholeNumber(2 ** 20, Number.MAX_SAFE_INTEGER));
const RECORD: Schema<AdapterRecord> = object({
  name: text,
  software: truth,
  source: optional(text),
  embedded: optional(truth),
  binding: size,
  buffer: size,
  rates: optional(ratesSchema),
});
const RECORDS: Schema<Records> = object({ adapters: namesTo(RECORD), chosen: namesTo(text) });

const readRecords = async (host: Host): Promise<Records> =>
  (await readCache(host, FILE, RECORDS)) ?? { adapters: {}, chosen: {} };

/** A file may name as chosen what every object has. */
const recordOf = ({ adapters }: Records, key: string): AdapterRecord | undefined =>
  Object.hasOwn(adapters, key) ? adapters[key] : undefined;

/**
 * The adapter that this runtime opens where this one is asked for (see DeviceOptions), as far as it is kept: of several the one
 * that it chooses by itself. Undefined before a run or a measurement on it.
 */
export async function keptAdapter(host: Host, wanted = 'auto'): Promise<AdapterRecord | undefined> {
  const records = await readRecords(host);
  const own = recordOf(records, records.chosen[runtimeKey(host)] ?? '');
  if (wanted === 'auto') return own;
  const isHere = (key: string, { name }: AdapterRecord) => key === adapterKey(host, { adapter: { name } });
  const here = Object.entries(records.adapters).flatMap(([key, record]) => (isHere(key, record) ? [record] : []));
  return [...(own ? [own] : []), ...here].find(({ name, source = '', embedded = false }) =>
    isAsked(wanted, { name, source, embedded }),
  );
}

/** What a fit goes by on a recorded adapter. */
export const limitsIn = ({ binding, buffer, software, rates }: AdapterRecord): AdapterLimits => ({
  binding,
  buffer,
  software,
  rates: rates ?? typicalRates(software),
});

/** What a fit goes by on a device, with the rates that are kept of it. */
export async function keptLimits(host: Host, device: Device): Promise<AdapterLimits> {
  const { rates } = recordOf(await readRecords(host), adapterKey(host, device)) ?? {};
  return limitsOf(device, { ...(rates && { rates }) });
}

/**
 * The rates that a run with this memory goes by: those that are kept, or else measured now and kept. Undefined where they are
 * typical ones: without a budget, which plans nothing; on a software adapter, of which two measurements differ more than
 * its plans do; and within a budget that has no room for measuring.
 */
export async function ratesOn(
  host: Host,
  device: Device,
  { gpu }: Pick<MemoryOptions, 'gpu'>,
  updatesOnHost: boolean,
): Promise<Rates | undefined> {
  const before = recordOf(await readRecords(host), adapterKey(host, device))?.rates;
  if (gpu === undefined || device.adapter.software) {
    await keepAdapter(host, device, before);
    return undefined;
  }
  const hasRoom = gpu === 'auto' || gpu >= MEASURING_BYTES;
  const measured = before ?? (hasRoom ? await measureAlone(device) : undefined);
  const lacksHost = updatesOnHost && measured && measured.hostBytes === undefined;
  const rates = lacksHost ? await withHostRate(measured, host.threads) : measured;
  await keepAdapter(host, device, rates);
  return rates;
}

/** Measures them anew, and keeps them for the runs that come; undefined of a software adapter, which has typical ones. */
export async function refreshRates(host: Host, device: Device): Promise<Rates | undefined> {
  const rates = device.adapter.software ? undefined : await withHostRate(await measureAlone(device), host.threads);
  await keepAdapter(host, device, rates);
  return rates;
}

/** Keeps the rates that the steps of a run have shown, for the runs that come. */
export const keepRates = (host: Host, device: Device, rates: Rates): Promise<void> => keepAdapter(host, device, rates);

/** Before a run begins: what it counts does not have what that takes. */
async function measureAlone(device: Device): Promise<Rates> {
  const rates = await measureRates(device);
  device.allocator.restartPeak();
  return rates;
}

async function keepAdapter(host: Host, device: Device, rates: Rates | undefined): Promise<void> {
  const { name, software, source, embedded } = device.adapter;
  const { binding, buffer } = limitsOf(device);
  const { adapters, chosen } = await readRecords(host);
  const key = adapterKey(host, device);
  const kept: Records = {
    adapters: { ...adapters, [key]: { name, software, source, embedded, binding, buffer, ...(rates && { rates }) } },
    chosen: { ...chosen, ...(device.isDefault && { [runtimeKey(host)]: key }) },
  };
  if (JSON.stringify(kept) !== JSON.stringify({ adapters, chosen })) await writeCache(host, FILE, kept);
}
