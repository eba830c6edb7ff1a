// Every kernel, in every variant, on every problem of the table, against its float64 reference: NaN first,
// then the error against the bound of its case, then the guard zones (in the harness).

import { describe, expect, it } from 'vitest';
import { keyOf } from '../../src/engine/compile/choices.ts';
import { reflect } from '../../src/gpu/shader.ts';
import { ACTIVATION_NAMES, ACTIVATIONS } from '../../src/kernels/activations.ts';
import { adamw } from '../../src/kernels/adamw.ts';
import { attention } from '../../src/kernels/attention.ts';
import { attentionBackwardKV } from '../../src/kernels/attention-backward.ts';
import type { AttentionMask } from '../../src/kernels/attention-mask.ts';
import { crossEntropyLoss, crossEntropyTile } from '../../src/kernels/cross-entropy.ts';
import { tokenIndex } from '../../src/kernels/embedding.ts';
import { geglu, gegluBackward, swiglu, swigluBackward } from '../../src/kernels/gated.ts';
import { type Kernel, linearGrid, mayServe, type Traits, type Variant } from '../../src/kernels/kernel.ts';
import { layernorm } from '../../src/kernels/layernorm.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { epiloguesOf } from '../../src/kernels/matmul-problem.ts';
import { STATE, stepControl } from '../../src/kernels/step-control.ts';
import { tanh, tanhBackward } from '../../src/kernels/tanh.ts';
import { field, fields, leading, only } from '../entry.ts';
import { type HostArray, isWorthwhile, runKernel, runnable, testDevice } from '../harness.ts';
import { THOROUGH, VERBOSE } from '../host.ts';
import { packed } from './attention-cases.ts';
import { cases } from './cases.ts';
import { inputsOf, type KernelCase, toArrays } from './inputs.ts';
import { ULP } from './rounding.ts';

const sources = import.meta.glob<Record<string, unknown>>(['../../src/kernels/*.ts', '!**/*.d.ts'], { eager: true });

/** The guaranteed limits of WebGPU. */
const DEFAULTS: Traits = { software: false, subgroupSize: 0 };

/** Runs one variant; the largest error as a fraction of its bound, over all written operands. */
async function worstError<P>(kernelCase: KernelCase<P>, variant: Variant<P>, problem: P): Promise<number> {
  const { kernel } = kernelCase;
  const data = inputsOf(kernelCase, problem);
  const results = await runKernel(kernel, variant, problem, data);
  const before = toArrays(kernel, problem, data);
  const after = toArrays(kernel, problem, data);
  kernel.reference(problem, after);
  const limits = kernelCase.bound(problem, before, after);
  let worst = 0;
  for (const [name, result] of Object.entries(results)) {
    const nan = result.findIndex((value) => Number.isNaN(value));
    expect(nan, `${name}[${nan}] is NaN`).toBe(-1);
    const wanted = field(after, name);
    const limitOf = field(limits, name);
    for (let i = 0; i < result.length; i++) {
      const error = Math.abs(result[i]! - wanted[i]!);
      if (error === 0) continue;
      const limit = limitOf(i);
      if (error > limit) {
        expect.fail(`${name}[${i}] is ${result[i]}, not ${wanted[i]}: off by ${error}, allowed ${limit}`);
      }
      worst = Math.max(worst, error / limit);
    }
  }
  return worst;
}

/** The same dispatch on a grid one or two workgroups wide, with a row of workgroups too many. */
function folded<P>(variant: Variant<P>): Variant<P> {
  return {
    ...variant,
    dispatch: (problem, traits) => {
      const dispatch = variant.dispatch(problem, traits);
      const count = dispatch.workgroups[0] * dispatch.workgroups[1];
      const x = count > 2 ? 2 : 1;
      return { ...dispatch, workgroups: [x, Math.ceil(count / x) + 1, 1] };
    },
  };
}

const describeProblem = (problem: object) =>
  Object.entries(problem)
    .map(([name, value]) => `${name} ${typeof value === 'object' ? JSON.stringify(value) : value}`)
    .join(', ') || 'one size';

describe('the grid', () => {
  it('folds past 65,535 workgroups and holds them all', () => {
    expect(linearGrid(65_535)).toEqual([65_535, 1, 1]);
    expect(linearGrid(65_536)).toEqual([65_535, 2, 1]);
    expect(linearGrid(0)).toEqual([1, 1, 1]);
  });
});

