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
import { addGradient } from './add.ts';
import { sumRows } from './sum-rows.ts';

/**
 * What a weight reads in place of x, where each rank has some of its columns: x with a gradient of its own, which is a sum over
 * ranks behind the rules of all such weights; of a tensor of which each rank has rows, those of all.
 */
export function columnsInput(g: Graph, x: Tensor, weight: Tensor): Tensor {
  const { split } = weight;
  const { inputs } = g.borders;
  const known = inputs.get(x);
  if (split?.by !== 'columns') {
    assert(x.split?.by !== 'rows', `${weight.name} is the same on all ranks, ${x.name} is not`);
    return x;
  }
  if (known) return known;
  const input = x.split?.by === 'rows' ? allRows(g, x) : wholeInput(g, x, split.ranks, weight.name);
  inputs.set(x, input);
  inputs.set(input, input);
  return input;
}

function wholeInput(g: Graph, x: Tensor, ranks: number, label: string): Tensor {
  checkWhole(x, label);
  // A whole weight that reads x, too, could hand its gradient on to what the activation is of.
  assert(!x.activationOf, `${label} reads the output of a fused activation, of which it sums the gradient`);
  const input = g.alias(x);
  g.onBackward(input, (dx) => {
    g.emitAllReduce(dx, ranks, `d ${x.name}`);
    // What reads x besides is the same on all ranks, and so is its gradient: it is not summed.
    if (!g.aliasGradient(x, dx)) addGradient(g, x, dx, x.name);
  });
  return input;
}

function allRows(g: Graph, x: Tensor): Tensor {
  assert(g.rows, `${x.name}: ranks share no rows`);
  const { ranks, batch, seq } = g.rows;
  const width = at(x.shape, x.shape.length - 1);
  const all = makeTensor(`${x.name} of all rows`, [batch, seq, width], 'activation', 'f32', x.wantsGradient);
  g.borders.open = x;
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
    sumRows(g, dall, gradient, { rows: count * rows.ranks, width, accumulate, inSlices: true }, bias.name);
  });
  return own;
}

function gatherAgain(g: Graph, own: Tensor, ranks: number): void {
  const all = g.borders.inputs.get(own);
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
