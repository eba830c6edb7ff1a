// Where a step's time goes: every dispatch in a pass of its own between two timestamps, and beside it the
// whole step as it runs in training, without timestamps. The first says which kernels to improve, the second
// how far the sum of the parts is from the truth: passes and timestamps cost time of their own.
//
// Not for use on a run's own state: the programs are really run, so parameters and moments change.

import type { Device } from '../gpu/device.ts';
import { encode } from '../gpu/dispatch.ts';
import { bytesMoved } from '../kernels/kernel.ts';
import type { Executable, Step } from './executable.ts';

/** All dispatches of one kernel in one step. */
export interface KernelTime {
  readonly kernel: string;
  readonly dispatches: number;
  /** Undefined where the device has no timestamps. */
  readonly milliseconds: number | undefined;
  readonly flops: number;
  /** What must move at least: each operand once, updated ones twice. */
  readonly bytes: number;
  /** Undefined also where the time was too short for the clock. */
  readonly gflops: number | undefined;
}

export interface Profile {
  /** Whether the adapter offers timestamp queries; without them only `wall` is a time. */
  readonly timestamps: boolean;
  /** Most time first. */
  readonly kernels: readonly KernelTime[];
  /** Milliseconds of all dispatches, timed one by one. */
  readonly milliseconds: number | undefined;
  /** Milliseconds of the step as it is trained: one pass a program, one command buffer a step. */
  readonly wall: number;
}

/** WebGPU's largest query set. */
const MAX_QUERIES = 4096;

/**
 * Runs the programs in order, `repeats` times over. A kernel's time is the median of its sums: browsers, and
 * Dawn by default, round timestamps to 65 or 100 microseconds, so one dispatch alone may well read as 0.
 */
export async function profile(device: Device, programs: readonly Executable[], repeats = 7): Promise<Profile> {
  const steps = programs.flatMap((program) => program.steps);
  const wall = await wallTime(device, programs, repeats);
  const rounds: Float64Array[] = [];
  if (device.hasTimestamps) {
    for (let round = 0; round < repeats; round++) rounds.push(await timeEach(device, steps));
  }
  const all = steps.map((_, i) => i);
  return {
    timestamps: device.hasTimestamps,
    kernels: byKernel(steps, rounds),
    milliseconds: medianOfSums(rounds, all),
    wall,
  };
}

/** A round of steps lasts at least this long: the wait at its end costs up to 10 ms in some runtimes. */
const ROUND_MS = 100;

/** Milliseconds of one step: the median of rounds that submit some steps and wait once. */
async function wallTime(device: Device, programs: readonly Executable[], repeats: number): Promise<number> {
  const run = async (steps: number): Promise<number> => {
    const start = performance.now();
    for (let step = 0; step < steps; step++) {
      const encoder = device.gpu.createCommandEncoder();
      for (const program of programs) program.encode(encoder);
      device.submit(encoder);
    }
    await device.idle();
    return (performance.now() - start) / steps;
  };
  await run(1); // compiles on the driver's side
  const steps = Math.ceil(ROUND_MS / Math.max(await run(1), 0.1));
  const rounds: number[] = [];
  for (let round = 0; round < repeats; round++) rounds.push(await run(steps));
  return median(rounds);
}

/** Milliseconds of each dispatch, in order. */
async function timeEach(device: Device, steps: readonly Step[]): Promise<Float64Array> {
  const { gpu, allocator } = device;
  const times = new Float64Array(steps.length);
  for (let first = 0; first < steps.length; first += MAX_QUERIES / 2) {
    const part = steps.slice(first, first + MAX_QUERIES / 2);
    const bytes = part.length * 2 * BigUint64Array.BYTES_PER_ELEMENT;
    const querySet = gpu.createQuerySet({ type: 'timestamp', count: part.length * 2 });
    const ticks = allocator.create('timestamps', bytes, GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC);
    try {
      const encoder = gpu.createCommandEncoder();
      part.forEach(({ bound }, i) => {
        const timestampWrites = { querySet, beginningOfPassWriteIndex: 2 * i, endOfPassWriteIndex: 2 * i + 1 };
        const pass = encoder.beginComputePass({ timestampWrites });
        encode(pass, bound);
        pass.end();
      });
      encoder.resolveQuerySet(querySet, 0, part.length * 2, ticks, 0);
      device.submit(encoder);
      const nanoseconds = new BigUint64Array(await device.read(ticks, 0, bytes));
      part.forEach((_, i) => {
        const spent = (nanoseconds[2 * i + 1] as bigint) - (nanoseconds[2 * i] as bigint);
        times[first + i] = Math.max(0, Number(BigInt.asIntN(64, spent)) / 1e6);
      });
    } finally {
      allocator.destroy(ticks);
      querySet.destroy();
    }
  }
  return times;
}

function byKernel(steps: readonly Step[], rounds: readonly Float64Array[]): KernelTime[] {
  const groups = new Map<string, number[]>();
  steps.forEach(({ instruction }, i) => {
    const { name } = instruction.kernel;
    groups.set(name, [...(groups.get(name) ?? []), i]);
  });
  return [...groups]
    .map(([kernel, members]) => {
      const milliseconds = medianOfSums(rounds, members);
      let flops = 0;
      let bytes = 0;
      for (const i of members) {
        const { instruction } = steps[i] as Step;
        flops += instruction.kernel.flops(instruction.problem);
        bytes += bytesMoved(instruction.kernel, instruction.problem);
      }
      const gflops = milliseconds ? flops / milliseconds / 1e6 : undefined;
      return { kernel, dispatches: members.length, milliseconds, flops, bytes, gflops };
    })
    .sort((a, b) => (b.milliseconds ?? b.flops) - (a.milliseconds ?? a.flops));
}

function medianOfSums(rounds: readonly Float64Array[], members: readonly number[]): number | undefined {
  if (rounds.length === 0) return undefined;
  return median(rounds.map((times) => members.reduce((sum, i) => sum + (times[i] as number), 0)));
}

/** Of at least one value. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1
    ? (sorted[middle] as number)
    : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}
