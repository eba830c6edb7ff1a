// Placement never changes a bit: whatever the budget, the tiers below it, the policy, the reading ahead and the
// recovery, a training yields the losses, gradient norms, evaluations, texts, weights and moments of the one that
// had all memory. Compared as bits.

import { beforeAll, describe, expect, test } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import { ORDERS } from '../../src/memory/plan/policies.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import {
  budgetFor,
  chunksUnder,
  expectSame,
  LARGEST,
  leastBudget,
  leastHostUnder,
  memoryDisk,
  type Outcome,
  run,
  SAMPLED_MODELS,
  type Work,
} from './runs.ts';

const isDeno = 'Deno' in globalThis;

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});

/** The work with all memory: what every other run of it must bring. */
async function undisturbed(work: Work): Promise<{ outcome: Outcome; choices: ChoiceRecord }> {
  const { outcome, choices } = await run(device, work);
  expect(outcome.steps.every(([loss, norm]) => Number.isFinite(loss) && norm > 0)).toBe(true);
  return { outcome, choices };
}

/** Host memory for the fewest chunks that work above a disk. */
function diskOnly(work: Work, memory: MemoryOptions): MemoryOptions {
  return { ...memory, host: leastHostUnder(device, work, memory), disk: memoryDisk() };
}

function hostAndDisk(work: Work, memory: MemoryOptions): MemoryOptions {
  const { chunks, bytes } = chunksUnder(device, work, memory);
  return { ...memory, host: Math.ceil(chunks / 3) * bytes, disk: memoryDisk() };
}

// In Deno, where a read takes 10 ms at least, there are fewer of all that follows.
const few = isDeno && !EVERY_CASE;

describe.each(SAMPLED_MODELS)('%s', (name, model) => {
  test.each(EVERY_CASE ? [1, 3] : name === 'gpt2, untied' ? [1, 2] : [2])(
    'with %d micro-batches a step, anything between steps, and any memory',
    async (accumulate) => {
      chooseVariants(name.length, name === 'gpt2, untied');
      const work: Work = { model, batch: 2, seq: 8, accumulate, steps: EVERY_CASE ? 3 : 2, between: true };
      const { outcome, choices } = await undisturbed(work);
      const other = accumulate === 1 ? 'checkpoint' : 'step';
      const memories: Record<string, MemoryOptions> = {
        'smallest budget': { gpu: leastBudget(device, work) },
        'smallest budget, disk': diskOnly(work, {
          gpu: leastBudget(device, work, 'checkpoint'),
          recovery: 'checkpoint',
        }),
        'half, host and disk': hostAndDisk(work, { gpu: budgetFor(device, work, 0.5, other), recovery: other }),
      };
      if (accumulate > 1) delete memories['smallest budget'];
      const isSampled = (i: number) => EVERY_CASE || name === 'gpt2, untied' || i === name.length % 2;
      for (const [kind, memory] of Object.entries(memories).filter((_, i) => isSampled(i))) {
        const { outcome: found, report } = await run(device, work, { memory, choices });
        expectSame(found, outcome, kind);
        expect(report.link.h2dBytes, kind).toBeGreaterThan(0);
        if (memory.disk) expect(report.below.diskReadBytes, kind).toBeGreaterThan(0);
        expect(report.host.peak, kind).toBeLessThanOrEqual(memory.host ?? Number.POSITIVE_INFINITY);
      }
    },
  );
});

describe('a model of 84 chunks', () => {
  const work: Work = { model: LARGEST, batch: 1, seq: 16, accumulate: 1, steps: EVERY_CASE ? 3 : 2 };
  let wanted: Outcome;
  let choices: ChoiceRecord;
  beforeAll(async () => {
    chooseVariants(2);
    ({ outcome: wanted, choices } = await undisturbed(work));
  });

  test.each(['step', 'checkpoint'] as const)('on parts of its model data, recovery %s', async (recovery) => {
    for (const part of EVERY_CASE ? [1 / 2, 1 / 4, 1 / 10, 0] : [recovery === 'step' ? 0 : 1 / 4]) {
      const gpu = budgetFor(device, work, part, recovery);
      const memory = part === 1 / 2 || part === 0 ? { gpu, recovery } : diskOnly(work, { gpu, recovery });
      const { outcome } = await run(device, work, { memory, choices });
      expectSame(outcome, wanted, `${part} of the model data, ${memory.host ?? 'all'} bytes of host memory`);
    }
  });

  const policies = ['planned', ...Object.keys(ORDERS)] as ('planned' | keyof typeof ORDERS)[];
  test.each(EVERY_CASE ? policies : policies.slice(0, few ? 2 : 4))('under the policy %s', async (policy) => {
    for (const prefetch of policy === 'planned' || (EVERY_CASE && policy === 'LRU') ? [true, false] : [true]) {
      const memory = diskOnly(work, { gpu: budgetFor(device, work, 1 / 4, 'checkpoint'), recovery: 'checkpoint' });
      const { outcome } = await run(device, work, { memory: { ...memory, policy, prefetch }, choices });
      expectSame(outcome, wanted, `${policy}, prefetch ${prefetch}`);
    }
  });
});
