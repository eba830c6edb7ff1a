// `Fit`: a workload as it lies in a budget: its chunks, its passes on them, and the bytes of everything. What is worked out by
// fitMemory (fit.ts), followed by the executor and by the simulator, which prices the fits that fitMemory chooses from.

import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { SlotRange } from '../../memory/plan/extra-slots.ts';
import type { Measured, StagingSize } from './candidate.ts';
import type { Passes } from './pass.ts';

export interface Fit<P extends Passes = Passes> extends Measured<P> {
  readonly passes: P;
  /** Slots for chunks throughout. */
  readonly slots: number;
  /** Ranges among the activations that serve as slots beside them at times: each pass says when. */
  readonly extra: readonly SlotRange[];
  readonly staging: StagingSize;
  /** Bytes of one of its buffers: a chunk's, or fewer where values go through in pieces, since none moves in a step. */
  readonly stagingBytes: number;
  /** Bytes of all GPU buffers. */
  readonly peak: number;
  /** Within a budget: seconds that a step was reckoned to take in each order of micro-batches that was tried. */
  readonly orderSeconds?: Readonly<Partial<Record<AccumulateOrder, number>>>;
}
