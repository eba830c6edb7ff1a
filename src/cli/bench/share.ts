// `holdfast bench --share`: this machine, measured, as a file that `plan --hardware` reads.

import { refreshRates } from '../../engine/observe/adapter-records.ts';
import { hardwareFile } from '../../engine/simulate/hardware.ts';
import type { Machine } from '../../engine/simulate/machine.ts';
import { type Device, openDevice } from '../../gpu/device.ts';
import type { Host } from '../../runtime/host.ts';
import { formatBytes } from '../../util/bytes.ts';
import { finishing, HoldfastError } from '../../util/errors.ts';
import { argument, checkWritable } from '../options.ts';
import { measureMachine } from './machine.ts';
import { digits, percentage, table } from './text.ts';

/** What is asked of it. */
export interface ShareFlags {
  readonly adapter: string;
  readonly share: string;
  readonly gpuMemory: number | 'shared' | undefined;
  readonly json: boolean | undefined;
}

export async function shareMachine(host: Host, { adapter, share, gpuMemory, json }: ShareFlags): Promise<void> {
  await checkWritable(host.files, share);
  const device = await openDevice(host, { adapter });
  return finishing(
    () => shareFigures(host, device, { share, gpuMemory, json }),
    () => device.close(),
  );
}

async function shareFigures(
  host: Host,
  device: Device,
  { share, gpuMemory, json }: Omit<ShareFlags, 'adapter'>,
): Promise<void> {
  const { name, software } = device.adapter;
  const { memoryBytes: hostBytes } = host;
  if (hostBytes === undefined) throw new HoldfastError(`--share: ${host.name} does not say how much memory there is`);
  if (gpuMemory === undefined && !software) {
    throw new HoldfastError(
      `--share: WebGPU does not say how much memory ${name} has; add --gpu-memory 8GB, or what it has, or --gpu-memory shared`,
    );
  }
  const sharedMemory = gpuMemory === undefined || gpuMemory === 'shared';
  const memory = { hostBytes, gpuBytes: sharedMemory ? hostBytes : gpuMemory, sharedMemory };
  const machine = await measureMachine(host, device, memory);
  await refreshRates(host, device);
  const version = await host.version?.();
  const source = `holdfast bench${version === undefined ? '' : ` ${version}`}, ${host.name}, ${name}`;
  await host.files.writeAtomic(share, hardwareFile(machine, source));
  host.terminal.write(json ? `${JSON.stringify({ file: share, machine })}\n` : machineText(machine, share));
}

function machineText(machine: Machine, share: string): string {
  const {
    title,
    peakFlops,
    memoryBytesPerSecond,
    launchSeconds,
    reached,
    reachedBy = {},
    link,
    disk,
    hostMemory,
  } = machine;
  const rate = (bytes: number) => `${formatBytes(bytes)}/s`;
  const kernels = Object.entries(reachedBy).sort(([, a], [, b]) => b - a);
  const rows = kernels.map(([kernel, part]) => [kernel, percentage(part)]);
  return [
    title,
    `  ${digits(peakFlops / 1e9)} GFLOP/s, memory ${rate(memoryBytesPerSecond)}, ${digits(launchSeconds * 1e6)} us a dispatch`,
    `  to the GPU ${rate(link.upBytesPerSecond)}, back ${rate(link.downBytesPerSecond)}${disk ? `; disk, through the system’s cache: read ${rate(disk.readBytesPerSecond)}, write ${rate(disk.writeBytesPerSecond)}` : ''}`,
    ...(hostMemory ? [`  AdamW on the host reads and writes ${rate(hostMemory.bytesPerSecond)}`] : []),
    `  kernels of a step reach ${percentage(reached)} of what arithmetic and memory allow them`,
    table(['kernel', 'of what it could'], rows).trimEnd(),
    `${share}: holdfast plan --hardware ${argument(share)}`,
    '',
  ].join('\n');
}
