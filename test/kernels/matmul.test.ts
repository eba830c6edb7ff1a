// What the engine relies on when it splits a product or chooses a variant: the same bits.

import { describe, expect, it } from 'vitest';
import { ACTIVATION_NAMES } from '../../src/kernels/activations.ts';
import { columnSum } from '../../src/kernels/column-sum.ts';
import { ceilDiv, mayServe } from '../../src/kernels/kernel.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { type Epilogue, epiloguesOf, type Layout, type MatmulProblem } from '../../src/kernels/matmul-problem.ts';
import { TILE_SHAPES } from '../../src/kernels/matmul-tiles.ts';
import { CODECS } from '../../src/values/stored-elements.ts';
import { entry, field, fields, leading } from '../entry.ts';
import { type HostArray, isWorthwhile, runKernel, runnable, testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { Draws } from './inputs.ts';

const device = await testDevice();
const variants = await runnable(matmul);

type Data = Record<'a' | 'b' | 'c', HostArray>;

/** The bits of c after the parts of a sum over K were run one after another. */
async function bitsOf(variant: (typeof variants)[number], problem: MatmulProblem, parts: number[], data: Data) {
  const { layout, M, N, K } = problem;
  let c = data.c;
  let from = 0;
  for (const length of parts) {
    const part: MatmulProblem = {
      ...problem,
      K: length,
      aStride: layout === 'TN' ? M : K,
      bStride: layout === 'NT' ? K : N,
      aOffset: layout === 'TN' ? from * M : from,
      bOffset: layout === 'NT' ? from : from * N,
      accumulate: problem.accumulate || from > 0,
    };
    const operands = fields(matmul.operands(part), 'a', 'b');
    const a = data.a.subarray(0, operands.a.size);
    const b = data.b.subarray(0, operands.b.size);
    c = field(await runKernel(matmul, variant, part, { a, b, c }), 'c');
    from += length;
  }
  expect(from).toBe(K);
  return new Uint32Array(c.buffer, c.byteOffset, c.length);
}

describe.each<Layout>(['NN', 'NT', 'TN'])('%s', async (layout) => {
  const nth = ['NT', 'NN', 'TN'].indexOf(layout);
  const isWorth = await Promise.all(variants.map((variant) => isWorthwhile(variant, nth, 2)));
  const worthwhile = variants.filter((_, i) => isWorth[i]);
  const random = new Draws(11);
  const problem: MatmulProblem = { layout, M: 36, N: 52, K: 64 };
  const { M, N, K } = problem;
  const data: Data = { a: random.normals(M * K), b: random.normals(K * N), c: random.normals(M * N) };

  // A fact of how the sums are made, not of what compiles them.
  it.runIf(THOROUGH).each(worthwhile)('$name: no bit depends on how the sum over K is split', async (variant) => {
    for (const accumulate of [false, true]) {
      const whole = await bitsOf(variant, { ...problem, accumulate }, [64], data);
      // Aligned parts are loaded four floats at a time, odd ones one by one.
      for (const parts of [
        [24, 40],
        [23, 41],
        [1, 2, 61],
      ]) {
        expect(await bitsOf(variant, { ...problem, accumulate }, parts, data)).toEqual(whole);
      }
    }
  });

  // A GPU's compiler may contract a product and a sum to one rounding in one variant and not in another (WGSL
  // allows it), which is why a run records its choices. Software adapters round both.
  it.runIf(device.adapter.software)('no bit depends on the variant', async () => {
    const [first] = leading(1, variants);
    const whole = await bitsOf(first, problem, [64], data);
    for (const other of worthwhile.filter((variant) => variant !== first))
      expect(await bitsOf(other, problem, [64], data), other.name).toEqual(whole);
  });
});

describe('what finishes a product', () => {
  const EPILOGUES: readonly Epilogue[] = [
    ...(['none', 'scale', 'softcap', 'bias', 'residual', 'biasResidual'] as const),
    ...(['crossEntropy', 'biasCrossEntropy'] as const),
    ...ACTIVATION_NAMES.flatMap((name) => Object.values(epiloguesOf(name))),
  ];
  const [M, N, K] = [17, 20, 12];

  // What is tiled takes a software adapter half a minute to compile.
  const quick = variants.filter(({ name }) => EVERY_CASE || !name.startsWith('tiled'));

  // As the order of the sum, a fact of the texts; a GPU's compiler may contract in one and not in the other.
  it.runIf(device.adapter.software).each(quick)(
    '$name: the bits of four floats at a time are those of one',
    async (variant) => {
      for (const epilogue of EPILOGUES) {
        for (const accumulate of [false, true]) {
          // The operands that lie as C does, from `offset` on in rows of `stride`.
          const outcome = async (stride: number, offset: number) => {
            const problem: MatmulProblem = {
              ...{ layout: 'NT', M, N, K, cStride: stride, cOffset: offset, biasOffset: offset, partial: true },
              ...{ epilogue, accumulate, scale: 0.3 },
            };
            const random = new Draws(13);
            const data: Record<string, HostArray> = { a: random.normals(M * K), b: random.normals(N * K) };
            const parts = ['c', 'residual', 'preactivation'].map((name) => [name, random.normals(M * N)] as const);
            const bias = random.normals(N);
            const ofLoss: Record<string, HostArray> = {
              lse: random.uniforms(2 * M, 4, 5),
              targets: random.integers(M, 0, N),
              gradientScale: new Float32Array([0.3]),
            };
            for (const [name, { size, access }] of Object.entries(matmul.operands(problem))) {
              const part = parts.find(([known]) => known === name)?.[1];
              const whole = ofLoss[name];
              if (whole) data[name] = whole;
              if (!part && name !== 'bias') continue;
              if (access === 'write') continue;
              const values = new Float32Array(size);
              if (part) for (let i = 0; i < M; i++) values.set(part.subarray(i * N, (i + 1) * N), offset + i * stride);
              else values.set(bias, offset);
              data[name] = values;
            }
            const found = await runKernel(matmul, variant, problem, data);
            return ['c', 'preactivation'].flatMap((name) => {
              const values = found[name];
              if (!values) return [];
              const bits = new Uint32Array(values.buffer, values.byteOffset, values.length);
              return Array.from({ length: M }, (_, i) => [
                ...bits.subarray(offset + i * stride, offset + i * stride + N),
              ]);
            });
          };
          const what = `${epilogue} ${accumulate}`;
          expect(await outcome(36, 8), what).toEqual(await outcome(37, 9));
        }
      }
    },
  );
});

describe('tiles of every shape', () => {
  const named = new Map(matmul.variants.map((variant) => [variant.name, variant]));
  const shapes = TILE_SHAPES.filter(({ halves }) => halves === undefined);

  const random = new Draws(12);
  const made = async (name: string, problem: MatmulProblem, data: Record<string, HostArray>) =>
    Object.entries(await runKernel(matmul, entry(named, name), problem, data)).map(([operand, values]) => [
      operand,
      new Uint32Array(values.buffer, values.byteOffset, values.length),
    ]);

  // Cut at both edges, with a panel that is not full behind others. A GPU's compiler may contract in one and not in the other.
  it.runIf(device.adapter.software)('have the same bits', async () => {
    const [M, N, K] = [132, 140, 72];
    const problem: MatmulProblem = { layout: 'NT', M, N, K };
    const data = { a: random.normals(M * K), b: random.normals(K * N) };
    const first = await made('tiled', problem, data);
    for (const { name } of shapes) expect(await made(name, problem, data), name).toEqual(first);
  });

  it.runIf(device.adapter.software && EVERY_CASE).each([
    { totalsOf: 'a', name: 'tiled128x64' },
    { totalsOf: 'b', name: 'tiled64x128' },
    { totalsOf: 'b', name: 'tiled32x64' },
  ] as const)('$name: the same totals of $totalsOf', async ({ totalsOf, name }) => {
    const [M, N, K] = [132, 140, 72];
    const problem: MatmulProblem = { layout: 'TN', M, N, K, totalsOf, stepsPerBlock: 64 };
    const totals = new Float32Array(totalsOf === 'a' ? M : N);
    const data = { a: random.normals(M * K), b: random.normals(K * N), totals };
    expect(await made(name, problem, data)).toEqual(await made('tiled', problem, data));
  });

  it('lie in the workgroup memory and the invocations that every adapter has', () => {
    for (const { name, rows, columns, block, depth } of TILE_SHAPES) {
      // A vec4f more for each step of k; sums of the longer side in fours.
      const panels = 4 * depth * (rows + columns + 8);
      expect(panels + 16 * Math.max(rows, columns), name).toBeLessThanOrEqual(16_384);
      expect((rows * columns) / (block[0] * block[1]), name).toBeLessThanOrEqual(256);
    }
  });

  it('are few for any one problem: small ones where large ones would be few', () => {
    const traits = { software: false, subgroupSize: 32 };
    const tried = (M: number, N: number) =>
      shapes
        .filter(({ name }) => mayServe(entry(named, name), { layout: 'NT', M, N, K: 768 }, traits))
        .map((shape) => shape.name);
    expect(tried(8192, 768)).toEqual(['tiled', 'tiledUnrolled', 'tiled128x64', 'tiled64x128']);
    expect(tried(512, 768)).toEqual(['tiled', 'tiledUnrolled', 'tiled32x64', 'tiledSmall']);
  });
});

describe('panels of halves', () => {
  const named = (wanted: string) => entry(new Map(matmul.variants.map((variant) => [variant.name, variant])), wanted);
  const random = new Draws(14);
  const [M, N, K] = [70, 68, 36];
  const a = random.normals(M * K);
  const b = CODECS.f16.widen(CODECS.f16.narrow(Float32Array.from(random.normals(K * N))), K * N);

  // A GPU's compiler may contract in one and not in the other.
  it.runIf(device.adapter.software).each(['NT', 'NN'].filter((layout) => EVERY_CASE || layout === 'NT') as Layout[])(
    'have the bits of panels of floats, where weights are in f16 (%s)',
    async (layout) => {
      const made = async (name: string) => {
        const problem = { layout, M, N, K } as const;
        const found = await runKernel(matmul, named(name), problem, { a, b }, { b: { element: 'f16' } });
        return new Uint32Array(field(found, 'c').buffer);
      };
      const floats = await made('tiled');
      for (const name of ['tiledHalves', 'tiledHalvesUnrolled']) {
        if (EVERY_CASE || name === 'tiledHalves') expect(await made(name), name).toEqual(floats);
      }
    },
  );

  // Each side as it lies in NN is in one of the two others.
  it
    .runIf(device.adapter.software)
    .each(['NT', 'NN', 'TN'].filter((layout) => EVERY_CASE || layout !== 'NN') as Layout[])(
    'of both sides have the bits of panels of floats, and make the same totals (%s)',
    async (layout) => {
      const rows = 72;
      const rounded = CODECS.f16.widen(CODECS.f16.narrow(Float32Array.from(random.normals(rows * K))), rows * K);
      const isSum = layout === 'TN';
      const problem: MatmulProblem = { layout, M: rows, N, K, ...(isSum && { totalsOf: 'a', stepsPerBlock: 64 }) };
      const given = { a: rounded, b, ...(isSum && { totals: new Float32Array(rows) }) };
      const made = async (name: string) => {
        const stored = { a: { element: 'f16' }, b: { element: 'f16' } } as const;
        const found = await runKernel(matmul, named(name), problem, given, stored);
        return (isSum ? ['c', 'totals'] : ['c']).map((list) => new Uint32Array(field(found, list).buffer));
      };
      const floats = await made('tiled');
      for (const name of ['tiledAllHalves', 'tiledAllHalvesUnrolled']) {
        if (EVERY_CASE || name === 'tiledAllHalves') expect(await made(name), name).toEqual(floats);
      }
    },
  );

  it('are for what is stored in them', () => {
    const traits = { software: false, subgroupSize: 32 };
    const problem: MatmulProblem = { layout: 'NN', M, N, K };
    for (const name of ['tiledHalves', 'tiledHalvesUnrolled']) {
      expect(mayServe(named(name), problem, traits, { b: 'f16' })).toBe(true);
      for (const stored of [{}, { b: 'bf16' }, { a: 'f16' }] as const) {
        expect(mayServe(named(name), problem, traits, stored)).toBe(false);
      }
    }
    for (const name of ['tiledAllHalves', 'tiledAllHalvesUnrolled']) {
      expect(mayServe(named(name), problem, traits, { a: 'f16', b: 'f16' })).toBe(true);
      for (const stored of [{}, { a: 'f16' }, { b: 'f16' }, { a: 'bf16', b: 'f16' }] as const) {
        expect(mayServe(named(name), problem, traits, stored)).toBe(false);
      }
    }
  });
});

// What is added to a product has sums over its rows for a gradient: made by themselves, in two passes, or by a product on the way.
describe('totals', async () => {
  const ROWS_PER_BLOCK = 64;
  const random = new Draws(12);
  const [columnSums] = leading(1, await runnable(columnSum));

  async function inTwoPasses(x: HostArray, y: HostArray, rows: number, stride: number, offset: number, width: number) {
    const blocks = ceilDiv(rows, ROWS_PER_BLOCK);
    const first = { rows, width, stride, offset, rowsPerBlock: ROWS_PER_BLOCK, accumulate: false };
    const partial = field(
      await runKernel(columnSum, columnSums, first, { x, y: new Float32Array(blocks * width) }),
      'y',
    );
    const last = { rows: blocks, width, stride: width, offset: 0, rowsPerBlock: blocks, accumulate: true };
    return field(await runKernel(columnSum, columnSums, last, { x: partial, y }), 'y');
  }

  it.each(
    variants.flatMap((variant) => (['a', 'b'] as const).map((totalsOf) => ({ variant, totalsOf, name: variant.name }))),
  )('$name: those of $totalsOf have the bits of the two passes', async ({ variant, totalsOf }) => {
    const sizes = [
      [36, 68, 64 * 6 + 20], // two blocks are left over, one of them short
      [70, 33, 64 * 4],
      [3, 5, 64 * 9 + 4],
    ] as const;
    for (const [n, [M, N, K]] of sizes.entries()) {
      if (!(await isWorthwhile(variant, n, 2))) continue;
      const [aStride, bStride] = [M + 8, N + 4];
      const problem = { layout: 'TN', M, N, K, aStride, bStride, aOffset: 4, bOffset: 4, totalsOf } as const;
      const fused: MatmulProblem = { ...problem, stepsPerBlock: ROWS_PER_BLOCK, accumulateTotals: true };
      const operands = fields(matmul.operands(fused), 'a', 'b', 'c', 'totals');
      const a = random.normals(operands.a.size);
      const b = random.normals(operands.b.size);
      const totals = random.normals(operands.totals.size);
      const found = await runKernel(matmul, variant, fused, { a, b, c: new Float32Array(M * N), totals });
      const [x, stride, width] = totalsOf === 'a' ? [a, aStride, M] : [b, bStride, N];
      expect(field(found, 'totals')).toEqual(await inTwoPasses(x, totals, K, stride, 4, width));
    }
  });
});