describe('the table', () => {
  /** Those that differ from one of the table in how values are stored or scaled: other tests compare their bits with its. */
  const COMPARED = [
    ...['adamwOnHalves', 'adamwNarrowMoments', 'adamwOnHalvesNarrowMoments'], // halves.test.ts, moments.test.ts
    ...['adamwWithCopy', 'adamwWithCopyNarrowMoments'], // scaled.test.ts, moments.test.ts
    ...['scaleAndSumSquares', 'scaledStepControl', 'narrowToBF16', 'narrowToF16'], // scaled.test.ts, stored.test.ts
    'roundAndSumSquares', // model/narrow.test.ts
  ];

  it('has a row for every kernel', () => {
    const isKernel = (value: unknown) => typeof value === 'object' && value !== null && 'variants' in value;
    const exported = Object.values(sources).flatMap((file) => Object.entries(file).filter(([, v]) => isKernel(v)));
    expect(exported.length).toBeGreaterThan(40);
    const rows = new Set<unknown>(cases.map(({ kernel }) => kernel));
    const others = exported.filter(([, kernel]) => !rows.has(kernel)).map(([name]) => name);
    expect(others.sort()).toEqual(COMPARED.toSorted());
    expect(new Set(cases.map(({ kernel }) => kernel.name)).size).toBe(cases.length);
  });
});

describe('a choice of variant', () => {
  it.each(cases)('$kernel.name says of every field of a problem whether it matters', ({ kernel, problems }) => {
    const fields = new Set(problems.flatMap((problem) => Object.keys(problem)));
    for (const field of fields) expect(kernel.affectsSpeed, field).toHaveProperty(field);
  });

  it('depends on the fields that matter, on sizes by powers of two, and on no other', () => {
    const problem = packed({ batch: 1, seq: 37, heads: 8, kvHeads: 2, headSize: 8, mask: { window: 33 } });
    const key = keyOf(attention, problem, attention.variants);
    const other = (change: object) => keyOf(attention, { ...problem, ...change }, attention.variants);
    expect(other({ qStride: 4, vOffset: 8 })).toBe(key);
    expect(other({ seq: 64, kvRows: 33, mask: { window: 64 } })).toBe(key);
    const within = (window: number) => ({ mask: { window, documents: true } });
    for (const change of [{ seq: 65 }, { mask: { window: 65 } }, { mask: 'none' }, { mask: 'documents' }, within(33)]) {
      expect(other(change)).not.toBe(key);
    }
    expect(other(within(33))).not.toBe(other({ mask: 'documents' }));
    // What runs have recorded is still found.
    const { mask: _, ...causal } = problem;
    expect(keyOf(attention, causal, [{ name: 'quads' }, { name: 'lanes' }])).toBe(
      'attention batch=1 seq=64 heads=8 kvHeads=2 headSize=8 kvRows=64 quads|lanes',
    );
  });

  it('reckons with the pairs that a window leaves, in rows of several documents as well', () => {
    const flops = (mask: AttentionMask) =>
      attention.flops(packed({ ...{ batch: 1, seq: 37, heads: 1, kvHeads: 1, headSize: 8 }, mask }));
    expect(flops({ window: 5, documents: true })).toBe(flops({ window: 5 }));
    expect(flops({ window: 5, documents: true })).toBeLessThan(flops('documents') / 3);
  });

  it('is refused for a field that is not declared', () => {
    expect(() => keyOf(tanh, { size: 4, firstRow: 1 }, [])).toThrow('tanh does not say');
  });
});

