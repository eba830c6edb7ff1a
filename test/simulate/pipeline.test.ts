// Stages of a pipeline on one simulated clock: the bubble of 1F1B by its formula where arithmetic is all there is, that all of a
// step's time is accounted for on every stage, and what goes over which link.

import { describe, expect, it } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { EXCHANGE_AXES, type GridShape, placesOf } from '../../src/engine/ranks/grid.ts';
import { type ExchangeWay, type Machine, machineLimits } from '../../src/engine/simulate/machine.ts';
import { simulateStages } from '../../src/engine/simulate/stages.ts';
import { makeModel } from '../../src/nn/index.ts';
import { stepPart } from '../../src/train/rank-part.ts';
import { trainingWorkload } from '../../src/train/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { EVERY_CASE } from '../host.ts';
import { MACHINE } from './a-machine.ts';

const FREE = { bytesPerSecond: Number.POSITIVE_INFINITY, latencySeconds: 0 };
const networked = (exchange: ExchangeWay, machine: Partial<Machine> = {}): Machine => ({
  ...{ ...MACHINE, ...machine },
  network: {
    ranksPerMachine: 4,
    inside: { bytesPerSecond: 10e9, latencySeconds: 1e-6 },
    between: { bytesPerSecond: 1e9, latencySeconds: 4e-6 },
    exchange,
    ...machine.network,
  },
});
/** Of which arithmetic alone takes time. */
const arithmeticOnly = networked('direct', {
  ...{ launchSeconds: 0, memoryBytesPerSecond: Number.POSITIVE_INFINITY },
  network: { ranksPerMachine: 4, inside: FREE, between: FREE, exchange: 'direct' },
});

/** So large that the update, which no stage waits in, is little beside it. */
const BATCH = 6;

const modelOf = (layers: number, vocabSize = 8) =>
  makeModel(configFromFlags({ model: 'gpt2', layers, width: 64, heads: 4, context: 32, vocabSize, tied: true }));

/** A step of the first rank of each stage, with everything on the GPU. */
function stagesOf(layers: number, accumulate: number, size: number, shape: GridShape, machine: Machine, vocabSize = 8) {
  const model = modelOf(layers, vocabSize);
  const first = placesOf({ rank: 0, size }, shape);
  const stages = Array.from({ length: first.pipeline.size }, (_, rank) => {
    const places = { ...first, pipeline: { ...first.pipeline, rank } };
    const sharding = { ...first.data, stage: 2 as const };
    const { part, programs } = stepPart(model, BATCH, 32, places);
    const options = { accumulateOrder: 'batch', activations: 'keep', sharding } as const;
    const fit = fitMemory(
      trainingWorkload(part, programs, accumulate, undefined, options),
      machineLimits(machine),
      undefined,
    );
    const pass = fit.passes.step;
    const alone = schedule(pass.trace, fit.slots, 'planned');
    const ranks = {
      ...{ size: first.data.size, sharding, owned: 1, splits: 1 },
      ...{ tensor: first.tensor, stage: places.pipeline },
    };
    return { fit, pass, schedule: alone, hostBytes: Number.POSITIVE_INFINITY, ranks };
  });
  return { stages, steps: simulateStages(stages, machine), places: first };
}

describe('the bubble', () => {
  const cases = EVERY_CASE
    ? [2, 4].flatMap((p) => [1, 2, 4, 8, 16].map((m) => [p, m] as const))
    : ([
        [2, 1],
        [4, 8],
      ] as const);
  it.each(cases)('of %i stages and %i micro-batches is (p - 1) / (m + p - 1)', (p, m) => {
    const { steps } = stagesOf(p, m, p, { pipeline: p }, arithmeticOnly);
    // Others stand still for what the head takes, too: stages are as even as blocks are.
    const busiest = steps.toSorted((a, b) => b.computeSeconds - a.computeSeconds).slice(0, 1);
    const expected = (p - 1) / (m + p - 1);
    for (const { waits, seconds } of busiest) {
      const share = waits.bubble / seconds;
      expect(Math.abs(share / expected - 1), `${share} of ${expected}`).toBeLessThan(0.05);
    }
    for (const { seconds, computeSeconds, waits } of steps) {
      expect(waits.bubble / seconds).toBeGreaterThan(0.95 * expected);
      expect(computeSeconds + waits.bubble).toBeCloseTo(seconds, 9);
    }
  });
});

describe.each(['host', 'direct'] as const)('exchanges through %s', (exchange) => {
  it('take all of the time that arithmetic does not, on every stage of a grid, and send what the plan says', () => {
    const { stages, steps } = stagesOf(4, 3, 16, { tensor: 2, pipeline: 2 }, networked(exchange), 300);
    steps.forEach(({ seconds, computeSeconds, waits, bytes }, i) => {
      const { pass, ranks } = at(stages, i);
      expect(seconds).toBeCloseTo(at(steps, 0).seconds, 6);
      const waited = Object.values(waits).reduce((a, b) => a + b, 0);
      expect(computeSeconds + waited).toBeCloseTo(seconds, 10);
      expect(waits.network).toBeGreaterThan(0);
      expect(waits.bubble).toBeGreaterThan(0);
      const places = placesOf({ rank: i * 8, size: 16 }, { tensor: 2, pipeline: 2 });
      const sent = EXCHANGE_AXES.map((axis) => networkBytes(pass.operations, places[axis], axis).sent);
      expect(bytes.network).toBeCloseTo(
        sent.reduce((a, b) => a + b, 0),
        3,
      );
      expect(ranks.stage).toEqual(places.pipeline);
    });
  });
});
