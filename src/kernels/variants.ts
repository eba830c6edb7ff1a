// The two shapes nearly every kernel here takes: one invocation per item, and, where a row must be reduced,
// the choice between one invocation and one workgroup per row. Matmul and attention have shapes of their own.
// A GPU's lanes must read side by side: what has each lane walk memory of its own is for software adapters.

import elem1 from '../../shaders/shared/elem_1.wgsl?raw';
import elem4 from '../../shaders/shared/elem_4.wgsl?raw';
import rowPerInvocation from '../../shaders/shared/row_per_invocation.wgsl?raw';
import rowPerWorkgroup from '../../shaders/shared/row_per_workgroup.wgsl?raw';
import { type Dispatch, linearGrid, perInvocation, type Traits, type Variant, WORKGROUP } from './kernel.ts';

type Params<P> = (problem: P) => Dispatch['params'];

/** Floats in an `elem`, which is what a shader loads at once; the grid and the parameters count elem. */
export type Lanes = 1 | 4;

/** Four where all of these are multiples of 4 (bindings begin at multiples of 256 bytes), else one. */
export const lanesOf = (...sizes: readonly number[]): Lanes => (sizes.every((size) => size % 4 === 0) ? 4 : 1);

const elem: Readonly<Record<Lanes, string>> = { 1: elem1, 4: elem4 };

/** One invocation per item; `constants` join the prelude. */
export function perItem<P>(
  shader: string,
  items: (problem: P) => number,
  params: Params<P>,
  constants: Dispatch['constants'] = {},
): Variant<P>[] {
  return [
    {
      name: 'items',
      dispatch: (problem) => ({
        shader,
        constants: { WORKGROUP, ...constants },
        params: params(problem),
        workgroups: perInvocation(items(problem)),
      }),
    },
  ];
}

type Shader<P> = string | ((problem: P) => string);
type Constants<P> = Dispatch['constants'] | ((problem: P) => Dispatch['constants']);

/** As `perItem`, of a shader written in `elem`; the problem may choose the shader and constants too. */
export function perElem<P>(
  shader: Shader<P>,
  lanes: (problem: P) => Lanes,
  items: (problem: P, lanes: Lanes) => number,
  params: (problem: P, lanes: Lanes) => Dispatch['params'],
  constants: Constants<P> = {},
): Variant<P>[] {
  return [
    {
      name: 'items',
      dispatch: (problem) => {
        const many = lanes(problem);
        return {
          shader: (typeof shader === 'string' ? shader : shader(problem)) + elem[many],
          constants: { WORKGROUP, ...(typeof constants === 'function' ? constants(problem) : constants) },
          params: params(problem, many),
          workgroups: perInvocation(items(problem, many)),
        };
      },
    },
  ];
}

/** As `perElem`, of a shader that goes over `size` elements, each by itself. */
export const elementwise = <P extends { readonly size: number }>(shader: string): Variant<P>[] =>
  perElem<P>(
    shader,
    ({ size }) => lanesOf(size),
    ({ size }, lanes) => size / lanes,
    ({ size }, lanes) => ({ size: size / lanes }),
  );

/** Fewer terms than this for each running sum of an item are not worth a lane for each. */
const WORTH_LANES = 2;

/**
 * Sums of some running `sums` each, of two shaders with the same bits. `items`: one invocation per sum, which walks memory of
 * its own; on GPUs, of few `terms` alone. `fours` and `eights`, by how many there are: an invocation per running sum, for GPUs.
 */
export function perSum<P>(
  shaders: { readonly items: Shader<P>; readonly spread: Shader<P>; readonly sums: 4 | 8 },
  lanes: (problem: P) => Lanes,
  items: (problem: P, lanes: Lanes) => number,
  terms: (problem: P) => number,
  params: (problem: P, lanes: Lanes) => Dispatch['params'],
  constants: Constants<P> = {},
): Variant<P>[] {
  const { sums } = shaders;
  const forGPU = (problem: P, { software }: Traits) => !software && terms(problem) >= WORTH_LANES * sums;
  const spread = (problem: P, many: Lanes) => sums * items(problem, many);
  return [
    ...perElem(shaders.items, lanes, items, params, constants).map((variant) => ({
      ...variant,
      supports: (problem: P, traits: Traits) => !forGPU(problem, traits),
    })),
    ...perElem(shaders.spread, lanes, spread, params, constants).map((variant) => ({
      ...variant,
      ...{ name: sums === 4 ? 'fours' : 'eights', supports: forGPU },
    })),
  ];
}

/** Elements of a row short enough for lanes of a GPU to have one each: what they read then stays in a cache. */
const SHORT_ROW = 128;

/**
 * Of shaders written in `elem`. `rows`: one invocation per row, no barriers; on GPUs, of short rows alone. `workgroup`: one
 * workgroup per row, reduced as a tree, on GPUs: on a CPU its barriers cost more than the rest of it.
 */
export function perRow<P extends { rows: number }>(
  shader: string,
  width: (problem: P) => number,
  lanes: (problem: P) => Lanes,
  params: (problem: P, lanes: Lanes) => Dispatch['params'],
): Variant<P>[] {
  const dispatch = (rows: string, problem: P, workgroups: Dispatch['workgroups']): Dispatch => {
    const many = lanes(problem);
    return { shader: shader + rows + elem[many], constants: { WORKGROUP }, params: params(problem, many), workgroups };
  };
  return [
    {
      name: 'rows',
      supports: (problem, { software }) => software || width(problem) <= SHORT_ROW,
      dispatch: (problem) => dispatch(rowPerInvocation, problem, perInvocation(problem.rows)),
    },
    {
      name: 'workgroup',
      supports: (_, { software }) => !software,
      dispatch: (problem) => dispatch(rowPerWorkgroup, problem, linearGrid(problem.rows)),
    },
  ];
}
