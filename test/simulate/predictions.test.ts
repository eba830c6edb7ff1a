// Predictions for random machines, ranks and accumulations: a step takes its arithmetic and what is waited for, no wait is less
// than none, and micro-batches that are reckoned take what they take where all of them are followed.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import { ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { EXCHANGE_WAYS, type ExchangeWay, type Machine } from '../../src/engine/simulate/machine.ts';
import { makeModel } from '../../src/nn/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { Predictor } from '../../src/train/plan/prediction.ts';
import type { Scenario } from '../../src/train/plan/prediction-part.ts';
import { EVERY_CASE } from '../host.ts';
import { MACHINE } from './a-machine.ts';

const scenarioOf = (layers: number, changes: Partial<Scenario>): Scenario => {
  const flags = { model: 'gpt2', layers, width: 32, heads: 4, context: 32, vocabSize: 40, tied: false } as const;
  return {
    ...{
      layers,
      batch: 2,
      context: 32,
      accumulate: 1,
      activations: 'keep',
      recovery: 'step',
      reckonsMicroBatches: true,
    },
    parameters: sizeOf(configFromFlags(flags)).parameters,
    modelOf: (layers) => makeModel(configFromFlags({ ...flags, layers })),
    ...changes,
  };
};

const networked = (exchange: ExchangeWay, inside: number, between = inside, machine = MACHINE): Machine => ({
  ...machine,
  network: {
    ranksPerMachine: 4,
    inside: { bytesPerSecond: inside, latencySeconds: 1e-6 },
    between: { bytesPerSecond: between, latencySeconds: 4e-6 },
    exchange,
  },
});

/** From one power of ten to another. */
const rates = (from: number, to: number) => fc.double({ min: from, max: to, noNaN: true }).map((power) => 10 ** power);

const machines = fc
  .record({
    peakFlops: rates(11, 13),
    link: fc.record({
      upBytesPerSecond: rates(9, 11),
      downBytesPerSecond: rates(9, 11),
      copies: fc.constantFrom('serial', 'duplex'),
    }),
    disk: fc.record({ readBytesPerSecond: rates(8, 10), writeBytesPerSecond: rates(8, 10), bytes: fc.constant(1e12) }),
    exchange: fc.constantFrom(...EXCHANGE_WAYS),
    inside: rates(8, 12),
    between: rates(7, 11),
  })
  .map(({ exchange, inside, between, ...own }) => networked(exchange, inside, between, { ...MACHINE, ...own }));

const FEW_BLOCKS = 8;

const cases = fc.record({
  machine: machines,
  blocks: fc.constantFrom(FEW_BLOCKS, 16),
  copies: fc.constantFrom(1, 2, 4, 64, 1024),
  pipeline: fc.constantFrom(1, 1, 2, 3, 8),
  stage: fc.constantFrom<ZeroStage>(...ZERO_STAGES),
  accumulate: fc.constantFrom(1, 2, 3, 5, 64, 1024),
  activations: fc.constantFrom('auto', 'keep', 'recompute', 'spill'),
  /** Of the way from the smallest budget to all; of more, there is no budget. */
  share: fc.constantFrom(0, 0.3, 0.7, 2),
  hostBytes: fc.constantFrom(2e5, 1e12),
});

/** By how much a step may be faster in chunks that cut fewer tensors: on the machines of assets/hardware up to a tenth was seen. */
const FEWER_PIECES = 1.1;

describe('a prediction', () => {
  it('is its arithmetic and its waits, none of which is less than nothing', () => {
    const check = fc.property(cases, ({ machine, blocks, copies, pipeline, stage, share, hostBytes, ...changes }) => {
      // All of few blocks are followed, and a part of many; four are as few as eight are.
      const layers = EVERY_CASE || blocks > FEW_BLOCKS || pipeline > 4 ? blocks : 4;
      const size = copies * pipeline;
      const ranks = size > 1 ? { size, stage, pipeline } : undefined;
      const predictor = new Predictor(scenarioOf(layers, { ...changes, ranks }), machine);
      const { smallest, resident } = predictor;
      const budget = share > 1 ? undefined : Math.ceil(smallest + share * (resident.bytes - smallest));
      const { seconds, computeSeconds, waits, order } = predictor.at(budget, hostBytes);
      expect(computeSeconds).toBeGreaterThan(0);
      let waited = 0;
      for (const [cause, each] of Object.entries(waits)) {
        expect(each, cause).toBeGreaterThanOrEqual(0);
        waited += each;
      }
      expect((computeSeconds + waited) / seconds).toBeCloseTo(1, 9);
      // Micro-batches layer by layer look up a table once for all of them. And chunks may cut fewer tensors than where everything is there.
      if (order === 'batch') expect(predictor.resident.seconds / seconds).toBeLessThanOrEqual(FEWER_PIECES);
    });
    fc.assert(check, { seed: 3, numRuns: EVERY_CASE ? 200 : 24 });
  });

  it.each(EVERY_CASE ? [1e8, 1e9, 1e10, 1e11] : [1e9, 1e10])(
    'reckons micro-batches as they are followed, beside exchanges at %d bytes a second',
    (bytesPerSecond) => {
      for (const stage of ZERO_STAGES) {
        const predicted = (reckonsMicroBatches: boolean) => {
          const ranks = { size: 4, stage };
          const scenario = scenarioOf(3, { ranks, accumulate: 8, accumulateOrder: 'batch', reckonsMicroBatches });
          return new Predictor(scenario, networked('direct', bytesPerSecond)).at(undefined, 1e9);
        };
        const [reckoned, followed] = [predicted(true), predicted(false)];
        // ZeRO 3 gathers beside each micro-batch: what is left of one's gathers to the next varies a little.
        const off = Math.abs(reckoned.seconds / followed.seconds - 1);
        expect(off, `ZeRO ${stage}`).toBeLessThan(stage === 3 ? 0.003 : 1e-9);
      }
    },
  );
});
