// The table of the kinds of model data: how wide an element of each is, what its chunks hold before a step, and which
// layout they follow. Everything that handles chunks reads this table; a further kind is a further row.
//
// Invariant: chunks of all kinds have equal bytes, so that any of them fits into any slot; a narrow kind's hold more elements.

import { bytesPerElement, type ChunkElement, type StoredElement } from '../../kernels/stored.ts';
import type { State } from './states.ts';

interface KindSpec {
  readonly element: ChunkElement;
  /**
   * `trainable`: side by side, chunk by chunk, with the other kinds of what trains; `trainableHalves`: the same in elements
   * half as wide, a chunk beside two of those; the others: in chunks of its own.
   */
  readonly layout:
    | 'trainable'
    | 'trainableHalves'
    | 'frozen'
    | 'frozenBF16'
    | 'frozenF16'
    | 'frozenQ8'
    | 'frozenQ4'
    | 'frozenNF4'
    | 'frozenQ5'
    | 'frozenQ4K'
    | 'frozenQ5K'
    | 'frozenQ6K';
  /** The state of its chunks between two steps. */
  readonly between: State;
  /** Whether it holds zeros until a value is set. */
  readonly zero: boolean;
}

export const KINDS = {
  parameter: { element: 'f32', layout: 'trainable', between: 'HOLD', zero: false },
  /** Of parameters that are computed with in bf16: what kernels read, the upper halves of their float32, rounded. */
  parameterBF16: { element: 'bf16', layout: 'trainableHalves', between: 'HOLD', zero: false },
  /** The lower halves, which only the optimizer needs: both together are the float32, exactly. */
  parameterLow: { element: 'low16', layout: 'trainableHalves', between: 'HOLD', zero: false },
  /** Of parameters that are computed with in f16: what kernels read, rounded; none from its last use in a step to the update. */
  parameterF16: { element: 'f16', layout: 'trainableHalves', between: 'HOLD', zero: false },
  /** What it is rounded from, which only the optimizer needs. */
  master: { element: 'f32', layout: 'trainable', between: 'HOLD', zero: false },
  /** Has a value from its first write in a backward pass until the optimizer has used it. */
  gradient: { element: 'f32', layout: 'trainable', between: 'FREE', zero: false },
  /** A gradient once it is complete, rounded; from then on what it was rounded from holds no value. */
  gradientBF16: { element: 'bf16', layout: 'trainableHalves', between: 'FREE', zero: false },
  /** As `gradientBF16` in f16, times the scale of the step's gradients. */
  gradientF16: { element: 'f16', layout: 'trainableHalves', between: 'FREE', zero: false },
  moment1: { element: 'f32', layout: 'trainable', between: 'HOLD', zero: true },
  moment2: { element: 'f32', layout: 'trainable', between: 'HOLD', zero: true },
  /** Moments in bf16, rounded by chance: kernels/moments.ts. */
  moment1BF16: { element: 'bf16', layout: 'trainableHalves', between: 'HOLD', zero: true },
  moment2BF16: { element: 'bf16', layout: 'trainableHalves', between: 'HOLD', zero: true },
  /** Parameters that nothing trains, by how they are stored. */
  frozen: { element: 'f32', layout: 'frozen', between: 'HOLD', zero: false },
  frozenBF16: { element: 'bf16', layout: 'frozenBF16', between: 'HOLD', zero: false },
  frozenF16: { element: 'f16', layout: 'frozenF16', between: 'HOLD', zero: false },
  frozenQ8: { element: 'q8_0', layout: 'frozenQ8', between: 'HOLD', zero: false },
  frozenQ4: { element: 'q4_0', layout: 'frozenQ4', between: 'HOLD', zero: false },
  frozenNF4: { element: 'nf4', layout: 'frozenNF4', between: 'HOLD', zero: false },
  frozenQ5: { element: 'q5_0', layout: 'frozenQ5', between: 'HOLD', zero: false },
  frozenQ4K: { element: 'q4_k', layout: 'frozenQ4K', between: 'HOLD', zero: false },
  frozenQ5K: { element: 'q5_k', layout: 'frozenQ5K', between: 'HOLD', zero: false },
  frozenQ6K: { element: 'q6_k', layout: 'frozenQ6K', between: 'HOLD', zero: false },
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
  q5_0: 'frozenQ5',
  q4_k: 'frozenQ4K',
  q5_k: 'frozenQ5K',
  q6_k: 'frozenQ6K',
} as const satisfies Record<StoredElement, Kind>;

/** Whether it is of what nothing trains. */
export const isFrozen = (kind: Kind): boolean => KINDS[kind].layout.startsWith('frozen');

/** What trains may be computed with in. */
export const TRAINING_DTYPES = ['f32', 'bf16', 'f16'] as const;

