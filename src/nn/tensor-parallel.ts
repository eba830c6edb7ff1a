// A model whose layers several ranks share (Shoeybi et al. 2019): the parameters of which each has a part, as the layout of
// its family says it by the names of linears (formats/families). What is exchanged follows from it as the model is traced
// (graph/operators/tensor-parallel.ts); initial values, checkpoints and the gradient's norm follow from the parameters.
//
// Invariant: what all ranks have (norms, positions, biases behind a sum, whole linears) has the same gradient on all of them, to the bit: its
// inputs are sums over ranks that one rank has made, and the kernels are the same.

import type { Linear } from '../formats/adapter.ts';
import type { LinearLayout } from '../formats/families/family.ts';
import { familyOf } from '../formats/families/index.ts';
import type { GridPlace } from '../graph/grid-place.ts';
import { ROW_BLOCK } from '../kernels/layernorm.ts';
import { at } from '../util/at.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { STORED_BLOCKS } from '../values/stored-elements.ts';
import { PIECE_ELEMENTS, type TensorSource } from '../values/tensor-source.ts';
import { linearsOf } from './lora.ts';
import type { Model, Parameter, ParameterSplit } from './model.ts';

/** How a linear is split, and into how many sections side by side its columns are first. */
type Layout = readonly [by: 'columns' | 'rows' | 'whole', sections: number];

const layoutOf = (module: string, layout: LinearLayout): Layout => {
  const [, found] = Object.entries(layout).find(([name]) => module.endsWith(`.${name}`)) ?? [];
  assert(found, `${module}: the layout of its family does not have it`);
  return typeof found === 'string' ? [found, 1] : ['columns', found.columns];
};

/**
 * What each of so many ranks has of a model. Errors: HoldfastError for sizes that ranks cannot share evenly, naming how many can, and for what does not train so.
 */
export function splitModel(model: Model, { rank, size: ranks }: GridPlace): Model {
  const { config, shape, adapters = [] } = model;
  const { linears: layout, stored } = familyOf(config);
  const refuse = (problem: string): never => {
    throw new HoldfastError(`--tensor-parallel ${ranks}: ${problem}`);
  };
  if (adapters.some(({ options }) => options.dropout > 0))
    refuse(
      'dropout of a low-rank update (--lora-dropout) would differ from that of one rank; use data parallel ranks, or none',
    );
  const inBlocks = model.parameters.find(({ stored = 'f32' }) => STORED_BLOCKS[stored].elements > 1);
  if (inBlocks)
    refuse(`frozen weights in blocks (--base-dtype ${inBlocks.stored}) cannot be dealt out yet; give bf16, f16 or f32`);
  const linears = linearsOf(model);
  const evenly = Array.from({ length: shape.kvHeads }, (_, i) => i + 1).filter((count) => {
    return [shape.heads, shape.kvHeads, ...linears.flatMap((linear) => sectionsOf(linear, layout))].every(
      (size) => size % count === 0,
    );
  });
  if (!evenly.includes(ranks)) {
    const widest = Math.max(...linears.map(({ outputs }) => outputs));
    const works = evenly.length > 1 ? `give ${evenly.slice(1).join(' or ')}` : 'this model cannot be shared so';
    refuse(
      `${shape.heads} heads, ${shape.kvHeads} of keys and values, and a width of ${widest} inside are not all divisible by it; ${works}`,
    );
  }
  const splits = new Map<string, ParameterSplit>();
  for (const linear of linears) {
    const [by] = layoutOf(linear.module, layout);
    if (by === 'whole') continue;
    const sections = sectionsOf(linear, layout);
    const { weight, fanInFanOut } = linear;
    splits.set(weight, { by, ranks, rank, sections, axis: (by === 'columns') === fanInFanOut ? 1 : 0 });
    if (by === 'columns') splits.set(weight.replace(/\.weight$/, '.bias'), { by, ranks, rank, sections, axis: 0 });
  }
  for (const { weight, a, b } of adapters.flatMap((adapter) => adapter.linears)) {
    const split = splits.get(weight);
    if (split?.by === 'columns') splits.set(b, { ...split, axis: 0 });
    else if (split) splits.set(a, { ...split, axis: 1 });
  }
  const { vocabulary } = shape;
  if (isDealtOut(vocabulary, ranks)) {
    const rest = Math.ceil(vocabulary / ranks) * ranks - vocabulary;
    const unused = rank === ranks - 1 ? rest : 0;
    const split = {
      by: 'columns',
      ranks,
      rank,
      sections: [vocabulary],
      axis: 0,
      ...(rest > 0 && { unused }),
    } as const;
    for (const name of [stored.embedding, stored.head, stored.headBias])
      if (name !== undefined) splits.set(name, split);
  }
  const parameters = model.parameters.map((parameter): Parameter => {
    const split = splits.get(parameter.name);
    if (!split) return parameter;
    const shape = parameter.shape.map((size, axis) => (axis === split.axis ? Math.ceil(size / ranks) : size));
    return { ...parameter, shape, split };
  });
  const { heads, kvHeads } = shape;
  return { ...model, parameters, shape: { ...shape, heads: heads / ranks, kvHeads: kvHeads / ranks } };
}

/** A vocabulary of which the last rank would have nothing stays whole. */
const isDealtOut = (vocabulary: number, ranks: number): boolean =>
  (ranks - 1) * Math.ceil(vocabulary / ranks) < vocabulary;

