// What `holdfast plan --ranks` says of a run on several ranks, beside what such a run counts: bytes over the network and over
// the link of every rank, GPU memory, to the byte. Ranks are in one process here; test/ranks/mpiexec.test.ts has them apart.

import { Command } from 'commander';
import { beforeAll, describe, expect, it } from 'vitest';
import { planCommand } from '../../src/cli/plan.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { ZERO_STAGES } from '../../src/engine/ranks/sharding.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import type { Host } from '../../src/runtime/host.ts';
import { planRanks, type SharedStep } from '../../src/train/rank-plan.ts';
import { Trainer } from '../../src/train/trainer.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { ranksInProcess } from './in-process.ts';

const [BATCH, SEQ, STEPS] = [1, 12, 2];
const MODEL = makeModel(
  parseConfig({ model_type: 'gpt2', n_layer: 3, n_embd: 36, n_head: 3, n_positions: SEQ, vocab_size: 97 }, 'gpt2'),
);

const stepOf = (size: number, stage: SharedStep['stage'], changes: Partial<SharedStep> = {}): SharedStep => ({
  ...{ batch: BATCH, context: SEQ, accumulate: 2, activations: 'recompute', size, stage },
  ...changes,
});

describe('the plan of every rank', () => {
  beforeAll(() => chooseVariants(1));

  it.each(
    EVERY_CASE
      ? ZERO_STAGES.flatMap((stage) => [2, 3].flatMap((size) => [0, 0.4].map((share) => [stage, size, share] as const)))
      : ([
          [2, 2, 0.4],
          [3, 2, 0],
        ] as const),
  )('is what a run with ZeRO %i on %i ranks counts, %d of the way to all', async (stage, size, share) => {
    const device = await testDevice();
    const step = stepOf(size, stage);
    const within = ({ smallest, comfortable }: { smallest: number; comfortable: number }) =>
      Math.ceil(smallest + share * (comfortable - smallest));
    const plan = planRanks(MODEL, step, within, limitsOf(device));
    const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
    const trainers: Trainer[] = [];
    for (const ranks of ranksInProcess(size, stage)) {
      const before = device.allocator.bytes;
      const { batch, context: seq, accumulate, activations } = step;
      const shared = { ...ranks, chunkBytes: trainers[0]?.session.map.chunkBytes };
      const memory = { gpu: plan.budget, activations };
      const options = { batch, seq, accumulate, schedule, memory, ranks: shared };
      trainers.push(await Trainer.create(device, MODEL, options));
      expect(device.allocator.bytes - before).toBe(at(plan.ranks, ranks.rank).peak);
    }
    try {
      await Promise.all(trainers.map((trainer) => trainer.setWeights(initialWeights(MODEL, 1))));
      const random = new Random(1, 'tokens');
      const tokens = () => Int32Array.from({ length: BATCH * SEQ }, () => random.below(97));
      const train = async (steps: number): Promise<void> => {
        for (let i = 0; i < steps; i++) {
          const micros = Array.from({ length: 2 * size }, () => ({
            ...{ ids: tokens(), targets: tokens(), batch: BATCH, seq: SEQ },
          }));
          await Promise.all(trainers.map((trainer) => trainer.start(micros)));
        }
      };
      const counted = () =>
        trainers.map(({ session, ranks }) => ({ ...session.report().link, ...ranks?.step.data.ledger }));
      // Those of warm-up have a plan of their own, and the one behind them begins where it ends.
      await train(3);
      const before = counted();
      await train(STEPS);
      const found = counted().map((after, rank) => {
        const each = (of: 'h2dBytes' | 'd2hBytes' | 'sentBytes' | 'receivedBytes') =>
          ((after[of] ?? 0) - (before[rank]?.[of] ?? 0)) / STEPS;
        return { up: each('h2dBytes'), down: each('d2hBytes'), sent: each('sentBytes'), got: each('receivedBytes') };
      });
      expect(found).toEqual(
        plan.ranks.map(({ link: { h2d, d2h, activations, exchanged }, network }) => ({
          up: h2d + activations + exchanged.up,
          down: d2h + activations + exchanged.down,
          ...{ sent: network.sent, got: network.received },
        })),
      );
    } finally {
      for (const trainer of trainers) await trainer.destroy();
    }
  });

  const wide = makeModel(
    parseConfig({ model_type: 'gpt2', n_layer: 2, n_embd: 192, n_head: 4, n_positions: SEQ, vocab_size: 300 }, 'wide'),
  );

  it('holds what its rank owns, which together is all there is, and falls with their number', () => {
    const all = 4 * wide.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    for (const stage of EVERY_CASE ? ZERO_STAGES : ([1, 3] as const)) {
      const { ranks, exchangedBytes, bound, exchanges } = planRanks(wide, stepOf(4, stage), (it) => it.comfortable);
      const held = (kind: 'parameter' | 'moment1') => ranks.map(({ held }) => held[kind] ?? 0);
      const sum = (bytes: number[]) => bytes.reduce((a, b) => a + b, 0);
      expect(sum(held('moment1')) / (stage > 0 ? 1 : 4) / all).toBeCloseTo(1, 1);
      expect(sum(held('parameter')) / (stage > 2 ? 1 : 4) / all).toBeCloseTo(1, 1);
      expect(exchangedBytes / 4 / bound).toBeGreaterThan(1);
      expect(exchangedBytes / 4 / bound).toBeLessThan(1.02);
      const { fit } = at(ranks, 0);
      const whole = networkBytes(fit.passes.step.operations, { rank: 0, size: 4 });
      expect({ sent: sum(exchanges.map((it) => it.sent)), received: sum(exchanges.map((it) => it.received)) }).toEqual(
        whole,
      );
      for (const { below, slots, residents } of ranks) expect([below, slots]).toEqual([0, residents]);
    }
  });

  it('names a smallest budget that works on all of them, and none that is a byte less', () => {
    for (const stage of EVERY_CASE ? ZERO_STAGES : ([2] as const)) {
      const { smallest } = planRanks(MODEL, stepOf(3, stage), (it) => it.comfortable);
      const { ranks } = planRanks(MODEL, stepOf(3, stage), () => smallest);
      for (const { peak } of ranks) expect(peak).toBeLessThanOrEqual(smallest);
      expect(() => planRanks(MODEL, stepOf(3, stage), () => smallest - 1)).toThrow(`${smallest} bytes (`);
    }
  });

  it('shows a few of many ranks, with the bytes of all of them', () => {
    const { ranks, exchangedBytes, bound } = planRanks(MODEL, stepOf(40, 2), (it) => it.comfortable);
    expect(ranks.length).toBeLessThan(5);
    expect(at(ranks, 0).rank).toBe(0);
    expect(exchangedBytes / 40).toBeGreaterThan(bound);
  });
});

