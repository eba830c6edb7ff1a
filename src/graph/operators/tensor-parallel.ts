// Borders between a layer that several ranks share and what all of them have (Shoeybi et al. 2019, f and g): in the
// forward pass the sum behind a weight of which each has rows, in the backward pass the sum of what weights of which
// each has columns make of their input's gradient. Which weights are split, and how, is the model's layout
// (nn/tensor-parallel.ts). With `rows` of the graph each rank has a part of the rows between shared layers
// (Korthikanti et al. 2022): a sum leaves it its rows, and before weights of which each has columns the rows of all are
// gathered, in the backward pass once more in place of staying until then.
//
// Invariants: no other operator takes a part of something for the whole; `whole` refuses it when a model is traced. With and
// without `rows` every sum has the same terms in the same order, hence the same bits.

import { copyRows } from '../../kernels/copy-rows.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import type { Graph } from '../graph.ts';
import { makeTensor, type Tensor } from '../program.ts';
import { sumRows } from './sum-rows.ts';

/**
 * Called by what multiplies x with a weight of which this rank has columns, before it records its rule: the gradient of x is
 * the sum over ranks behind the rules of all such.
 */
export function sharedInput(g: Graph, x: Tensor, weight: Tensor): void {
  const { split } = weight;
  if (split?.by !== 'columns') return;
  checkWhole(x, weight.name);
  const { reads, areGathered } = g.borders;
  // Its gradient is summed where its rows go back to their ranks.
  if (areGathered.has(x)) return;
  const before = reads.get(x);
  let count = before ?? 0;
  const adapter = g.adapterOf(weight);
  for (const { wantsGradient } of [weight, ...(adapter ? [adapter.a] : [])]) count += wantsGradient ? 2 : 1;
  reads.set(x, count);
  if (before !== undefined) return;
  g.onBackward(x, (dx) => {
    // What all ranks have would be summed, too.
    assert(g.uses(x) === reads.get(x), `${x.name} is read by split weights and by something else`);
    g.emitAllReduce(dx, split.ranks, `d ${x.name}`);
  });
}

/** All rows of what is multiplied with weights of which each rank has columns, and with nothing else. */
export function allRows(g: Graph, x: Tensor, weight: Tensor): Tensor {
  if (!g.rows || x.split?.by !== 'rows') return x;
  assert(weight.split?.by === 'columns', `${weight.name} is the same on all ranks, ${x.name} is not`);
  const { ranks, batch, seq } = g.rows;
  const { borders } = g;
  const known = borders.gathered.get(x);
  if (known) return known;
  const width = at(x.shape, x.shape.length - 1);
  const all = makeTensor(`${x.name} of all rows`, [batch, seq, width], 'activation', 'f32', x.wantsGradient);
  borders.gathered.set(x, all);
  borders.areGathered.add(all);
  borders.open = x;
  g.emitRows('gather-rows', all, x, ranks, x.name);
  g.onBackward(all, (dall) => {
    const { gradient, accumulate } = g.gradientTarget(x);
    assert(!accumulate, `${x.name} is read by split weights and by something else`);
    g.emitRows('scatter-rows', dall, gradient, ranks, `d ${x.name}`);
  });
  return all;
}

/** The sum over ranks of y = x W, where each has rows of W: the same on all of them. */
export function summedOutput(g: Graph, y: Tensor, x: Tensor, weight: Tensor): void {
  const { split } = weight;
  if (split?.by !== 'rows') return;
  assert(x.split?.by === 'columns', `${weight.name} has some rows, ${x.name} all columns`);
  if (!g.rows) g.emitAllReduce(y, split.ranks, weight.name);
}

/** This rank's rows of the sum over ranks of y = x W, where each has rows of W, and of the bias behind it. */
export function summedRows(g: Graph, y: Tensor, weight: Tensor, bias: Tensor | undefined): Tensor {
  const { rows } = g;
  assert(rows, `${weight.name}: ranks share no rows`);
  const own = ownRows(g, weight.name, y);
  g.emitRows('scatter-rows', y, own, rows.ranks, weight.name);
  const width = at(y.shape, y.shape.length - 1);
  const count = own.size / width;
  if (bias) {
    const problem = { batch: count, rows: 1, width, xRows: 0, xFirst: 0, yRows: 1, yFirst: 0, accumulate: true };
    g.emit(copyRows, problem, { x: bias, y: own }, bias.name);
  }
  const { open: input } = g.borders;
  g.borders.open = undefined;
  g.onBackward(own, (dy) => {
    // What the rules of this half of the block read, and what is made again for them is made of.
    if (input) gatherAgain(g, input, rows.ranks);
    const { gradient: dall } = g.gradientTarget(y);
    g.emitRows('gather-rows', dall, dy, rows.ranks, `d ${weight.name}`);
    if (!bias?.wantsGradient) return;
    const { gradient, accumulate } = g.gradientTarget(bias);
    sumRows(g, dall, gradient, { rows: count * rows.ranks, width, accumulate }, bias.name);
  });
  return own;
}

function gatherAgain(g: Graph, own: Tensor, ranks: number): void {
  const all = g.borders.gathered.get(own);
  assert(all, `${own.name} was gathered`);
  const again = { ...makeTensor(`${all.name} again`, all.shape, 'activation'), standsFor: all };
  g.emitRows('gather-rows', again, own, ranks, `${own.name} again`);
  g.standIn(again);
}

/** A new tensor for this rank's rows of one that will have all. */
export function ownRows(g: Graph, name: string, all: Tensor, from: readonly Tensor[] = [all]): Tensor {
  const { rows } = g;
  assert(rows, `${name}: ranks share no rows`);
  const width = at(all.shape, all.shape.length - 1);
  const { ranks, rank } = rows;
  const own = g.activation(`${name} of own rows`, [all.size / width / ranks, width], from);
  return { ...own, split: { by: 'rows', ranks, rank } };
}

/** What is to be added up over rows, a row a block of them: of those of all ranks where x has some. */
export function blocksOfAll(g: Graph, partials: Tensor, x: Tensor, label: string): Tensor {
  if (!g.rows || x.split?.by !== 'rows') return partials;
  const { ranks } = g.rows;
  const [blocks, width] = partials.shape as [number, number];
  const all = g.activation(`${partials.name} of all rows`, [ranks * blocks, width]);
  g.emitRows('gather-rows', all, partials, ranks, `d ${label}`);
  return all;
}

/** A check that x is not a part of something. */
export function checkWhole(x: Tensor, label: string): void {
  assert(!x.split, `${label} takes all of ${x.name}, and this rank has a part of it`);
}

/** A check that x has whole rows, be it some of them. */
export function wholeRows(x: Tensor, label: string): void {
  assert(x.split?.by !== 'columns', `${label} takes whole rows of ${x.name}, and this rank has a part of each`);
}
