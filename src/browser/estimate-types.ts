// The types of estimates, as a page has them: what a run would need and move, before it is started (estimate.ts).

import type { PolicyName } from '../engine/compile/schedule.ts';
import type { DiskRoom } from '../runtime/browser/room.ts';

/** Whether the speed of a run is measured where it is not known, or left out. */
export type EstimateSpeed = 'measured' | 'known';

/** What a run would need. Bytes. */
export interface Estimate {
  /** Their number, not bytes. */
  readonly parameters: number;
  /** How many of them train: fewer where a low-rank update of the model does. */
  readonly trained: number;
  /** Parameters, gradients and moments. */
  readonly modelData: number;
  /** What its checkpoints take on disk at most, as many as there are at once: what trains, and its moments. */
  readonly checkpoints: number;
  /** GPU memory with no budget, and the least that works. */
  readonly unlimited: number;
  /** The least GPU memory that works. */
  readonly smallest: number;
  /** Of what the settings ask for: the peak, and how it is dealt out. Absent where it does not fit. */
  readonly fit?: {
    readonly peak: number;
    readonly activations: number;
    readonly chunkBytes: number;
    readonly slots: number;
    readonly chunks: number;
    /**
     * Seconds of a step so, as a multiple of those without a budget, by the rates that were measured of this GPU, or typical ones;
     * 1 where nothing is moved or made again. Absent where host memory has no room for what is moved.
     */
    readonly slowdown?: number;
  };
  /** Why it does not fit, and what would. */
  readonly problem?: string;
  /** Arithmetic of one training step: multiplications and additions, forward and backward. */
  readonly flopsPerStep: number;
  /** Dispatches of one training step without a budget. */
  readonly dispatchesPerStep: number;
  /** What this device reaches within the budget: in a run of this shape, or by what it took for steps of other models and what is then waited for and made again. */
  readonly tokensPerSecond?: { readonly value: number; readonly from: 'run' | 'probe' };
  /** Room for files. */
  readonly room: DiskRoom;
}

/** What each policy would move in a step of a run, within its budget: worked out from the trace, not run. */
export interface PolicyComparison {
  /** Chunks that have a place on the GPU at once. */
  readonly slots: number;
  /** Chunks of model data. */
  readonly chunks: number;
  /** Bytes; the planner first. */
  readonly policies: readonly { readonly name: PolicyName; readonly h2d: number; readonly d2h: number }[];
  /** Bytes both ways: no schedule moves less. */
  readonly lp: number;
}

/**
 * A step of a run within its budget under a policy for activations, this library's or one of the literature: worked out from
 * the trace, not run. Chunks are planned alike under all.
 */
export interface ActivationPolicyFigures {
  /** As people know it. */
  readonly name: string;
  /** Where it is from; empty for this library's own. */
  readonly paper: string;
  /** The smallest budget that it works within, in bytes. */
  readonly smallest: number;
  /**
   * Absent where it does not fit. Its time over that of a step that has everything on the GPU, at the rates that plans go by; bytes
   * of chunks and activations, both ways; operations done again, as a share of all others.
   */
  readonly step?: { readonly slowdown: number; readonly moved: number; readonly recomputedShare: number };
}
