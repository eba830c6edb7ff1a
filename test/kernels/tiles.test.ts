// A tensor in row tiles: a kernel's parts, run in ascending order, give the bits of the whole, and each part
// leaves alone what is not its own. The whole tensor has rows and columns around those of the problem, as the
// head's weight and packed tensors have, so that tiles hold all, some or none of the problem's rows.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { fill } from '../../src/kernels/add.ts';
import {
  embedding,
  embeddingBackward,
  positionBackward,
  positionEmbedding,
  tokenIndex,
} from '../../src/kernels/embedding.ts';
import { ceilDiv, type Kernel, type Tile, type Variant } from '../../src/kernels/kernel.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import type { Epilogue, Layout, MatmulProblem } from '../../src/kernels/matmul-problem.ts';
import { field } from '../entry.ts';
import { type HostArray, runKernel, runnable, SENTINEL } from '../harness.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { cases } from './cases.ts';
import { Draws, toArrays } from './inputs.ts';

type Data = Record<string, HostArray>;

/** A problem, the operand that is stored in tiles, its tensor's rows and their length. */
interface Tiled<P> {
  problem: P;
  operand: string;
  rows: number;
  rowLength: number;
  /** The operands whose contents are not standard normal. */
  given?: Data;
}

const bitsOf = (array: HostArray) => new Uint32Array(array.buffer, array.byteOffset, array.length);

/** Tiles of `rows` rows that end after the rows in `cuts`. */
function tilesOf(rows: number, rowLength: number, cuts: readonly number[]): Tile[] {
  const ends = [...new Set([...cuts.map((cut) => 1 + (cut % rows)), rows])].sort((a, b) => a - b);
  const begins = [0, ...ends];
  return ends.map((end, i) => {
    const begin = begins[i]!;
    return { first: begin * rowLength, size: (end - begin) * rowLength };
  });
}

/** The operands before the run, the tiled one with its whole tensor. What is only written holds the sentinel. */
function tensorsOf<P>(kernel: Kernel<P>, { problem, operand, rows, rowLength, given = {} }: Tiled<P>): Data {
  const random = new Draws(5);
  const tensors: Data = {};
  for (const [name, { access, size }] of Object.entries(kernel.operands(problem))) {
    const length = name === operand ? rows * rowLength : size;
    const tensor = given[name] ?? random.normals(length);
    if (access === 'write') bitsOf(tensor).fill(SENTINEL);
    tensors[name] = tensor;
  }
  return tensors;
}

/** Runs a problem on tensors from their `start`, and writes the results there. */
async function runOn<P>(
  kernel: Kernel<P>,
  variant: Variant<P>,
  problem: P,
  tensors: Data,
  start: Record<string, number>,
) {
  const place = (name: string) => start[name] ?? 0;
  const data: Data = {};
  for (const [name, { size }] of Object.entries(kernel.operands(problem))) {
    data[name] = field(tensors, name).subarray(place(name), place(name) + size);
  }
  const results = await runKernel(kernel, variant, problem, data);
  const after = toArrays(kernel, problem, data);
  kernel.reference(problem, after);
  for (const [name, result] of Object.entries(results)) {
    const [given, updated] = [field(data, name), field(after, name)];
    const before = bitsOf(given);
    const untouched = bitsOf(result).every((word, i) => word === before[i] || updated[i] !== given[i]);
    expect(untouched, `${name} changed only where the reference changes it`).toBe(true);
    bitsOf(field(tensors, name)).set(bitsOf(result), place(name));
  }
}

async function expectSameBits<P>(kernel: Kernel<P>, variant: Variant<P>, tiled: Tiled<P>, cuts: readonly number[]) {
  const { problem, operand, rows, rowLength } = tiled;
  const whole = tensorsOf(kernel, tiled);
  await runOn(kernel, variant, problem, whole, {});
  const inTiles = tensorsOf(kernel, tiled);
  for (const tile of tilesOf(rows, rowLength, cuts)) {
    const part = kernel.tile?.(problem, operand, tile);
    if (part) await runOn(kernel, variant, part, inTiles, { [operand]: tile.first });
  }
  for (const name of Object.keys(kernel.operands(problem))) {
    expect(bitsOf(field(inTiles, name)), name).toEqual(bitsOf(field(whole, name)));
  }
}

