// The uniform blocks of dispatches: those of the same kernel on the same problem share one. Which there are, and how many, follows
// from the problems alone; what is in a block is in gpu/dispatch.ts.

import type { DispatchOperation } from './operations.ts';

const problemTexts = new WeakMap<object, string>();

function textOf(problem: object): string {
  const text = problemTexts.get(problem) ?? JSON.stringify(problem);
  problemTexts.set(problem, text);
  return text;
}

/** Dispatches of one key share their uniform block. `whole`: what the problem is a part of, else itself. */
export const uniformKey = ({ name }: { readonly name: string }, problem: object, whole: object): string =>
  `${name} ${textOf(problem)}${whole === problem ? '' : textOf(whole)}`;

/** By the problem of a dispatch: the key of its uniform block. Many dispatches share a problem. */
const uniformKeys = new WeakMap<object, { readonly kernel: object; readonly whole: object; readonly key: string }>();

function uniformKeyOf({ kernel, problem, whole }: DispatchOperation): string {
  const before = uniformKeys.get(problem);
  if (before?.whole === whole && before.kernel === kernel) return before.key;
  const key = uniformKey(kernel, problem, whole);
  uniformKeys.set(problem, { kernel, whole, key });
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
    const key = uniformKeyOf(dispatch);
    const index = blocks.get(key) ?? blocks.size;
    blocks.set(key, index);
    indexOf.set(dispatch, index);
  }
  return { indexOf, count: Math.max(1, blocks.size) };
}
