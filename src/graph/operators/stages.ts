// Sums that all stages of a pipeline must know before they decide on a step: those of the squares of every block of
// gradients, in the order of the whole model's parameters, and the sum of the losses, which the last stage has.
//
// Invariant: the norm adds up the same numbers in the same order as on one rank, hence to the same bits on every stage.

import { copyRows } from '../../kernels/copy-rows.ts';
import { ceilDiv } from '../../kernels/kernel.ts';
import { BLOCK } from '../../kernels/sum-squares.ts';
import { at } from '../../util/at.ts';
import type { Graph } from '../graph.ts';
import type { GridPlace } from '../grid-place.ts';
import type { StageRange, Tensor } from '../program.ts';

/** The blocks of the gradients of all stages, as one of them sees them. */
export interface StageBlocks {
  readonly stage: number;
  /** The one that has the loss. */
  readonly last: number;
  /** Of this stage's blocks, the first that counts for it. */
  readonly first: number;
  /** In the order of the parameters of the whole model, each range in the order of its stage's. */
  readonly ranges: readonly StageRange[];
}

/**
 * Of the trained parameters of the whole model, in their order, and the stage that each counts for. `others`: what this one has
 * before its own, and counts for another.
 */
export function stageBlocks(
  parameters: readonly { readonly size: number; readonly stage: number }[],
  { rank, size }: GridPlace,
  others: readonly { readonly size: number }[] = [],
): StageBlocks {
  const ranges: StageRange[] = [];
  let offset = 0;
  for (const { size: elements, stage } of parameters) {
    const blocks = ceilDiv(elements, BLOCK);
    const last = ranges.at(-1);
    if (last?.stage === stage) ranges.splice(-1, 1, { ...last, size: last.size + blocks });
    else ranges.push({ stage, offset, size: blocks });
    offset += blocks;
  }
  const first = others.reduce((sum, { size }) => sum + ceilDiv(size, BLOCK), 0);
  return { stage: rank, last: size - 1, first, ranges };
}

/** Of each block of the trained parameters that a stage has, in their order: its number among those of the whole model. */
export function blockNumbers(
  own: readonly { readonly name: string }[],
  all: readonly { readonly name: string; readonly size: number }[],
): number[] {
  const numbers = new Map<string, number[]>();
  let first = 0;
  for (const { name, size } of all) {
    const start = first;
    first += ceilDiv(size, BLOCK);
    numbers.set(
      name,
      Array.from({ length: first - start }, (_, i) => start + i),
    );
  }
  return own.flatMap(({ name }) => numbers.get(name) ?? []);
}

/** squares of this stage's blocks -> those of all stages. */
export function squaresOfAll(g: Graph, squares: Tensor, { stage, first, ranges }: StageBlocks, label: string): Tensor {
  const { offset, size } = at(ranges, ranges.length - 1);
  const blocks = offset + size;
  const all = g.activation(`${label} squares of all stages`, [blocks]);
  let own = first;
  for (const { offset, size, stage: owner } of ranges) {
    if (owner !== stage) continue;
    const rows = { batch: 1, rows: size, width: 1, partial: true };
    const problem = { ...rows, xRows: squares.size, xFirst: own, yRows: blocks, yFirst: offset };
    g.emit(copyRows, problem, { x: squares, y: all }, label);
    own += size;
  }
  g.emitAllGather(all, ranges, label);
  return all;
}