describe.each(cases)('$kernel.name', async (kernelCase) => {
  const { kernel, problems } = kernelCase;

  it('declares in WGSL what it declares in TypeScript', () => {
    for (const problem of problems) {
      const operands = Object.entries(kernel.operands(problem));
      expect(operands.length).toBeLessThanOrEqual(8);
      for (const variant of kernel.variants) {
        const dispatch = variant.dispatch(problem, DEFAULTS);
        const shader = reflect(dispatch.shader);
        const declared = [...shader.bindings.values()].map(({ name, access }) => [name, access]);
        expect(declared).toEqual(operands.map(([name, o]) => [name, o.access === 'read' ? 'read' : 'read_write']));
        for (const { name } of shader.params) expect(dispatch.params).toHaveProperty(name);
      }
    }
  });

  for (const variant of await runnable(kernel)) {
    const isSmall = (problem: unknown) => Object.values(kernel.operands(problem)).every(({ size }) => size < 1e5);
    it.runIf(THOROUGH && kernel !== (stepControl as unknown))(
      `${variant.name}: no bit depends on the grid`,
      async () => {
        // The first problem of each shader, eight at most: below it runs on the same compilation.
        const shaders = new Map<string, (typeof problems)[number]>();
        for (const problem of problems.filter(isSmall)) {
          const { shader } = variant.dispatch(problem, DEFAULTS);
          if (!shaders.has(shader)) shaders.set(shader, problem);
        }
        for (const [n, problem] of [...shaders.values()].slice(0, 8).entries()) {
          if (!(await isWorthwhile(variant, n, 24))) continue;
          const data = inputsOf(kernelCase, problem);
          const plain = await runKernel(kernel, variant, problem, data);
          expect(await runKernel(kernel, folded(variant), problem, data)).toEqual(plain);
        }
      },
    );

    // Another compiler: each shader, and some problems more.
    const shaders = new Set<string>();
    const isSampled = problems.map((problem, n) => {
      const { shader } = variant.dispatch(problem, DEFAULTS);
      const isNew = !shaders.has(shader);
      shaders.add(shader);
      return THOROUGH || isNew || n % 4 === 0;
    });
    const stride = THOROUGH ? 24 : 48;
    const isAffordable = await Promise.all(problems.map((_, n) => isWorthwhile(variant, n, stride)));
    const worthwhile = isSampled.map((sampled, n) => sampled && isAffordable[n]);
    it.each(problems.filter((_, n) => worthwhile[n]).map((problem) => [describeProblem(problem), problem]))(
      `${variant.name}: %s`,
      async (_, problem) => {
        const worst = await worstError(kernelCase, variant, problem);
        if (VERBOSE) {
          console.log(`${kernel.name}.${variant.name} ${describeProblem(problem)}: ${worst.toFixed(3)} of the bound`);
        }
      },
    );
  }
});

/** Runs a kernel's default variant. */
async function run<P>(kernel: Kernel<P>, problem: P, data: Record<string, HostArray>) {
  const [variant] = leading(1, await runnable(kernel));
  return runKernel(kernel, variant, problem, data);
}

/** One of its results. */
const output = async <P>(name: string, kernel: Kernel<P>, problem: P, data: Record<string, HostArray>) =>
  field(await run(kernel, problem, data), name);

/** The names of the variants that an adapter has to choose from. */
const offered = <P>({ variants }: Kernel<P>, problem: P, software: boolean): string[] =>
  variants.filter((variant) => mayServe(variant, problem, { software, subgroupSize: 4 })).map(({ name }) => name);

describe('a GPU', () => {
  it.each(cases)('has variants of $kernel.name, none of which is for CPUs', ({ kernel, problems }) => {
    for (const problem of problems) {
      const names = offered(kernel, problem, false);
      expect(names.length).toBeGreaterThan(0);
      for (const name of ['lanes', 'quads']) expect(names).not.toContain(name);
    }
  });

  it('reads long rows side by side', () => {
    expect(offered(layernorm, { rows: 37, width: 129, eps: 1e-5 }, false)).toEqual(['workgroup']);
    expect(offered(layernorm, { rows: 37, width: 128, eps: 1e-5 }, false)).toEqual(['rows', 'workgroup']);
    expect(offered(layernorm, { rows: 37, width: 129, eps: 1e-5 }, true)).toEqual(['rows']);
  });
});

describe.each(cases.filter(({ kernel: { name } }) => ['sumSquares', 'columnSum'].includes(name)))(
  '$kernel.name for GPUs',
  (kernelCase) => {
    const { kernel, problems } = kernelCase;
    const [forSoftware, forGPU] = leading(2, kernel.variants);

    it.each(problems.map((problem) => [describeProblem(problem), problem]))(
      'gives the bits of that for software adapters: %s',
      async (_, problem) => {
        const data = inputsOf(kernelCase, problem);
        expect(await runKernel(kernel, forGPU, problem, data)).toEqual(
          await runKernel(kernel, forSoftware, problem, data),
        );
      },
    );

    it('is what GPUs run, and no software adapter', () => {
      const on = (software: boolean) => new Set(problems.flatMap((problem) => offered(kernel, problem, software)));
      expect(on(false)).toContain(forGPU.name);
      expect(on(true)).toEqual(new Set([forSoftware.name]));
    });
  },
);

