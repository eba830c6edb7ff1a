// The interface of a kernel: a problem (plain dimensions) in, one dispatch (plain data) out.
//
// A kernel has its operands, its WGSL variants, its cost and its CPU reference. It has no device,
// no buffer and no tensor: the graph binds tensors to operand names, the engine turns dispatches into
// pipelines. Invariant: every variant and the reference compute the same function of the same operands.

import { bytesPerElement, type ChunkElement, type NarrowElement } from './stored.ts';

/** Bytes of an element, by its WGSL type. */
export const ELEMENT_TYPES = { f32: 4, i32: 4, u32: 4 } as const;
export type ElementType = keyof typeof ELEMENT_TYPES;

/** `write` replaces every element (the old value is dead), `update` reads it first. */
export type Access = 'read' | 'write' | 'update';

export interface Operand {
  readonly access: Access;
  /** Elements that the kernel may touch, from the operand's first. */
  readonly size: number;
  readonly type: ElementType;
  /** The first of them that it may touch. @default 0 */
  readonly start?: number;
  /** Of `update`: what it touches is replaced; what lies around it stays. @default it is read first */
  readonly replaces?: true;
}

export type Operands = Readonly<Record<string, Operand>>;

export const read = (size: number, type: ElementType = 'f32'): Operand => ({ access: 'read', size, type });
export const write = (size: number, type: ElementType = 'f32'): Operand => ({ access: 'write', size, type });
export const update = (size: number, type: ElementType = 'f32'): Operand => ({ access: 'update', size, type });

export const startingAt = (start: number, operand: Operand): Operand => (start === 0 ? operand : { ...operand, start });

/** One dispatch as data. `constants` become the WGSL prelude, `params` the uniform block `p`. */
export interface Dispatch {
  readonly shader: string;
  readonly constants: Readonly<Record<string, number>>;
  readonly params: Readonly<Record<string, number>>;
  readonly workgroups: readonly [number, number, number];
}

/** The facts of an adapter that a variant may depend on. */
export interface Traits {
  /** A CPU that runs shaders. */
  readonly software: boolean;
  /** The subgroup size where it is one fixed number and the feature is on; else 0. */
  readonly subgroupSize: number;
  /**
   * How a shader has subgroups of 32 lanes that multiply matrices of 16 x 16, factors in f16 and sums in f32: all are such, or
   * those of a shader that asks for the size. Absent: it has none.
   */
  readonly subgroupMatrices?: 'fixed' | 'sized' | undefined;
}

/** How floats that a kernel only reads are stored, by operand; absent where as floats. */
export type StoredOperands = Readonly<Record<string, NarrowElement>>;

/**
 * Whether lanes are SIMD lanes of a CPU that come in quads (SwiftShader 4, llvmpipe 8): they swap values for the
 * price of a shuffle. On such a CPU a barrier costs more than the memory it saves (measured: tiled kernels are 3 to
 * 6 times slower) and tiled kernels take seconds to compile, so they are tried on GPUs only.
 */
export const hasQuads = ({ software, subgroupSize }: Traits): boolean =>
  software && (subgroupSize === 4 || subgroupSize === 8);

export interface Variant<P> {
  readonly name: string;
  /** Absent: supports every problem on every adapter. */
  supports?(problem: P, traits: Traits): boolean;
  /** Operands that must be stored so. Absent: it takes them however they are. */
  readonly readsOnly?: StoredOperands;
  /** A software adapter's compiler takes up to a second and a half over it, several times what it takes over the others. */
  readonly compilesSlowly?: true;
  /**
   * A problem that a device must compute as the reference does before this is ever chosen on it, of integers whose sums are exact
   * in float32 in any order, for units that adapters differ in. `reach`: how far the integers of each operand go. Absent: WGSL says
   * what it computes.
   */
  readonly provenOn?: { readonly problem: P; readonly reach: Readonly<Record<string, number>> };
  dispatch(problem: P, traits: Traits): Dispatch;
}

/** Whether a variant may be chosen for a problem on an adapter, with its operands stored so. */
export const mayServe = <P>(
  { supports, readsOnly = {} }: Pick<Variant<P>, 'supports' | 'readsOnly'>,
  problem: P,
  traits: Traits,
  stored: StoredOperands = {},
): boolean =>
  Object.entries(readsOnly).every(([name, element]) => stored[name] === element) &&
  (supports?.(problem, traits) ?? true);

/** Some rows of a stored tensor: what one chunk holds of it. Elements of the whole tensor; always whole rows. */
export interface Tile {
  readonly first: number;
  readonly size: number;
}

