// The uniform blocks of dispatches: those of the same kernel on the same problem share one. Which there are, and how many, follows
// from the problems alone; what is in a block is in gpu/dispatch.ts.

import type { DispatchOperation } from './lower.ts';

const problemTexts = new WeakMap<object, string>();

function textOf(problem: object): string {
  const text = problemTexts.get(problem) ?? JSON.stringify(problem);
  problemTexts.set(problem, text);
  return text;
}

/** By the problem of a dispatch: the key of its uniform block. Many dispatches share a problem. */
const uniformKeys = new WeakMap<object, { readonly kernel: object; readonly whole: object; readonly key: string }>();

function uniformKeyOf({ kernel, problem, whole }: DispatchOperation): string {
  const before = uniformKeys.get(problem);
  if (before?.whole === whole && before.kernel === kernel) return before.key;
  const key = `${kernel.name} ${textOf(problem)}${whole === problem ? '' : textOf(whole)}`;
  uniformKeys.set(problem, { kernel, whole, key });
  return key;
}

/** Dispatches of one problem share their uniform block. */
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

/** How many there are. */
export function uniformCount(dispatches: Iterable<DispatchOperation>): number {
  const keys = new Set<string>();
  const seen = new Set<object>();
  for (const dispatch of dispatches) {
    const { problem } = dispatch;
    // The same problem of the same kernel has the same key.
    if (seen.has(problem) && isKeyKnown(dispatch)) continue;
    seen.add(problem);
    keys.add(uniformKeyOf(dispatch));
  }
  return Math.max(1, keys.size);
}

function isKeyKnown({ kernel, problem, whole }: DispatchOperation): boolean {
  const before = uniformKeys.get(problem);
  return before?.whole === whole && before.kernel === kernel;
}
