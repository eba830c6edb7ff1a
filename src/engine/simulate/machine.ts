// A machine to predict for, as figures: what its GPU computes and moves a second, its link, its memories, its disk.
// Whether they are a vendor's or were measured is said where one is made (hardware.ts); nothing is timed here.

import type { Instruction } from '../../graph/program.ts';
import { elementBytesOf } from '../../memory/layout/kinds.ts';
import { HoldfastError } from '../../util/errors.ts';
import { bytesMovedBy, type HostOperation, type Operation } from '../compile/operations.ts';
import { HOST_BYTES, TYPICAL_DISK } from '../compile/rates.ts';
import { type AdapterLimits, DEFAULT_LIMITS } from '../compile/workload.ts';

export interface Machine {
  readonly title: string;
  /** Multiplications and additions a second in f32: the most there could be, and what kernels reach of it (0 to 1). */
  readonly peakFlops: number;
  readonly reached: number;
  /**
   * By the names of kernels, where they were measured: the part (0 to 1) of what a kernel could do if arithmetic and memory
   * were all, whichever takes longer. Others reach `reached` of the arithmetic, or all of the memory's speed.
   */
  readonly reachedBy?: Readonly<Record<string, number>>;
  /** Bytes a second of the GPU's memory. */
  readonly memoryBytesPerSecond: number;
  /** Seconds that a dispatch takes beside its work. */
  readonly launchSeconds: number;
  /** Bytes; where GPU and host share one memory, both are all of it. */
  readonly gpuBytes: number;
  readonly hostBytes: number;
  readonly sharedMemory: boolean;
  /** Without it no optimizer runs on the host. */
  readonly hostMemory?: MachineHostMemory;
  readonly link: MachineLink;
  readonly disk?: MachineDisk;
  /** Between its GPUs, and to others of its kind; without one there is one rank. */
  readonly network?: MachineNetwork;
}

/** The host's memory, as its processors have it. */
export interface MachineHostMemory {
  /** Read and written, all of them together. */
  readonly bytesPerSecond: number;
  /** The part (0 to 1) of that which AdamW there reaches. */
  readonly reached: number;
}

/** Between host and GPU. */
export interface MachineLink {
  readonly upBytesPerSecond: number;
  readonly downBytesPerSecond: number;
  /** `serial`: copies and arithmetic take turns in one queue. `duplex`: each way beside the other and beside arithmetic. */
  readonly copies: 'serial' | 'duplex';
  /** What it takes until the CPU knows that the GPU is done with something. @default none */
  readonly answerSeconds?: number;
  /** What a copy takes whatever it moves. @default nothing */
  readonly copySeconds?: number;
}

export interface MachineDisk {
  readonly readBytesPerSecond: number;
  readonly writeBytesPerSecond: number;
  readonly bytes: number;
}

/** Between ranks, each with a GPU of its own; those of one machine share its host memory and its disk. */
export interface MachineNetwork {
  readonly ranksPerMachine: number;
  readonly inside: NetworkLink;
  /** Absent: there is one machine. */
  readonly between?: NetworkLink;
  readonly exchange: ExchangeWay;
}

export interface NetworkLink {
  /** Of a rank, each way, while all of them send and receive. */
  readonly bytesPerSecond: number;
  readonly latencySeconds: number;
}

/**
 * `host`: as run/executor.ts does it: values come down to the host, go to their owner, and up again, and all that is
 * waited for, while chunks are gathered ahead of their turns. `direct`: from GPU to GPU in a ring, beside arithmetic, as libraries of GPU vendors do it.
 */
export const EXCHANGE_WAYS = ['host', 'direct'] as const;
export type ExchangeWay = (typeof EXCHANGE_WAYS)[number];

