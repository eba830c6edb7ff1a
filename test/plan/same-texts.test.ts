// Texts of products within budgets: those of the run that has everything on the GPU, whatever the chunks and modes. Two texts of one
// function need not have the same bits on a GPU, whose compiler may contract a product and a sum in one of them and not in the other.

import { expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import type { Fit } from '../../src/engine/compile/fitted.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { boundTogether, isDispatch } from '../../src/engine/compile/operations.ts';
import type { StepPasses } from '../../src/engine/compile/pass.ts';
import { typicalRates } from '../../src/engine/compile/rates.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { mayServe, type Traits } from '../../src/kernels/kernel.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import type { MatmulProblem } from '../../src/kernels/matmul-problem.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';

const GPU: Traits = { software: false, subgroupSize: 32 };
const LIMITS = { ...DEFAULT_LIMITS, rates: typicalRates(false) };
/** Budgets, as shares of the way from the smallest to all. */
const SHARES = [0, 0.1, 0.3, 0.6];

/** Texts of a step's products, as the first variant has them, each with its layout: of parts, with what ends the whole. */
function textsOf({ passes }: Fit<StepPasses>): Set<string> {
  const found = new Set<string>();
  for (const operation of passes.step.operations.filter(isDispatch)) {
    if (operation.kernel !== matmul) continue;
    const [whole, problem] = [operation.whole as MatmulProblem, operation.problem as MatmulProblem];
    const { layout, epilogue = 'none', totalsOf } = whole;
    const variant = matmul.variants.find((one) => mayServe(one, whole, GPU));
    const ended = { ...problem, epilogue, ...(totalsOf && { totalsOf }) };
    const { shader, constants } = variant?.dispatch(ended, GPU) ?? {};
    found.add(`${layout} ${epilogue} ${JSON.stringify(constants)} ${shader}`);
  }
  return found;
}

/** Which bindings of which kernels stay read-only. */
const readOnlyIn = ({ passes }: Fit<StepPasses>): Set<string> =>
  new Set(
    passes.step.operations
      .filter(isDispatch)
      .map((operation) => `${operation.kernel.name} ${boundTogether(operation)}`),
  );

it.each([
  ['gpt2', { family: 'gpt2', layers: 2, width: 256, vocabulary: 1000, heads: 4, context: 64 }],
  ['llama', { family: 'llama', layers: 3, width: 128, vocabulary: 260, heads: 4, kvHeads: 2, context: 32 }],
] as const)('%s', (_, sizes) => {
  const model = makeModel(configOfShape(sizes));
  const workload = trainingWorkload(model, traceStep(model, 2, sizes.context), 1);
  const whole = fitMemory(workload, LIMITS, undefined);
  const texts = textsOf(whole);
  const readOnly = readOnlyIn(whole);
  expect([...readOnly].filter((one) => !one.endsWith(' '))).toEqual(['attention q,k,v']);
  const least = smallestBudget(workload, LIMITS, {});
  const chunkSizes = new Set<number>();
  for (const share of SHARES) {
    const fit = fitMemory(workload, LIMITS, Math.ceil(least + share * (whole.peak - least)));
    chunkSizes.add(fit.map.chunkBytes);
    for (const text of textsOf(fit)) expect(texts.has(text), `${share}: ${text.slice(0, 60)}`).toBe(true);
    const kernels = new Set([...readOnly].map((one) => one.split(' ')[0]));
    for (const one of readOnlyIn(fit)) if (kernels.has(one.split(' ')[0])) expect(readOnly).toContain(one);
  }
  expect(chunkSizes.size).toBeGreaterThan(2);
});
