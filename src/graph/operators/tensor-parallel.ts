// Borders between a layer that several ranks share and what all of them have (Shoeybi et al. 2019, f and g): in the
// forward pass the sum behind a weight of which each has rows, in the backward pass the sum of what weights of which
// each has columns make of their input's gradient. Which weights are split, and how, is the model's layout
// (nn/tensor-parallel.ts).
//
// Invariant: no other operator takes a part of something for the whole; `whole` refuses it when a model is traced.

import { assert } from '../../util/errors.ts';
import type { Graph } from '../graph.ts';
import type { Tensor } from '../program.ts';

/** Reads of a tensor by weights of which each rank has columns: in the forward pass, and all of them in the backward pass. */
const reads = new WeakMap<Tensor, { count: number }>();

/**
 * Called by what multiplies x with a weight of which this rank has columns, before it records its rule: the gradient of x is
 * the sum over ranks behind the rules of all such.
 */
export function sharedInput(g: Graph, x: Tensor, weight: Tensor): void {
  const { split } = weight;
  if (split?.by !== 'columns') return;
  whole(x, weight.name);
  const known = reads.get(x) ?? { count: 0 };
  const adapter = g.adapterOf(weight);
  for (const { wantsGradient } of [weight, ...(adapter ? [adapter.a] : [])]) known.count += wantsGradient ? 2 : 1;
  if (reads.has(x)) return;
  reads.set(x, known);
  g.onBackward(x, (dx) => {
    // What all ranks have would be summed, too.
    assert(g.uses(x) === known.count, `${x.name} is read by split weights and by something else`);
    g.emitAllReduce(dx, split.ranks, `d ${x.name}`);
  });
}

/** The sum over ranks of y = x W, where each has rows of W: the same on all of them. */
export function summedOutput(g: Graph, y: Tensor, x: Tensor, weight: Tensor): void {
  const { split } = weight;
  if (split?.by !== 'rows') return;
  assert(x.split?.by === 'columns', `${weight.name} has some rows, ${x.name} all columns`);
  g.emitAllReduce(y, split.ranks, weight.name);
}

/** A check that x is not a part of something. */
export function whole(x: Tensor, label: string): void {
  assert(!x.split, `${label} takes all of ${x.name}, and this rank has a part of it`);
}
