// The two shapes nearly every kernel here takes: one invocation per item, and, where a row must be reduced,
// the choice between one invocation and one workgroup per row. Matmul and attention have shapes of their own.

import elem1 from '../../shaders/shared/elem_1.wgsl?raw';
import elem4 from '../../shaders/shared/elem_4.wgsl?raw';
import rowPerInvocation from '../../shaders/shared/row_per_invocation.wgsl?raw';
import rowPerWorkgroup from '../../shaders/shared/row_per_workgroup.wgsl?raw';
import { type Dispatch, linearGrid, perInvocation, type Variant, WORKGROUP } from './kernel.ts';

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

/** As `perItem`, of a shader written in `elem`; the problem may choose the shader too. */
export function perElem<P>(
  shader: string | ((problem: P) => string),
  lanes: (problem: P) => Lanes,
  items: (problem: P, lanes: Lanes) => number,
  params: (problem: P, lanes: Lanes) => Dispatch['params'],
  constants: Dispatch['constants'] = {},
): Variant<P>[] {
  return [
    {
      name: 'items',
      dispatch: (problem) => {
        const many = lanes(problem);
        return {
          shader: (typeof shader === 'string' ? shader : shader(problem)) + elem[many],
          constants: { WORKGROUP, ...constants },
          params: params(problem, many),
          workgroups: perInvocation(items(problem, many)),
        };
      },
    },
  ];
}

/**
 * Of shaders written in `elem`. `rows`: one invocation per row, no barriers. `workgroup`: one workgroup per row,
 * reduced as a tree.
 */
export function perRow<P extends { rows: number }>(
  shader: string,
  lanes: (problem: P) => Lanes,
  params: (problem: P, lanes: Lanes) => Dispatch['params'],
): Variant<P>[] {
  const dispatch = (rows: string, problem: P, workgroups: Dispatch['workgroups']): Dispatch => {
    const many = lanes(problem);
    return { shader: shader + rows + elem[many], constants: { WORKGROUP }, params: params(problem, many), workgroups };
  };
  return [
    { name: 'rows', dispatch: (problem) => dispatch(rowPerInvocation, problem, perInvocation(problem.rows)) },
    { name: 'workgroup', dispatch: (problem) => dispatch(rowPerWorkgroup, problem, linearGrid(problem.rows)) },
  ];
}
