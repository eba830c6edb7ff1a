// Ranks of one process that share every layer, and the rows between these: the loss and every gradient are those of ranks that
// all have all rows, to the bit, whatever becomes of activations; what lies between shared layers takes its part of the memory,
// and what is exchanged is more by what is gathered twice.

import { beforeAll, describe, expect, it } from 'vitest';
import type { TokenBatch } from '../../src/data/batches.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { gridPlacesOf } from '../../src/engine/ranks/grid.ts';
import { ZERO_STAGES } from '../../src/engine/ranks/sharding.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { ACTIVATION_MODES, type ActivationMode, saved, withActivations } from '../../src/graph/activations.ts';
import { liveBytes } from '../../src/graph/liveness.ts';
import { ROW_BLOCK } from '../../src/kernels/norm-gradients.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import type { Model } from '../../src/nn/model.ts';
import { partsOf } from '../../src/nn/tensor-parallel.ts';
import type { ReferenceCase } from '../../src/parity/reference-case.ts';
import { planRanks } from '../../src/train/plan/rank-plan.ts';
import { stepPart } from '../../src/train/step/rank-part.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { collect, sourceOf, type Values } from '../../src/values/tensor-source.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH } from '../host.ts';
import { Memory, runTogether } from '../interpret.ts';
import { MODELS, memoryDisk } from '../model/runs.ts';
import { caseOf, trainOnRanks, verdictOf } from './reference-runs.ts';

const RANKS = 2;
const SEQ = 16;
/** As few sequences of SEQ as have whole blocks of rows for each rank. */
const BATCH = (RANKS * ROW_BLOCK) / SEQ;

const partOf = (model: Model, rank: number, sequenceParallel: boolean, packed = false, batch = BATCH) =>
  stepPart(model, batch, SEQ, gridPlacesOf({ rank, size: RANKS }, { tensor: RANKS }), { sequenceParallel, packed });

/** Two documents in each row. */
const documentsOf = (ids: Int32Array) => {
  const first = 7;
  return {
    documents: ids.map((_, i) => (i % SEQ < first ? 1 : 2)),
    positions: ids.map((_, i) => (i % SEQ < first ? i % SEQ : (i % SEQ) - first)),
  };
};

/** The loss and the gradients of two micro-batches, in float64, of each rank. */
async function computed(
  model: Model,
  packed: boolean,
  sequenceParallel: boolean,
  mode: ActivationMode = 'keep',
  count = BATCH,
) {
  const random = new Random(7, 'shared rows');
  const { vocabulary } = model.shape;
  const batches = [0, 1].map(() => {
    const ids = Int32Array.from({ length: count * SEQ }, () => random.below(vocabulary));
    const targets = ids.map((_, i) => (i === 2 ? -100 : random.below(vocabulary)));
    return { ids, targets, ...(packed && documentsOf(ids)), batch: count, seq: SEQ };
  });
  const weights: Values = await collect(initialWeights(model, 3));
  // Gains and biases that are not all alike.
  for (const values of weights.values()) {
    for (const [i, value] of values.entries()) values[i] = value + 0.3 * random.normal();
  }
  const ranks = await Promise.all(
    Array.from({ length: RANKS }, async (_, rank) => {
      const { part, programs } = partOf(model, rank, sequenceParallel, packed, count);
      const memory = new Memory();
      const own = await collect(partsOf(part, sourceOf(weights)));
      for (const [name, tensor] of programs.parameters) memory.set(tensor, own.get(name) ?? []);
      return { part, programs, memory };
    }),
  );
  for (const [i, batch] of batches.entries()) {
    for (const { part, programs, memory } of ranks) memory.setInputs(part, programs, batch, 1 / 10);
    runTogether(
      ranks.map(({ programs, memory }) => ({
        memory,
        program: withActivations(i === 0 ? programs.first : programs.next, () => mode),
      })),
    );
  }
  return ranks.map(({ programs, memory }) => ({
    loss: [...memory.of(programs.scalars.lossSum)],
    gradients: new Map([...programs.gradients].map(([name, tensor]) => [name, memory.of(tensor).slice()])),
  }));
}

