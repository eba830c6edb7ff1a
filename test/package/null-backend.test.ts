// Shaders that no adapter here may be able to run, through Dawn's validation: its null backend has every feature, and computes nothing.

import { expect, it } from 'vitest';
import { create } from 'webgpu';
import { Pipelines } from '../../src/gpu/pipelines.ts';
import type { Traits } from '../../src/kernels/kernel.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { readingNarrow } from '../../src/kernels/stored.ts';
import { only } from '../entry.ts';
import { cases } from '../kernels/cases.ts';

const variants = matmul.variants.filter(({ name }) => name.startsWith('subgroupMatrix'));
const { problems } = only(cases.filter(({ kernel }) => kernel.name === 'matmul'));

// Dawn's instance lives as long as something holds it.
const gpu = create(['backend=null', 'enable-dawn-features=allow_unsafe_apis']);

it.each(['fixed', 'sized'] as const)(
  'products by subgroup matrices are valid WGSL, with subgroups of a size that is %s',
  async (subgroupMatrices) => {
    const adapter = await gpu.requestAdapter();
    const features = ['shader-f16', 'subgroups', 'subgroup-size-control', 'chromium-experimental-subgroup-matrix'];
    const device = await adapter?.requestDevice({ requiredFeatures: features as GPUFeatureName[] });
    if (!device) throw new Error('Dawn has no null backend');
    const traits: Traits = { software: false, subgroupSize: 0, subgroupMatrices };
    const pipelines = new Pipelines(device as GPUDevice);
    for (const variant of variants) {
      for (const problem of problems) {
        if (!variant.supports?.(problem, traits)) continue;
        const { shader, constants } = variant.dispatch(problem, traits);
        for (const stored of [{ b: 'f16' }, { a: 'bf16', b: 'f16' }] as const) {
          await pipelines.get(`matmul.${variant.name}`, readingNarrow(shader, stored), constants);
        }
      }
    }
    expect(pipelines.compiled).toBeGreaterThan(40);
  },
);
