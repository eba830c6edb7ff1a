// Workload of a device and the limits it runs within, as data: the parameters, programs and passes that share its
// memory, the ways to treat their activations, and what of the adapter a fit goes by. No fit is worked out here
// (fit.ts).

import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { Program } from '../../graph/program.ts';
import type { InBackward } from '../../graph/update-in-backward.ts';
import {
  type ChunkMap,
  momentDtypeOf,
  type StoredParameter,
  trainingDtypeOf,
  updatedOn,
} from '../../memory/layout/chunk-map.ts';
import { lastingKinds } from '../../memory/layout/kinds.ts';
import type { Pass, Passes } from './pass.ts';
import { type Rates, typicalRates } from './rates.ts';

/** What is to run: everything that shares one device's memory. */
export interface Workload<P extends Passes = Passes> {
  readonly parameters: readonly StoredParameter[];
  /** Whether those that train have gradients and moments. */
  readonly training: boolean;
  /** Where chunks are updated inside the backward pass, and no step can be finished on another device. @default behind it */
  readonly inBackward?: InBackward | undefined;
  /** Whether other ranks have the values of some chunks. @default false */
  readonly isShared?: boolean;
  /** What else its chunks go by: those of several ranks are the same on all. @default the adapter alone */
  readonly chunkLimits?: Pick<AdapterLimits, 'leastChunk' | 'mostChunk'> & {
    /** They are of a size, and not of one that suits the tensors. */
    readonly isFixed?: boolean;
    /** Bytes that chunks of such a size have at least, whatever lies in them here. */
    readonly holds?: number;
  };
  /** Their activations share the arenas. */
  readonly programs: readonly Program[];
  /**
   * The passes over chunks of a layout, made of these programs; of the micro-batches of a step, so many at most. From the
   * second one on they are alike: with two of them all is there that a fit measures, but for its work and its plan.
   */
  passes(map: ChunkMap, mostMicroBatches?: number): P;
  /** Small results that come back while the GPU works on: bytes of each, and how many may be under way at once. */
  readonly readback: ReadbackSize;
  /** Bytes on the GPU between its passes in which its ways differ: caches that are kept there. @default 0 */
  readonly lasting?: number;
  /** What becomes of its activations, where it could be something else. @default they are kept */
  readonly activations?: ActivationChoice<P>;
  /** How the micro-batches of its step go through the model; absent where there is one. */
  readonly order?: OrderChoice<P>;
}

/** How micro-batches go through the model: other memory, other traffic, the same results. */
export interface OrderChoice<P extends Passes = Passes> {
  readonly order: AccumulateOrder;
  /** What it may be; the first needs the least memory. */
  readonly menu: readonly AccumulateOrder[];
  /** The workload in this order instead, with all activations kept. */
  with(order: AccumulateOrder): Workload<P>;
}

/** Whether it updates model data on the host, all of it or some: of that each step's state is below, and the moments are nowhere else. */
export const updatesOnHost = ({ programs }: Pick<Workload, 'programs'>): boolean =>
  programs.some(({ instructions }) => instructions.some(({ op }) => op === 'host each chunk'));

/** Whether it updates model data on the GPU, all of it or some. */
export const updatesOnGPU = ({ training, parameters }: Pick<Workload, 'training' | 'parameters'>): boolean =>
  training && updatedOn('gpu', parameters).length > 0;

/** Chunks that one update on the host holds: what lives on of an index, and its gradient's. */
export const heldByUpdate = (workload: Pick<Workload, 'programs' | 'parameters'>): number => {
  const { parameters } = workload;
  return updatesOnHost(workload) ? lastingKinds(trainingDtypeOf(parameters), momentDtypeOf(parameters)).length + 1 : 0;
};

/** What becomes of a workload's activations: other memory, other work, the same results. */
export interface ActivationChoice<P extends Passes = Passes> {
  /** By block, in their order. */
  readonly modes: readonly ActivationMode[];
  /** What a block's may be; the first keeps the most. One array for all workloads that differ in their modes alone. */
  readonly menu: readonly ActivationMode[];
  /**
   * The workload with a mode that is none of the menu in all blocks: it needs less memory, and more dispatches and traffic; in
   * several degrees, of which the first needs the least memory. One of each such mode, the most sparing first. @default there is none
   */
  readonly sparing?: readonly (() => Iterable<Workload<P>>)[] | undefined;
  /** The workload with these modes instead. */
  with(modes: readonly ActivationMode[]): Workload<P>;
  /** The workload with the same modes and a head that takes all rows at once where it does not, or else some. @default there is none */
  readonly withOtherHead?: (() => Workload<P> | undefined) | undefined;
  /** The pass that they are chosen for, and how often each parameter is on its way there and gone again. */
  mainOf(passes: P): Pass;
  readonly rounds: number;
  /** Bytes of activations that stay for the backward pass with this mode in all blocks. */
  keptBytes(mode: ActivationMode): number;
}

export interface ReadbackSize {
  readonly bytes: number;
  readonly reads: number;
}

/** The readbacks of a workload whose results are waited for: none. */
export const NO_READBACK: ReadbackSize = { bytes: 0, reads: 0 };

/** What a fit goes by of an adapter. */
export interface AdapterLimits {
  /** Bytes of one binding, and of one buffer. */
  readonly binding: number;
  readonly buffer: number;
  readonly rates: Rates;
  /** Whether it computes on the host's processor. @default false */
  readonly software?: boolean;
  /** Bytes; no chunk is smaller. @default what the size of the model makes of it */
  readonly leastChunk?: number;
  /** Bytes; no chunk is larger, where smaller ones work. @default no limit */
  readonly mostChunk?: number;
}

/** What every WebGPU adapter allows, at the rates of a laptop's GPU. */
export const DEFAULT_LIMITS: AdapterLimits = {
  binding: 128 * 2 ** 20,
  buffer: 256 * 2 ** 20,
  rates: typicalRates(false),
};
