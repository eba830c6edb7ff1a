// The network of a simulated machine: what an exchange takes by its figures, that a step of several ranks moves what such a
// step moves and accounts for all of its time, and that many ranks are worked out as fewer.

import { describe, expect, it } from 'vitest';
import { configFromFlags } from '../../src/cli/model-flags.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import type { CollectiveOperation } from '../../src/engine/compile/operations.ts';
import { offloadedBytes } from '../../src/engine/compile/pass-figures.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { exchangedOverLink, networkBytes } from '../../src/engine/ranks/collectives.ts';
import { isChunkSum } from '../../src/engine/ranks/exchange-memory.ts';
import { isChunkGather } from '../../src/engine/ranks/gather-order.ts';
import { gridPlacesOf } from '../../src/engine/ranks/grid.ts';
import { ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { knownMachine } from '../../src/engine/simulate/hardware.ts';
import {
  computeSeconds,
  type ExchangeWay,
  type Machine,
  machineLimits,
  partOfMachine,
} from '../../src/engine/simulate/machine.ts';
import { exchangeSeconds, neighboursOf } from '../../src/engine/simulate/network.ts';
import { simulate } from '../../src/engine/simulate/simulate.ts';
import { makeModel } from '../../src/nn/index.ts';
import { sizeOf } from '../../src/nn/size.ts';
import { Predictor } from '../../src/train/plan/prediction.ts';
import type { Scenario } from '../../src/train/plan/prediction-part.ts';
import { scale } from '../../src/train/plan/scaling.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { EVERY_CASE } from '../host.ts';
import { MACHINE } from './a-machine.ts';

const machineWith = (exchange: ExchangeWay, bytesPerSecond = 10e9): Machine => ({
  ...MACHINE,
  network: {
    ranksPerMachine: 4,
    inside: { bytesPerSecond, latencySeconds: 1e-6 },
    between: { bytesPerSecond: bytesPerSecond / 10, latencySeconds: 4e-6 },
    exchange,
  },
});

const ranksOf = (size: number) => ({ size, sharding: { rank: 0, size, stage: 2 as ZeroStage }, owned: 1, splits: 1 });

const collective = (...parts: [owner: number, bytes: number][]): CollectiveOperation => ({
  ...{
    op: 'collective',
    collective: 'all-gather',
    axis: 'data',
    on: { chunk: 0 },
    label: '',
    phase: 'update',
    uses: [],
  },
  parts: parts.map(([owner, bytes]) => ({ owner, offset: 0, bytes })),
});

describe('an exchange', () => {
  it('through host memory is what the link of its owner carries, one message after the other', () => {
    const host = machineWith('host');
    const seconds = (size: number, ...parts: [number, number][]) =>
      exchangeSeconds(host, ranksOf(size), collective(...parts));
    expect(seconds(2, [0, 1e9])).toBeCloseTo(0.1 + 1e-6, 12);
    expect(seconds(4, [1, 1e9])).toBeCloseTo(3 * (0.1 + 1e-6), 12);
    // Six ranks: three others are near, two on another machine.
    expect(seconds(6, [1, 1e9])).toBeCloseTo(3 * (0.1 + 1e-6) + 2 * (1 + 4e-6), 12);
    // Of several owners the one with most.
    expect(seconds(2, [0, 1e8], [1, 4e8])).toBeCloseTo(0.04 + 1e-6, 12);
  });

  it('from GPU to GPU is a ring’s, and between machines every rank’s link carries its part', () => {
    const direct = machineWith('direct');
    const seconds = (size: number) => exchangeSeconds(direct, ranksOf(size), collective([0, 1e9]));
    expect(seconds(2)).toBeCloseTo(0.5 * 0.1 + 1e-6, 12);
    expect(seconds(4)).toBeCloseTo(0.75 * 0.1 + 2e-6, 12);
    expect(seconds(16)).toBeCloseTo(0.75 * (0.25 / 1) + 2e-6 + 2 * 4e-6, 12);
  });

  it('needs a network that reaches all of them', () => {
    const { network, ...alone } = machineWith('host');
    expect(() => neighboursOf(alone, 2)).toThrow('--ranks 2: a machine has no network');
    const { between: _, ...near } = network ?? at([], 0);
    expect(neighboursOf({ ...alone, network: near }, 4)).toEqual({ inside: 3, between: 0, machines: 1 });
    expect(() => neighboursOf({ ...alone, network: near }, 5)).toThrow('use at most 4 ranks, or another machine');
  });

  it('is of ranks that share the host memory and the disk of their machine', () => {
    const machine = machineWith('host');
    expect(partOfMachine(machine, 2)).toMatchObject({
      hostBytes: 16e9,
      disk: { readBytesPerSecond: 1.5e9, bytes: 5e11 },
    });
    expect(partOfMachine(machine, 64)).toMatchObject({ hostBytes: 8e9, gpuBytes: 8e9 });
  });
});

const flags = { model: 'gpt2', layers: 2, width: 96, heads: 3, context: 24, vocabSize: 301, tied: false } as const;
const MODEL = makeModel(configFromFlags(flags));

function fitOf(stage: ZeroStage, share: number, machine: Machine, size = 4) {
  const sharding = { rank: 0, size, stage };
  const options = { accumulateOrder: 'batch', activations: 'recompute', sharding } as const;
  const workload = trainingWorkload(MODEL, traceStep(MODEL, 2, 24), 2, undefined, options);
  const limits = machineLimits(machine);
  const least = smallestBudget(workload, limits, { recovery: 'checkpoint' });
  const all = fitMemory(workload, limits, undefined);
  const budget = Math.floor(least + share * (all.peak - least));
  const fit = share === 1 ? all : fitMemory(workload, limits, budget, { recovery: 'checkpoint' });
  const pass = fit.passes.step;
  return { fit, pass, plan: schedule(pass.trace, fit.slots, 'planned'), ranks: { ...ranksOf(size), sharding } };
}

describe.each(EVERY_CASE ? ZERO_STAGES : ([2, 3] as const))('a step with ZeRO %i', (stage) => {
  it('moves what the plan and the exchanges say, and accounts for all of its time', () => {
    for (const share of EVERY_CASE ? [0, 0.5] : [0.3]) {
      for (const exchange of ['host', 'direct'] as const) {
        const machine = machineWith(exchange);
        const { fit, pass, plan, ranks } = fitOf(stage, share, machine);
        const host = 0.6 * fit.residents * fit.map.chunkBytes;
        const { bytes, seconds, computeSeconds, waits } = simulate(fit, pass, plan, machine, {
          hostBytes: host,
          ranks,
        });
        const exchanged =
          exchange === 'host'
            ? exchangedOverLink(pass.operations, gridPlacesOf({ rank: 0, size: 4 }, {}))
            : { up: 0, down: 0 };
        expect(bytes.up).toBe(plan.moved.h2d + offloadedBytes(pass) + exchanged.up);
        expect(bytes.down).toBe(plan.moved.d2h + offloadedBytes(pass) + exchanged.down);
        expect(bytes.network).toBeCloseTo(networkBytes(pass.operations, { rank: 0, size: 4 }).sent, 3);
        const waited = Object.values(waits).reduce((a, b) => a + b, 0);
        expect(computeSeconds + waited).toBeCloseTo(seconds, 10);
        expect(waits.network).toBeGreaterThan(0);
      }
    }
  });

  it('is no shorter than its network is busy, never grows with its bandwidth, and is its arithmetic without it', () => {
    const { fit, pass, plan, ranks } = fitOf(stage, 1, machineWith('direct'));
    const secondsAt = (exchange: ExchangeWay, bytesPerSecond: number) => {
      const machine = machineWith(exchange, bytesPerSecond);
      return simulate(fit, pass, plan, machine, { ranks }).seconds;
    };
    for (const exchange of ['host', 'direct'] as const) {
      const times = [1e7, 1e9, 1e11].map((rate) => secondsAt(exchange, rate));
      for (const [i, time] of times.slice(1).entries()) expect(time).toBeLessThanOrEqual(at(times, i) * (1 + 1e-9));
      const machine = machineWith(exchange, 1e7);
      const each = pass.operations.flatMap((operation) => {
        if (operation.op !== 'collective') return [];
        const seconds = exchangeSeconds(machine, ranks, operation);
        const isOneWay = isChunkGather(operation) || isChunkSum(operation);
        if (exchange === 'direct' || !isOneWay) return [{ seconds, out: seconds, in: seconds }];
        // Through host memory: its owner's link is busy, one way, and of each other rank's its part, the other way.
        const isOwn = at(operation.parts, 0).owner === 0;
        const busy = isOwn ? seconds : seconds / (ranks.size - 1);
        return [isOwn === isChunkGather(operation) ? { seconds, out: busy, in: 0 } : { seconds, out: 0, in: busy }];
      });
      for (const way of ['out', 'in'] as const)
        expect(times[0]).toBeGreaterThanOrEqual(each.reduce((sum, of) => sum + of[way], 0) * (1 - 1e-9));
      // Links of several owners work at once.
      const serial = each.reduce((sum, { seconds }) => sum + seconds, 0);
      if (exchange === 'host' && stage === 3) expect(times[0]).toBeLessThan(0.5 * serial);
    }
    // Where the network is nearly all; at other rates several owners' links, at once, may be faster than a ring.
    expect(secondsAt('direct', 1e8)).toBeLessThanOrEqual(secondsAt('host', 1e8));
    const machine = machineWith('direct', Number.POSITIVE_INFINITY);
    const free = {
      ...machine,
      network: { ...machine.network, inside: { bytesPerSecond: Number.POSITIVE_INFINITY, latencySeconds: 0 } },
    } as Machine;
    const alone = simulate(fit, pass, plan, free, { ranks });
    expect(alone.waits.network).toBe(0);
    // Slots that are cleared for what other ranks send take a little.
    expect(alone.seconds / computeSeconds(free, pass.operations)).toBeCloseTo(1, 1);
  });
});

it('computes while parameters that others have are on their way, through host memory too', () => {
  const { fit, pass, plan, ranks } = fitOf(3, 1, machineWith('host'));
  const busyOn = (machine: Machine) =>
    pass.operations.reduce(
      (sum, each) => sum + (each.op === 'collective' ? exchangeSeconds(machine, ranks, each) : 0),
      0,
    );
  // As much network as arithmetic, and copies between GPU and host that take next to nothing.
  const quick = (bytesPerSecond: number): Machine => {
    const machine = machineWith('host');
    const inside = { bytesPerSecond, latencySeconds: 0 };
    const link = { ...machine.link, upBytesPerSecond: 1e15, downBytesPerSecond: 1e15 };
    return { ...machine, link, network: { ranksPerMachine: 4, inside, exchange: 'host' } };
  };
  const arithmetic = computeSeconds(quick(1), pass.operations);
  const machine = quick(busyOn(quick(1)) / arithmetic);
  const { seconds, computeSeconds: computed } = simulate(fit, pass, plan, machine, { ranks });
  const aside = pass.operations.filter((each) => each.op === 'collective' && (isChunkGather(each) || isChunkSum(each)));
  const hidden = computed + busyOn(machine) - seconds;
  const ofThem = aside.reduce(
    (sum, each) => sum + (each.op === 'collective' ? exchangeSeconds(machine, ranks, each) : 0),
    0,
  );
  // What nothing lies between is waited for.
  expect(hidden / ofThem).toBeGreaterThan(0.25);
  expect(hidden).toBeLessThan(ofThem);
});

describe('many ranks', () => {
  const deep = { ...flags, width: 48, layers: 16 };
  const scenario = (size: number, changes: Partial<Scenario> = {}): Scenario => ({
    ...{ layers: 16, batch: 2, context: 24, accumulate: 1, activations: 'recompute', recovery: 'checkpoint' },
    parameters: sizeOf(configFromFlags(deep)).parameters,
    modelOf: (layers) => makeModel(configFromFlags({ ...deep, layers })),
    ...{ accumulateOrder: 'batch', ranks: { size, stage: 3 }, reckonsMicroBatches: true },
    ...changes,
  });

  it('hold less each, and are worked out as sixteen', () => {
    const sizes = [4, 16, 64, 1024];
    const bytes = sizes.map((size) => new Predictor(scenario(size), machineWith('direct')).resident.bytes);
    for (const [i, each] of bytes.slice(1).entries()) expect(each).toBeLessThan(at(bytes, i));
    // 16 bytes a parameter, of which a sixteenth part is left, and then next to nothing.
    const parameters = 16 * scenario(16).parameters;
    expect((at(bytes, 0) - at(bytes, 3)) / parameters).toBeGreaterThan(0.2);
    expect((at(bytes, 0) - at(bytes, 3)) / parameters).toBeLessThan(0.3);
  });

  it('take as long for each micro-batch behind the second as for it', () => {
    const machine = machineWith('host');
    const [two, three, four] = [2, 3, 4].map((accumulate) =>
      new Predictor(scenario(4, { accumulate }), machine).at(undefined, 1e9),
    );
    const [a, b, c] = [two, three, four].map((it) => it?.seconds ?? 0);
    expect((c ?? 0) - (b ?? 0)).toBeCloseTo((b ?? 0) - (a ?? 0), 9);
    const whole = new Predictor(scenario(4, { accumulate: 4, reckonsMicroBatches: false }), machine).at(undefined, 1e9);
    expect((four?.seconds ?? 0) / whole.seconds).toBeCloseTo(1, 2);
    expect((four?.bytes.network ?? 0) / whole.bytes.network).toBeCloseTo(1, 2);
  });

  it('share the same step strongly, on those counts alone that divide its sequences', () => {
    const budgets = () => ({ gpu: undefined, host: 1e9 });
    for (const [copies, counts] of [
      [6, [1, 2, 4, 6]],
      [5, [1, 2, 5]],
    ] as const) {
      const rows = scale(scenario(copies), machineWith('direct'), 'strong', budgets);
      expect(rows.map(({ ranks }) => ranks)).toEqual(counts);
      for (const { ranks, batch, accumulate } of rows) expect(ranks * batch * accumulate).toBe(2 * copies);
    }
  });

  it('share a step strongly, or take one each, weakly', () => {
    const machine = machineWith('direct');
    const budgets = () => ({ gpu: undefined, host: 1e9 });
    const weak = scale(scenario(4), machine, 'weak', budgets);
    expect(weak.map(({ ranks, batch, accumulate }) => [ranks, batch, accumulate])).toEqual([
      [1, 2, 1],
      [2, 2, 1],
      [4, 2, 1],
    ]);
    const strong = scale(scenario(4), machine, 'strong', budgets);
    expect(strong.map(({ batch, accumulate }) => [batch, accumulate])).toEqual([
      [2, 4],
      [2, 2],
      [2, 1],
    ]);
    for (const rows of [weak, strong]) {
      const speeds = rows.map(({ found }) => found?.tokensPerSecond ?? 0);
      expect(Math.min(...speeds)).toBeGreaterThan(0);
      expect(rows.map(({ efficiency }) => efficiency)).toEqual(
        rows.map(({ ranks }, i) => expect.closeTo(at(speeds, i) / ranks / at(speeds, 0), 9)),
      );
    }
  });
});

describe('the models of ZeRO-Infinity on the machines that come along', () => {
  const models = [
    ['dgx-2', 16, 128, 25600, 160],
    ['dgx-a100', 8, 96, 12288, 96],
  ] as const;
  it.each(EVERY_CASE ? models : models.slice(0, 1))(
    '%s with %i ranks has room for %i layers of width %i',
    (name, size, layers, width, heads) => {
      const machine = knownMachine(name);
      expect(machine).toBeDefined();
      if (!machine) return;
      const large = { ...flags, layers, width, heads, context: 1024, vocabSize: 50257 };
      const predictor = new Predictor(scenarioOfLarge(large, size), machine);
      expect(predictor.smallest).toBeLessThan(machine.gpuBytes);
      expect(predictor.flops / (6 * scenarioOfLarge(large, size).parameters * 1024)).toBeGreaterThan(0.95);
    },
  );

  const scenarioOfLarge = (large: Parameters<typeof configFromFlags>[0], size: number): Scenario => ({
    ...{
      layers: large.layers,
      batch: 1,
      context: 1024,
      accumulate: 1,
      activations: 'recompute',
      recovery: 'checkpoint',
    },
    parameters: sizeOf(configFromFlags(large)).parameters,
    modelOf: (layers) => makeModel(configFromFlags({ ...large, layers })),
    ...{ accumulateOrder: 'batch', ranks: { size, stage: 3 } },
  });
});
