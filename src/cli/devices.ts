// `holdfast devices`: every adapter that can be reached, what it offers, and which one would be chosen.

import { Command } from 'commander';
import { type AdapterSummary, listAdapters } from '../gpu/device.ts';
import type { Host } from '../runtime/host.ts';
import { formatBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';

export function devicesCommand(host: Host): Command {
  return new Command('devices')
    .description('list every adapter, its features and limits, and which would be chosen')
    .option('--json', 'one JSON object')
    .action(async ({ json }: { json?: boolean }) => {
      const found = await listAdapters(host);
      const adapters = found.filter((entry): entry is AdapterSummary => 'name' in entry);
      const chosen = adapters[0];
      if (json)
        host.terminal.write(`${JSON.stringify({ runtime: host.name, chosen: chosen?.name, adapters: found })}\n`);
      else {
        host.terminal.write(`${host.name}\n`);
        for (const entry of found)
          host.terminal.write(
            'name' in entry ? describe(entry, entry === chosen, adapters) : `\n${entry.source}: ${entry.error}\n`,
          );
      }
      if (!chosen)
        throw new HoldfastError('no WebGPU adapter works here; run npm install for the embedded software adapter');
    });
}

function describe(adapter: AdapterSummary, chosen: boolean, all: readonly AdapterSummary[]): string {
  const { limits, subgroups } = adapter;
  const kind = adapter.software ? 'software' : 'GPU';
  const only = all.every(({ software }) => software) ? 'no GPU was found' : '';
  const reason = adapter.software ? `${only}; the first software adapter in the order of preference` : 'the first GPU';
  const lines = [
    `${adapter.name}${chosen ? `   <- chosen (${reason})` : ''}`,
    `  reached through  ${adapter.source}`,
    `  kind             ${kind}, vendor ${adapter.vendor || '?'}, architecture ${adapter.architecture || '?'}`,
    `  largest buffer   ${formatBytes(limits.maxBufferSize)}, largest binding ${formatBytes(limits.maxStorageBufferBindingSize)}`,
    `  workgroup        ${limits.maxComputeInvocationsPerWorkgroup} invocations, ${formatBytes(limits.maxComputeWorkgroupStorageSize)}`,
    `  storage buffers  ${limits.maxStorageBuffersPerShaderStage} a shader`,
    `  subgroups        ${subgroups[0]} to ${subgroups[1]} invocations`,
    `  features         ${adapter.features.join(' ')}`,
  ];
  return `\n${lines.join('\n')}\n`;
}
