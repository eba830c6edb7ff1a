// The bytes that a step takes without a budget, given as one: nothing moves, and all lies as it does without.

import { describe, expect, test } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { isConfined } from '../../src/engine/compile/pass-figures.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { FAMILY_NAMES } from '../../src/formats/families/index.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import { computedIn, type Model, optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';

const models = FAMILY_NAMES.map((family): [string, Model] => [family, makeModel(configOfShape({ family }))]);
const gpt2 = makeModel(configOfShape());
models.push(['low-rank updates', withLora(gpt2, { rank: 4 })]);
models.push(['bf16', computedIn(gpt2, 'bf16')], ['the host’s AdamW', optimizedOn(gpt2, 'cpu')]);

describe.each(models)('%s', (_, model) => {
  const workload = trainingWorkload(model, traceStep(model, 2, model.shape.context), 1);
  const fitted = (budget?: number) => fitMemory(workload, DEFAULT_LIMITS, budget, { recovery: 'checkpoint' });

  test('exactly what is taken without a budget is enough', () => {
    const whole = fitted();
    const { map, slots, staging, peak, passes } = fitted(whole.peak);
    expect([map.chunkBytes, map.count]).toEqual([whole.map.chunkBytes, whole.map.count]);
    expect([slots, staging, peak]).toEqual([whole.slots, whole.staging, whole.peak]);
    expect(passes.step.operations).toHaveLength(whole.passes.step.operations.length);
  });

  test('more changes nothing, and less is kept to', () => {
    const whole = fitted();
    expect(fitted(2 * whole.peak).peak).toBe(whole.peak);
    const less = fitted(whole.peak - 1);
    expect(less.peak).toBeLessThan(whole.peak);
    expect(isConfined(less) || less.map.chunkBytes < whole.map.chunkBytes).toBe(true);
  });
});
