// The table of the kinds of model data: how wide an element of each is, what its chunks hold before a step, and which
// layout they follow. Everything that handles chunks asks this table; a further kind is a further row.
//
// Invariant: chunks of all kinds have equal bytes, so that any of them fits into any slot.

import type { State } from './states.ts';

interface KindSpec {
  readonly elementBytes: number;
  /** `trainable`: side by side, chunk by chunk, with the other kinds of what trains; `frozen`: in chunks of its own. */
  readonly layout: 'trainable' | 'frozen';
  /** The state of its chunks between two steps. */
  readonly between: State;
  /** Whether it holds zeros until a value is set. */
  readonly zero: boolean;
}

export const KINDS = {
  parameter: { elementBytes: 4, layout: 'trainable', between: 'HOLD', zero: false },
  /** Has a value from its first write in a backward pass until the optimizer has used it. */
  gradient: { elementBytes: 4, layout: 'trainable', between: 'FREE', zero: false },
  moment1: { elementBytes: 4, layout: 'trainable', between: 'HOLD', zero: true },
  moment2: { elementBytes: 4, layout: 'trainable', between: 'HOLD', zero: true },
  /** Parameters that nothing trains. */
  frozen: { elementBytes: 4, layout: 'frozen', between: 'HOLD', zero: false },
} as const satisfies Record<string, KindSpec>;

/** Kinds of model data: what a tensor of a parameter's name holds. */
export type Kind = keyof typeof KINDS;

/** In the order of their lists. */
export const ALL_KINDS = Object.keys(KINDS) as readonly Kind[];

/** The kinds that lie side by side, chunk by chunk. */
export const TRAINED_KINDS = ALL_KINDS.filter((kind) => KINDS[kind].layout === 'trainable');

/** Of the widest kind: layouts count in elements of it, so that a chunk has room for as many of any kind. */
export const ELEMENT_BYTES = Math.max(...ALL_KINDS.map((kind) => KINDS[kind].elementBytes));

/** What an element that trains takes in all. */
export const TRAINED_ELEMENT_BYTES = TRAINED_KINDS.reduce((sum, kind) => sum + KINDS[kind].elementBytes, 0);

/** The kinds that live on from step to step beside each other: what a step of training commits. */
export const LASTING_KINDS = TRAINED_KINDS.filter((kind) => KINDS[kind].between === 'HOLD');
