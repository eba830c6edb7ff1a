// The two shapes nearly every kernel here takes: one invocation per item, and, where a row must be reduced,
// the choice between one invocation and one workgroup per row. Matmul and attention have shapes of their own.

import groupReduce from '../../shaders/group_reduce.wgsl?raw';
import { type Dispatch, linearGrid, perInvocation, type Variant, WORKGROUP } from './kernel.ts';

type Params<P> = (problem: P) => Dispatch['params'];

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

/** `rows`: one invocation per row, no barriers. `workgroup`: one workgroup per row, reduced as a tree. */
export function perRow<P extends { rows: number }>(
  rowsShader: string,
  workgroupShader: string,
  params: Params<P>,
): Variant<P>[] {
  return [
    {
      name: 'rows',
      dispatch: (problem) => ({
        shader: rowsShader,
        constants: { WORKGROUP },
        params: params(problem),
        workgroups: perInvocation(problem.rows),
      }),
    },
    {
      name: 'workgroup',
      dispatch: (problem) => ({
        shader: workgroupShader + groupReduce,
        constants: { WORKGROUP },
        params: params(problem),
        workgroups: linearGrid(problem.rows),
      }),
    },
  ];
}