describe('activations far out', () => {
  it.each([-1000, -100, -30, -10, 10, 30, 100, 1000])('%d gives no NaN and the right tail', async (value) => {
    const x = new Float32Array([value]);
    const one = new Float32Array([1]);
    const tail = Math.max(0, value);
    // gelu(-10) = -8e-37, by erf -8e-23; silu(-10) = -4.5e-4, silu(-30) = -2.8e-12.
    for (const name of ACTIVATION_NAMES) {
      const epilogue = epiloguesOf(name).forward;
      const { backward } = ACTIVATIONS[name];
      const product = { a: one, b: x, bias: new Float32Array(1) };
      const y = await output('c', matmul, { layout: 'NN', M: 1, N: 1, K: 1, epilogue }, product);
      expect(y[0]).toBeCloseTo(tail, 20);
      expect((await output('dx', backward, { size: 1 }, { x, dx: one }))[0]).toBeCloseTo(value > 0 ? 1 : 0, 6);
    }
    expect((await output('y', tanh, { size: 1 }, { x }))[0]).toBe(Math.sign(value));
    expect((await output('dx', tanhBackward, { size: 1 }, { y: x.map(Math.sign), dx: one }))[0]).toBe(0);
    const [silu] = await output('y', swiglu, { size: 1 }, { gate: x, up: one });
    expect(Math.abs(silu! - value / (1 + Math.exp(-value)))).toBeLessThan(1e-6 * Math.abs(tail) + 1e-9);
    expect((await output('y', geglu, { size: 1 }, { gate: x, up: one }))[0]).toBeCloseTo(tail, 20);
    for (const backward of [swigluBackward, gegluBackward]) {
      const gradients = await run(backward, { size: 1 }, { up: one, dgate: x, dup: one });
      const { dgate, dup } = fields(gradients, 'dgate', 'dup');
      expect(Number.isFinite(dgate[0]) && Number.isFinite(dup[0])).toBe(true);
    }
  });
});

describe.each(crossEntropyTile.variants)('crossEntropyTile $name', (variant) => {
  it.each([Number.NaN, Number.POSITIVE_INFINITY])('lets a logit of %d reach the loss', async (bad) => {
    for (const at of [0, 36]) {
      const logits = new Float32Array(37);
      logits[at] = bad;
      const targets = Int32Array.of(5);
      const problem = { rows: 1, tile: 37, first: 0, begin: true };
      const statistics = await runKernel(crossEntropyTile, variant, problem, { logits, targets });
      const data = { ...statistics, targets };
      const loss = await output('loss', crossEntropyLoss, { rows: 1, ignoreIndex: -100 }, data);
      expect(loss).toHaveLength(1);
      expect(Number.isFinite(loss[0])).toBe(false);
    }
  });
});

describe.each(matmul.variants)('a softcap behind matmul $name', async (variant) => {
  const problem = { layout: 'NT', M: 1, N: 4, K: 1, epilogue: 'softcap', scale: 5 } as const;
  // All end in the same lines.
  const isWorth = await isWorthwhile(variant, 1, 2);
  it.runIf(isWorth && mayServe(variant, problem, DEFAULTS))(
    'takes what is huge, and lets what is no number through',
    async () => {
      const b = Float32Array.of(3e38, -1e6, Number.NaN, Number.POSITIVE_INFINITY);
      const c = field(await runKernel(matmul, variant, problem, { a: Float32Array.of(1), b }), 'c');
      expect(c[0]).toBeCloseTo(5, 5);
      expect(c[1]).toBeCloseTo(-5, 5);
      expect(c.subarray(2).some((value) => Number.isFinite(value))).toBe(false);
    },
  );
});

