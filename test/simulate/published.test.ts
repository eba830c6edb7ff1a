// The simulator of several ranks beside figures that others have published: the table of docs/scaling.md, row by row, with what
// it misses. Those that take long run with HOLDFAST_TESTS=all.

import { readFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import { type PlannedRun, scenarioOf as scenarioOfFlags } from '../../src/cli/plan/flags.ts';
import { knownMachine } from '../../src/engine/simulate/hardware.ts';
import { type Machine, usableMemory } from '../../src/engine/simulate/machine.ts';
import type { ActivationMode } from '../../src/graph/activations.ts';
import { makeModel } from '../../src/nn/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { Predictor } from '../../src/train/plan/prediction.ts';
import type { Scenario } from '../../src/train/plan/prediction-part.ts';
import { scale } from '../../src/train/plan/scaling.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { EVERY_CASE } from '../host.ts';

const text = readFileSync(path.join(import.meta.dirname, '../../docs/scaling.md'), 'utf8');

interface Shape {
  readonly layers: number;
  readonly width: number;
  readonly heads: number;
  readonly context: number;
  readonly vocabSize: number;
}

const GPT3: Shape = { layers: 96, width: 12288, heads: 96, context: 2048, vocabSize: 51200 };
const TRILLION: Shape = { layers: 128, width: 25600, heads: 256, context: 1024, vocabSize: 50257 };

/** Ranks that share each layer of a copy of the model, its stages, and the micro-batches that each copy takes. */
interface Grid {
  readonly tensor: number;
  readonly pipeline: number;
  readonly accumulate: number;
}

const scenarioOf = (shape: Shape, batch: number, size: number, activations: ActivationMode, grid?: Grid): Scenario => {
  const config = (layers: number) => configFromFlags({ model: 'gpt2', ...shape, layers, tied: true });
  return {
    ...{ layers: shape.layers, batch, context: shape.context, accumulate: 1, activations, recovery: 'checkpoint' },
    parameters: sizeOf(config(shape.layers)).parameters,
    modelOf: (layers) => makeModel(config(layers)),
    ...{ accumulateOrder: 'batch', ranks: { size, stage: 3 } },
    // Copies of the model add up gradients and shard nothing.
    ...(grid && { ...grid, ranks: { size, stage: 0, ...grid }, reckonsMicroBatches: true }),
  };
};

/** What is published computes with elements of 2 bytes in tensor cores, and overlaps what it exchanges from GPU to GPU. */
function inHalves(name: string, peakFlops: number, reached: number, ports = 1): Machine {
  const machine = knownMachine(name);
  if (!machine?.network?.between || !machine.disk) throw new Error(`${name} has a network and a disk`);
  const { link, disk, network } = machine;
  const { inside, between = inside } = network;
  return {
    ...{ ...machine, peakFlops, reached },
    memoryBytesPerSecond: 2 * machine.memoryBytesPerSecond,
    gpuBytes: 2 * machine.gpuBytes,
    hostBytes: 2 * machine.hostBytes,
    link: { ...link, upBytesPerSecond: 2 * link.upBytesPerSecond, downBytesPerSecond: 2 * link.downBytesPerSecond },
    disk: {
      readBytesPerSecond: 2 * disk.readBytesPerSecond,
      writeBytesPerSecond: 2 * disk.writeBytesPerSecond,
      bytes: 2 * disk.bytes,
    },
    network: {
      ...{ ...network, exchange: 'direct' },
      inside: { ...inside, bytesPerSecond: 2 * inside.bytesPerSecond },
      between: { ...between, bytesPerSecond: 2 * ports * between.bytesPerSecond },
    },
  };
}

/** Narayanan et al. 2021: operations of a step in which each block's activations are made again. */
const megatronFlops = ({ layers: l, width: h, context: s, vocabSize: v }: Shape, batch: number): number =>
  96 * batch * s * l * h * h * (1 + s / (6 * h) + v / (16 * l * h));

describe('the formulas of Megatron', () => {
  it.each(EVERY_CASE ? [GPT3, TRILLION] : [GPT3])(
    'give the parameters and the operations of $layers layers of width $width',
    (shape) => {
      const { layers: l, width: h, context: s, vocabSize: v } = shape;
      const { parameters } = scenarioOf(shape, 1, 8, 'keep');
      expect(parameters / (12 * l * h * h * (1 + 13 / (12 * h) + (v + s) / (12 * l * h)))).toBeCloseTo(1, 3);
      const machine = inHalves('dgx-a100', 312e12, 0.5);
      const { flops } = new Predictor(scenarioOf(shape, 1, 8, 'keep'), machine);
      const published = 72 * s * l * h * h * (1 + s / (6 * h) + v / (12 * l * h));
      // Theirs count attention to what comes later, too.
      expect(flops / published).toBeGreaterThan(0.97);
      expect(flops / published).toBeLessThan(1.01);
    },
  );
});

it('takes no less for a model of many blocks, reckoned from few, than its operations do', () => {
  const shape = { layers: 24, width: 256, heads: 4, context: 256, vocabSize: 32000 };
  const machine = inHalves('dgx-a100', 312e12, 0.5);
  const grid = { tensor: 1, pipeline: 1, accumulate: 1 };
  const { resident, flops } = new Predictor(scenarioOf(shape, 16, 32, 'recompute', grid), machine);
  expect(resident.seconds).toBeGreaterThan(flops / (machine.reached * machine.peakFlops));
});

interface Row {
  readonly what: string;
  readonly machine: Machine;
  readonly shape: Shape;
  readonly batch: number;
  readonly ranks: number;
  readonly activations: ActivationMode;
  readonly grid?: Grid;
  /** TFLOP a second and GPU. */
  readonly published: number;
  readonly predicted: number;
}

const all = inHalves('dgx-a100', 312e12, 0.5);
const onePort = inHalves('dgx-a100', 312e12, 0.5, 1 / 8);
const v100 = inHalves('dgx-2', 125e12, 70 / 125);
const megatron = (ranks: number, batch: number, published: number, eight: number, one: number): Row[] => {
  const row = { shape: GPT3, batch, ranks, activations: 'recompute', published } as const;
  return [
    { ...row, what: `175B, ZeRO 3, ${ranks} A100, ${batch} a GPU, eight ports`, machine: all, predicted: eight },
    { ...row, what: `175B, ZeRO 3, ${ranks} A100, ${batch} a GPU, one port`, machine: onePort, predicted: one },
  ];
};

/** Parameters, layers, width, heads, ranks that share a layer, stages, GPUs, sequences of a step. */
type GridRow = readonly [string, number, number, number, number, number, number, number];
/** With one sequence a micro-batch. */
const inGrid = (row: GridRow, published: number, predicted: number): Row => {
  const [size, layers, width, heads, tensor, pipeline, ranks, sequences] = row;
  const grid = { tensor, pipeline, accumulate: (sequences * tensor * pipeline) / ranks };
  const shape = { layers, width, heads, context: 2048, vocabSize: 51200 };
  const what = `${size}, ${tensor} tensor x ${pipeline} pipeline, ${ranks} A100, ${sequences} sequences`;
  return { what, shape, batch: 1, ranks, grid, machine: all, activations: 'recompute', published, predicted };
};
const ROWS: readonly Row[] = [
  ...megatron(384, 4, 144, 160, 114),
  ...megatron(768, 2, 88, 150, 83),
  ...megatron(1536, 1, 44, 133, 52),
  {
    what: '1T, ZeRO 3 with offload, 512 V100, 5 a GPU',
    ...{ shape: TRILLION, batch: 5, ranks: 512, machine: v100, activations: 'spill', published: 49, predicted: 64 },
  },
  inGrid(['1.7B', 24, 2304, 24, 1, 1, 32, 512], 137, 160),
  inGrid(['3.6B', 30, 3072, 32, 2, 1, 64, 512], 138, 151),
  inGrid(['7.5B', 36, 4096, 32, 4, 1, 128, 512], 142, 138),
  inGrid(['18.4B', 40, 6144, 48, 8, 1, 256, 1024], 135, 133),
  inGrid(['39.1B', 48, 8192, 64, 8, 2, 512, 1536], 138, 134),
  inGrid(['76.1B', 60, 10240, 80, 8, 4, 1024, 1792], 140, 127),
  inGrid(['145.6B', 80, 12288, 96, 8, 8, 1536, 2304], 148, 125),
  inGrid(['310.1B', 96, 16384, 128, 8, 16, 1920, 2160], 155, 120),
  inGrid(['529.6B', 105, 20480, 128, 8, 35, 2520, 2520], 163, 116),
  inGrid(['1008B', 128, 25600, 160, 8, 64, 3072, 3072], 163, 116),
];

describe('docs/scaling.md', () => {
  it.each(ROWS)('has a row for $what', ({ what, published, predicted }) => {
    const difference = Math.round(100 * (predicted / published - 1));
    expect(text).toContain(
      `| ${what} | ${published} | ${predicted} | ${difference > 0 ? '+' : '−'}${Math.abs(difference)} % |`,
    );
  });

  it.runIf(EVERY_CASE).each(ROWS)('says what is predicted for $what', (row) => {
    const { machine, shape, batch, ranks, activations, predicted, grid } = row;
    const predictor = new Predictor(scenarioOf(shape, batch, ranks, activations, grid), machine);
    const { gpu, host } = usableMemory(predictor.machine);
    const { seconds } = predictor.at(predictor.resident.bytes <= gpu ? undefined : gpu, host);
    const { tensor = 1, pipeline = 1, accumulate = 1 } = grid ?? {};
    const found = megatronFlops(shape, (batch * accumulate) / (tensor * pipeline)) / seconds / 1e12;
    // As the table rounds it.
    expect(Math.abs(found - predicted), `${found}`).toBeLessThan(0.51);
  });
});

/** Of one machine, in f32: what `plan` is told beside the defaults, and what it says. */
interface GridOnMachine {
  readonly what: string;
  readonly shape: Shape;
  readonly machine: string;
  readonly flags: Partial<PlannedRun['flags']>;
  /** Bytes in GB, seconds, and TFLOP a second and GPU. */
  readonly smallest: number;
  readonly seconds: number;
  readonly reached: number;
}

const on175B = { shape: GPT3, machine: 'dgx-a100' } as const;
const onTrillion = { shape: { ...TRILLION, heads: 160 }, machine: 'dgx-2' } as const;
const recomputed = { ranks: 8, activations: 'recompute' } as const;
const spilled = { ranks: 16, activations: 'spill' } as const;
const rows = { sequenceParallel: true } as const;
const GRIDS: readonly GridOnMachine[] = [
  {
    ...{ ...on175B, what: '175B, 8 data', flags: { ...recomputed, batch: 1, zero: 3 } },
    ...{ smallest: 15.2, seconds: 328, reached: 9.0 },
  },
  {
    ...{ ...on175B, what: '175B, 2 pipeline x 4 tensor' },
    flags: { ...recomputed, tensorParallel: 4, pipelineParallel: 2, batch: 2, accumulate: 4 },
    ...{ smallest: 39.1, seconds: 381, reached: 7.7 },
  },
  {
    ...{ ...on175B, what: '175B, 8 tensor, `--activations spill`' },
    flags: { ...recomputed, tensorParallel: 8, batch: 8, activations: 'spill' },
    ...{ smallest: 5.3, seconds: 368, reached: 8.0 },
  },
  {
    ...{ ...on175B, what: '175B, 2 data x 4 tensor, `--sequence-parallel`' },
    flags: { ...recomputed, ...rows, tensorParallel: 4, batch: 4, zero: 3 },
    ...{ smallest: 22.1, seconds: 304, reached: 9.7 },
  },
  {
    ...{ ...on175B, what: '175B, 8 tensor, `--sequence-parallel`' },
    flags: { ...recomputed, ...rows, tensorParallel: 8, batch: 8 },
    ...{ smallest: 22.3, seconds: 302, reached: 9.7 },
  },
  {
    ...{ ...onTrillion, what: '1T, 16 data', flags: { ...spilled, batch: 1, zero: 3 } },
    ...{ smallest: 13.5, seconds: 4920, reached: 1.7 },
  },
  {
    ...{ ...onTrillion, what: '1T, 16 tensor', flags: { ...spilled, tensorParallel: 16, batch: 16 } },
    ...{ smallest: 10.7, seconds: 2270, reached: 3.7 },
  },
  {
    ...{ ...onTrillion, what: '1T, 2 data x 8 tensor' },
    flags: { ...spilled, tensorParallel: 8, batch: 8, zero: 3 },
    ...{ smallest: 7.7, seconds: 2180, reached: 3.8 },
  },
  {
    ...{ ...onTrillion, what: '1T, 16 tensor, `--sequence-parallel`' },
    flags: { ...spilled, ...rows, tensorParallel: 16, batch: 16 },
    ...{ smallest: 7.4, seconds: 1890, reached: 4.4 },
  },
];

/** As `plan` has it of these flags. */
function planned(
  { layers, width, heads, context, vocabSize }: Shape,
  { batch = 1, accumulate = 1, ...grid }: Partial<PlannedRun['flags']>,
): PlannedRun {
  const config = configFromFlags({ model: 'gpt2', layers, width, heads, context, vocabSize });
  const settings = defaultSettings({ config, batch, accumulate, seq: context, sampleTokens: 0 });
  const flags = { recovery: 'checkpoint', activations: 'recompute', policy: 'planned', prefetch: true, ...grid };
  return { flags: flags as PlannedRun['flags'], settings };
}

function direct(name: string): Machine {
  const known = knownMachine(name);
  if (!known?.network) throw new Error(`${name} has a network`);
  return { ...known, network: { ...known.network, exchange: 'direct' } };
}

describe('one machine, in docs/scaling.md', () => {
  it.each(GRIDS)('has a row for $what', ({ what, smallest, seconds, reached }) => {
    const shown = seconds.toLocaleString('en');
    expect(text).toContain(`| ${what} | ${smallest} GB | ${shown} s | ${reached.toFixed(1)} |`);
  });

  it.runIf(EVERY_CASE).each(GRIDS)('says what is predicted for $what', (row) => {
    const { shape, flags, smallest, seconds, reached } = row;
    const all = planned(shape, flags);
    const predictor = new Predictor(scenarioOfFlags(all), direct(row.machine));
    const { gpu, host } = usableMemory(predictor.machine);
    const found = predictor.at(gpu, host).seconds;
    const { ranks = 1, tensorParallel = 1, pipelineParallel = 1 } = all.flags;
    const { batch, accumulate } = all.settings;
    const sequences = (batch * accumulate * ranks) / (tensorParallel * pipelineParallel);
    // As the table rounds them.
    expect(Math.abs(predictor.smallest / 1e9 - smallest), `${predictor.smallest}`).toBeLessThan(0.051);
    expect(Math.abs(found / seconds - 1), `${found}`).toBeLessThan(0.005);
    expect(Math.abs(megatronFlops(shape, sequences) / ranks / found / 1e12 - reached)).toBeLessThan(0.051);
  });
});

/** Ranks, data ranks, micro-batches, seconds and how they are shown, efficiency, and what stages wait in parts of a step. */
const STRONG = [
  [64, 1, 1536, 5660, '1.57 h', 1, 0.039],
  [128, 2, 768, 2840, '2,840 s', 1, 0.044],
  [256, 4, 384, 1430, '1,430 s', 0.99, 0.052],
  [512, 8, 192, 728, '728 s', 0.97, 0.068],
  [1024, 16, 96, 376, '376 s', 0.94, 0.097],
] as const;

describe('strong scaling, in docs/scaling.md', () => {
  it.each(STRONG)('has a row for %i ranks', (ranks, data, microBatches, _, shown, efficiency, waits) => {
    const counted = `| ${ranks.toLocaleString('en')} | ${data} | ${microBatches.toLocaleString('en')} |`;
    expect(text).toContain(`${counted} ${shown} | ${Math.round(100 * efficiency)} % | ${(100 * waits).toFixed(1)} % |`);
  });

  it.runIf(EVERY_CASE)('says what is predicted', () => {
    const shape = { ...GPT3, layers: 80 };
    const flags = planned(shape, { ranks: 1024, tensorParallel: 8, pipelineParallel: 8, accumulate: 96 });
    const found = scale(scenarioOfFlags(flags), direct('dgx-a100'), 'strong', ({ machine, resident }) => {
      const { gpu, host } = usableMemory(machine);
      return { gpu: resident.bytes <= gpu ? undefined : gpu, host };
    });
    expect(found.map(({ ranks, accumulate }) => [ranks, accumulate])).toEqual(STRONG.map(([n, , m]) => [n, m]));
    for (const [i, [, , , seconds, , efficiency, waits]] of STRONG.entries()) {
      const row = found[i];
      expect(Math.abs((row?.found?.seconds ?? 0) / seconds - 1)).toBeLessThan(0.005);
      expect(Math.abs((row?.efficiency ?? 0) - efficiency)).toBeLessThan(0.0051);
      expect(Math.abs((row?.found?.waits.bubble ?? 0) / (row?.found?.seconds ?? 1) - waits)).toBeLessThan(0.0006);
    }
  });
});
