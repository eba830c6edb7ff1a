// Is the traced backward pass the derivative of the traced forward pass? Whole tiny models, interpreted in
// float64, against differences of the loss along random directions in each parameter. No device: what the
// kernels compute is tied to their references in test/kernels.

import { describe, expect, it } from 'vitest';
import type { Batch } from '../../src/data/batches.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { onTensors } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import type { Model } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Random } from '../../src/util/random.ts';
import { entry, field } from '../entry.ts';
import { SMALL_MODELS } from '../families.ts';
import { EVERY_CASE } from '../host.ts';
import { Memory } from '../interpret.ts';

const BATCH = 2;
const SEQ = 5;
const random = new Random(11, 'graph test');
const normals = (size: number) => Float64Array.from({ length: size }, () => random.normal());

/** Repeated and absent ids, ignored targets; one row of targets wholly ignored when `sparse`. */
function makeBatch({ shape, inputs, objective }: Model, sparse: boolean, packed: boolean): Batch {
  const { vocabulary, classes } = shape;
  const ofRows = () => Int32Array.from({ length: BATCH }, (_, i) => (sparse && i === 0 ? -100 : random.below(classes)));
  if (vocabulary === 0) {
    const [pixels] = inputs(SEQ);
    const size = (pixels?.row ?? []).reduce((a, b) => a * b, BATCH);
    return { pixels: Float32Array.from(normals(size)), targets: ofRows(), batch: BATCH, seq: SEQ };
  }
  const ids = Int32Array.from({ length: BATCH * SEQ }, () => random.below(vocabulary - 2));
  const targets = objective.accuracy
    ? ofRows()
    : ids.map((_, i) => (i % 4 === 1 || (sparse && i < SEQ) ? -100 : random.below(vocabulary)));
  // Read in rows of several documents alone: two in the first row, three in the second.
  const rows = packed && {
    documents: Int32Array.of(4, 4, 2, 2, 2, 0, 1, 1, 7, 7),
    positions: Int32Array.of(0, 1, 0, 1, 2, 0, 0, 1, 0, 1),
  };
  // Read by encoders alone: kinds of tokens, and padding in the second row.
  const tokenTypes = ids.map((_, i) => i % 3);
  const attentionMask = ids.map((_, i) => Number(i !== 5 && i !== 9));
  return { ids, targets, tokenTypes, attentionMask, ...rows, batch: BATCH, seq: SEQ };
}

/** Gains around 1, everything else large enough that no path through the model is negligible. */
function makeWeights(model: Model): Map<string, Float64Array> {
  return new Map(
    model.parameters.map(({ name, shape }) => {
      const gain = /(ln_.|norm|LayerNorm|layernorm\w*)\.weight$/.test(name) ? 1 : 0;
      const values = normals(shape.reduce((a, b) => a * b, 1));
      return [name, values.map((value) => gain + 0.4 * value)];
    }),
  );
}

describe.each(Object.entries(SMALL_MODELS))('%s', (_, { config, lora, packed = false }) => {
  const base = makeModel(parseConfig(config, 'test'));
  const model = lora ? withLora(base, lora) : base;
  // A picture has as many tokens as it has.
  const traced = traceStep(model, BATCH, Math.min(SEQ, model.shape.context), { packed });
  const { first, next, evaluate, parameters, gradients, scalars } = traced;
  const weights = makeWeights(model);
  const batches = [false, true].map((sparse) => makeBatch(model, sparse, packed));
  const scale = 1 / batches.reduce((sum, batch) => sum + model.objective.count(batch), 0);

  /** Mean loss of both micro-batches, by the evaluation program. */
  function loss(changed: string, values: Float64Array): number {
    const memory = new Memory();
    for (const [name, tensor] of parameters) memory.set(tensor, name === changed ? values : entry(weights, name));
    memory.set(scalars.lossSum, [0]);
    for (const batch of batches) {
      memory.setInputs(model, traced, batch, NaN);
      memory.run(evaluate);
    }
    return memory.of(scalars.lossSum)[0]! * scale;
  }

  const memory = new Memory();
  for (const [name, tensor] of parameters) memory.set(tensor, entry(weights, name));
  batches.forEach((batch, i) => {
    memory.setInputs(model, traced, batch, scale);
    memory.run(i === 0 ? first : next);
  });

  it('has the loss of the evaluation', () => {
    const trained = memory.of(scalars.lossSum)[0]! * scale;
    expect(trained).toBeCloseTo(loss('', new Float64Array()), 13);
  });

  // Seven points along a unit vector: the truncation error is STEP^6 / 140 times a seventh derivative (of five points it was
  // up to 3e-9 of the gradient, behind Gemma's norms, by what weights were drawn), the rounding error some 2^-52 over
  // STEP, up to 9e-11.
  const STEP = 3e-5;
  it.each([...gradients.keys()])('%s', (name) => {
    const gradient = memory.of(entry(gradients, name));
    const at = entry(weights, name);
    for (let trial = 0; trial < (EVERY_CASE ? 2 : 1); trial++) {
      const draws = normals(at.length);
      const direction = draws.map((value) => value / Math.hypot(...draws));
      const moved = (steps: number) =>
        loss(
          name,
          at.map((value, i) => value + steps * STEP * direction[i]!),
        );
      const across = (steps: number) => moved(steps) - moved(-steps);
      const numeric = (45 * across(1) - 9 * across(2) + across(3)) / (60 * STEP);
      const exact = gradient.reduce((sum, value, i) => sum + value * direction[i]!, 0);
      const size = gradient.reduce((sum, value, i) => sum + Math.abs(value * direction[i]!), 0);
      expect(Math.abs(numeric - exact), `${numeric} by differences, ${exact} traced`).toBeLessThan(1e-9 * size + 1e-10);
    }
  });

  it('computes gradients of what trains, and of nothing else', () => {
    const trainable = model.parameters.filter(({ trainable = true }) => trainable).map(({ name }) => name);
    for (const program of [first, next]) {
      const written = new Set<string>();
      for (const { kernel, problem, operands } of onTensors(program)) {
        for (const [name, { access }] of Object.entries(kernel.operands(problem))) {
          const { role, name: tensor } = field(operands, name);
          if (role === 'gradient') written.add(tensor);
          if (access !== 'read') expect(role, `${tensor} written`).not.toBe('parameter');
        }
      }
      expect([...written].sort()).toEqual(trainable.sort());
    }
  });
});
