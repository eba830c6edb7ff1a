// The tensors that the GPU updates where the optimizer may run on either device, against every set of embeddings and blocks that it
// could update: on paper, by what links and host reach.

import { describe, expect, test } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { DEFAULT_LIMITS, heldByUpdate } from '../../src/engine/compile/workload.ts';
import { optionsOf } from '../../src/engine/run/arrangement.ts';
import { priceOf } from '../../src/engine/simulate/price.ts';
import { optimizedOn } from '../../src/nn/model.ts';
import { chooseSplit } from '../../src/train/step/optimizer-split.ts';
import { unlessRefused } from '../../src/util/errors.ts';
import { EVERY_CASE, VERBOSE } from '../host.ts';
import { LARGEST, MODELS, type Work, workloadOf } from '../model/runs.ts';

describe('against every set of tensors that the GPU could update of embeddings and blocks', () => {
  const model = LARGEST;
  const work: Work = { model, batch: 4, seq: 16, accumulate: 1, steps: 1 };
  /** The norm behind the last block goes with it. */
  const partOf = ({ name }: { name: string }) =>
    /^h\.\d+/.exec(name)?.[0] ?? (/^w[tp]e/.test(name) ? 'embeddings' : 'h.2');
  const parts = [...new Set(model.parameters.map(partOf))];
  const sets = Array.from({ length: 2 ** parts.length }, (_, set) => parts.filter((_, i) => (set >> i) % 2 === 1));
  /** Bytes a second of link and host, and the part that a budget leaves room for of what is more than the least. */
  const CASES = [
    [1e9, 2e9, 0.5],
    [1e9, 8e9, 0.2],
    [3e9, 4e9, 0.5],
    [3e9, 2e9, 0.8],
    [10e9, 20e9, 0.8],
    [10e9, 20e9, 0.2],
  ] as const;

  test.each(EVERY_CASE ? CASES : CASES.slice(0, 1))('link %d, host %d, room for %d', (link, hostBytes, share) => {
    const rates = {
      flops: 5e11,
      launchSeconds: 1e-6,
      answerSeconds: 1e-5,
      copySeconds: 1e-6,
      copies: 'duplex',
    } as const;
    const limits = { ...DEFAULT_LIMITS, rates: { ...rates, upBytes: link, downBytes: link, hostBytes } };
    const known = new Map<string, Work>();
    const workOf = (found: Work['model']) => {
      const key = found.parameters
        .map(({ name, updatedOnHost, rowsOnGPU }) => `${name} ${updatedOnHost} ${rowsOnGPU}`)
        .join();
      known.set(key, known.get(key) ?? { ...work, model: found });
      return workloadOf(known.get(key) as Work);
    };
    const least = smallestBudget(workOf(optimizedOn(model, 'cpu')), limits, {});
    const gpu = Math.floor(least + share * (fitMemory(workOf(model), limits, undefined).peak - least));
    const secondsOf = (found: Work['model'], split: number) => {
      const workload = workOf(optimizedOn(found, 'auto', split));
      const fit = unlessRefused(() => fitMemory(workload, limits, gpu, optionsOf({ gpu }, heldByUpdate(workload))));
      return fit ? priceOf(fit, fit.passes.step, limits).seconds : Number.POSITIVE_INFINITY;
    };
    const best = Math.min(
      ...sets.map((set) => {
        const isOnGPU = (parameter: { name: string }) => set.includes(partOf(parameter));
        const [onGPU, others] = [model.parameters.filter(isOnGPU), model.parameters.filter((one) => !isOnGPU(one))];
        return secondsOf({ ...model, parameters: [...onGPU, ...others] }, onGPU.length);
      }),
    );
    const { split: chosen } = chooseSplit({ model, workloadOf: workOf, memory: { gpu }, limits });
    if (VERBOSE) console.log(`chosen ${chosen}: ${secondsOf(model, chosen) / best} of the best set`);
    // Where chunks end is another matter in each of them: some percent.
    expect(secondsOf(model, chosen) / best).toBeLessThan(1.05);
    if (!EVERY_CASE) return;
    const prefixes = Array.from({ length: model.parameters.length + 1 }, (_, split) => secondsOf(model, split));
    if (VERBOSE) console.log(`the best of the first: ${Math.min(...prefixes) / best}`);
    expect(Math.min(...prefixes) / best).toBeLessThan(1.02);
  });
});

test('a model has its last tensors on the host, frozen ones left out', () => {
  const plain = MODELS['gpt2, tied'];
  const frozen = {
    ...plain,
    parameters: plain.parameters.map((one, i) => (i === 1 ? { ...one, trainable: false } : one)),
  };
  const onHost = optimizedOn(frozen, 'auto', 2).parameters.map(({ updatedOnHost = false }) => updatedOnHost);
  expect(onHost.slice(0, 4)).toEqual([false, false, false, true]);
  expect(onHost.slice(3).every(Boolean)).toBe(true);
});
