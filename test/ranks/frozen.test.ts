// Training low-rank updates on several ranks that share a frozen model by ZeRO 3: the bits of ranks that each have all of it, in
// any way of storing it and any budget, with the memory that was predicted and the bytes that the plan says.

import { beforeAll, expect, it } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { networkBytes } from '../../src/engine/ranks/collectives.ts';
import { chunkGathersIn } from '../../src/engine/ranks/gather-order.ts';
import type { ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { elementBytesOf, FROZEN_KINDS, isFrozen } from '../../src/memory/layout/kinds.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { withLora } from '../../src/nn/lora.ts';
import { type Model, withStored } from '../../src/nn/model.ts';
import { planRanks } from '../../src/train/plan/rank-plan.ts';
import { baseStorage, roundedWeights } from '../../src/train/run/base-dtype.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { memoryDisk } from '../model/runs.ts';
import { caseOf, trainOnRanks } from './reference-runs.ts';

type Storing = 'f32' | 'bf16' | 'q8_0' | 'nf4';

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});

/** Rows of whole blocks, in several chunks of each kind. */
const base = makeModel(
  parseConfig({ model_type: 'gpt2', n_layer: 2, n_embd: 64, n_head: 2, n_positions: 64, vocab_size: 120 }, 'base'),
);

function loraOn(storing: Storing): Model {
  const lora = withLora(base, { rank: 2, alpha: 4, dropout: 0.2 });
  if (storing === 'f32') return lora;
  const files = new Map(base.parameters.map(({ name }) => [name, 'bf16' as const]));
  const storage = storing === 'bf16' ? () => 'bf16' as const : baseStorage(lora, files, storing);
  return withStored(lora, (name) => (name.includes('lora_') ? 'f32' : storage(name)));
}

it.each(EVERY_CASE ? (['f32', 'bf16', 'q8_0', 'nf4'] as const) : (['bf16', 'nf4'] as const))(
  'has the same bits whoever keeps a base in %s',
  async (storing) => {
    const model = loraOn(storing);
    const stored = new Map(model.parameters.map(({ name, stored: how = 'f32' }) => [name, how]));
    const drawn = roundedWeights(initialWeights(model, 3), (name) => stored.get(name) ?? 'f32', 'drawn');
    const known = await caseOf('gpt2-accum4-ignore');
    const reference = { ...known, model, weights: await collect(drawn), gradients: new Map() };
    const { batch, seq, accumulate } = reference;
    const least = (stage: ZeroStage) => {
      const options = { accumulateOrder: 'batch', sharding: { rank: 0, size: 2, stage } } as const;
      const workload = trainingWorkload(model, traceStep(model, batch, seq), accumulate / 2, undefined, options);
      return smallestBudget(workload, limitsOf(device), { recovery: 'checkpoint' });
    };
    const steps = 2;
    const { choices, ...whole } = await trainOnRanks(device, reference, 2, 0, { steps });
    const tight = { gpu: least(3) + 65_536, host: 400_000, disk: memoryDisk() };
    for (const memory of [{}, tight]) {
      const { choices: _, ...shared } = await trainOnRanks(device, reference, 2, 3, {
        ...{ steps, choices, memory: () => memory },
      });
      expect(shared).toEqual(whole);
    }
  },
);

it.each(['f32', 'bf16', 'q8_0', 'nf4'] as const)(
  'is planned to be on each rank in part, where it is in %s',
  (storing) => {
    const model = loraOn(storing);
    const planned = (stage: ZeroStage) => {
      const step = { batch: 1, context: 12, accumulate: 2, activations: 'keep', size: 4, stage } as const;
      return planRanks(model, step, (it) => it.comfortable);
    };
    const [all, shared] = [planned(2), planned(3)];
    const { map } = at(all.ranks, 0).fit;
    const frozen = Object.values(FROZEN_KINDS).filter((kind) => map.list(kind).chunks > 0);
    for (const kind of frozen) {
      const whole = map.list(kind).chunks * map.chunkBytes;
      for (const { held } of all.ranks) expect(held[kind]).toBe(whole);
      const parts = shared.ranks.map(({ held }) => held[kind] ?? 0);
      expect(parts.reduce((sum, bytes) => sum + bytes, 0)).toBe(whole);
      expect(Math.max(...parts)).toBeLessThanOrEqual(whole / 4 + map.chunkBytes);
    }
    // Forward and backward of each micro-batch, once for every use of a chunk; sums and what changes are of what trains alone.
    const { operations } = at(shared.ranks, 0).fit.passes.step;
    const gathered = chunkGathersIn(operations).filter(({ operation }) =>
      isFrozen(map.holding(operation.on.chunk).kind),
    );
    const bytes = gathered.reduce((sum, { bytes: each }) => sum + each, 0);
    const used = frozen.reduce(
      (sum, kind) => sum + elementBytesOf(kind) * map.layoutOf(kind).used.reduce((a, b) => a + b, 0),
      0,
    );
    expect(bytes).toBeLessThanOrEqual(4 * used);
    expect(bytes).toBeGreaterThan(3 * used);
    for (const { uses, collective } of operations.flatMap((each) => (each.op === 'collective' ? [each] : [])))
      if (uses.some(({ list }) => isFrozen(list.kind))) expect(collective).toBe('all-gather');
    expect(at(shared.ranks, 0).network).toEqual(networkBytes(operations, { rank: 0, size: 4 }));
    expect(shared.exchangedBytes / 4 / shared.bound).toBeGreaterThan(1);
    // Updates of rank 2 are padded to 256 elements.
    expect(shared.exchangedBytes / 4 / shared.bound).toBeLessThan(1.1);
  },
);

it('is gathered in chunks that suit all that is dealt out, of which no rank has much more than another', () => {
  const wide = { model_type: 'gpt2', n_layer: 4, n_embd: 256, n_head: 4, n_positions: 64, vocab_size: 120 };
  const lora = withLora(makeModel(parseConfig(wide, 'wide')), { rank: 2 });
  const model = withStored(lora, (name) => (name.includes('lora_') ? 'f32' : 'bf16'));
  const step = { batch: 1, context: 12, accumulate: 1, activations: 'keep', size: 2 } as const;
  const planned = (stage: ZeroStage) => planRanks(model, { ...step, stage }, (it) => it.comfortable);
  // Of what trains alone, where that alone is dealt out.
  const [small, { chunkBytes, ranks }] = [planned(2).chunkBytes, planned(3)];
  expect(chunkBytes).toBeGreaterThan(4 * small);
  const bytes = ranks.map(({ held }) => Object.values(held).reduce((a, b) => a + b, 0));
  const mean = bytes.reduce((a, b) => a + b, 0) / bytes.length;
  expect(Math.max(...bytes) - Math.min(...bytes)).toBeLessThanOrEqual(mean / 4);
});
