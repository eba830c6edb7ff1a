// What `holdfast plan --ranks` says of a run on several ranks, beside what such a run counts: bytes over the network and over
// the link of every rank, GPU memory, to the byte. Ranks are in one process here; test/ranks/mpiexec.test.ts has them apart.

import { Command } from 'commander';
import { beforeAll, describe, expect, it } from 'vitest';
import { planCommand } from '../../src/cli/plan.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { EXCHANGE_AXES, type GridShape } from '../../src/engine/ranks/grid.ts';
import { ZERO_STAGES } from '../../src/engine/ranks/sharding.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { ActivationDtype } from '../../src/graph/narrow-activations.ts';
import type { OptimizerDevice } from '../../src/graph/operators/optimizer.ts';
import type { MomentDtype, TrainingDtype } from '../../src/memory/layout/kinds.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { computedIn, momentsIn } from '../../src/nn/model.ts';
import { planRanks, type SharedStep } from '../../src/train/plan/rank-plan.ts';
import { writesText } from '../../src/train/step/rank-part.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { ranksInProcess } from './in-process.ts';

const [BATCH, SEQ, STEPS] = [1, 12, EVERY_CASE ? 2 : 1];
const modelWith = (n_head: number) =>
  makeModel(
    parseConfig({ model_type: 'gpt2', n_layer: 3, n_embd: 36, n_head, n_positions: SEQ, vocab_size: 97 }, 'gpt2'),
  );
const MODEL = modelWith(3);

const stepOf = (size: number, stage: SharedStep['stage'], changes: Partial<SharedStep> = {}): SharedStep => ({
  ...{ batch: BATCH, context: SEQ, accumulate: 2, activations: 'recompute', size, stage },
  ...changes,
});

/** Bytes of a rank: over its link, and over the network by axis. */
type Counted = Record<'link' | 'sent' | 'got', Record<string, number>>;

/** What parameters are computed with in, moments and activations kept as (@default f32), and what else a run has. */
interface Changes {
  dtype?: TrainingDtype;
  moments?: MomentDtype;
  activationDtype?: ActivationDtype;
  /** Whether samples are written. @default false */
  generates?: boolean;
  /** @default 'gpu' */
  optimizerDevice?: OptimizerDevice;
}

/** ZeRO, ranks, how much of the way from the smallest budget to all, what of the ranks one copy of the model takes, and changes. */
type Counting = [SharedStep['stage'], number, number, GridShape, Changes?];
const NARROW: Counting[] = [
  [2, 4, 0.2, { pipeline: 2 }, { dtype: 'bf16', moments: 'bf16', activationDtype: 'bf16' }],
  [3, 2, 0.3, {}, { dtype: 'f16', optimizerDevice: 'cpu' }],
  [3, 2, 0.3, {}, { dtype: 'f16' }],
  [1, 3, 0.3, {}, { optimizerDevice: 'cpu' }],
  [0, 4, 0.2, { tensor: 2, pipeline: 2 }, { dtype: 'bf16', moments: 'bf16', optimizerDevice: 'cpu' }],
  [2, 3, 0.3, {}, { dtype: 'bf16', moments: 'bf16' }],
  [3, 2, 0.3, {}, { dtype: 'bf16', moments: 'bf16', activationDtype: 'bf16' }],
  [0, 2, 0, {}, { dtype: 'bf16' }],
  [1, 3, 0.3, {}, { dtype: 'f16' }],
  [0, 4, 0.2, { tensor: 2, pipeline: 2 }, { dtype: 'f16' }],
  [1, 3, 0.4, {}, { moments: 'bf16' }],
  [3, 4, 0.3, { tensor: 2 }, { dtype: 'bf16', moments: 'bf16', activationDtype: 'bf16' }],
];
const GRIDS: Counting[] = [
  [3, 4, 0.3, { pipeline: 2 }],
  [0, 4, 0, { tensor: 2, pipeline: 2 }],
  [2, 4, 0.4, { tensor: 2 }],
  [0, 2, 0, { pipeline: 2 }],
  [0, 3, 0.5, { pipeline: 3 }],
  [0, 2, 0.2, { tensor: 2 }],
];

