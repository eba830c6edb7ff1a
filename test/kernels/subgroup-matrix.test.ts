// Products by subgroup matrices: on every adapter with the matrix units replaced by WGSL that computes the same, against the float64
// reference; what adapters must list for them; and the proof that a device must give before they are chosen on it.

import { describe, expect, it } from 'vitest';
import { isProven } from '../../src/engine/compile/proof.ts';
import { openDevice } from '../../src/gpu/device.ts';
import { mayServe, type Traits, type Variant } from '../../src/kernels/kernel.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import type { MatmulProblem } from '../../src/kernels/matmul-problem.ts';
import { CODECS } from '../../src/values/stored-elements.ts';
import { field, leading, only } from '../entry.ts';
import { type HostArray, runKernel, testDevice } from '../harness.ts';
import { EVERY_CASE, testHost } from '../host.ts';
import { STAND_INS, withStandIns } from '../subgroup-matrices.ts';
import { cases } from './cases.ts';
import { Draws, inputsOf, toArrays } from './inputs.ts';

const device = await testDevice();
const MATRICES: Traits = { software: false, subgroupSize: 32, subgroupMatrices: 'fixed' };
const variants = matmul.variants.filter(({ name }) => name.startsWith('subgroupMatrix'));
const [large, small] = leading(2, variants);
const matmulCase = only(cases.filter(({ kernel }) => kernel.name === 'matmul'));

const standingIn = (variant: Variant<MatmulProblem>, text = STAND_INS): Variant<MatmulProblem> => ({
  ...variant,
  dispatch(problem) {
    const dispatch = variant.dispatch(problem, MATRICES);
    const shader = withStandIns(dispatch.shader, text);
    expect(shader).not.toBe(dispatch.shader);
    return { ...dispatch, shader };
  },
});
const standIn = standingIn(large);

/** As a weight is stored. */
const inHalves = (values: HostArray) => CODECS.f16.widen(CODECS.f16.narrow(Float32Array.from(values)), values.length);

const isOffered = (problem: MatmulProblem, stored = { b: 'f16' } as const) =>
  mayServe(large, problem, MATRICES, stored);
const problems: readonly MatmulProblem[] = matmulCase.problems.filter((problem) => isOffered(problem));

describe('a product by subgroup matrices', () => {
  const some = problems.filter((_, n) => EVERY_CASE || n % 12 === 0);

  it.each(some.map((problem) => [JSON.stringify(problem), problem] as const))(
    'is that of the reference: %s',
    async (_, problem) => {
      const data = inputsOf(matmulCase, problem);
      data.b = inHalves(field(data, 'b'));
      const results = await runKernel(matmul, standIn, problem, data, { b: { element: 'f16' } });
      const [before, after] = [toArrays(matmul, problem, data), toArrays(matmul, problem, data)];
      matmul.reference(problem, after);
      const limits = matmulCase.bound(problem, before, after);
      for (const [name, result] of Object.entries(results)) {
        const [wanted, limitOf] = [field(after, name), field(limits, name)];
        // What two halves of 11 bits leave of an element of A: 2^-20 of it, eight ulp beside the K of its sum.
        const share = (problem.K + 10) / (problem.K + 2);
        result.forEach((value, i) => {
          expect(Math.abs(value - (wanted[i] ?? Number.NaN)), `${name}[${i}]`).toBeLessThanOrEqual(limitOf(i) * share);
        });
      }
    },
  );

  it('is offered for weights in f16 whose sums are never split, and nothing else', () => {
    const problem: MatmulProblem = { layout: 'NT', M: 64, N: 64, K: 64 };
    expect(isOffered(problem)).toBe(true);
    expect(isOffered({ ...problem, N: 65 })).toBe(true);
    for (const change of [{ layout: 'NN' }, { layout: 'TN' }, { M: 4 }, { K: 65 }, { aOffset: 2 }] as const) {
      expect(isOffered({ ...problem, ...change }), JSON.stringify(change)).toBe(false);
    }
    for (const stored of [{}, { b: 'bf16' }, { a: 'f16' }] as const) {
      for (const variant of variants) expect(mayServe(variant, problem, MATRICES, stored)).toBe(false);
    }
    expect(mayServe(large, problem, { software: false, subgroupSize: 32 }, { b: 'f16' })).toBe(false);
    // Small tiles, where large ones would be few.
    const offered = (M: number) =>
      variants.map((variant) => mayServe(variant, { ...problem, M }, MATRICES, { b: 'f16' }));
    expect([offered(511 * 64), offered(512 * 64)]).toEqual([
      [true, true],
      [true, false],
    ]);
    // The default of no adapter.
    expect(matmul.variants.findIndex((one) => mayServe(one, problem, MATRICES, { b: 'f16' }))).toBe(
      matmul.variants.findIndex(({ name }) => name === 'tiled'),
    );
  });

  it('has the same bits in tiles of columns and of rows, and in small ones', async () => {
    const random = new Draws(3);
    const [M, N, K] = [70, 76, 36];
    const [a, b] = [random.normals(M * K), inHalves(random.normals(N * K))];
    const made = async (problem: MatmulProblem, a: HostArray, b: HostArray, variant = standIn) =>
      field(await runKernel(matmul, variant, problem, { a, b }), 'c');
    const whole = await made({ layout: 'NT', M, N, K }, a, b);
    expect(await made({ layout: 'NT', M, N, K }, a, b, standingIn(small))).toEqual(whole);
    for (const [row, column] of [
      [0, 12],
      [33, 5],
    ] as const) {
      const part = await made(
        { layout: 'NT', M: M - row, N: N - column, K },
        a.subarray(row * K),
        b.subarray(column * K),
      );
      for (let m = row; m < M; m++) {
        const [from, width] = [(m - row) * (N - column), N - column];
        expect(part.slice(from, from + width)).toEqual(whole.slice(m * N + column, (m + 1) * N));
      }
    }
  });
});