describe('holdfast plan --ranks', () => {
  async function plan(...args: string[]): Promise<string> {
    let text = '';
    const terminal = { interactive: false, columns: 120, write: (part: string) => (text += part), warn: () => {} };
    const program = new Command().exitOverride().addCommand(planCommand({ terminal } as unknown as Host));
    const small = ['--layers', '2', '--width', '32', '--heads', '2', '--context', '16', '--vocab-size', '256'];
    await program.parseAsync(['plan', ...small, ...args], { from: 'user' });
    return text;
  }

  it('says what each rank holds and sends, for people and as JSON', async () => {
    const text = await plan('--ranks', '4', '--zero', '3');
    expect(text).toMatch(/on 4 ranks, ZeRO 3/);
    expect(text).toMatch(/^0 .*B.*\n/m);
    expect(text).toMatch(/all-gather of parameters, \d+ exchanges/);
    expect(text).toMatch(/x the ring's .*B, 3 \(n-1\)\/n of the bytes of what trains/);
    expect(text).toMatch(/is the smallest that works on every rank/);
    const { ranks, zero, size, smallest, budget } = JSON.parse(await plan('--ranks', '4', '--json'));
    expect([ranks.length, zero, size]).toEqual([4, 2, 4]);
    expect(smallest).toBeLessThan(budget);
  });

  it('refuses what several ranks do not go with, by name', async () => {
    await expect(plan('--zero', '2')).rejects.toThrow('--zero 2: is for several ranks; give --ranks, too');
    const refused = (...args: string[]) => plan('--ranks', '2', ...args);
    await expect(refused('--dtype', 'bf16')).rejects.toThrow('--dtype bf16: ranks train together in f32');
    await expect(refused('--recovery', 'step')).rejects.toThrow('--recovery step: a rank cannot do a step again');
    await expect(refused('--accumulate-order', 'layer')).rejects.toThrow('--accumulate-order layer: several ranks');
    await expect(refused('--optimizer-device', 'cpu')).rejects.toThrow('--optimizer-device cpu: several ranks');
    await expect(refused('--compare')).rejects.toThrow('--compare: policies are compared on one rank');
    await expect(refused('--print', 'plan')).rejects.toThrow('--print: parts are listed of a run on one rank');
    await expect(refused('--gpu-memory', '1KB')).rejects.toThrow(/too little for a rank of 2: \d+ bytes/);
  });
});
