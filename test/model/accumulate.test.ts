// Gradient accumulation is the large batch, and a repeated run is the same run, bit for bit.

import { beforeAll, describe, expect, it } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import type { Device } from '../../src/gpu/device.ts';
import { loadCase, type ReferenceCase } from '../../src/parity/reference-case.ts';
import { joinedMicroBatches } from '../../src/parity/replay-case.ts';
import { type StepMetrics, Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { collect, sourceOf, type TensorSource, type Values } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { testHost } from '../host.ts';

chooseVariants(13);

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});

interface Run {
  metrics: StepMetrics[];
  /** Of the first step. */
  gradients: Values;
  final: Values;
  /** Kernel variants are chosen by timing: the same run repeats the same choices. */
  choices: ChoiceRecord;
}

/** All steps of a case, with its micro-batches as they are or as one batch. */
async function run(reference: ReferenceCase, choices: ChoiceRecord = {}): Promise<Run> {
  const { model, batch, seq, accumulate, schedule, optimizer, weights, batches } = reference;
  const trainer = await Trainer.create(device, model, { batch, seq, accumulate, schedule, optimizer, choices });
  await trainer.setWeights(sourceOf(weights));
  const metrics: StepMetrics[] = [];
  let gradients: Values = new Map();
  for (const micros of batches) {
    const keep = async (found: TensorSource) => {
      gradients = await collect(found);
    };
    metrics.push(await trainer.start(micros, { inspect: metrics.length === 0 ? keep : undefined }));
  }
  const final = await collect(trainer.values('parameter'));
  await trainer.destroy();
  return { metrics, gradients, final, choices: trainer.choices.record() };
}

function asLargeBatch(reference: ReferenceCase): ReferenceCase {
  return {
    ...reference,
    batch: reference.batch * reference.accumulate,
    accumulate: 1,
    batches: reference.batches.map((micros) => [joinedMicroBatches(micros)]),
  };
}

const distance = (a: Float32Array, b: Float32Array) => Math.hypot(...a.map((value, i) => value - b[i]!));

// The second has micro-batches of very different numbers of valid targets.
describe.each(['gpt2-accum4', 'gpt2-accum4-ignore'])('%s', (name) => {
  let reference: ReferenceCase;
  beforeAll(async () => {
    const whole = await loadCase(testHost, `test/fixtures/reference/${name}`);
    // Three steps have seen all there is: clipping, moments, decay.
    reference = { ...whole, batches: whole.batches.slice(0, 3) };
  });

  // In float64 the two ways differ by 1e-15 (reference/README.md), so both runs approximate the same numbers,
  // each within the case's tolerances: they lie within twice the tolerance of each other.
  it('four micro-batches are one large batch', async () => {
    const limit = (metric: string) => 2 * entry(reference.tolerance, metric);
    const small = await run(reference);
    const large = await run(asLargeBatch(reference));
    small.metrics.forEach(({ loss, gradNorm }, step) => {
      const other = at(large.metrics, step);
      expect(Math.abs(loss - other.loss), `loss of step ${step}`).toBeLessThanOrEqual(limit('loss'));
      expect(Math.abs(gradNorm / other.gradNorm - 1), `norm of step ${step}`).toBeLessThanOrEqual(
        limit('grad_norm_rel'),
      );
    });
    for (const [parameter, gradient] of small.gradients) {
      if (parameter.endsWith('c_attn.bias')) continue; // its key third is rounding noise
      const other = entry(large.gradients, parameter);
      const relative = distance(gradient, other) / Math.hypot(...other);
      expect(relative, `gradient of ${parameter}`).toBeLessThanOrEqual(limit('grads_rel_fro'));
      const moved = distance(entry(small.final, parameter), entry(large.final, parameter));
      const update = distance(entry(large.final, parameter), entry(reference.weights, parameter));
      expect(moved / update, `update of ${parameter}`).toBeLessThanOrEqual(limit('final_update_rel_fro'));
    }
  });

  it('a repeated run gives the same bits', async () => {
    const once = await run(reference);
    expect(await run(reference, once.choices)).toEqual(once);
  });
});
