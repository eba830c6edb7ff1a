// A profile of a step's time: every dispatch in a pass of its own between two timestamps, and beside it the whole step
// as it runs in training, without timestamps. The first says which kernels to improve, the second how far the sum of
// the parts is from the truth: passes and timestamps cost time of their own.
//
// Not for use on a run's own state: the programs are really run, so parameters and moments change.

import { GPUBufferUsage } from '../../gpu/constants.ts';
import { bytesOf } from '../../graph/program.ts';
import { at } from '../../util/at.ts';
import { median } from '../../util/median.ts';
import { bytesMovedBy, isDispatch, isTransfer, type Operation } from '../compile/operations.ts';
import type { Pass } from '../compile/pass.ts';
import type { Session } from '../run/session.ts';

/** All dispatches of one kernel in one step, or all moves of activations one way. */
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
  /** Milliseconds of the step as it is trained. */
  readonly wall: number;
  /** Milliseconds that the host takes to encode and submit a step, on its thread, while the device has nothing to do. */
  readonly host: number;
}

/** WebGPU's largest query set. */
const MAX_QUERIES = 4096;

/**
 * RunLengths a pass `repeats` times over. A kernel's time is the median of its sums: browsers, and Dawn by default, round
 * timestamps to 65 or 100 microseconds, so one dispatch alone may well read as 0.
 */
export function profile(session: Session, pass: Pass, repeats = 7): Promise<Profile> {
  return session.exclusive(async () => {
    const wall = await wallTime(session, pass, repeats);
    const host = await hostTime(session, pass, repeats);
    const rounds: Float64Array[] = [];
    if (session.device.hasTimestamps) {
      for (let round = 0; round < repeats; round++) rounds.push(await timeEach(session, pass));
    }
    return {
      timestamps: session.device.hasTimestamps,
      kernels: byKernel(pass.operations, rounds),
      milliseconds: medianOfSums(rounds, [...pass.operations.keys()]),
      wall,
      host,
    };
  });
}

/** A round of steps lasts at least this long: the wait at its end costs up to 10 ms in some runtimes. */
const ROUND_MS = 100;

/** Milliseconds of one pass: the median of rounds that submit some passes and wait once. */
async function wallTime(session: Session, pass: Pass, repeats: number): Promise<number> {
  const run = async (passes: number): Promise<number> => {
    const start = performance.now();
    for (let i = 0; i < passes; i++) await session.run(pass, []);
    await session.device.idle();
    return (performance.now() - start) / passes;
  };
  await run(1); // compiles on the driver's side
  const passes = Math.ceil(ROUND_MS / Math.max(await run(1), 0.1));
  const rounds: number[] = [];
  for (let round = 0; round < repeats; round++) rounds.push(await run(passes));
  return median(rounds);
}

/** Milliseconds of the host for one pass, the median. A software adapter computes on this CPU, too, but not before it is submitted. */
async function hostTime(session: Session, pass: Pass, repeats: number): Promise<number> {
  const times: number[] = [];
  for (let i = 0; i < repeats; i++) {
    await session.device.idle();
    const start = performance.now();
    await session.run(pass, []);
    times.push(performance.now() - start);
  }
  return median(times);
}

/** Milliseconds of each dispatch, in order. */
async function timeEach({ device, executor, scheduleOf }: Session, pass: Pass): Promise<Float64Array> {
  const { gpu, allocator } = device;
  const count = pass.operations.length;
  const times = new Float64Array(count);
  await executor.begin(pass, scheduleOf(pass));
  for (let first = 0; first < count; first += MAX_QUERIES / 2) {
    const end = Math.min(count, first + MAX_QUERIES / 2);
    const queries = (end - first) * 2;
    const bytes = queries * BigUint64Array.BYTES_PER_ELEMENT;
    const querySet = gpu.createQuerySet({ type: 'timestamp', count: queries });
    const ticks = allocator.create('timestamps', bytes, GPUBufferUsage.QUERY_RESOLVE | GPUBufferUsage.COPY_SRC);
    try {
      executor.timestamps = (m) => {
        return { querySet, beginningOfPassWriteIndex: 2 * (m - first), endOfPassWriteIndex: 2 * (m - first) + 1 };
      };
      await executor.run(first, end);
      executor.timestamps = undefined;
      executor.command((encoder) => encoder.resolveQuerySet(querySet, 0, queries, ticks, 0));
      executor.flush();
      const nanoseconds = new BigUint64Array(await device.read(ticks, 0, bytes));
      for (let i = 0; i < end - first; i++) {
        const spent = at(nanoseconds, 2 * i + 1) - at(nanoseconds, 2 * i);
        times[first + i] = Math.max(0, Number(BigInt.asIntN(64, spent)) / 1e6);
      }
    } finally {
      executor.timestamps = undefined;
      allocator.destroy(ticks);
      querySet.destroy();
    }
  }
  return times;
}

function byKernel(operations: readonly Operation[], rounds: readonly Float64Array[]): KernelTime[] {
  const groups = new Map<string, number[]>();
  operations.forEach((operation, i) => {
    const name = isDispatch(operation) ? operation.kernel.name : operation.op;
    groups.set(name, [...(groups.get(name) ?? []), i]);
  });
  return [...groups]
    .map(([kernel, members]) => {
      const milliseconds = medianOfSums(rounds, members);
      let flops = 0;
      let bytes = 0;
      for (const i of members) {
        const operation = at(operations, i);
        if (isDispatch(operation)) {
          flops += operation.kernel.flops(operation.problem);
          bytes += bytesMovedBy(operation);
        } else if (isTransfer(operation)) bytes += bytesOf(operation.tensor);
        else if (operation.op === 'collective') bytes += operation.parts.reduce((sum, part) => sum + part.bytes, 0);
      }
      const gflops = milliseconds ? flops / milliseconds / 1e6 : undefined;
      return { kernel, dispatches: members.length, milliseconds, flops, bytes, gflops };
    })
    .sort((a, b) => (b.milliseconds ?? b.flops) - (a.milliseconds ?? a.flops));
}

function medianOfSums(rounds: readonly Float64Array[], members: readonly number[]): number | undefined {
  if (rounds.length === 0) return undefined;
  return median(rounds.map((times) => members.reduce((sum, i) => sum + at(times, i), 0)));
}
