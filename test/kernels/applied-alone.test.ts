// What ends a product and the same activation by itself: the same bits, with every variant of the product; and whether a device
// where it is otherwise is found out.

import { beforeAll, describe, expect, it, vi } from 'vitest';
import { appliesAlone } from '../../src/engine/run/applied-alone.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { Ending } from '../../src/graph/makers.ts';
import { ACTIVATION_NAMES, ACTIVATIONS } from '../../src/kernels/activations.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { epiloguesOf } from '../../src/kernels/matmul-problem.ts';
import { TILE_SHAPES } from '../../src/kernels/matmul-tiles.ts';
import { at } from '../../src/util/at.ts';
import { field, fields } from '../entry.ts';
import { isWorthwhile, runKernel, runnable, testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { Draws } from './inputs.ts';

const device = await testDevice();
const variants = await runnable(matmul);

describe.each(ACTIVATION_NAMES)('%s', async (name) => {
  const nth = ACTIVATION_NAMES.indexOf(name);
  const isWorth = await Promise.all(variants.map((variant, i) => isWorthwhile(variant, nth + i, 1)));
  it.runIf(device.adapter.software).each(variants.filter((_, i) => isWorth[i]))(
    '$name: has the bits of the product',
    async (variant) => {
      const random = new Draws(21);
      const [M, N, K] = [20, 132, 4];
      const a = random.normals(M * K, 3);
      // Where it is nothing, where it is its input, and between; and what no sum should be.
      const bias = Float32Array.from({ length: N }, (_, i) => (i - N / 2) / 5);
      bias.set([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, Number.NaN, 1e30, -1e30]);
      const problem = { layout: 'NN', M, N, K, epilogue: epiloguesOf(name).forward } as const;
      const after = await runKernel(matmul, variant, problem, { a, b: random.normals(K * N), bias });
      const { c, preactivation } = fields(after, 'c', 'preactivation');
      const { forward } = ACTIVATIONS[name];
      const alone = await runKernel(forward, at(forward.variants, 0), { size: M * N }, { x: preactivation });
      expect(new Uint32Array(field(alone, 'y').buffer.slice(0, 4 * M * N))).toEqual(
        new Uint32Array(c.buffer.slice(0, 4 * M * N)),
      );
    },
  );
});

describe('a device that is no software adapter', () => {
  /** This one, taken for a GPU, whose compiler makes this of an activation by itself. */
  const taken = (change: (shader: string) => string): Device => {
    const others: Partial<Record<string, unknown>> = {
      adapter: { ...device.adapter, software: false },
      traits: { ...device.traits, software: false },
      pipelines: {
        get: (label: string, shader: string, constants: Record<string, number>) =>
          device.pipelines.get(label, label.startsWith('gelu.') ? change(shader) : shader, constants),
      },
    };
    return new Proxy(device, {
      get(target, key) {
        const own: unknown = others[String(key)] ?? Reflect.get(target, key, target);
        return typeof own === 'function' ? own.bind(target) : own;
      },
    });
  };

  // They compile for seconds on a software adapter, and their texts are those of the others: see `runnable`.
  beforeAll(() => {
    const unrolled = new Set(TILE_SHAPES.flatMap((shape) => (shape.unrolled ? [shape.name] : [])));
    for (const variant of EVERY_CASE ? [] : matmul.variants)
      if (unrolled.has(variant.name)) vi.spyOn(variant, 'supports').mockReturnValue(false);
  });

  it.each<Ending>([
    { activation: 'gelu', layout: 'NN', inFours: true },
    { activation: 'gelu', layout: 'NT', inFours: false },
  ])('is tried with $layout, in fours: $inFours, and has the same bits or not', async (ending) => {
    const endings = [ending];
    const same = taken((shader) => shader);
    expect(await appliesAlone(same, () => endings)).toBe(true);
    const other = taken((shader) => shader.replace('activation(x[i])', 'activation(x[i]) * (1.0 + 1e-6)'));
    expect(await appliesAlone(other, () => endings)).toBe(false);
    // In one value of 2^14, by its bits.
    const rarely = 'select(activation(x[i]), 2.0 * x[i], (bitcast<vec4u>(vec4f(x[i])).x & 0x3fffu) == 5u)';
    const seldom = taken((shader) => shader.replace('activation(x[i])', rarely));
    expect(await appliesAlone(seldom, () => endings)).toBe(false);
    expect(await appliesAlone(other, () => [])).toBe(true);
  });

  it('that fails at it is tried again, and one that is stopped is not asked', async () => {
    const endings: Ending[] = [{ activation: 'gelu', layout: 'NN', inFours: true }];
    let fails = true;
    const failing = taken((shader) => {
      if (fails) throw new Error('no such shader');
      return shader;
    });
    await expect(appliesAlone(failing, () => endings)).rejects.toThrow('no such shader');
    await expect(appliesAlone(failing, () => endings, AbortSignal.abort(new Error('stopped')))).rejects.toThrow(
      'stopped',
    );
    fails = false;
    expect(await appliesAlone(failing, () => endings)).toBe(true);
  });
});