/** A machine as one of `ranks` has it: its part of what those on one machine share. */
export function partOfMachine(machine: Machine, ranks: number): Machine {
  const { network, disk, hostMemory } = machine;
  const sharers = Math.min(ranks, network?.ranksPerMachine ?? 1);
  return {
    ...machine,
    hostBytes: machine.hostBytes / sharers,
    ...(hostMemory && { hostMemory: { ...hostMemory, bytesPerSecond: hostMemory.bytesPerSecond / sharers } }),
    ...(disk && {
      disk: {
        readBytesPerSecond: disk.readBytesPerSecond / sharers,
        writeBytesPerSecond: disk.writeBytesPerSecond / sharers,
        bytes: disk.bytes / sharers,
      },
    }),
  };
}

/**
 * What kernels are taken to reach of a GPU's arithmetic, seconds a dispatch, and what AdamW on the host reaches of its memory:
 * assumptions, until it was measured.
 */
export const ASSUMED = { reached: 0.5, launchSeconds: 5e-6, hostReached: 0.6 } as const;

/** Of a GPU's memory: what is left to others, and the part that a GPU has of a memory that it shares with the host. */
const MARGIN = 0.1;
const SHARE = 0.5;

/** What training may use of the GPU's memory where no budget is given, and of host memory beside it. */
export function usableMemory({ gpuBytes, hostBytes, sharedMemory }: Machine): { gpu: number; host: number } {
  const part = 1 - MARGIN;
  if (!sharedMemory) return { gpu: Math.floor(gpuBytes * part), host: Math.floor(hostBytes * part) };
  return { gpu: Math.floor(gpuBytes * part * SHARE), host: Math.floor(hostBytes * part * (1 - SHARE)) };
}

/** The most that a GPU's adapter allows of a binding, where its memory is large enough: what a 32-bit size holds. */
const LARGEST_BINDING = 2 ** 31 - 4;

/** What a fit goes by on this machine: its own rates, and bindings as GPUs of its size allow them. */
export function machineLimits(machine: Machine): AdapterLimits {
  const { peakFlops, reached, memoryBytesPerSecond: memoryBytes, link, gpuBytes, launchSeconds } = machine;
  const { hostMemory, disk } = machine;
  const { upBytesPerSecond: upBytes, downBytesPerSecond: downBytes, copies, answerSeconds, copySeconds } = link;
  const binding = Math.max(DEFAULT_LIMITS.binding, Math.min(LARGEST_BINDING, Math.floor(gpuBytes / 16) * 4));
  return {
    binding,
    buffer: binding,
    rates: {
      ...{ flops: peakFlops * reached, upBytes, downBytes, launchSeconds, memoryBytes, copies },
      ...(hostMemory && { hostBytes: hostMemory.bytesPerSecond * hostMemory.reached }),
      ...(answerSeconds !== undefined && { answerSeconds }),
      ...(copySeconds !== undefined && { copySeconds }),
      ...(disk && { disk }),
    },
  };
}

/**
 * An adapter whose memory and its speed are not known, by the rates that fits go by: its times compare plans, no more. `diskBytes`: of
 * the disk below it. @default none
 */
export function machineOf({ rates }: Pick<AdapterLimits, 'rates'>, diskBytes?: number): Machine {
  const { flops, upBytes, downBytes, launchSeconds, memoryBytes = Number.POSITIVE_INFINITY, copies = 'serial' } = rates;
  const { hostBytes = HOST_BYTES, answerSeconds = 0, copySeconds = 0, disk = TYPICAL_DISK } = rates;
  return {
    title: 'this adapter',
    peakFlops: flops,
    reached: 1,
    memoryBytesPerSecond: memoryBytes,
    launchSeconds,
    gpuBytes: Number.POSITIVE_INFINITY,
    hostBytes: Number.POSITIVE_INFINITY,
    hostMemory: { bytesPerSecond: hostBytes, reached: 1 },
    sharedMemory: false,
    link: { upBytesPerSecond: upBytes, downBytesPerSecond: downBytes, copies, answerSeconds, copySeconds },
    ...(diskBytes !== undefined && { disk: { ...disk, bytes: diskBytes } }),
  };
}