describe('proof on a device', () => {
  it('is that of integers whose sums are exact', async () => {
    expect(await isProven(device, matmul, standIn)).toBe(true);
    expect(await isProven(device, matmul, standingIn(small))).toBe(true);
  });

  it('is not had by units that drop what the first halves leave, or take a row for another', async () => {
    const wrong = [
      STAND_INS.replace(
        'fn left_at(at: u32) -> Factors { return at;',
        'fn left_at(at: u32) -> Factors { return at % LOW;',
      ),
      STAND_INS.replace('8u * (own % 2u) + i, pair', '8u * (own % 2u) + (i ^ 1u), pair'),
    ];
    for (const text of wrong) {
      expect(text).not.toBe(STAND_INS);
      expect(await isProven(device, matmul, standingIn(large, text))).toBe(false);
    }
  });

  it('is not had by a text that the device refuses, which goes on', async () => {
    expect(await isProven(device, matmul, standingIn(large, STAND_INS.replace('bitcast', 'cast_bits')))).toBe(false);
    expect(device.status).toBe('works');
    await device.idle();
    device.check();
  });

  it('asks nothing of what WGSL describes', async () => {
    for (const other of matmul.variants) expect(other.provenOn !== undefined).toBe(variants.includes(other));
    const compiled = device.pipelines.compiled;
    expect(await isProven(device, matmul, only(matmul.variants.filter(({ name }) => name === 'block')))).toBe(true);
    expect(device.pipelines.compiled).toBe(compiled);
  });

  it.runIf(device.traits.subgroupMatrices)('is had by this adapter', async () => {
    for (const variant of variants) expect(await isProven(device, matmul, variant), variant.name).toBe(true);
  });
});

describe('an adapter', () => {
  const FEATURES = ['shader-f16', 'subgroups', 'chromium-experimental-subgroup-matrix'];
  const SUMS_IN_F32 = { componentType: 'f16', resultComponentType: 'f32', M: 16, N: 16, K: 16 };

  /** What a device finds on an adapter like this, and the features that it asks for. */
  async function opened(features: readonly string[], lanes: readonly [number, number], configs: readonly object[]) {
    const info = { description: 'a GPU', subgroupMinSize: lanes[0], subgroupMaxSize: lanes[1] };
    let asked: readonly string[] = [];
    const adapter = {
      features: new Set(features),
      limits: device.adapter.limits,
      info: { ...info, subgroupMatrixConfigs: configs },
      requestDevice: async ({ requiredFeatures }: { requiredFeatures: readonly string[] }) => {
        asked = requiredFeatures;
        return device.gpu;
      },
    };
    const gpu = { requestAdapter: async () => adapter } as unknown as GPU;
    const source = { name: 'a source', embedded: false, open: async () => gpu };
    const { traits } = await openDevice({ ...testHost, gpuSources: async () => [source] });
    return { found: traits.subgroupMatrices, asked };
  }

  it('has subgroup matrices where it lists those that sum halves in floats, for 32 lanes', async () => {
    const fixed = await opened(FEATURES, [32, 32], [{ ...SUMS_IN_F32, resultComponentType: 'f16' }, SUMS_IN_F32]);
    expect(fixed).toEqual({ found: 'fixed', asked: ['subgroups', 'shader-f16', FEATURES[2]] });
    const sized = await opened([...FEATURES, 'subgroup-size-control'], [32, 64], [SUMS_IN_F32]);
    expect(sized).toEqual({ found: 'sized', asked: ['subgroups', 'shader-f16', FEATURES[2], 'subgroup-size-control'] });
  });

  it('has none otherwise, and is asked for nothing of it', async () => {
    const others = [
      { ...SUMS_IN_F32, resultComponentType: 'f16' },
      { ...SUMS_IN_F32, componentType: 'f32', M: 8, N: 8, K: 8 },
      { ...SUMS_IN_F32, M: 8 },
    ];
    const none = { found: undefined, asked: ['subgroups'] };
    expect(await opened(FEATURES, [32, 32], others)).toEqual(none);
    expect(await opened(FEATURES, [32, 64], [SUMS_IN_F32])).toEqual(none);
    expect(await opened([...FEATURES, 'subgroup-size-control'], [8, 16], [SUMS_IN_F32])).toEqual(none);
    expect(await opened(FEATURES.slice(1), [32, 32], [SUMS_IN_F32])).toEqual(none);
  });
});