describe('the plan of every rank', () => {
  beforeAll(() => chooseVariants(1));

  const alone: Counting[] = ZERO_STAGES.flatMap((stage) =>
    [2, 3].flatMap((size) => [0, 0.4].map((share): Counting => [stage, size, share, {}])),
  );
  const written: Counting[] = [
    [2, 2, 0.4, {}, { generates: true }],
    [3, 4, 0.3, { pipeline: 2 }, { generates: true }],
  ];
  // Both axes, stages that shard and not, the least budget and more, what text takes, AdamW on the host, narrow activations.
  const sampled: Counting[] = [...written.slice(0, 1), ...GRIDS.slice(1, 2), at(NARROW, 1), at(NARROW, 6)];
  it.each(EVERY_CASE ? [...alone, ...written, ...GRIDS, ...NARROW] : sampled)(
    'is what a run with ZeRO %i on %i ranks counts, %d of the way to all: %o',
    async (stage, size, share, shape, changes = {}) => {
      const { dtype = 'f32', moments = 'f32', activationDtype = 'f32', generates = false, optimizerDevice } = changes;
      const device = await testDevice();
      const step = stepOf(size, stage, { ...shape, activationDtype, generates, optimizerDevice });
      const model = momentsIn(computedIn(shape.tensor ? modelWith(2 * shape.tensor) : MODEL, dtype), moments);
      const within = ({ smallest, comfortable }: { smallest: number; comfortable: number }) =>
        Math.ceil(smallest + share * (comfortable - smallest));
      const plan = planRanks(model, step, within, limitsOf(device));
      const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
      const trainers: Trainer[] = [];
      for (const ranks of ranksInProcess(size, stage, shape)) {
        const before = device.allocator.bytes;
        const { batch, context: seq, accumulate, activations } = step;
        const shared = { ...ranks, chunkBytes: trainers[0]?.session.map.chunkBytes };
        const memory = { gpu: plan.budget, activations };
        const writes = generates && writesText(ranks);
        const options = { batch, seq, accumulate, schedule, memory, activationDtype, generates: writes, ranks: shared };
        trainers.push(await Trainer.create(device, model, { ...options, ...(optimizerDevice && { optimizerDevice }) }));
        expect(device.allocator.bytes - before).toBe(at(plan.ranks, ranks.rank).peak);
      }
      try {
        await Promise.all(trainers.map((trainer) => trainer.setWeights(initialWeights(model, 1))));
        const copies = size / ((shape.tensor ?? 1) * (shape.pipeline ?? 1));
        const random = new Random(1, 'tokens');
        const tokens = () => Int32Array.from({ length: BATCH * SEQ }, () => random.below(97));
        const train = async (steps: number): Promise<void> => {
          for (let i = 0; i < steps; i++) {
            const micros = Array.from({ length: 2 * copies }, () => ({
              ...{ ids: tokens(), targets: tokens(), batch: BATCH, seq: SEQ },
            }));
            await Promise.all(trainers.map((trainer) => trainer.start(micros)));
          }
        };
        const counted = () =>
          trainers.map(({ session, ranks }): Counted => {
            const { h2dBytes: up, d2hBytes: down } = session.report().link;
            const axes = EXCHANGE_AXES.map((axis): [string, number] => [axis, 0]);
            const sent = Object.fromEntries(axes);
            const got = Object.fromEntries(axes);
            for (const axis of EXCHANGE_AXES) {
              sent[axis] = ranks?.step[axis].ledger.sentBytes ?? 0;
              got[axis] = ranks?.step[axis].ledger.receivedBytes ?? 0;
            }
            return { link: { up, down }, sent, got };
          });
        // Those of warm-up have a plan of their own, and the one behind them begins where it ends.
        await train(3);
        const before = counted();
        await train(STEPS);
        const each = (after: Record<string, number>, before: Record<string, number>) =>
          Object.fromEntries(Object.entries(after).map(([of, bytes]) => [of, (bytes - (before[of] ?? 0)) / STEPS]));
        const found = counted().map(({ link, sent, got }, rank) => {
          const first = at(before, rank);
          return { link: each(link, first.link), sent: each(sent, first.sent), got: each(got, first.got) };
        });
        // Of what stages hand on, as much is under way at once as the others are behind.
        const isExact = (shape.pipeline ?? 1) === 1;
        trainers.forEach(({ session }, rank) => {
          const [made, planned] = [session.executor.exchangeMemory, at(plan.ranks, rank).exchangeMemory];
          expect(made, `rank ${rank}`).toBeGreaterThan(0);
          if (isExact) expect(made, `rank ${rank}`).toBe(planned);
          else expect(made, `rank ${rank}`).toBeLessThanOrEqual(planned);
        });
        expect(found).toEqual(
          plan.ranks.map(({ link: { h2d, d2h, activations, exchanged }, exchanges, network }): Counted => {
            const along = (way: 'sent' | 'received') =>
              Object.fromEntries(
                EXCHANGE_AXES.map((axis) => {
                  const own = exchanges.filter((each) => each.axis === axis);
                  return [axis, own.reduce((sum, each) => sum + each[way], 0)];
                }),
              );
            const [sent, got] = [along('sent'), along('received')];
            const all = [sent, got].map((bytes) => Object.values(bytes).reduce((a, b) => a + b, 0));
            expect(all).toEqual([network.sent, network.received]);
            return {
              link: { up: h2d + activations.up + exchanged.up, down: d2h + activations.down + exchanged.down },
              ...{ sent, got },
            };
          }),
        );
      } finally {
        for (const trainer of trainers) await trainer.destroy();
      }
    },
  );

  const wide = makeModel(
    parseConfig({ model_type: 'gpt2', n_layer: 2, n_embd: 192, n_head: 4, n_positions: SEQ, vocab_size: 300 }, 'wide'),
  );

  // As docs/ranks.md has it.
  it.each([
    [32, 1.11],
    [64, 1.025],
    [128, 1.01],
  ])('sends at width %i, beside what a ring does, the padding of small tensors: %f times', (n_embd, times) => {
    const config = { model_type: 'gpt2', n_layer: 2, n_embd, n_head: 4, n_positions: 64, vocab_size: 256 };
    const model = makeModel(parseConfig(config, 'narrow'));
    const { ranks, exchangedBytes, bound } = planRanks(model, stepOf(2, 2), (it) => it.comfortable);
    expect(exchangedBytes / 2 / bound).toBeCloseTo(times, 2);
    const { map } = at(ranks, 0).fit;
    const padded = map.trainable.used.reduce((sum, used) => sum + used, 0) / map.trainable.held;
    expect(exchangedBytes / 2 / bound / padded).toBeCloseTo(1, 2);
  });

  it('holds what its rank owns, which together is all there is, and falls with their number', () => {
    const all = 4 * wide.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
    for (const stage of EVERY_CASE ? ZERO_STAGES : ([1, 3] as const)) {
      const { ranks, exchangedBytes, bound } = planRanks(wide, stepOf(4, stage), (it) => it.comfortable);
      const held = (kind: 'parameter' | 'moment1') => ranks.map(({ held }) => held[kind] ?? 0);
      const sum = (bytes: number[]) => bytes.reduce((a, b) => a + b, 0);
      expect(sum(held('moment1')) / (stage > 0 ? 1 : 4) / all).toBeCloseTo(1, 1);
      expect(sum(held('parameter')) / (stage > 2 ? 1 : 4) / all).toBeCloseTo(1, 1);
      expect(exchangedBytes / 4 / bound).toBeGreaterThan(1);
      expect(exchangedBytes / 4 / bound).toBeLessThan(1.02);
      const { fit, exchanges } = at(ranks, 0);
      const whole = networkBytes(fit.passes.step.operations, { rank: 0, size: 4 });
      expect({ sent: sum(exchanges.map((it) => it.sent)), received: sum(exchanges.map((it) => it.received)) }).toEqual(
        whole,
      );
      for (const { below, slots, residents } of ranks) expect([below, slots]).toEqual([0, residents]);
    }
  });

  // In f32, of 16 bytes a parameter: those that all ranks have, and those that are dealt out (Rajbhandari et al. 2020).
  const DEALT = [
    [1, 8, 8],
    [2, 4, 12],
    [3, 0, 16],
  ] as const;
  it.each(EVERY_CASE ? DEALT : DEALT.slice(2))(
    'with ZeRO %i counts %i bytes a parameter on each rank, and %i over their number',
    async (stage, all, dealt) => {
      const config = { model_type: 'gpt2', n_layer: 8, n_embd: 64, n_head: 4, n_positions: SEQ, vocab_size: 300 };
      const model = makeModel(parseConfig(config, 'deep'));
      const elements = (part: string): number =>
        model.parameters
          .filter(({ name }) => name.includes(part))
          .reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
      const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
      const device = await testDevice();
      for (const size of EVERY_CASE ? [2, 4, 8] : [2, 4]) {
        const trainers: Trainer[] = [];
        for (const ranks of ranksInProcess(size, stage)) {
          const before = device.allocator.bytes;
          const shared = { ...ranks, chunkBytes: trainers[0]?.session.map.chunkBytes };
          const options = { batch: BATCH, seq: SEQ, accumulate: 1, schedule, ranks: shared };
          const trainer = await Trainer.create(device, model, { ...options, memory: { activations: 'keep' } });
          trainers.push(trainer);
          const { map, fit } = trainer.session;
          const counted = device.allocator.bytes - before - fit.nonModel.arenas - fit.nonModel.persistent;
          const more = counted - elements('') * (all + dealt / size);
          // It may own a chunk of each kind more or less than others; staging both ways; a block's parameters and gradients.
          const [kinds, staging, used] = [4 * map.chunkBytes, 2 * map.chunkBytes, 8 * elements('h.0.')];
          expect(more, `rank ${ranks.rank} of ${size}`).toBeGreaterThan(-kinds);
          expect(more, `rank ${ranks.rank} of ${size}`).toBeLessThanOrEqual(kinds + staging + used);
        }
        for (const trainer of trainers) await trainer.destroy();
      }
    },
  );

  it('with AdamW on the host has what the optimizer alone uses below, also where all else is on the GPU', () => {
    const onHost = { ...stepOf(4, 2), optimizerDevice: 'cpu' } as const;
    const { ranks } = planRanks(wide, onHost, (it) => it.comfortable);
    for (const { below, held } of ranks) {
      expect(below).toBeGreaterThanOrEqual((held.moment1 ?? 0) + (held.moment2 ?? 0));
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

  it.each([
    { size: 16, tensor: 2, pipeline: 2 },
    { size: 6, tensor: 1, pipeline: 1 },
  ])('counts what $size ranks, $tensor in a row and $pipeline stages, send as each of them does', (shape) => {
    for (const stage of [0, 3] as const) {
      const step = { ...stepOf(shape.size, stage), ...shape };
      const { ranks, exchangedBytes } = planRanks(modelWith(2), step, (it) => it.comfortable);
      expect(ranks.length).toBe(shape.size);
      expect(ranks.reduce((sum, { network }) => sum + network.sent, 0)).toBe(exchangedBytes);
    }
  });

  it('takes no longer for a million ranks, which are not counted one by one', () => {
    const size = 2 ** 20;
    const { ranks, exchangedBytes, bound } = planRanks(MODEL, stepOf(size, 2), (it) => it.comfortable);
    expect(ranks.length).toBeLessThan(5);
    expect(exchangedBytes / size).toBeGreaterThan(bound);
    expect(exchangedBytes / size / bound).toBeLessThan(1.5);
  });
});

describe('holdfast plan --ranks', () => {
  async function plan(...args: string[]): Promise<string> {
    let text = '';
    const terminal = { interactive: false, columns: 120, write: (part: string) => (text += part), warn: () => {} };
    const program = new Command().exitOverride().addCommand(planCommand(memoryHost(new MemoryFiles(), { terminal })));
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

  it('has a grid of them: peaks that differ by stage, and what goes along each axis', async () => {
    const grid = ['--tensor-parallel', '2', '--pipeline-parallel', '2', '--accumulate', '3'];
    const text = await plan('--ranks', '8', ...grid);
    expect(text).toMatch(/on 8 ranks \(2 data x 2 tensor x 2 pipeline\), ZeRO 2/);
    expect(text).toMatch(/^0-3 .*B\n4-5 .*B\n6-7 /m);
    expect(text).toMatch(/sent, .*B got: all-reduce of activations of shared layers, \d+ exchanges/);
    expect(text).toMatch(/sent, 0 B got: send of activations between stages, 3 exchanges/);
    expect(text).toMatch(/over the network rank 4 moves in a step/);
    expect(text).toMatch(/each rank takes 3 of the 6 micro-batches of a step/);
    const found = JSON.parse(await plan('--ranks', '4', ...grid, '--json'));
    expect([found.grid, found.zero]).toEqual([{ data: 1, tensor: 2, pipeline: 2 }, 0]);
    // One micro-batch more is in the first stage.
    const peaks = found.ranks.map(({ activations }: { activations: number }) => activations);
    expect(new Set(peaks).size).toBe(2);
  });

  it('refuses what several ranks do not go with, by name', async () => {
    await expect(plan('--zero', '2')).rejects.toThrow('--zero 2: is for several ranks; give --ranks, too');
    await expect(plan('--tensor-parallel', '2')).rejects.toThrow('--tensor-parallel 2: is for several ranks; give');
    await expect(plan('--ranks', '6', '--pipeline-parallel', '4')).rejects.toThrow('6 ranks are not a grid');
    await expect(plan('--ranks', '3', '--pipeline-parallel', '3')).rejects.toThrow(
      '--pipeline-parallel 3: the model has 2',
    );
    await expect(plan('--ranks', '2', '--tensor-parallel', '2', '--zero', '2')).rejects.toThrow('nothing to shard');
    const refused = (...args: string[]) => plan('--ranks', '2', ...args);
    await expect(refused('--recovery', 'step')).rejects.toThrow('--recovery step: a rank cannot do a step again');
    await expect(refused('--accumulate-order', 'layer')).rejects.toThrow('--accumulate-order layer: several ranks');
    await expect(refused('--compare')).rejects.toThrow('--compare: policies are compared on one rank');
    await expect(refused('--print', 'plan')).rejects.toThrow('--print: parts are listed of a run on one rank');
    await expect(refused('--gpu-memory', '1KB')).rejects.toThrow(/too little for a rank of 2: \d+ bytes/);
  });
});
