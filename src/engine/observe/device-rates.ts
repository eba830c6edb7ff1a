// Rates of a device, measured before a run begins: by a matrix product, a copy of its memory, a dispatch that does next to
// nothing, and the link. Within a fraction of a second on a GPU, and one compilation for each.

import { checkDevice, type Device } from '../../gpu/device.ts';
import { bytesMoved, type Kernel, mayServe, type Variant } from '../../kernels/kernel.ts';
import { matmul } from '../../kernels/matmul.ts';
import type { MatmulProblem } from '../../kernels/matmul-problem.ts';
import type { Threads } from '../../runtime/host.ts';
import { assert } from '../../util/errors.ts';
import type { LinkRates, Rates } from '../compile/rates.ts';
import { Trial } from '../compile/trial.ts';
import type { AdapterLimits } from '../compile/workload.ts';
import { limitsOf, type MemoryOptions } from '../run/arrangement.ts';
import { measureHostMemory, measureLink } from './bandwidths.ts';
import { COPY_PROBLEM, copy } from './peak.ts';

/** Rows, columns and steps of products: the last fills a large GPU, and the first that takes so many seconds any smaller one. */
const SIDES = [512, 1024, 2048];
const LONG_ENOUGH = 0.004;
/** Bytes of the link, and elements that AdamW on the host updates: some milliseconds of each. */
const LINK_BYTES = 8 * 2 ** 20;
const HOST_ELEMENTS = 2 ** 21;

/** Bytes of GPU memory that measuring takes at once: both sides of the copy, and what a trial counts by. */
export const MEASURING_BYTES = bytesMoved(copy, COPY_PROBLEM) + 2 ** 16;

/** Bytes that measuring the link alone takes: what is copied, and a buffer for each way. */
export const LINK_MEASURING_BYTES = 3 * LINK_BYTES;

/**
 * The rates of a device, for `memory.rates`. Takes a fraction of a second on a GPU, and 128 MiB of its memory. Arithmetic is that of
 * matrix products, which is most of a step's, by a variant that every adapter compiles quickly.
 */
export async function measureRates(device: Device): Promise<Rates> {
  checkDevice(device);
  const memoryBytes = bytesMoved(copy, COPY_PROBLEM) / (await secondsOf(device, copy, COPY_PROBLEM));
  let flops = 0;
  for (const side of SIDES) {
    const product: MatmulProblem = { layout: 'NN', M: side, N: side, K: side };
    const seconds = await secondsOf(device, matmul, product);
    flops = Math.max(flops, matmul.flops(product) / seconds);
    if (seconds >= LONG_ENOUGH) break;
  }
  const launchSeconds = await secondsOf(device, copy, { size: 4 });
  return { flops, memoryBytes, launchSeconds, ...(await measureLinkRates(device)) };
}

/**
 * What a fit goes by on a device, and a split of the optimizer: the bandwidths that `rates` does not have are measured, that of the link
 * within the budget of the GPU's memory, or it is as is typical.
 */
export async function measuredLimits(
  device: Device,
  { rates, gpu }: Pick<MemoryOptions, 'rates' | 'gpu'>,
  threads: Threads | undefined,
): Promise<AdapterLimits> {
  const limits = limitsOf(device);
  const hasRoom = typeof gpu !== 'number' || gpu >= LINK_MEASURING_BYTES;
  const linked = rates ?? { ...limits.rates, ...(hasRoom && (await measureLinkRates(device))) };
  // What the run counts does not have what that took.
  device.allocator.restartPeak();
  return { ...limits, rates: linked.hostBytes === undefined ? await withHostRate(linked, threads) : linked };
}

export async function withHostRate(rates: Rates, threads: Threads | undefined): Promise<Rates> {
  const { bytesPerSecond: hostBytes } = await measureHostMemory(threads, HOST_ELEMENTS);
  return { ...rates, hostBytes };
}

/** Those of its link: some milliseconds. */
export async function measureLinkRates(device: Device): Promise<LinkRates> {
  const link = await measureLink(device, LINK_BYTES);
  const { upBytesPerSecond: upBytes, downBytesPerSecond: downBytes, copies, answerSeconds = 0 } = link;
  return { upBytes, downBytes, copies, answerSeconds };
}

async function secondsOf<P extends object>(device: Device, kernel: Kernel<P>, problem: P): Promise<number> {
  const variant = kernel.variants.find(
    (variant) => !variant.compilesSlowly && mayServe(variant, problem, device.traits),
  );
  assert(variant, `${kernel.name} has no variant that compiles quickly`);
  const trial = await Trial.open(device, kernel, problem);
  try {
    return (await trial.time(variant as unknown as Variant<object>)) / 1000;
  } finally {
    trial.close();
  }
}