const COMPUTED: [string, Model, packed?: boolean][] = [
  ['gpt2', MODELS['gpt2, tied']],
  ['gpt2, several documents in a row', MODELS['gpt2, untied'], true],
  ['llama', MODELS['llama, grouped heads']],
  ['gemma3', MODELS['gemma3, every switch']],
  ['gemma3, several documents in a row', MODELS['gemma3, every switch'], true],
  ['qwen2, low-rank updates', withLora(MODELS['qwen2, biases'], { rank: 3 })],
  [
    'gpt2, a vocabulary that ranks do not divide',
    makeModel(
      parseConfig({ model_type: 'gpt2', n_layer: 1, n_embd: 16, n_head: 2, n_positions: SEQ, vocab_size: 151 }, 'odd'),
    ),
  ],
];

describe('in float64', () => {
  it.each(COMPUTED)(
    '%s has the loss and the gradients of ranks with all rows, to the bit',
    async (_, model, packed = false) => {
      const whole = await computed(model, packed, false);
      for (const { gradients } of whole) {
        for (const [name, values] of gradients) expect(values.some(Number.isNaN), name).toBe(false);
      }
      for (const mode of EVERY_CASE ? ACTIVATION_MODES : (['keep', 'recompute'] as const))
        expect(await computed(model, packed, true, mode), mode).toEqual(whole);
    },
  );

  it('has them in slices of rows, where a rank has several', async () => {
    const [, model] = at(COMPUTED, COMPUTED.length - 1);
    const most = 4 * BATCH;
    const { first } = partOf(model, 0, true, false, most).programs;
    const sliced = withActivations(first, () => 'slice');
    expect(sliced.instructions.length).toBeGreaterThan(withActivations(first, () => 'spill').instructions.length);
    const whole = await computed(model, false, false, 'keep', most);
    expect(await computed(model, false, true, 'slice', most)).toEqual(whole);
  });
});

const workloadOf = (model: Model, sequenceParallel: boolean) => {
  const { part, programs } = partOf(model, 0, sequenceParallel);
  return trainingWorkload(part, programs, 1, undefined, {
    accumulateOrder: 'batch',
    activations: 'keep',
    sharding: { rank: 0, size: 1, stage: 0 },
  });
};

describe('what a rank has', () => {
  const model = MODELS['gpt2, tied'];
  const { layers, width } = model.shape;

  it('is its part of the residual stream and of the outputs of norms, and as much as before of the rest', () => {
    const bytes = (sequenceParallel: boolean) =>
      new Map(
        saved(partOf(model, 0, sequenceParallel).programs.first).map(({ tensor, bytes }) => [
          tensor.name.replace(/ of own rows$/, ''),
          bytes,
        ]),
      );
    const [all, own] = [bytes(false), bytes(true)];
    expect([...own.keys()]).toEqual([...all.keys()]);
    const between = [...all.keys()].filter((name) => /^embed$|\.ln_|c_proj/.test(name));
    // Of each block two norms with mean and deviation, and two sums: that of the last is read by no block.
    expect(between).toHaveLength(8 * layers);
    for (const [name, before] of all) expect(own.get(name), name).toBe(between.includes(name) ? before / 2 : before);
    const live = (sequenceParallel: boolean) => liveBytes(partOf(model, 0, sequenceParallel).programs.first);
    expect(live(true)).toBeLessThan(live(false));
  });

  it('sends what norms gather again, and the sums of their blocks of rows, more', () => {
    const of = (sequenceParallel: boolean) => {
      const { operations } = fitMemory(workloadOf(model, sequenceParallel), DEFAULT_LIMITS, undefined).passes.step;
      return networkBytes(operations, { rank: 0, size: RANKS }, 'tensor');
    };
    const [all, own] = [of(false), of(true)];
    // What each of two ranks has of them, it sends to the other.
    const again = 2 * layers * BATCH * SEQ * width;
    const blocks = (2 * layers + 1) * ((BATCH * SEQ) / ROW_BLOCK) * 2 * width;
    expect(own.sent - all.sent).toBe((4 * (again + blocks)) / 2);
    expect(own.received).toBe(own.sent);
  });

  it('is planned for a grid with stages, too', () => {
    const plan = planRanks(
      model,
      {
        ...{ size: 4, stage: 0, tensor: 2, pipeline: 2, sequenceParallel: true },
        ...{ batch: BATCH, context: SEQ, accumulate: 2, activations: 'keep' },
      },
      ({ comfortable }) => comfortable,
    );
    expect(plan.ranks).toHaveLength(4);
    // A ring's bytes are what ranks send that each have as much.
    expect(plan.exchangedBytes / 4).toBeLessThan(1.02 * plan.bound);
  });
});

