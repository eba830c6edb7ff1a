// `holdfast bench`: what this adapter can do at most, what our kernels reach of it shape by shape, and where
// the time of a training step goes; or, with --share, the machine as a file for `plan --hardware`. Figures come from this
// run alone; what plans go by (adapter-records.ts) is measured anew and kept.

import { Command } from 'commander';
import type { Rates } from '../engine/compile/rates.ts';
import { refreshRates } from '../engine/observe/adapter-records.ts';
import { measurePeak } from '../engine/observe/peak.ts';
import { MACHINE_BYTES } from '../engine/simulate/hardware.ts';
import { type Device, openDevice } from '../gpu/device.ts';
import { type Host, join } from '../runtime/host.ts';
import { measureStepCosts } from '../train/plan/step-probe.ts';
import { keepStepCosts } from '../train/plan/step-times.ts';
import { formatBytes, parseBytes } from '../util/bytes.ts';
import { finishing, HoldfastError } from '../util/errors.ts';
import { inRange } from '../util/range.ts';
import { budgetTable, measureBudgets } from './bench/budgets.ts';
import { diskStatesIn, diskStatesText } from './bench/disk-states.ts';
import { hostText, measureHostAdamW } from './bench/host-adamw.ts';
import { figureTable, measureAttentions, measureMatmuls } from './bench/kernels.ts';
import { shareMachine } from './bench/share.ts';
import { measureStep, stepText } from './bench/step.ts';
import { digits } from './bench/text.ts';
import { adapterOption, checked, numberFrom } from './options.ts';

interface Flags {
  adapter: string;
  json?: boolean;
  seconds: number;
  share?: string;
  gpuMemory?: number | 'shared';
}

export function benchCommand(host: Host): Command {
  return new Command('bench')
    .description('measure this adapter, the kernels on it, and where a training step spends its time')
    .addOption(adapterOption())
    .option('--seconds <n>', 'how long to train for the figures of the step', numberFrom(0), 3)
    .option('--share <file>', 'measure this machine instead, and write it as a file that plan --hardware reads')
    .option(
      '--gpu-memory <bytes>',
      'with --share: what its GPU has, or shared where it has the machine’s; WebGPU does not say',
      checked(parseMemory),
    )
    .option('--json', 'one JSON object')
    .action(async ({ adapter, json, seconds, share, gpuMemory }: Flags, command: Command) => {
      if (share !== undefined && command.getOptionValueSource('seconds') === 'cli')
        throw new HoldfastError('--seconds: is of the figures that --share leaves out; leave the flag out');
      if (share !== undefined) return shareMachine(host, { adapter, share, gpuMemory, json });
      if (gpuMemory !== undefined) throw new HoldfastError('--gpu-memory: is of --share; give both, or neither');
      const device = await openDevice(host, { adapter });
      return finishing(
        () => measureAll(host, device, seconds, json ?? false),
        () => device.close(),
      );
    });
}

async function measureAll(host: Host, device: Device, seconds: number, json: boolean): Promise<void> {
  const show = (text: string) => {
    if (!json) host.terminal.write(text);
  };
  // The step first: its time to the first step must not find pipelines that the other figures compiled.
  show(`${device.adapter.name}, ${host.name}\n`);
  const step = await measureStep(host, device, seconds);
  const peak = await measurePeak(device);
  show(`measured peak: ${digits(peak.gflops)} GFLOP/s multiply-add, ${digits(peak.gigabytesPerSecond)} GB/s copy\n`);
  show(stepText(step, peak));
  const budgets = await measureBudgets(device);
  show(`\n${budgetTable(budgets)}`);
  const matmuls = await measureMatmuls(device);
  show(`\n${figureTable('matmul (M x N x K)', matmuls, peak)}`);
  const attentions = await measureAttentions(device);
  show(`\n${figureTable('attention (B x T x NH x HS)', attentions, peak)}`);
  const hostAdamW = measureHostAdamW();
  show(`\n${hostText(hostAdamW)}`);
  const costs = await measureStepCosts(host, device);
  if (costs) await keepStepCosts(host, device, costs);
  const diskStates = await diskStatesIn(host, join(host.cacheFolder, 'bench'));
  if (diskStates) show(diskStatesText(diskStates));
  const rates = await refreshRates(host, device);
  if (rates) show(`\nkept, for plans and for runs within a budget: ${ratesText(rates)}\n`);
  if (json) {
    const figures = { peak, step, budgets, matmuls, attentions, hostAdamW, diskStates };
    const report = { adapter: device.adapter, runtime: host.name, ...figures };
    host.terminal.write(`${JSON.stringify(report)}\n`);
  }
}

/** `27,000 GFLOP/s in products, ...`. */
const ratesText = ({ flops, memoryBytes = 0, upBytes, downBytes, launchSeconds }: Rates): string =>
  `${digits(flops / 1e9)} GFLOP/s in products, memory ${digits(memoryBytes / 1e9)} GB/s, link ${digits(upBytes / 1e9)} GB/s up and ` +
  `${digits(downBytes / 1e9)} down, ${digits(launchSeconds * 1e6)} us a dispatch`;

/** Errors: HoldfastError also for what `plan --hardware` would refuse to read. */
function parseMemory(text: string): number | 'shared' {
  if (text === 'shared') return text;
  const bytes = parseBytes(text);
  if (inRange(MACHINE_BYTES, bytes)) return bytes;
  throw new HoldfastError(`No GPU has ${formatBytes(bytes)}: write what it has, for example 8GB.`);
}
