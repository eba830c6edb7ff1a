// Stages that exchange what all of them have, in a number of exchanges that their chunks decide: within budgets that leave each
// stage another choice of them, none waits for one that another stage does not have.

import { describe, expect, it } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import type { ExchangeWay } from '../../src/engine/simulate/machine.ts';
import { makeModel } from '../../src/nn/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { Predictor } from '../../src/train/plan/prediction.ts';
import type { Scenario } from '../../src/train/plan/prediction-part.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { EVERY_CASE } from '../host.ts';
import { MACHINE } from './a-machine.ts';

const CONTEXT = 32;
const networked = (exchange: ExchangeWay) => ({
  ...MACHINE,
  network: {
    ...{ ranksPerMachine: 16, exchange },
    inside: { bytesPerSecond: 10e9, latencySeconds: 1e-6 },
    between: { bytesPerSecond: 1e9, latencySeconds: 4e-6 },
  },
});

function predictorOf(
  layers: number,
  vocabSize: number,
  exchange: ExchangeWay,
  { ranks, ...changes }: Pick<Scenario, 'ranks' | 'accumulate'> & Partial<Scenario>,
): Predictor {
  const configOf = (layers: number) =>
    configFromFlags({ model: 'gpt2', layers, width: 64, heads: 4, context: CONTEXT, vocabSize, tied: true });
  const { parameters } = sizeOf(configOf(layers));
  const scenario: Scenario = {
    ...{ layers, batch: 1, context: CONTEXT, activations: 'keep', recovery: 'checkpoint', parameters },
    ...{ modelOf: (layers) => makeModel(configOf(layers)), accumulateOrder: 'batch', reckonsMicroBatches: true },
    ...{ ranks, ...changes },
  };
  return new Predictor(scenario, networked(exchange));
}

describe('stages of a pipeline', () => {
  it('exchange in chunks of one size, also where each by itself would choose another', () => {
    const predictor = predictorOf(16, 300, 'host', {
      ranks: { size: 16, stage: 0, tensor: 2, pipeline: 4 },
      accumulate: 3,
    });
    for (const share of EVERY_CASE ? [0, 0.3, 1] : [0]) {
      const { smallest, resident } = predictor;
      const budget = Math.floor(smallest + share * (resident.bytes - smallest));
      expect(predictor.at(budget, 1e12).seconds, `${budget} bytes`).toBeGreaterThan(0);
    }
  });

  it('never wait for each other in a circle, whatever the grid, the budget and the activations', () => {
    const random = new Random(11, 'grids');
    const one = <T>(of: readonly T[]): T => at(of, random.below(of.length));
    for (let i = 0; i < (EVERY_CASE ? 60 : 4); i++) {
      const [pipeline, tensor, copies] = [one([2, 3, 4]), one([1, 2]), one([1, 2])];
      const layers = pipeline * one([1, 2, 4]);
      const [vocabSize, exchange] = [one([40, 300, 1000]), one(['host', 'direct'] as const)];
      const ranks = { size: pipeline * tensor * copies, stage: one([0, 1, 2, 3] as const), tensor, pipeline };
      const activations = one(['keep', 'recompute', 'auto'] as const);
      const changes = { ranks, accumulate: one([1, 2, 3, 6]), activations };
      const predictor = predictorOf(layers, vocabSize, exchange, changes);
      const { smallest, resident } = predictor;
      const budget = Math.floor(smallest + one([0, 0, 0.2, 0.7]) * (resident.bytes - smallest));
      const what = JSON.stringify({ layers, vocabSize, exchange, ...changes, budget });
      expect(() => predictor.at(budget, 1e12), what).not.toThrow();
      expect(() => predictor.at(undefined, 1e12), what).not.toThrow();
    }
  });
});