const cuts = fc.array(fc.nat(), { maxLength: 4 });

/** Sizes that fill a workgroup's part of C in any variant, or fall short of it. */
const length = fc.oneof(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 70 }));

/** Rows and columns of a tensor around a matrix. */
const margin = fc.oneof(fc.constant(0), fc.integer({ min: 1, max: 9 }));
const margins = fc.record({ above: margin, below: margin, left: margin, right: margin });
type Margins = typeof margins extends fc.Arbitrary<infer T> ? T : never;

interface Products {
  /** The operand in tiles. */
  operand: 'b' | 'c';
  epilogues: readonly Epilogue[];
}

/** Products of matrices that lie in larger tensors. */
function products({ operand, epilogues }: Products): fc.Arbitrary<Tiled<MatmulProblem>> {
  const choice = fc.record({
    layout: fc.constantFrom<Layout>('NN', 'NT', 'TN'),
    size: fc.record({ M: length, N: length, K: length }),
    around: fc.record({ a: margins, b: margins, c: margins }),
    accumulate: fc.boolean(),
    partial: fc.boolean(),
    epilogue: fc.constantFrom(...epilogues),
    // With 4, the whole is loaded four floats at a time where it can be.
    unit: fc.constantFrom(1, 4),
  });
  return choice.map(({ layout, size, around, accumulate, partial, epilogue, unit }) => {
    const even = (count: number) => ceilDiv(count, unit) * unit;
    const [M, N, K] = [even(size.M), even(size.N), even(size.K)];
    const matrix = (rows: number, columns: number, { above, below, left, right }: Margins) => {
      const rowLength = even(left) + columns + even(right);
      return { rowLength, offset: above * rowLength + even(left), rows: above + rows + below };
    };
    const a = layout === 'TN' ? matrix(K, M, around.a) : matrix(M, K, around.a);
    const b = layout === 'NT' ? matrix(N, K, around.b) : matrix(K, N, around.b);
    const c = matrix(M, N, around.c);
    const problem: MatmulProblem = {
      ...{ layout, M, N, K, accumulate, partial, epilogue, scale: 0.3 },
      ...{ aStride: a.rowLength, aOffset: a.offset, bStride: b.rowLength, bOffset: b.offset },
      ...{ cStride: c.rowLength, cOffset: c.offset },
    };
    const { rows, rowLength } = { b, c }[operand];
    return { problem, operand, rows, rowLength, given: { targets: new Draws(6).integers(M, -1, N) } };
  });
}

/** Runs of variants that a CPU compiles for a second each: for each layout, epilogue and way to load. */
const COMPILED_FOR: Readonly<Record<string, number>> = { tiled: 2, tiledSmall: 1 };

describe.each(await runnable(matmul))('matmul $name', (variant) => {
  const numRuns = EVERY_CASE ? 100 : (COMPILED_FOR[variant.name] ?? 10);

  it.each<Products>([
    {
      operand: 'b',
      epilogues: [
        ...(['none', 'scale', 'bias', 'residual', 'biasResidual', 'biasGelu', 'geluGradient'] as const),
        ...(['biasGeluErf', 'geluErfGradient', 'crossEntropy', 'biasCrossEntropy'] as const),
      ],
    },
    { operand: 'c', epilogues: ['none', 'scale', 'bias'] },
  ])('$operand in tiles', async (given) => {
    await fc.assert(
      fc.asyncProperty(products(given), cuts, (tiled, at) => expectSameBits(matmul, variant, tiled, at)),
      { numRuns, seed: 1 },
    );
  });
});

/** Widths of which half are loaded four floats at a time. */
const width = fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(4, 8, 12));
const count = fc.integer({ min: 1, max: 40 });
const seeds = fc.nat();

const embeddings = fc.record({ rows: count, width, vocabulary: count, seed: seeds });
const positionEmbeddings = fc.record({
  batch: fc.constantFrom(1, 2, 3),
  seq: count,
  width,
  positions: count,
  at: fc.nat(9),
});