describe('stepControl', () => {
  const stepCase = only(cases.filter(({ kernel }) => kernel === (stepControl as unknown)));
  const step = async (change: Record<string, number[]>) => {
    const given = { ...inputsOf(stepCase, {}) };
    for (const [name, values] of Object.entries(change)) given[name] = new Float32Array(values);
    return { before: field(given, 'state'), after: await output('state', stepControl, {}, given) };
  };

  it.each([
    ['a NaN loss', { lossSum: [Number.NaN] }],
    ['an infinite loss', { lossSum: [Number.POSITIVE_INFINITY] }],
    ['a loss that overflows when scaled', { lossSum: [3e38], hyper: [0, 0, 0, 0, 0, 0, 10] }],
    ['a NaN gradient', { normSquared: [Number.NaN] }],
    ['an infinite gradient', { normSquared: [Number.POSITIVE_INFINITY] }],
  ])('skips on %s', async (_, change) => {
    const { before, after } = await step(change as Record<string, number[]>);
    expect(after[STATE.skip]).toBe(1);
    expect(after[STATE.skipped]).toBe(before[STATE.skipped]! + 1);
    for (const kept of [STATE.updates, STATE.correction1, STATE.correction2]) expect(after[kept]).toBe(before[kept]);
  });

  it('recovers after a skipped step', async () => {
    const skipped = (await step({ lossSum: [Number.NaN] })).after;
    const { after } = await step({ state: [...skipped] });
    expect(after[STATE.skip]).toBe(0);
    expect(after[STATE.updates]).toBe(skipped[STATE.updates]! + 1);
  });

  it('keeps 1 - beta^t right by recurrence', async () => {
    let state: HostArray = new Float32Array(STATE.size);
    for (let t = 1; t <= 30; t++) {
      state = (await step({ state: [...state] })).after;
      // Each step halves or keeps the error of the last and adds three roundings: below 12 ulps at any t.
      expect(Math.abs(state[STATE.correction1]! / (1 - 0.9 ** t) - 1)).toBeLessThan(12 * ULP);
      expect(Math.abs(state[STATE.correction2]! / (1 - 0.95 ** t) - 1)).toBeLessThan(12 * ULP);
    }
    expect(state[STATE.updates]).toBe(30);
  });

  it('does not clip when the norm is zero, small, or clipping is off', async () => {
    expect((await step({ normSquared: [0] })).after[STATE.coefficient]).toBe(1);
    expect((await step({ normSquared: [0.25] })).after[STATE.coefficient]).toBe(1);
    const hyper = [1e-3, 0.1, 0.05, 1e-8, 0.1, 0, 1];
    expect((await step({ normSquared: [9], hyper })).after[STATE.coefficient]).toBe(1);
  });
});

describe('attentionBackwardKV', () => {
  it('of heads too wide for a workgroup gives its parts to several', async () => {
    const kernelCase = only(cases.filter(({ kernel }) => kernel === attentionBackwardKV));
    const problem = { batch: 1, seq: 37, heads: 2, kvHeads: 1, headSize: 160 };
    const tiled = only(attentionBackwardKV.variants.filter(({ name }) => name === 'tiled'));
    expect(tiled.dispatch(problem, DEFAULTS).workgroups).toEqual([2 * 2, 1, 1]);
    await worstError(kernelCase, tiled, problem);
  });
});

describe('adamw', () => {
  const adamCase = only(cases.filter(({ kernel }) => kernel === (adamw as unknown)));

  it('changes nothing when the step is skipped', async () => {
    const data = inputsOf(adamCase, { size: 129 });
    const state = field(data, 'state').slice();
    state[STATE.skip] = 1;
    const results = await run(adamw, { size: 129 }, { ...data, state });
    for (const name of ['parameter', 'm', 'v']) expect(field(results, name)).toEqual(data[name]);
  });

  it('stays finite with no epsilon and no gradient yet', async () => {
    const data = inputsOf(adamCase, { size: 1 });
    data.hyper = field(data, 'hyper').slice().fill(0, 3, 5);
    for (const name of ['gradient', 'm', 'v']) data[name] = new Float32Array(1);
    const parameter = await output('parameter', adamw, { size: 1 }, data);
    expect(parameter).toHaveLength(1);
    expect(parameter[0]).toBe(field(data, 'parameter')[0]);
  });
});

describe('tokenIndex', () => {
  it('groups rows by token, in ascending order', () => {
    const { tokens, starts, order } = tokenIndex(Int32Array.of(7, 2, 7, 50_000, 2, 7));
    expect([...tokens]).toEqual([2, 7, 50_000, 0xffffffff, 0xffffffff, 0xffffffff]);
    expect([...starts]).toEqual([0, 2, 5, 6, 6, 6, 6]);
    expect([...order]).toEqual([1, 4, 0, 2, 5, 3]);
  });

  it('takes a batch of one and an empty one', () => {
    expect([...tokenIndex(Int32Array.of(3)).starts]).toEqual([0, 1]);
    expect([...tokenIndex(Int32Array.of()).starts]).toEqual([0]);
  });
});

it('runs on a device that reports no error', async () => {
  (await testDevice()).check();
});
