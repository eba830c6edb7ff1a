// `holdfast bench`: what this adapter can do at most, what our kernels reach of it shape by shape, and where
// the time of a training step goes; or, with --share, the machine as a file for `plan --hardware`. Figures come from this
// run alone; nothing is cached.

import { Command } from 'commander';
import { Trial } from '../engine/compile/choices.ts';
import { measurePeak, type Peak } from '../engine/observe/peak.ts';
import { type Profile, profile } from '../engine/observe/profile.ts';
import { hardwareFile } from '../engine/simulate/hardware.ts';
import type { Machine } from '../engine/simulate/machine.ts';
import { parseConfig } from '../formats/config.ts';
import { type Device, openDevice } from '../gpu/device.ts';
import { attention } from '../kernels/attention.ts';
import { attentionBackwardKV, attentionBackwardQ, attentionDelta } from '../kernels/attention-backward.ts';
import type { Kernel, Variant } from '../kernels/kernel.ts';
import { type Layout, matmul } from '../kernels/matmul.ts';
import { makeModel } from '../nn/index.ts';
import { initialWeights } from '../nn/initialise.ts';
import type { Host } from '../runtime/host.ts';
import { Trainer } from '../train/trainer.ts';
import { at } from '../util/at.ts';
import { formatBytes, parseBytes } from '../util/bytes.ts';
import { finishing, HoldfastError } from '../util/errors.ts';
import { median } from '../util/median.ts';
import { Random } from '../util/random.ts';
import { type BudgetFigure, measureBudgets } from './bench-budgets.ts';
import { type HostAdamWFigure, measureHostAdamW } from './bench-host-adamw.ts';
import { measureMachine } from './bench-machine.ts';
import { adapterOption, checked, checkWritable, numberFrom } from './options.ts';

interface Flags {
  adapter: string;
  json?: boolean;
  seconds: number;
  share?: string;
  gpuMemory?: number | 'shared';
}

/** The GPT that all peers were measured on: tokens (B, T), two blocks of width C. */
const PEERS = { layers: 2, width: 64, heads: 4, vocabulary: 65, batch: 4, seq: 64 };

/** The projections whose three products are timed: (B T, C) times (C, 4C), the widest of a block. */
const PROJECTIONS = [
  { name: 'peers', rows: 4 * 64, width: 64 },
  { name: 'default', rows: 8 * 64, width: 64 },
];
const CUBES = [512, 1024];
const GPU_CUBES = [2048, 4096];

const ATTENTIONS = [
  { name: 'peers', batch: 4, seq: 64, heads: 4, headSize: 16 },
  { name: 'default', batch: 8, seq: 64, heads: 4, headSize: 16 },
  { name: 'one head', batch: 1, seq: 256, heads: 1, headSize: 64 },
];
const GPU_ATTENTIONS = [{ name: 'GPT-2 small', batch: 4, seq: 1024, heads: 12, headSize: 64 }];

/** One kernel on one problem: every variant that fits the adapter, the fastest first. */
interface KernelFigure {
  readonly kernel: string;
  readonly shape: string;
  readonly chosen: string;
  readonly gflops: number;
  readonly variants: readonly { name: string; gflops: number }[];
}