/** A kernel, and problems of which an operand is stored in tiles. */
interface Table<P> {
  kernel: Kernel<P>;
  problems: fc.Arbitrary<Tiled<P>>;
}

// biome-ignore lint/suspicious/noExplicitAny: a table of kernels of different problems
const table = <P>(entry: Table<P>): Table<any> => entry;

const tables = [
  table({
    kernel: embedding,
    // Some ids lie outside the vocabulary, and some tiles hold no id.
    problems: embeddings.map(({ seed, ...problem }) => ({
      problem,
      operand: 'weight',
      rows: problem.vocabulary,
      rowLength: problem.width,
      given: { ids: new Draws(seed).integers(problem.rows, -1, problem.vocabulary + 1) },
    })),
  }),
  table({
    kernel: embeddingBackward,
    problems: embeddings.map(({ seed, ...problem }) => ({
      problem,
      operand: 'dweight',
      rows: problem.vocabulary,
      rowLength: problem.width,
      given: { ...tokenIndex(new Draws(seed).integers(problem.rows, -1, problem.vocabulary + 1)) },
    })),
  }),
  table({
    kernel: positionEmbedding,
    problems: positionEmbeddings.map(({ batch, seq, width, positions, at }) => ({
      problem: { rows: batch * seq, seq, width, positions },
      operand: 'positionWeight',
      rows: positions,
      rowLength: width,
      given: { position: Uint32Array.of(at) },
    })),
  }),
  table({
    kernel: positionBackward,
    problems: positionEmbeddings.map(({ at, ...problem }) => ({
      problem: { ...problem, positions: problem.seq + at, accumulate: at % 2 === 0 },
      operand: 'dweight',
      rows: problem.seq + at,
      rowLength: problem.width,
    })),
  }),
  table({
    kernel: fill,
    problems: fc.record({ rows: count, width }).map(({ rows, width }) => ({
      problem: { size: rows * width, value: -1.5 },
      operand: 'y',
      rows,
      rowLength: width,
    })),
  }),
];

describe.each(tables)('$kernel.name', async ({ kernel, problems }) => {
  it.each(await runnable(kernel))('$name', async (variant) => {
    await fc.assert(
      fc.asyncProperty(problems, cuts, (tiled, at) => expectSameBits(kernel, variant, tiled, at)),
      { numRuns: EVERY_CASE ? 200 : THOROUGH ? 30 : 10, seed: 1 },
    );
  });
});

it('covers every kernel that takes tiles', () => {
  const covered = [matmul, ...tables.map(({ kernel }) => kernel)].map(({ name }) => name);
  expect(covered.sort()).toEqual(
    cases
      .filter(({ kernel: { tile } }) => tile)
      .map(({ kernel: { name } }) => name)
      .sort(),
  );
});

it('gives a tile no part where the problem needs none of its rows', () => {
  // The head's second slice of a vocabulary of 30 in slices of 10, stored in tiles of 15, 5 and 10 rows of 4.
  const problem: MatmulProblem = { layout: 'NT', M: 7, N: 10, K: 4, bOffset: 40, epilogue: 'bias' };
  const part = (first: number, rows: number) => matmul.tile?.(problem, 'b', { first: first * 4, size: rows * 4 });
  expect(part(0, 15)).toMatchObject({ N: 5, bOffset: 40, cOffset: 0, cStride: 10, biasOffset: 0, partial: true });
  expect(part(15, 5)).toMatchObject({ N: 5, bOffset: 0, cOffset: 5, cStride: 10, biasOffset: 5, partial: true });
  expect(part(20, 10)).toBeUndefined();
  expect(part(0, 10)).toBeUndefined();
  const gradient = matmul.tile?.({ ...problem, epilogue: 'crossEntropy', firstLabel: 10 }, 'b', {
    first: 15 * 4,
    size: 5 * 4,
  });
  expect(gradient).toMatchObject({ N: 5, cOffset: 5, firstLabel: 15 });
});
