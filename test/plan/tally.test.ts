// What programs take on a layout, counted by instruction, is what their passes take.

import { expect, it } from 'vitest';
import { chunkSizes, mapOf } from '../../src/engine/compile/chunk-sizes.ts';
import { tally, tallyOf } from '../../src/engine/compile/tally.ts';
import { sparingWays } from '../../src/engine/compile/ways.ts';
import { DEFAULT_LIMITS, type Workload } from '../../src/engine/compile/workload.ts';
import { ACTIVATION_MODES } from '../../src/graph/activations.ts';
import { bytesOf } from '../../src/graph/program.ts';
import { type Model, momentsIn, optimizedOn } from '../../src/nn/model.ts';
import { generationWorkload, traceGeneration } from '../../src/train/inference/generation-workload.ts';
import { type StepOptions, traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { EVERY_CASE } from '../host.ts';
import { MODELS } from '../model/runs.ts';

function expectCounted(workload: Workload): void {
  const sizes = chunkSizes(workload, DEFAULT_LIMITS);
  // The smallest chunks have the most tiles, the largest none.
  for (const size of new Set([sizes[0], sizes.at(-1)])) {
    if (size === undefined) continue;
    const map = mapOf(workload, size);
    const { lasting, ...counted } = tally(workload.programs, map);
    const passes = tallyOf(workload.passes(map), map);
    expect({ ...counted, lasting: bytesIn(lasting) }).toEqual({ ...passes, lasting: bytesIn(passes.lasting) });
  }
}

const bytesIn = (lasting: ReadonlySet<Parameters<typeof bytesOf>[0]>): string[] =>
  [...lasting].map((tensor) => `${tensor.name} ${bytesOf(tensor)}`).sort();

it.each(Object.entries(MODELS))('of training %s, however its activations are treated', (_, plain) => {
  const options: [number, StepOptions, Model][] = [
    [1, {}, plain],
    [3, { activationDtype: 'bf16' }, plain],
    [2, {}, optimizedOn(plain, 'cpu')],
    [2, {}, optimizedOn(plain, 'auto', 3)],
  ];
  const generation = traceGeneration(plain, 16);
  for (const [i, [accumulate, how, model]] of options.entries()) {
    const modes = EVERY_CASE || i === 0 ? ACTIVATION_MODES : (['recompute', 'offload'] as const);
    const programs = traceStep(model, 2, 16, how);
    const workload = trainingWorkload(model, programs, accumulate, generation);
    for (const inOrder of workload.order
      ? workload.order.menu.map((order) => workload.order?.with(order))
      : [workload]) {
      if (!inOrder?.activations) continue;
      const { activations } = inOrder;
      for (const mode of modes) expectCounted(activations.with(activations.modes.map(() => mode)));
    }
    for (const sparing of sparingWays(workload)) expectCounted(sparing);
  }
});

it.each([undefined, 1, 2, 5])(
  'of moments in bf16, two indices of which lie in one chunk: %s tensors on the GPU',
  (split) => {
    const plain = momentsIn(MODELS['gpt2, tied'], 'bf16');
    const model = split === undefined ? plain : optimizedOn(plain, 'auto', split);
    expectCounted(trainingWorkload(model, traceStep(model, 2, 16, {}), 2));
  },
);

it('of writing text with caches in tiers', () => {
  const model = MODELS['llama, grouped heads'];
  for (const place of ['keep', 'offload'] as const) {
    expectCounted(generationWorkload(model, traceGeneration(model, 16), place));
  }
});
