// Room below the GPU for chunks: a larger GPU budget does not take chunks whose padding has none there.

import { expect, it } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { divideBelow } from '../../src/engine/simulate/shares-below.ts';
import { bytesBelow, roomOf, type TierBytes } from '../../src/memory/tiers/shares.ts';
import { computedIn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { MODELS } from '../model/runs.ts';

it.each([
  ['llama, grouped heads', 'f32'],
  ['qwen3, norms of heads', 'bf16'],
] as const)('%s in %s: what is enough for the smallest budget is enough for all', (name, dtype) => {
  const model = computedIn(MODELS[name], dtype);
  const workload = trainingWorkload(model, traceStep(model, 1, 8), 1, undefined, { activations: 'keep' });
  const least = smallestBudget(workload, DEFAULT_LIMITS);
  const all = fitMemory(workload, DEFAULT_LIMITS, undefined).peak;
  const need = needBelow(fitMemory(workload, DEFAULT_LIMITS, least));
  const half = Math.floor(need.held / 2) * need.chunkBytes;
  const rooms: TierBytes[] = [
    { host: bytesBelow(need), disk: 0 },
    { host: half, disk: (need.held + need.largestPut) * need.chunkBytes - half },
  ];
  for (const { host, disk } of rooms) {
    const below = roomOf({ host, disk });
    expect(smallestBudget(workload, DEFAULT_LIMITS, { below })).toBe(least);
    for (const part of [0, 1 / 2, 7 / 8]) {
      const fit = fitMemory(workload, DEFAULT_LIMITS, Math.floor(least + part * (all - least)), { below });
      expect(() => divideBelow(fit, disk || undefined, host), `${part} of the way, ${disk} of disk`).not.toThrow();
    }
  }
});