/**
 * What micro-batches of so many rows need, where each of the ranks that share layers has some of them between these: whole blocks of
 * rows, which the gradients of norms are added up in. Errors: HoldfastError.
 */
export function checkRows(
  { config, shape: { vocabulary } }: Pick<Model, 'config' | 'shape'>,
  rows: number,
  ranks: number,
): void {
  const { label, writes } = familyOf(config);
  const refuse = (problem: string): never => {
    throw new HoldfastError(`--sequence-parallel: ${problem}`);
  };
  if (!writes) refuse(`${label} begins and ends in rows that every rank has; leave it out`);
  if (!isDealtOut(vocabulary, ranks)) refuse(`${ranks} ranks cannot share a vocabulary of ${vocabulary}; leave it out`);
  const each = ranks * ROW_BLOCK;
  if (rows % each === 0) return;
  refuse(
    `the ${rows} tokens of a micro-batch are not blocks of ${ROW_BLOCK} for each of ${ranks} ranks; give a --batch and a --context whose product is a multiple of ${each}, or leave it out`,
  );
}

/**
 * One rank, of those that share layers, for each size that their parts have: what is measured on it holds for parts of
 * its size alone.
 */
export const unlikeRanks = ({ shape }: Pick<Model, 'shape'>, ranks: number): number[] =>
  shape.vocabulary % ranks > 0 && isDealtOut(shape.vocabulary, ranks) ? [0, ranks - 1] : [0];

/** Along the axis that is split, if one is. */
function sectionsOf({ module, inputs, outputs }: Linear, layout: LinearLayout): number[] {
  const [by, count] = layoutOf(module, layout);
  if (by === 'whole') return [];
  const size = by === 'columns' ? outputs : inputs;
  return Array.from({ length: count }, () => size / count);
}

/** A split tensor in the order of its elements: of each run, which rank has it and how long it is. */
function* runsOf({ shape }: Parameter, { axis, sections, ranks }: ParameterSplit) {
  const outer = shape.slice(0, axis).reduce((a, b) => a * b, 1);
  const inner = shape.slice(axis + 1).reduce((a, b) => a * b, 1);
  for (let i = 0; i < outer; i++) {
    for (const section of sections) {
      const each = Math.ceil(section / ranks);
      for (let rank = 0; rank < ranks; rank++) yield { rank, size: Math.min(each, section - rank * each) * inner };
    }
  }
}

/**
 * The parts of whole tensors that the rank has to which this part of a model belongs. A piece may be read until the
 * next is asked for.
 */
export function partsOf({ parameters }: Pick<Model, 'parameters'>, source: TensorSource): TensorSource {
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  return {
    names: source.names,
    async *read(name) {
      const parameter = byName.get(name);
      if (!parameter?.split) {
        yield* source.read(name);
        return;
      }
      const whole = new Elements(source.read(name));
      for (const run of runsOf(parameter, parameter.split)) {
        for await (const piece of whole.take(run.size)) if (run.rank === parameter.split.rank) yield piece;
      }
      const { unused = 0 } = parameter.split;
      if (unused > 0) yield new Float32Array(parameter.shape.slice(1).reduce((a, b) => a * b, unused));
    },
    packed: (name) => (byName.get(name)?.split ? undefined : source.packed?.(name)),
    reader: (name, element) => (byName.get(name)?.split ? undefined : source.reader?.(name, element)),
  };
}

/** Whole tensors of what each rank has of them. */
export function wholeOf({ parameters }: Pick<Model, 'parameters'>, sources: readonly TensorSource[]): TensorSource {
  const byName = new Map(parameters.map((parameter) => [parameter.name, parameter]));
  const own = at(sources, 0);
  return {
    names: own.names,
    async *read(name) {
      const parameter = byName.get(name);
      if (!parameter?.split) {
        yield* own.read(name);
        return;
      }
      const parts = sources.map((source) => new Elements(source.read(name)));
      const size = parameter.shape.reduce((a, b) => a * b, parameter.split.ranks);
      const piece = new Float32Array(Math.min(size, PIECE_ELEMENTS));
      let filled = 0;
      for (const run of runsOf(parameter, parameter.split)) {
        for await (const part of at(parts, run.rank).take(run.size)) {
          for (let from = 0; from < part.length; ) {
            const count = Math.min(part.length - from, piece.length - filled);
            piece.set(part.subarray(from, from + count), filled);
            from += count;
            filled += count;
            if (filled < piece.length) continue;
            yield piece;
            filled = 0;
          }
        }
      }
      if (filled > 0) yield piece.subarray(0, filled);
    },
  };
}

/** The elements of a tensor, so many at a time. */
class Elements {
  readonly #pieces: AsyncIterator<Float32Array<ArrayBuffer>>;
  #rest = new Float32Array(0);

  constructor(pieces: AsyncIterable<Float32Array<ArrayBuffer>>) {
    this.#pieces = pieces[Symbol.asyncIterator]();
  }

  async *take(count: number): AsyncGenerator<Float32Array<ArrayBuffer>, void> {
    for (let left = count; left > 0; ) {
      if (this.#rest.length === 0) {
        const next = await this.#pieces.next();
        assert(!next.done, 'a tensor has as many elements as its shape says');
        this.#rest = next.value;
        continue;
      }
      const piece = this.#rest.subarray(0, left);
      this.#rest = this.#rest.subarray(piece.length);
      left -= piece.length;
      yield piece;
    }
  }
}
