// Stages of a pipeline on one simulated clock: the bubble of 1F1B by its formula where arithmetic is all there is, that all of a
// step's time is accounted for on every stage, and what goes over which link.

import { describe, expect, it } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { EXCHANGE_AXES, type GridShape, gridPlacesOf } from '../../src/engine/ranks/grid.ts';
import { type ExchangeWay, type Machine, machineLimits } from '../../src/engine/simulate/machine.ts';
import { exchangeSeconds } from '../../src/engine/simulate/network.ts';
import { simulateStages } from '../../src/engine/simulate/stages.ts';
import { makeModel } from '../../src/nn/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { Predictor } from '../../src/train/plan/prediction.ts';
import type { Scenario } from '../../src/train/plan/prediction-part.ts';
import { planRanks } from '../../src/train/plan/rank-plan.ts';
import { scale } from '../../src/train/plan/scaling.ts';
import { stepPart } from '../../src/train/step/rank-part.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
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

const configOf = (layers: number, vocabSize: number) =>
  configFromFlags({ model: 'gpt2', layers, width: 64, heads: 4, context: 32, vocabSize, tied: true });
const modelOf = (layers: number, vocabSize = 8) => makeModel(configOf(layers, vocabSize));

/** A step of the first rank of each stage, with everything on the GPU. */
function stagesOf(layers: number, accumulate: number, size: number, shape: GridShape, machine: Machine, vocabSize = 8) {
  const model = modelOf(layers, vocabSize);
  const first = gridPlacesOf({ rank: 0, size }, shape);
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
      const places = gridPlacesOf({ rank: i * 8, size: 16 }, { tensor: 2, pipeline: 2 });
      const sent = EXCHANGE_AXES.map((axis) => networkBytes(pass.operations, places[axis], axis).sent);
      expect(bytes.network).toBeCloseTo(
        sent.reduce((a, b) => a + b, 0),
        3,
      );
      expect(ranks.stage).toEqual(places.pipeline);
    });
  });
});

describe('a prediction for a grid', () => {
  const scenario = (layers: number, accumulate: number, ranks: Scenario['ranks'], vocabSize = 8): Scenario => ({
    ...{ layers, batch: BATCH, context: 32, accumulate, activations: 'keep', recovery: 'checkpoint' },
    parameters: sizeOf(configOf(layers, vocabSize)).parameters,
    modelOf: (layers) => modelOf(layers, vocabSize),
    ...{ accumulateOrder: 'batch', ranks, reckonsMicroBatches: true },
  });

  it('reckons the stages and the micro-batches that it does not follow, with the memory of the real ones', () => {
    const machine = networked('direct');
    const { stages, steps } = stagesOf(8, 6, 4, { pipeline: 4 }, machine, 40);
    const predictor = new Predictor(scenario(8, 6, { size: 4, stage: 0, pipeline: 4 }, 40), machine);
    expect(predictor.blocks).toBe(6);
    const found = predictor.at(undefined, 1e9);
    const [first] = steps;
    expect(Math.abs(found.seconds / (first?.seconds ?? 0) - 1)).toBeLessThan(0.02);
    expect(found.computeSeconds / (first?.computeSeconds ?? 0)).toBeCloseTo(1, 1);
    const waited = Object.values(found.waits).reduce((a, b) => a + b, 0);
    expect(found.computeSeconds + waited).toBeCloseTo(found.seconds, 10);
    const peaks = [stages[0], stages.at(-1)].map((stage) => stage?.fit.peak ?? 0);
    predictor.memory.forEach(({ resident }, i) => void expect(resident / at(peaks, i)).toBeCloseTo(1, 1));
    expect(at(predictor.memory, 0).resident).toBeGreaterThan(at(predictor.memory, 1).resident);
  });

  it('follows all of a small one, within a budget too, and sends what the plan of ranks says', () => {
    const machine = networked('host');
    const ranks = { size: 8, stage: 1, tensor: 2, pipeline: 2 } as const;
    const predictor = new Predictor(scenario(4, 3, ranks, 300), machine);
    const { gpu } = { gpu: Math.ceil((predictor.smallest + predictor.resident.bytes) / 2) };
    const [whole, within] = [predictor.at(undefined, 1e9), predictor.at(gpu, 1e9)];
    expect(within.seconds).toBeGreaterThan(whole.seconds);
    expect(within.waits.up + within.waits.down).toBeGreaterThan(whole.waits.up + whole.waits.down);
    const step = { ...ranks, batch: BATCH, context: 32, accumulate: 3, activations: 'keep' } as const;
    const plan = planRanks(modelOf(4, 300), step, (it) => it.comfortable, machineLimits(machine));
    const { exchanges } = at(plan.ranks, 0);
    for (const axis of EXCHANGE_AXES) {
      const sent = exchanges.filter((each) => each.axis === axis).reduce((sum, each) => sum + each.sent, 0);
      expect(whole.network[axis], axis).toBe(sent);
    }
    expect(predictor.resident.bytes).toBe(plan.comfortable);
  });

  it('scales by copies of the model', () => {
    const machine = networked('direct');
    const rows = scale(scenario(2, 4, { size: 12, stage: 1, tensor: 2, pipeline: 2 }), machine, 'strong', () => ({
      ...{ gpu: undefined, host: 1e9 },
    }));
    expect(rows.map(({ ranks, batch, accumulate }) => [ranks, batch * accumulate])).toEqual([
      [4, 72],
      [8, 36],
      [12, 24],
    ]);
    const efficiencies = rows.map(({ efficiency = 0 }) => efficiency);
    expect(efficiencies[0]).toBe(1);
    for (const each of efficiencies.slice(1)) expect(each).toBeLessThan(1);
  });
});

describe('the link between two ranks', () => {
  const ranks = (tensor: number, stage: number) => ({
    ...{ size: 1, sharding: { rank: 0, size: 1, stage: 0 as const }, owned: 1, splits: 1 },
    ...{ tensor: { rank: 0, size: tensor }, stage: { rank: stage, size: 4 } },
  });
  const machine = networked('direct');
  const parts = [0, 1].map((owner) => ({ owner, offset: 5e8 * owner, bytes: 5e8 }));

  it('of shared layers is that inside a machine where they have room there, and adds up in both halves of a ring', () => {
    const seconds = (tensor: number) =>
      exchangeSeconds(machine, ranks(tensor, 0), { collective: 'all-reduce', axis: 'tensor', parts });
    expect(seconds(4)).toBeCloseTo(2 * (0.75 * 0.1 + 2e-6), 12);
    // Two machines of four: each rank of one has a ring with its like in the other.
    expect(seconds(8)).toBeCloseTo(2 * (0.5 * 0.25 + 2e-6 + 4e-6), 12);
  });

  it('of stages is the network between machines where the next one is on another', () => {
    const seconds = (tensor: number, from: number, to: number) =>
      exchangeSeconds(machine, ranks(tensor, from), {
        ...{ collective: 'send', axis: 'pipeline', parts: [{ owner: to, offset: 0, bytes: 1e9 }] },
      });
    expect(seconds(1, 0, 1)).toBeCloseTo(0.1 + 1e-6, 12);
    expect(seconds(2, 0, 1)).toBeCloseTo(0.1 + 1e-6, 12);
    expect(seconds(2, 1, 2)).toBeCloseTo(1 + 4e-6, 12);
    expect(seconds(4, 1, 0)).toBeCloseTo(1 + 4e-6, 12);
  });
});
