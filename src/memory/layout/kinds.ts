// The table of the kinds of model data: how wide an element of each is, what its chunks hold before a step, and which
// layout they follow. Everything that handles chunks asks this table; a further kind is a further row.
//
// Invariant: chunks of all kinds have equal bytes, so that any of them fits into any slot; a narrow kind's hold more elements.

import { bytesPerElement, type StoredElement } from '../../kernels/stored.ts';
import type { State } from './states.ts';

interface KindSpec {
  readonly element: StoredElement;
  /** `trainable`: side by side, chunk by chunk, with the other kinds of what trains; the others: in chunks of its own. */
  readonly layout: 'trainable' | 'frozen' | 'frozenBF16' | 'frozenF16' | 'frozenQ8' | 'frozenQ4' | 'frozenNF4';
  /** The state of its chunks between two steps. */
  readonly between: State;
  /** Whether it holds zeros until a value is set. */
  readonly zero: boolean;
}

export const KINDS = {
  parameter: { element: 'f32', layout: 'trainable', between: 'HOLD', zero: false },
  /** Has a value from its first write in a backward pass until the optimizer has used it. */
  gradient: { element: 'f32', layout: 'trainable', between: 'FREE', zero: false },
  moment1: { element: 'f32', layout: 'trainable', between: 'HOLD', zero: true },
  moment2: { element: 'f32', layout: 'trainable', between: 'HOLD', zero: true },
  /** Parameters that nothing trains, by how they are stored. */
  frozen: { element: 'f32', layout: 'frozen', between: 'HOLD', zero: false },
  frozenBF16: { element: 'bf16', layout: 'frozenBF16', between: 'HOLD', zero: false },
  frozenF16: { element: 'f16', layout: 'frozenF16', between: 'HOLD', zero: false },
  frozenQ8: { element: 'q8_0', layout: 'frozenQ8', between: 'HOLD', zero: false },
  frozenQ4: { element: 'q4_0', layout: 'frozenQ4', between: 'HOLD', zero: false },
  frozenNF4: { element: 'nf4', layout: 'frozenNF4', between: 'HOLD', zero: false },
} as const satisfies Record<string, KindSpec>;

/** Kinds of model data: what a tensor of a parameter's name holds. */
export type Kind = keyof typeof KINDS;

/** In the order of their lists. */
export const ALL_KINDS = Object.keys(KINDS) as readonly Kind[];

/** How the tensors of a kind are packed into its chunks. */
export type LayoutName = (typeof KINDS)[Kind]['layout'];

/** What nothing trains, by how it is stored. */
export const FROZEN_KINDS = {
  f32: 'frozen',
  bf16: 'frozenBF16',
  f16: 'frozenF16',
  q8_0: 'frozenQ8',
  q4_0: 'frozenQ4',
  nf4: 'frozenNF4',
} as const satisfies Record<StoredElement, Kind>;

/** The kinds that lie side by side, chunk by chunk. */
export const TRAINED_KINDS = ALL_KINDS.filter((kind) => KINDS[kind].layout === 'trainable');

/** Of an element of a kind, or its share of a block's. */
export const elementBytesOf = (kind: Kind): number => bytesPerElement(KINDS[kind].element);

/** Of the widest kind. */
export const ELEMENT_BYTES = Math.max(...ALL_KINDS.map(elementBytesOf));

/** What an element that trains takes in all. */
export const TRAINED_ELEMENT_BYTES = TRAINED_KINDS.reduce((sum, kind) => sum + elementBytesOf(kind), 0);

/** The kinds that live on from step to step beside each other: what a step of training commits. */
export const LASTING_KINDS = TRAINED_KINDS.filter((kind) => KINDS[kind].between === 'HOLD');
