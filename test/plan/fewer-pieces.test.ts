// Chunks in which fewer tensors are cut: they are taken where a dispatch takes long beside what it computes.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { chunkSizes, mapOf, mapsInFewerPieces } from '../../src/engine/compile/chunk-sizes.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { isDispatch } from '../../src/engine/compile/operations.ts';
import { typicalRates } from '../../src/engine/compile/rates.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { machineOf } from '../../src/engine/simulate/machine.ts';
import { simulate } from '../../src/engine/simulate/simulate.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { ChunkMap } from '../../src/memory/layout/chunk-map.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';

const workloadOf = (layers: number, width: number, vocabulary: number, seq = 64) => {
  const sizes = { n_layer: layers, n_embd: width, n_head: 4, n_positions: seq, vocab_size: vocabulary };
  const model = makeModel(parseConfig({ model_type: 'gpt2', ...sizes }, 'a model'));
  return trainingWorkload(model, traceStep(model, 8, seq), 1, undefined);
};

const piecesIn = (map: ChunkMap) => map.names('parameter').reduce((sum, name) => sum + map.pieces(name).length, 0);

describe('chunks in fewer pieces', () => {
  it('have fewer than those of any model that waste the least, for a quarter more of memory at most', () => {
    const sizes = fc.record({ layers: fc.integer({ min: 1, max: 4 }), width: fc.integer({ min: 4, max: 40 }) });
    let found = 0;
    fc.assert(
      fc.property(sizes, fc.integer({ min: 40, max: 600 }), ({ layers, width }, vocabulary) => {
        const workload = workloadOf(layers, 4 * width, vocabulary);
        for (const bytes of chunkSizes(workload, DEFAULT_LIMITS)) {
          const usual = mapOf(workload, bytes);
          for (const map of mapsInFewerPieces(workload, DEFAULT_LIMITS, usual)) {
            expect(piecesIn(map)).toBeLessThan(piecesIn(usual));
            expect(map.count * map.chunkBytes).toBeLessThanOrEqual(1.25 * usual.count * usual.chunkBytes);
            found++;
          }
        }
      }),
      { seed: 5, numRuns: 20 },
    );
    expect(found).toBeGreaterThan(20);
  });

  it('are those of a budget where dispatches take long, and not where they take no time', () => {
    const workload = workloadOf(2, 64, 256);
    const within = (launchSeconds: number) => {
      const rates = { ...DEFAULT_LIMITS.rates, flops: 8e9, upBytes: 4e9, downBytes: 4e9, launchSeconds };
      const { passes, map } = fitMemory(workload, { ...DEFAULT_LIMITS, rates }, 2_060_000);
      return { dispatches: passes.step.operations.filter(isDispatch).length, pieces: map.pieceCount };
    };
    const [free, long] = [within(0), within(1e-4)];
    expect(long.dispatches).toBeLessThan(free.dispatches);
    expect(long.pieces).toBeLessThan(free.pieces);
  });

  // `most`: times what a step takes without a budget, in one within so much of the way from the smallest to that. Products in pieces read
  // their other operand again, which takes the time where memory is slow beside arithmetic.
  const DESKTOP = { flops: 60e12, upBytes: 25e9, downBytes: 25e9, memoryBytes: 900e9, launchSeconds: 0 };
  const LAPTOP = { ...typicalRates(false), memoryBytes: 300e9 };
  const ANSWERING = { ...typicalRates(false), flops: 30e12, upBytes: 25e9, downBytes: 25e9, memoryBytes: 900e9 };
  it.each([
    { layers: 12, width: 256, vocabulary: 2048, seq: 128, leastChunk: 2 ** 19, share: 0.8, most: 1.17, rates: DESKTOP },
    { layers: 2, width: 64, vocabulary: 256, seq: 64, leastChunk: 0, share: 0.6, most: 2.05, rates: DESKTOP },
    { layers: 2, width: 64, vocabulary: 256, seq: 64, leastChunk: 0, share: 0.4, most: 9.3, rates: LAPTOP },
    { layers: 12, width: 256, vocabulary: 2048, seq: 128, leastChunk: 0, share: 0.1, most: 52, rates: ANSWERING },
  ])('are tried at the size that suits the budget, and with what goes in slices: $layers blocks, $share', (one) => {
    const { leastChunk, share, most, rates, ...sizes } = one;
    const workload = workloadOf(sizes.layers, sizes.width, sizes.vocabulary, sizes.seq);
    const limits = { ...DEFAULT_LIMITS, rates, leastChunk };
    const options = { recovery: 'checkpoint' } as const;
    const whole = fitMemory(workload, limits, undefined);
    const least = smallestBudget(workload, limits, options);
    const found = fitMemory(workload, limits, Math.ceil(least * (whole.peak / least) ** share), options);
    const secondsIn = (fit: typeof found) => {
      const { step } = fit.passes;
      return simulate(fit, step, schedule(step.trace, fit.slots, 'planned', step.extra), machineOf(limits)).seconds;
    };
    expect(secondsIn(found)).toBeLessThan(most * secondsIn(whole));
  });
});
