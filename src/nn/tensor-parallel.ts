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
import { ROW_BLOCK } from '../kernels/norm-gradients.ts';
import { at } from '../util/at.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { STORED_BLOCKS } from '../values/stored-elements.ts';
import { type PackedTensor, PIECE_ELEMENTS, type TensorSource } from '../values/tensor-source.ts';
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
  const cutsBlock = (ranks: number) =>
    model.parameters.find((parameter) => {
      const split = splits.get(parameter.name);
      return split !== undefined && !hasWholeBlocks(parameter, { ...split, ranks });
    });
  const cut = cutsBlock(ranks);
  if (cut) {
    const { stored: element = 'f32' } = cut;
    const works = [...evenly.slice(1).filter((count) => !cutsBlock(count)), '--base-dtype bf16'];
    refuse(
      `${cut.name} is in blocks of ${STORED_BLOCKS[element].elements} (${element}), of which each rank cannot have whole ones; give ${works.join(' or ')}`,
    );
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

const product = (sizes: readonly number[]): number => sizes.reduce((a, b) => a * b, 1);

/** Whether what each rank has of a tensor, be it of a part's shape or of all, begins and ends with a block. */
function hasWholeBlocks({ shape, stored = 'f32' }: Parameter, { axis, sections, ranks }: ParameterSplit): boolean {
  const inner = product(shape.slice(axis + 1));
  return sections.every((section) => {
    const each = Math.ceil(section / ranks);
    const last = section - (ranks - 1) * each;
    return [each, last].every((size) => (size * inner) % STORED_BLOCKS[stored].elements === 0);
  });
}

/** A split tensor in the order of its elements: of each run, which rank has it and how long it is. */
function* runsOf({ shape }: Parameter, { axis, sections, ranks }: ParameterSplit) {
  const outer = product(shape.slice(0, axis));
  const inner = product(shape.slice(axis + 1));
  for (let i = 0; i < outer; i++) {
    for (const section of sections) {
      const each = Math.ceil(section / ranks);
      for (let rank = 0; rank < ranks; rank++) yield { rank, size: Math.min(each, section - rank * each) * inner };
    }
  }
}

/**
 * The parts of whole tensors that the rank has to which this part of a model belongs, also as they are stored. A piece may be
 * read until the next is asked for.
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
      yield* partOf(parameter, parameter.split, source.read(name), 1);
      const { unused = 0 } = parameter.split;
      if (unused > 0) yield new Float32Array(unused * product(parameter.shape.slice(1)));
    },
    packed(name) {
      const parameter = byName.get(name);
      const whole = source.packed?.(name);
      if (!parameter?.split || !whole) return whole;
      return parameter.stored === whole.element ? packedPart(parameter, parameter.split, whole) : undefined;
    },
    reader: (name, element) => (byName.get(name)?.split ? undefined : source.reader?.(name, element)),
  };
}

/** `each`: of what comes, for an element. */
async function* partOf<T extends Floats | Bytes>(
  parameter: Parameter,
  split: ParameterSplit,
  whole: AsyncIterable<T>,
  each: number,
): AsyncGenerator<T, void> {
  const taken = new Taken(whole);
  for (const run of runsOf(parameter, split)) {
    for await (const piece of taken.take(run.size * each)) if (run.rank === split.rank) yield piece;
  }
}

/** A part is of whole blocks, in memory of its own: where it begins in that of the whole is no place to read words. */
function packedPart(parameter: Parameter, split: ParameterSplit, { element, read }: PackedTensor): PackedTensor {
  const { elements, bytes } = STORED_BLOCKS[element];
  const { unused = 0 } = split;
  const sizeOf = (count: number): number => (count / elements) * bytes;
  return {
    element,
    async *read() {
      const size = Math.min(product(parameter.shape), PIECE_ELEMENTS);
      yield* refilled(new Uint8Array(sizeOf(size)), partOf(parameter, split, read(), bytes / elements));
      if (unused > 0) yield new Uint8Array(sizeOf(unused * product(parameter.shape.slice(1))));
    },
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
      const split = parameter?.split;
      if (!split) {
        yield* own.read(name);
        return;
      }
      const parts = sources.map((source) => new Taken(source.read(name)));
      const runs = async function* () {
        for (const run of runsOf(parameter, split)) yield* at(parts, run.rank).take(run.size);
      };
      const size = product(parameter.shape) * split.ranks;
      yield* refilled(new Float32Array(Math.min(size, PIECE_ELEMENTS)), runs());
    },
  };
}

type Floats = Float32Array<ArrayBuffer>;
type Bytes = Uint8Array<ArrayBuffer>;

/** What `parts` bring, in this memory, each time that it is full. */
async function* refilled<T extends Floats | Bytes>(memory: T, parts: AsyncIterable<T>): AsyncGenerator<T, void> {
  let filled = 0;
  for await (const part of parts) {
    for (let from = 0; from < part.length; ) {
      const count = Math.min(part.length - from, memory.length - filled);
      memory.set(part.subarray(from, from + count), filled);
      from += count;
      filled += count;
      if (filled < memory.length) continue;
      yield memory;
      filled = 0;
    }
  }
  if (filled > 0) yield memory.subarray(0, filled) as T;
}

/** What pieces bring, so much at a time. */
class Taken<T extends Floats | Bytes> {
  readonly #pieces: AsyncIterator<T>;
  #rest: T | undefined;

  constructor(pieces: AsyncIterable<T>) {
    this.#pieces = pieces[Symbol.asyncIterator]();
  }

  async *take(count: number): AsyncGenerator<T, void> {
    for (let left = count; left > 0; ) {
      const rest = this.#rest;
      if (!rest || rest.length === 0) {
        const next = await this.#pieces.next();
        assert(!next.done, 'a tensor has as many elements as its shape says');
        this.#rest = next.value;
        continue;
      }
      const piece = rest.subarray(0, left) as T;
      this.#rest = rest.subarray(piece.length) as T;
      left -= piece.length;
      yield piece;
    }
  }
}
