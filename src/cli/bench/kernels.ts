// Kernels by shape: what each variant that fits the adapter reaches, of matrix products and of attention.

import { Trial } from '../../engine/compile/trial.ts';
import type { Peak } from '../../engine/observe/peak.ts';
import type { Device } from '../../gpu/device.ts';
import { attention } from '../../kernels/attention.ts';
import { attentionBackwardKV, attentionBackwardQ } from '../../kernels/attention-backward.ts';
import { type Kernel, mayServe, type Variant } from '../../kernels/kernel.ts';
import { matmul } from '../../kernels/matmul.ts';
import type { Layout } from '../../kernels/matmul-problem.ts';
import { digits, percentage, table } from './text.ts';

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
export interface KernelFigure {
  readonly kernel: string;
  readonly shape: string;
  readonly chosen: string;
  readonly gflops: number;
  readonly variants: readonly { name: string; gflops: number }[];
}

export async function measureMatmuls(device: Device): Promise<KernelFigure[]> {
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

export async function measureAttentions(device: Device): Promise<KernelFigure[]> {
  const figures: KernelFigure[] = [];
  for (const { name, batch, seq, heads, headSize } of device.adapter.software
    ? ATTENTIONS
    : [...ATTENTIONS, ...GPU_ATTENTIONS]) {
    const shape = `${batch} x ${seq} x ${heads} x ${headSize} ${name}`;
    const problem = { batch, seq, heads, kvHeads: heads, headSize };
    const width = heads * headSize;
    const packed = { qStride: 3 * width, kStride: 3 * width, vStride: 3 * width, kOffset: width, vOffset: 2 * width };
    figures.push(await measureKernel(device, attention, { ...problem, kvRows: seq, qOffset: 0, ...packed }, shape));
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
  const fitting = kernel.variants.filter((variant) => mayServe(variant, problem, device.traits));
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

export function figureTable(title: string, figures: readonly KernelFigure[], peak: Peak): string {
  const severalKernels = new Set(figures.map(({ kernel }) => kernel)).size > 1;
  const rows = figures.map(({ kernel, shape, chosen, gflops, variants }) => [
    severalKernels ? `${shape}: ${kernel}` : shape,
    digits(gflops),
    percentage(gflops / peak.gflops),
    chosen,
    variants
      .slice(1)
      .map(({ name, gflops: other }) => `${name} ${digits(other)}`)
      .join(', '),
  ]);
  return table([title, 'GFLOP/s', 'of peak', 'chosen', 'others'], rows, [1, 2]);
}
