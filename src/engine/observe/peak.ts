// An adapter's own measured peaks, in f32: what the figures of kernels are set against. Measured with the
// code that times kernel variants (Trial), so both sides of every fraction come from one clock.

import copyShader from '../../../shaders/peak/copy.wgsl?raw';
import flopsShader from '../../../shaders/peak/flops.wgsl?raw';
import type { Device } from '../../gpu/device.ts';
import {
  type Arrays,
  bytesMoved,
  ELEMENT_TYPES,
  type Kernel,
  linearGrid,
  perInvocation,
  read,
  type Variant,
  WORKGROUP,
  write,
} from '../../kernels/kernel.ts';
import { assert } from '../../util/errors.ts';
import { Trial } from '../compile/trial.ts';

export interface Peak {
  /** Multiply-adds on registers, each counted as two operations. */
  readonly gflops: number;
  /** A copy from buffer to buffer; bytes read and bytes written both count. */
  readonly gigabytesPerSecond: number;
}

interface ChainProblem {
  invocations: number;
  rounds: number;
}

/** Multiply-adds on one accumulator in one round, and accumulators: as the shader is written. */
const UNROLL = 8;
const ACCUMULATORS = 8;
/** Values stay near term / (1 - factor): never denormal, never infinite. */
const FACTOR = 0.75;
const TERM = 0.25;

/** y (invocations, 4): both chains of each invocation, added. */
export const multiplyAdds: Kernel<ChainProblem> = {
  name: 'multiplyAdds',
  operands: ({ invocations }) => ({ y: write(invocations * 4) }),
  affectsSpeed: { invocations: true, rounds: true },
  variants: [
    {
      name: 'chains',
      dispatch: ({ invocations, rounds }) => ({
        shader: flopsShader,
        constants: { WORKGROUP },
        params: { rounds, factor: FACTOR, term: TERM },
        workgroups: linearGrid(invocations / WORKGROUP),
      }),
    },
  ],
  flops: ({ invocations, rounds }) => invocations * rounds * UNROLL * ACCUMULATORS * 2,
  reference({ invocations, rounds }, { y }: Arrays<'y'>) {
    for (let i = 0; i < invocations * 4; i++) {
      let u = Math.floor(i / 4) + 0.1 * (i % 4);
      let v = u + 0.5;
      for (let k = 0; k < rounds * UNROLL; k++) [u, v] = [u * FACTOR + TERM, v * FACTOR + TERM];
      y[i] = u + v;
    }
  },
};

/** x (size) -> y (size); size a multiple of 4. */
export const copy: Kernel<{ size: number }> = {
  name: 'copy',
  operands: ({ size }) => ({ x: read(size), y: write(size) }),
  affectsSpeed: { size: true },
  variants: [
    {
      name: 'items',
      dispatch: ({ size }) => ({
        shader: copyShader,
        constants: { WORKGROUP },
        params: { count: size / 4 },
        workgroups: perInvocation(size / 4),
      }),
    },
  ],
  flops: () => 0,
  reference(_, { x, y }: Arrays<'x' | 'y'>) {
    y.set(x);
  },
};

/** Enough to fill the widest GPU of today twice over. */
const INVOCATIONS = 1 << 19;
/** A CPU is full with far fewer, each of which costs it as much to begin as hundreds of multiply-adds. */
const SOFTWARE_INVOCATIONS = 1 << 14;
/** One dispatch must take this long, so that its launch does not count. */
const LONG_ENOUGH_MS = 20;
/** A dispatch with four times as many rounds must not gain more than this, so that what is not arithmetic does not count. */
const LAST_GAIN = 1.03;
/** More than this of one dispatch is not asked of an adapter. */
const TOO_LONG_MS = 200;
const MAX_ROUNDS = 1 << 16;
/** Both buffers together are larger than today's last-level caches, each is within WebGPU's default limits. */
export const COPY_PROBLEM = { size: (64 * 2 ** 20) / ELEMENT_TYPES.f32 };

export async function measurePeak(device: Device): Promise<Peak> {
  const invocations = device.adapter.software ? SOFTWARE_INVOCATIONS : INVOCATIONS;
  let gflops = 0;
  for (let rounds = 1; rounds <= MAX_ROUNDS; rounds *= 4) {
    const problem: ChainProblem = { invocations, rounds };
    const milliseconds = await timeOf(device, multiplyAdds, problem);
    const before = gflops;
    gflops = Math.max(before, multiplyAdds.flops(problem) / milliseconds / 1e6);
    if (milliseconds >= TOO_LONG_MS || (milliseconds >= LONG_ENOUGH_MS && gflops < LAST_GAIN * before)) break;
  }
  return {
    gflops,
    gigabytesPerSecond: bytesMoved(copy, COPY_PROBLEM) / (await timeOf(device, copy, COPY_PROBLEM)) / 1e6,
  };
}

/** A peak is the best that was seen: whatever else the machine does only takes from it. */
const TRIES = 3;

/** Milliseconds of its first variant: the best of some trials. */
export async function timeOf<P extends object>(device: Device, kernel: Kernel<P>, problem: P): Promise<number> {
  const [variant] = kernel.variants as unknown as readonly Variant<object>[];
  assert(variant, `${kernel.name} has no variant`);
  const trial = await Trial.open(device, kernel, problem);
  try {
    let best = Infinity;
    for (let i = 0; i < TRIES; i++) best = Math.min(best, await trial.time(variant));
    return best;
  } finally {
    trial.close();
  }
}
