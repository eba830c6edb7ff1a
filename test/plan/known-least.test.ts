// Is the fit into a budget the same, whether or not the least memory was asked for before?

import { expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { leastMemory } from '../../src/engine/compile/least.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';

const sizes = { layers: 2, width: 64, heads: 4, vocabulary: 256, context: 64 };
const model = makeModel(configOfShape({ family: 'gpt2', ...sizes }));
const fresh = () => trainingWorkload(model, traceStep(model, 8, 64), 1);
const { bytes: least, activations } = leastMemory(fresh(), DEFAULT_LIMITS);

it.each([least, Math.ceil(1.01 * least), 2 * least, 4 * least])('of %d bytes', (budget) => {
  const [asked, other] = [fresh(), fresh()];
  leastMemory(asked, DEFAULT_LIMITS);
  const known = fitMemory(asked, DEFAULT_LIMITS, budget);
  const found = fitMemory(other, DEFAULT_LIMITS, budget);
  for (const of of ['peak', 'slots', 'staging'] as const) expect(known[of]).toEqual(found[of]);
  expect(known.map.chunkBytes).toBe(found.map.chunkBytes);
  expect(known.workload.activations?.modes).toEqual(found.workload.activations?.modes);
  // And the other way round.
  expect(leastMemory(other, DEFAULT_LIMITS)).toMatchObject({ bytes: least, activations });
});

it('refuses a byte less, in the same words', () => {
  const [asked, other] = [fresh(), fresh()];
  leastMemory(asked, DEFAULT_LIMITS);
  const refused = (workload: ReturnType<typeof fresh>) => () => fitMemory(workload, DEFAULT_LIMITS, least - 1);
  expect(refused(asked)).toThrow(`${least} bytes`);
  expect(refused(other)).toThrow(`${least} bytes`);
});