/**
 * How a problem is cut by rows (of its activations: tokens): each part reads and writes its own rows of some operands. Sums
 * over rows go on from one part to the next, so that parts run in ascending order give the bits of the whole.
 */
export interface RowCut<P> {
  /** Parts begin at multiples of so many rows. */
  readonly unit: number;
  /** Of each operand of which a part has its rows alone: elements from one row to the next. The others stay whole. */
  readonly strides: Readonly<Record<string, number>>;
  /** Rows of the operands that stay whole before those that the problem is about. @default it has no such operands */
  readonly firstRow?: number;
  part(first: number, count: number): P;
}

/** What the reference computes on, by operand; integers are exact in float64. */
export type Arrays<Names extends string = string> = Record<Names, Float64Array>;

export interface Kernel<P> {
  readonly name: string;
  operands(problem: P): Operands;
  /**
   * Of each field of a problem, whether the fastest variant may depend on it: problems that differ in others alone
   * share a measured choice. Recorded choices are found by it, so that a field's answer never changes.
   */
  readonly affectsSpeed: { readonly [Field in keyof P]-?: boolean };
  /** The first supported one is the default; more than one means that the choice is measured. */
  readonly variants: readonly Variant<P>[];
  /**
   * The part of a problem that needs these rows of one operand, which then starts at the tile's first element;
   * undefined when the problem needs none of them. The other operands stay whole. Run in ascending order, the parts
   * give the bits of the whole, in the variant chosen for it: every variant's `dispatch` serves every part, whatever
   * its `supports` says of the part's shape. Absent: takes no tiled operand.
   */
  tile?(problem: P, operand: string, tile: Tile): P | undefined;
  /** How a problem of so many rows is cut by them; undefined where this one is not. Absent: none is. */
  rows?(problem: P, rows: number): RowCut<P> | undefined;
  /** Rows of the activations that a problem makes, where a block is cut by them. Absent: none is cut by this one's. */
  cutsBlocks?(problem: P): number | undefined;
  /**
   * One of its operands is a table, which may be larger than all that there is room for: micro-batches go through each of
   * its instructions together, tile by tile. @default false
   */
  readonly isOnTable?: boolean;
  /** Floating-point operations of one dispatch. */
  flops(problem: P): number;
  /** The oracle, in float64: updates the written operands in place. */
  reference(problem: P, data: Arrays): void;
}

/**
 * Bytes that one dispatch must move at least: every operand once, updated ones twice. `storedAs`: of floats that are stored
 * narrower than the kernel has them.
 */
export function bytesMoved<P>(
  kernel: Kernel<P>,
  problem: P,
  storedAs: (operand: string) => ChunkElement | undefined = () => undefined,
): number {
  let bytes = 0;
  for (const [name, { size, type, access }] of Object.entries(kernel.operands(problem))) {
    const stored = type === 'f32' ? storedAs(name) : undefined;
    const each = stored === undefined ? ELEMENT_TYPES[type] : bytesPerElement(stored);
    bytes += size * each * (access === 'update' ? 2 : 1);
  }
  return bytes;
}

/** The limit that WebGPU guarantees on every adapter for one dimension of a dispatch. */
const MAX_WORKGROUPS = 65535;

/** A grid of `count` workgroups, folded into y past the limit of x; shaders skip the surplus by index. */
export function linearGrid(count: number): [number, number, number] {
  const x = Math.min(count, MAX_WORKGROUPS);
  return [Math.max(1, x), Math.max(1, Math.ceil(count / MAX_WORKGROUPS)), 1];
}

/** Workgroups of `WORKGROUP` invocations (64 everywhere: fits each adapter, a multiple of every subgroup). */
export const WORKGROUP = 64;

/** The grid for one invocation per item. */
export function perInvocation(items: number): [number, number, number] {
  return linearGrid(Math.ceil(items / WORKGROUP));
}

export function ceilDiv(a: number, b: number): number {
  return Math.ceil(a / b);
}

/** The cut by rows of a problem of so many elements, as many a row, and of each of these operands. */
export const elementRows =
  (...operands: readonly string[]) =>
  <P extends { size: number }>(problem: P, rows: number): RowCut<P> | undefined => {
    const width = problem.size / rows;
    if (!Number.isInteger(width)) return undefined;
    return {
      unit: 1,
      strides: Object.fromEntries(operands.map((name) => [name, width])),
      part: (_, count) => ({ ...problem, size: count * width }),
    };
  };
