// The uniform blocks of dispatches: those of the same kernel on the same problem share one. Which there are, and how many, follows
// from the problems alone; what is in a block is in gpu/dispatch.ts.

import { ByProblem } from '../../kernels/by-problem.ts';
import type { DispatchOperation } from './operations.ts';

/** What a uniform block is for. */
type Posed = Pick<DispatchOperation, 'kernel' | 'problem'> & Partial<Pick<DispatchOperation, 'whole'>>;

const problemTexts = new WeakMap<object, string>();

function textOf(problem: object): string {
  const text = problemTexts.get(problem) ?? JSON.stringify(problem);
  problemTexts.set(problem, text);
  return text;
}

/** By what the problem is a part of: the key. */
const keys = new ByProblem((): Map<object, string> => new Map());

/** Dispatches of one key share their uniform block. `whole`: what the problem is a part of, else itself. */
export function uniformKey({ kernel, problem, whole = problem }: Posed): string {
  const known = keys.of(kernel, problem);
  const key = known.get(whole) ?? `${kernel.name} ${textOf(problem)}${whole === problem ? '' : textOf(whole)}`;
  known.set(whole, key);
  return key;
}

/** Of each dispatch the number of its uniform block, and how many there are. */
export function uniformBlocks(dispatches: Iterable<DispatchOperation>): {
  indexOf: Map<DispatchOperation, number>;
  count: number;
} {
  const blocks = new Map<string, number>();
  const indexOf = new Map<DispatchOperation, number>();
  for (const dispatch of dispatches) {
    const key = uniformKey(dispatch);
    const index = blocks.get(key) ?? blocks.size;
    blocks.set(key, index);
    indexOf.set(dispatch, index);
  }
  return { indexOf, count: Math.max(1, blocks.size) };
}
