// What a program exchanges between the stages of a pipeline, as instructions: tensors that one stage makes and its neighbour
// reads, and small ones of which each stage has a part. Sums over ranks that share layers are an instruction of graph.ts; which
// rank is which stage, and how bytes travel, is the engine's affair.

import type { Common, ElementRange, Tensor } from './graph.ts';

/** `send`: the neighbour gets the value. `receive`: it is the neighbour's. Both have the same in the same order. */
export interface HandOverInstruction extends Common {
  readonly op: 'send' | 'receive';
  readonly tensor: Tensor;
  /** The neighbour. */
  readonly stage: number;
}

/** Elements that one stage has. */
export interface StageRange extends ElementRange {
  readonly stage: number;
}

/** All stages get what each of them has of a tensor. */
export interface AllGatherInstruction extends Common {
  readonly op: 'all-gather';
  readonly tensor: Tensor;
  readonly parts: readonly StageRange[];
}

/** What the first and the last stage each have of a parameter's gradient becomes the sum, on both. */
export interface TieInstruction extends Common {
  readonly op: 'tie';
  readonly tensor: Tensor;
}

export type ExchangeInstruction = HandOverInstruction | AllGatherInstruction | TieInstruction;