/** What trains is computed with in this; its sums and saved values are f32. */
export type TrainingDtype = (typeof TRAINING_DTYPES)[number];

/** What the optimizer keeps its moments as. */
export const MOMENT_DTYPES = ['f32', 'bf16'] as const;

/** One of MOMENT_DTYPES. */
export type MomentDtype = (typeof MOMENT_DTYPES)[number];

/** The kinds that stand for a parameter that trains, and for its gradient. */
interface ParameterKinds {
  /** What kernels read. */
  readonly read: Kind;
  /** What the optimizer updates: the float32, together with `low` where there is one. Where it is not `read`, `read` is its copy. */
  readonly full: Kind;
  /** Of what `full` has the upper halves: the lower ones. */
  readonly low?: Kind;
  /** What its gradient is complete in; until then it is a `gradient`. */
  readonly gradient: Kind;
}

/** By what is computed with. */
export const PARAMETER_KINDS: Readonly<Record<TrainingDtype, ParameterKinds>> = {
  f32: { read: 'parameter', full: 'parameter', gradient: 'gradient' },
  bf16: { read: 'parameterBF16', full: 'parameterBF16', low: 'parameterLow', gradient: 'gradientBF16' },
  f16: { read: 'parameterF16', full: 'master', gradient: 'gradientF16' },
};

/** What the optimizer alone uses of parameters. */
function besideRead(dtype: TrainingDtype): readonly Kind[] {
  const { read, full, low } = PARAMETER_KINDS[dtype];
  return [...(full === read ? [] : [full]), ...(low ? [low] : [])];
}

/** Both moments. */
export const MOMENT_KINDS = {
  f32: ['moment1', 'moment2'],
  bf16: ['moment1BF16', 'moment2BF16'],
} as const satisfies Record<MomentDtype, readonly [Kind, Kind]>;

/**
 * The kinds of what trains, side by side, by what it is computed with in and what moments are kept as. What kernels read as
 * parameters comes first.
 */
export const trainedKinds = (dtype: TrainingDtype, momentDtype: MomentDtype = 'f32'): readonly Kind[] => [
  PARAMETER_KINDS[dtype].read,
  ...besideRead(dtype),
  ...new Set<Kind>(['gradient', gradientKind(dtype)]),
  ...MOMENT_KINDS[momentDtype],
];

/** Bytes of an element of a kind, or its share of a block's. */
export const elementBytesOf = (kind: Kind): number => bytesPerElement(KINDS[kind].element);

/** Bytes of an element in all of these kinds together. */
export const elementBytesOfKinds = (kinds: readonly Kind[]): number =>
  kinds.reduce((sum, kind) => sum + elementBytesOf(kind), 0);

/** Bytes of an element of the widest kind. */
export const ELEMENT_BYTES = Math.max(...ALL_KINDS.map(elementBytesOf));

/** Chunks of the widest kind that a chunk of a kind of what trains lies beside. */
export const indicesIn = (kind: Kind): number => (KINDS[kind].layout === 'trainableHalves' ? 2 : 1);

/** The most chunks of the widest kind that a chunk of one of these kinds of what trains lies beside. */
export const indicesTogether = (kinds: readonly Kind[]): number => Math.max(...kinds.map(indicesIn));

/** The kind in which the gradients of a step are complete. */
export const gradientKind = (dtype: TrainingDtype): Kind => PARAMETER_KINDS[dtype].gradient;

/** What kernels read as parameters that train. */
export const READ_KINDS: readonly Kind[] = TRAINING_DTYPES.map((dtype) => PARAMETER_KINDS[dtype].read);

/**
 * The kind, of those that kernels read, that is a copy of what lies beside it: behind its last use in a step it is
 * given up, and made again.
 */
export const COPY_KIND = PARAMETER_KINDS.f16.read;

/** The kinds of what trains that the optimizer alone uses. */
export const optimizerKinds = (dtype: TrainingDtype, momentDtype: MomentDtype = 'f32'): readonly Kind[] => [
  ...besideRead(dtype),
  ...MOMENT_KINDS[momentDtype],
];

/** What an element that trains takes in all, once its gradient is complete. */
export const trainedElementBytes = (dtype: TrainingDtype, momentDtype: MomentDtype = 'f32'): number =>
  elementBytesOfKinds([...lastingKinds(dtype, momentDtype), gradientKind(dtype)].filter((kind) => kind !== COPY_KIND));

/** The kinds that live on from step to step beside each other: what a step of training commits. */
export const lastingKinds = (dtype: TrainingDtype, momentDtype: MomentDtype = 'f32'): Kind[] =>
  trainedKinds(dtype, momentDtype).filter((kind) => KINDS[kind].between === 'HOLD');