it('refuses rows that are not whole blocks, and says which are', () => {
  const places = gridPlacesOf({ rank: 0, size: RANKS }, { tensor: RANKS });
  expect(() => stepPart(MODELS['gpt2, tied'], 3, SEQ, places, { sequenceParallel: true })).toThrow(
    '--sequence-parallel: the 48 tokens of a micro-batch are not blocks of 32 for each of 2 ranks; give a --batch and a --context whose product is a multiple of 64, or leave it out',
  );
});

/** The case with so many tokens of so many sequences, again from the first where there are fewer: what it expects is no longer right. */
function cut(reference: ReferenceCase, batch: number, seq: number): ReferenceCase {
  const shorter = (values: Int32Array, from: number) =>
    Int32Array.from({ length: batch * seq }, (_, i) => {
      return at(values, (Math.floor(i / seq) * from + (i % seq)) % values.length);
    });
  const batches = reference.batches.map((micros) =>
    micros.map((micro) => {
      const { ids, targets } = micro as TokenBatch;
      return { ids: shorter(ids, reference.seq), targets: shorter(targets, reference.seq), batch, seq };
    }),
  );
  return { ...reference, batch, seq, batches };
}

describe.runIf(THOROUGH)('training', () => {
  let device: Device;
  beforeAll(async () => {
    device = await testDevice();
  });

  const leastOf = ({ model, batch, seq, accumulate }: ReferenceCase) => {
    const places = gridPlacesOf({ rank: 0, size: RANKS }, { tensor: RANKS });
    const { part, programs } = stepPart(model, batch, seq, places, { sequenceParallel: true });
    const sharding = { rank: 0, size: 1, stage: 0 } as const;
    const workload = trainingWorkload(part, programs, accumulate, undefined, { accumulateOrder: 'batch', sharding });
    return smallestBudget(workload, limitsOf(device), { recovery: 'checkpoint' });
  };

  const CUT = [
    ['gpt2-ignore', 4, 16],
    ['llama-tiny', 2, 32],
  ] as const;
  it.each(EVERY_CASE ? CUT : CUT.slice(0, 1))(
    '%s has the bits of ranks with all rows, under every budget and tier',
    async (name, batch, seq) => {
      const reference = cut(await caseOf(name), batch, seq);
      const short = { tensor: RANKS, steps: 2 };
      const { choices: before, ...whole } = await trainOnRanks(device, reference, RANKS, 0, short);
      const rows = { ...short, sequenceParallel: true };
      const { choices, ...shared } = await trainOnRanks(device, reference, RANKS, 0, { ...rows, choices: before });
      expect(shared).toEqual(whole);
      const least = leastOf(reference);
      // The ranks differ in budgets and tiers, and in what becomes of their activations.
      const memory = (rank: number): MemoryOptions =>
        rank === 0
          ? { gpu: least + 65_536 }
          : { gpu: 2 * least, host: 400_000, disk: memoryDisk(), activations: 'offload' };
      const { choices: _, ...within } = await trainOnRanks(device, reference, RANKS, 0, { ...rows, choices, memory });
      expect(within).toEqual(whole);
    },
  );

  it.runIf(EVERY_CASE)('passes gpt2-tiny on 3 ranks', async () => {
    const reference = await caseOf('gpt2-tiny');
    const { choices: _, ...found } = await trainOnRanks(device, reference, 3, 0, { tensor: 3, sequenceParallel: true });
    const { metrics, worst } = verdictOf(reference, found);
    expect(worst, [...metrics].map(([metric, { multiple }]) => `${metric} ${multiple}`).join('\n')).toBeLessThanOrEqual(
      1,
    );
  });

  it.runIf(EVERY_CASE)('has the same bits in a grid, whatever copies of the model shard', async () => {
    const reference = cut(await caseOf('gpt2-accum4'), 4, 16);
    const short = { tensor: 2, steps: 2 };
    const { choices, gradients: _, ...whole } = await trainOnRanks(device, reference, 4, 0, short);
    for (const stage of ZERO_STAGES) {
      const options = { ...short, choices, sequenceParallel: true };
      const { choices: _, gradients: __, ...shared } = await trainOnRanks(device, reference, 4, stage, options);
      expect(shared).toEqual(whole);
    }
  });
});
