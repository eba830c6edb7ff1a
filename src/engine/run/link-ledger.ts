// Ledger of a link: what went over it between host and GPU, and what was waited for.

/** Bytes over the link between host and GPU since the start, and what was waited for, in milliseconds. */
export interface LinkLedger {
  h2dBytes: number;
  d2hBytes: number;
  /** Of d2hBytes: what went down only so that a lost device costs no more than a step. */
  recoveryBytes: number;
  /** Of h2dBytes and d2hBytes: activations. */
  activationBytes: number;
  /** Slots filled with zeros on the GPU, and values copied from one slot to another there: nothing moves over the link. */
  clearedBytes: number;
  copiedBytes: number;
  /** Copies over the link, both ways. */
  transfers: number;
  submits: number;
  waits: {
    /** For room in staging, and for values on their way down. */
    down: number;
    /** For the GPU to take what was sent up. */
    up: number;
    /** For host memory and disk. */
    below: number;
    /** For what other ranks send or take. */
    network: number;
  };
}

export const emptyLedger = (): LinkLedger => ({
  h2dBytes: 0,
  d2hBytes: 0,
  recoveryBytes: 0,
  activationBytes: 0,
  clearedBytes: 0,
  copiedBytes: 0,
  transfers: 0,
  submits: 0,
  waits: { down: 0, up: 0, below: 0, network: 0 },
});