interface StepFigures {
  readonly shape: typeof PEERS;
  /** From an open device to the first loss: tracing, compiling, measuring variants, running. */
  readonly firstStepMilliseconds: number;
  readonly trials: number;
  readonly millisecondsPerStep: number;
  readonly tokensPerSecond: number;
  readonly dispatches: number;
  readonly submits: number;
  readonly profile: Profile;
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
    .action(async ({ adapter, json, seconds, share, gpuMemory }: Flags) => {
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
  const step = await measureStep(device, seconds);
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
  if (json) {
    const figures = { peak, step, budgets, matmuls, attentions, hostAdamW };
    const report = { adapter: device.adapter, runtime: host.name, ...figures };
    host.terminal.write(`${JSON.stringify(report)}\n`);
  }
}

// ---- The machine ----------------------------------------------------------------------------------------

const parseMemory = (text: string): number | 'shared' => (text === 'shared' ? text : parseBytes(text));

async function shareMachine(
  host: Host,
  {
    adapter,
    share,
    gpuMemory,
    json,
  }: { adapter: string; share: string; gpuMemory: Flags['gpuMemory']; json: Flags['json'] },
): Promise<void> {
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
  { share, gpuMemory, json }: { share: string; gpuMemory: Flags['gpuMemory']; json: Flags['json'] },
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
  const rows = kernels.map(([kernel, part]) => [kernel, percent(part)]);
  return [
    title,
    `  ${digits(peakFlops / 1e9)} GFLOP/s, memory ${rate(memoryBytesPerSecond)}, ${digits(launchSeconds * 1e6)} us a dispatch`,
    `  to the GPU ${rate(link.upBytesPerSecond)}, back ${rate(link.downBytesPerSecond)}${disk ? `; disk, through the system’s cache: read ${rate(disk.readBytesPerSecond)}, write ${rate(disk.writeBytesPerSecond)}` : ''}`,
    ...(hostMemory ? [`  AdamW on the host reads and writes ${rate(hostMemory.bytesPerSecond)}`] : []),
    `  kernels of a step reach ${percent(reached)} of what arithmetic and memory allow them`,
    table(['kernel', 'of what it could'], rows).trimEnd(),
    `${share}: holdfast plan --hardware ${share}`,
    '',
  ].join('\n');
}

// ---- The step ------------------------------------------------------------------------------------------

/** Windows of time that the training is cut into; the figure is their median. */
const WINDOWS = 5;
/** Steps under way at once: the next is encoded while this one runs. */
const IN_FLIGHT = 3;

async function measureStep(device: Device, seconds: number): Promise<StepFigures> {
  const { layers, width, heads, vocabulary, batch, seq } = PEERS;
  const fields = { vocab_size: vocabulary, n_positions: seq, n_embd: width, n_layer: layers, n_head: heads };
  const model = makeModel(parseConfig({ model_type: 'gpt2', ...fields }, 'bench'));
  const random = new Random(1, 'bench');
  const tokens = Int32Array.from({ length: batch * seq + 1 }, () => random.below(vocabulary));
  const example = { ids: tokens.slice(0, -1), targets: tokens.slice(1), batch, seq };

  const opened = performance.now();
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
  const trainer = await Trainer.create(device, model, { batch, seq, schedule });
  await trainer.setWeights(initialWeights(model, 1));
  await trainer.start([example]);
  const firstStepMilliseconds = performance.now() - opened;
  await trainer.start([example]);

  const windows: number[] = [];
  for (let window = 0; window < WINDOWS; window++) {
    const underWay: Promise<unknown>[] = [];
    const start = performance.now();
    let steps = 0;
    do {
      underWay.push(trainer.start([example]));
      if (underWay.length === IN_FLIGHT) await underWay.shift();
      steps++;
    } while (performance.now() - start < (seconds * 1000) / WINDOWS);
    await Promise.all(underWay);
    windows.push((performance.now() - start) / steps);
  }
  const millisecondsPerStep = median(windows);
  const before = trainer.session.executor.ledger.submits;
  await trainer.start([example]);
  const submits = trainer.session.executor.ledger.submits - before;
  const figures = {
    shape: PEERS,
    firstStepMilliseconds,
    trials: trainer.choices.measured,
    millisecondsPerStep,
    tokensPerSecond: (batch * seq * 1000) / millisecondsPerStep,
    dispatches: trainer.dispatches,
    submits,
    profile: await profile(trainer.session, trainer.session.fit.passes.step),
  };
  await trainer.destroy();
  return figures;
}

function stepText(step: StepFigures, peak: Peak): string {
  const { layers, width, heads, vocabulary, batch, seq } = step.shape;
  const { kernels, milliseconds, wall } = step.profile;
  const facts = [
    '',
    `training step: GPT, ${layers} layers, width ${width}, ${heads} heads, vocabulary ${vocabulary}, batch ${batch} x ${seq}, AdamW, f32`,
    `  ${digits(step.millisecondsPerStep)} ms a step, ${Math.round(step.tokensPerSecond).toLocaleString('en')} tokens/s`,
    `  ${digits(step.firstStepMilliseconds)} ms to the first step, ${step.trials} kernel choices measured among them`,
    `  ${step.dispatches} dispatches in ${step.submits} submit${step.submits === 1 ? '' : 's'} a step`,
    milliseconds === undefined
      ? '  this adapter has no timestamp queries: no time by kernel'
      : `  ${digits(milliseconds)} ms in kernels timed one by one, ${digits(wall)} ms as it is trained, without timestamps`,
    '',
  ];
  const rows = kernels.map((k) => [
    k.kernel,
    String(k.dispatches),
    milliseconds && k.milliseconds !== undefined ? percent(k.milliseconds / milliseconds) : '',
    digits(k.milliseconds),
    digits(k.gflops),
    k.gflops === undefined ? '' : percent(k.gflops / peak.gflops),
    k.milliseconds ? digits(k.bytes / k.milliseconds / 1e6) : '',
  ]);
  const header = ['kernel', 'dispatches', 'share', 'ms', 'GFLOP/s', 'of peak', 'GB/s'];
  return `${facts.join('\n')}${table(header, rows)}`;
}

function budgetTable(figures: readonly BudgetFigure[]): string {
  const rows = figures.map(({ share, recovery, gpuBytes, millisecondsPerStep, ratio, bytesPerStep, waits }) => [
    share === 1 ? 'all' : percent(share),
    share === 1 ? '' : recovery,
    formatBytes(gpuBytes),
    digits(millisecondsPerStep),
    ratio.toFixed(2),
    formatBytes(bytesPerStep.h2d),
    formatBytes(bytesPerStep.d2h),
    digits(waits.up),
    digits(waits.down),
    digits(waits.below),
  ]);
  const header = [
    'on the GPU',
    'recovery',
    'GPU bytes',
    'ms a step',
    'ratio',
    'up',
    'down',
    'wait up',
    'wait down',
    'wait below',
  ];
  return `a GPU budget, GPT of 4 layers, width 128, batch 4 x 64; waits of the encoding CPU in ms a step\n${table(header, rows)}`;
}

// ---- Kernels by shape ----------------------------------------------------------------------------------

async function measureMatmuls(device: Device): Promise<KernelFigure[]> {
  const figures: KernelFigure[] = [];
  const measure = async (name: string, layout: Layout, M: number, N: number, K: number) => {
    const shape = `${layout} ${M} x ${N} x ${K} ${name}`.trim();
    figures.push(await measureKernel(device, matmul, { layout, M, N, K }, shape));
  };
  for (const { name, rows, width } of PROJECTIONS) {
    await measure(`${name}, forward`, 'NN', rows, 4 * width, width);
    await measure(`${name}, input gradient`, 'NT', rows, width, 4 * width);
    await measure(`${name}, weight gradient`, 'TN', width, 4 * width, rows);
  }
  for (const n of device.adapter.software ? CUBES : [...CUBES, ...GPU_CUBES]) {
    for (const layout of ['NN', 'NT', 'TN'] as const) await measure('', layout, n, n, n);
  }
  return figures;
}

async function measureAttentions(device: Device): Promise<KernelFigure[]> {
  const figures: KernelFigure[] = [];
  for (const { name, batch, seq, heads, headSize } of device.adapter.software
    ? ATTENTIONS
    : [...ATTENTIONS, ...GPU_ATTENTIONS]) {
    const shape = `${batch} x ${seq} x ${heads} x ${headSize} ${name}`;
    const problem = { batch, seq, heads, kvHeads: heads, headSize };
    const width = heads * headSize;
    const packed = { qStride: 3 * width, kStride: 3 * width, vStride: 3 * width, kOffset: width, vOffset: 2 * width };
    figures.push(await measureKernel(device, attention, { ...problem, kvRows: seq, qOffset: 0, ...packed }, shape));
    figures.push(await measureKernel(device, attentionDelta, { rows: batch * seq, heads, headSize }, shape));
    figures.push(await measureKernel(device, attentionBackwardQ, problem, shape));
    figures.push(await measureKernel(device, attentionBackwardKV, problem, shape));
  }
  return figures;
}

async function measureKernel<P extends object>(
  device: Device,
  kernel: Kernel<P>,
  problem: P,
  shape: string,
): Promise<KernelFigure> {
  const fitting = kernel.variants.filter(({ supports }) => supports?.(problem, device.traits) ?? true);
  const trial = await Trial.open(device, kernel, problem);
  const variants: { name: string; gflops: number }[] = [];
  try {
    for (const variant of fitting) {
      const milliseconds = await trial.time(variant as unknown as Variant<object>);
      variants.push({ name: variant.name, gflops: kernel.flops(problem) / milliseconds / 1e6 });
    }
  } finally {
    trial.close();
  }
  variants.sort((a, b) => b.gflops - a.gflops);
  const [best] = variants;
  return { kernel: kernel.name, shape, chosen: best?.name ?? 'none', gflops: best?.gflops ?? 0, variants };
}

function figureTable(title: string, figures: readonly KernelFigure[], peak: Peak): string {
  const severalKernels = new Set(figures.map(({ kernel }) => kernel)).size > 1;
  const rows = figures.map(({ kernel, shape, chosen, gflops, variants }) => [
    severalKernels ? `${shape}: ${kernel}` : shape,
    digits(gflops),
    percent(gflops / peak.gflops),
    chosen,
    variants
      .slice(1)
      .map(({ name, gflops: other }) => `${name} ${digits(other)}`)
      .join(', '),
  ]);
  return table([title, 'GFLOP/s', 'of peak', 'chosen', 'others'], rows, [1, 2]);
}

function hostText({ parametersPerSecond, trafficPerSecond, ofTraffic }: HostAdamWFigure): string {
  const [update, traffic] = [parametersPerSecond, trafficPerSecond].map((rate) => digits(rate / 1e6));
  return `AdamW on the host, one thread: ${update} million parameters/s, ${percent(ofTraffic)} of the same traffic without arithmetic, ${traffic} million/s\n`;
}

// ---- Text ----------------------------------------------------------------------------------------------

/** Three significant digits; nothing for what was not measured. */
function digits(value: number | undefined): string {
  if (value === undefined) return '';
  return value >= 100 ? Math.round(value).toLocaleString('en') : String(Number(value.toPrecision(3)));
}

const percent = (fraction: number): string => `${(fraction * 100).toFixed(1)} %`;

/** Lines of columns two spaces apart; those in `right` (default: all but the first) are flush right. */
function table(header: readonly string[], rows: readonly string[][], right = header.map((_, i) => i).slice(1)): string {
  const all = [header, ...rows];
  const widths = header.map((_, i) => Math.max(...all.map((row) => at(row, i).length)));
  const line = (row: readonly string[]) =>
    row.map((cell, i) => (right.includes(i) ? cell.padStart(at(widths, i)) : cell.padEnd(at(widths, i))));
  return all.map((row) => `  ${line(row).join('  ').trimEnd()}\n`).join('');
}