/**
 * Seconds of an operation on the GPU, or of an instruction on whole tensors: bound by arithmetic or by memory. Those of a
 * transfer are the link's, those of an exchange the network's. `owned`: of what is done to each chunk, the part that is.
 */
export function secondsOn(
  { peakFlops, reached, reachedBy, memoryBytesPerSecond, launchSeconds }: Machine,
  operation: Operation | Instruction,
  owned = 1,
): number {
  if (operation.op !== 'dispatch') return 0;
  const part = reachedBy?.[operation.kernel.name];
  const busy =
    part === undefined
      ? boundSeconds({ peakFlops: peakFlops * reached, memoryBytesPerSecond }, operation)
      : boundSeconds({ peakFlops, memoryBytesPerSecond }, operation) / part;
  const seconds = busy + launchSeconds;
  return 'each' in operation && operation.each ? owned * seconds : seconds;
}

/** Seconds of AdamW on the host over the chunks of an index, of which this is the part that is its own: bound by its memory. */
export function hostSecondsOn({ title, hostMemory }: Machine, { uses }: HostOperation, owned = 1): number {
  if (!hostMemory) {
    throw new HoldfastError(
      `${title}: how fast its host's memory is, by which AdamW there is reckoned, is not known; add host.bytesPerSecond to its file`,
    );
  }
  const bytes = uses.reduce(
    (sum, { list, piece, access }) => sum + (access === 'update' ? 2 : 1) * piece.size * elementBytesOf(list.kind),
    0,
  );
  return (owned * bytes) / (hostMemory.bytesPerSecond * hostMemory.reached);
}

/** Seconds of each operation, on the GPU or on the host; `arithmetic`: times that it takes on the GPU. */
export const secondsOfEach = (
  machine: Machine,
  operations: readonly Operation[],
  { owned = 1, arithmetic = 1 }: { readonly owned?: number; readonly arithmetic?: number } = {},
): Float64Array =>
  Float64Array.from(operations, (operation) =>
    operation.op === 'host'
      ? hostSecondsOn(machine, operation, owned)
      : arithmetic * secondsOn(machine, operation, owned),
  );

/** The least seconds of a dispatch: of its arithmetic, or of its operands, each once, whichever are more. */
export function boundSeconds(
  { peakFlops, memoryBytesPerSecond }: Pick<Machine, 'peakFlops' | 'memoryBytesPerSecond'>,
  dispatch: Dispatched,
): number {
  // Bytes of operands take longer to tell than operations.
  if (memoryBytesPerSecond === Number.POSITIVE_INFINITY) return dispatch.kernel.flops(dispatch.problem) / peakFlops;
  const found = workOfDispatch.get(dispatch) ?? {
    flops: dispatch.kernel.flops(dispatch.problem),
    bytes: bytesMovedBy(dispatch),
  };
  workOfDispatch.set(dispatch, found);
  return Math.max(found.flops / peakFlops, found.bytes / memoryBytesPerSecond);
}

type Dispatched = Extract<Operation | Instruction, { op: 'dispatch' }>;

/** A pass is reckoned with several times while its fit is chosen. */
const workOfDispatch = new WeakMap<Dispatched, { readonly flops: number; readonly bytes: number }>();

/** Seconds that the dispatches of a pass take whatever they compute. */
export const launchSecondsOf = ({ launchSeconds }: Machine, operations: readonly Operation[], owned = 1): number =>
  operations.reduce(
    (sum, operation) => sum + (operation.op === 'dispatch' ? (operation.each ? owned : 1) * launchSeconds : 0),
    0,
  );

/** Seconds of a pass's operations when nothing is waited for. */
export const computeSeconds = (machine: Machine, operations: readonly Operation[], owned = 1): number =>
  operations.reduce((sum, operation) => sum + secondsOn(machine, operation, owned), 0);
