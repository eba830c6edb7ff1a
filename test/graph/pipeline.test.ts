// Programs cut into stages, and micro-batches in the order 1F1B: computed in float64, stage by stage, with a channel of messages
// between neighbours, they are the whole model's, and no order of the stages leaves one waiting for ever.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Batch, TokenBatch } from '../../src/data/batches.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { withActivations } from '../../src/graph/activations.ts';
import { liveBytes } from '../../src/graph/liveness.ts';
import { microBatchesAtOnce, oneForwardOneBackward, stagesOf } from '../../src/graph/pipeline.ts';
import type { Instruction, Program, Tensor } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import type { Model } from '../../src/nn/model.ts';
import { checkStages } from '../../src/nn/pipeline-parallel.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { QWEN3 } from '../families/qwen3.ts';
import { EVERY_CASE } from '../host.ts';
import { Memory } from '../interpret.ts';

const gpt2 = (n_layer: number, tie_word_embeddings = false): Model => {
  const sizes = { n_layer, n_embd: 8, n_head: 2, n_positions: 6, vocab_size: 11 };
  return makeModel(parseConfig({ model_type: 'gpt2', ...sizes, tie_word_embeddings }, 'gpt2'));
};

const SEQ = 4;

const batchesOf = (count: number, packed = false): TokenBatch[] => {
  const random = new Random(3, 'stages');
  const tokens = () => Int32Array.from({ length: SEQ }, () => random.below(11));
  // In each row the second document begins elsewhere.
  const documents = (row: number) => Int32Array.from({ length: SEQ }, (_, i) => Number(i > row % SEQ));
  return Array.from({ length: count }, (_, row) => ({
    ...{ ids: tokens(), targets: tokens(), ...(packed && { documents: documents(row) }), batch: 1, seq: SEQ },
  }));
};

const isPacked = (batches: readonly TokenBatch[]): boolean => (at(batches, 0) as Batch)['documents'] !== undefined;

/** Of all micro-batches: the gradients by name, and the sum of the losses. */
interface Computed {
  readonly gradients: ReadonlyMap<string, Float64Array>;
  readonly loss: number;
}

async function alone(model: Model, batches: readonly TokenBatch[]): Promise<Computed> {
  const traced = traceStep(model, 1, SEQ, { packed: isPacked(batches) });
  const memory = new Memory();
  for (const [name, values] of await collect(initialWeights(model, 1)))
    memory.set(traced.parameters.get(name) as Tensor, values);
  for (const [i, batch] of batches.entries()) {
    memory.setInputs(model, traced, batch, 1 / 10);
    memory.run(i === 0 ? traced.first : traced.next);
  }
  const gradients = new Map([...traced.gradients].map(([name, tensor]) => [name, memory.of(tensor).slice()]));
  return { gradients, loss: at(memory.of(traced.scalars.lossSum), 0) };
}

interface Stage {
  readonly memory: Memory;
  readonly program: Program;
  readonly gradients: ReadonlyMap<string, Tensor>;
  readonly lossSum: Tensor;
  next: number;
}

async function stageAt(model: Model, batches: readonly TokenBatch[], rank: number, size: number): Promise<Stage> {
  const place = { rank, size };
  const traced = traceStep(model, 1, SEQ, { place, packed: isPacked(batches) });
  const first = withActivations(traced.first, () => 'recompute');
  const next = withActivations(traced.next, () => 'light');
  const ids = { inputs: traced.inputs.all, tied: traced.tied };
  const { program, inputs } = oneForwardOneBackward({ first, next }, place, batches.length, ids);
  const memory = new Memory();
  memory.setInputs(model, traced, at(batches, 0), 1 / 10);
  for (const [i, batch] of batches.entries()) {
    for (const [tensor, values] of traced.inputs.values(batch)) memory.set(inputs[i]?.get(tensor) ?? tensor, values);
    const { position } = traced.inputs.tokens('ids');
    memory.set(inputs[i]?.get(position) ?? position, [0]);
  }
  for (const [name, values] of await collect(initialWeights(model, 1))) {
    const tensor = traced.parameters.get(name);
    if (tensor) memory.set(tensor, values);
  }
  return { memory, program, gradients: traced.gradients, lossSum: traced.scalars.lossSum, next: 0 };
}

/** Runs the stages, the one that is drawn next as far as it comes by itself. */
function runInAnyOrder(stages: readonly Stage[], random: Random): void {
  const channels = new Map<string, { readonly label: string; readonly values: Float64Array }[]>();
  const tied: Float64Array[] = [];
  const channel = (from: number, to: number) => {
    const key = `${from} ${to}`;
    const found = channels.get(key) ?? [];
    channels.set(key, found);
    return found;
  };
  /** Whether it could be done. */
  const done = (rank: number, { memory }: Stage, instruction: Instruction): boolean => {
    if (instruction.op === 'send') {
      channel(rank, instruction.stage).push({
        label: instruction.label,
        values: memory.of(instruction.tensor).slice(),
      });
    } else if (instruction.op === 'receive') {
      const message = channel(instruction.stage, rank).shift();
      if (!message) return false;
      expect(message.label).toBe(instruction.label);
      memory.set(instruction.tensor, message.values);
    } else if (instruction.op === 'tie') tied.push(memory.of(instruction.tensor));
    else memory.execute(instruction);
    return true;
  };
  for (;;) {
    const left = stages.flatMap((stage, rank) => (stage.next < stage.program.instructions.length ? [rank] : []));
    if (left.length === 0) break;
    const able = left.filter((rank) => {
      const stage = at(stages, rank);
      const { op, ...rest } = at(stage.program.instructions, stage.next);
      return op !== 'receive' || ('stage' in rest && channel(rest.stage, rank).length > 0);
    });
    expect(able.length, 'stages that can go on').toBeGreaterThan(0);
    const rank = at(able, random.below(able.length));
    const stage = at(stages, rank);
    while (stage.next < stage.program.instructions.length) {
      if (!done(rank, stage, at(stage.program.instructions, stage.next))) break;
      stage.next++;
    }
  }
  for (const messages of channels.values()) expect(messages).toEqual([]);
  const [one, other] = tied;
  if (!one || !other) return;
  for (const [i, value] of one.entries()) one[i] = value + at(other, i);
  other.set(one);
}

it('has the gradients and the loss of the whole model in any number of stages, to the bit', async () => {
  const cases = fc
    .record({
      layers: fc.integer({ min: 1, max: 5 }),
      count: fc.integer({ min: 1, max: 6 }),
      seed: fc.nat(1000),
      part: fc.double({ min: 0, max: 1, noNaN: true }),
    })
    .map(({ layers, part, ...rest }) => ({ ...rest, layers, size: 1 + Math.ceil(part * (layers - 1)) }))
    .filter(({ size }) => size > 1);
  await fc.assert(
    fc.asyncProperty(cases, async ({ layers, size, count, seed }) => {
      const [model, batches] = [gpt2(layers), batchesOf(count)];
      const whole = await alone(model, batches);
      const stages = await Promise.all(Array.from({ length: size }, (_, rank) => stageAt(model, batches, rank, size)));
      runInAnyOrder(stages, new Random(seed, 'turns'));
      const found = new Map(
        stages.flatMap(({ gradients, memory }) =>
          [...gradients].map(([name, tensor]) => [name, memory.of(tensor)] as const),
        ),
      );
      expect([...found.keys()].sort()).toEqual([...whole.gradients.keys()].sort());
      for (const [name, values] of whole.gradients) expect(found.get(name), name).toEqual(values);
      const { memory, lossSum } = at(stages, size - 1);
      expect(at(memory.of(lossSum), 0)).toBe(whole.loss);
    }),
    { seed: 9, numRuns: EVERY_CASE ? 60 : 8 },
  );
});

it('has those of rows of several documents, where the layers of a stage have windows and those of another none', async () => {
  const types = ['sliding_attention', 'sliding_attention', 'full_attention'];
  const sizes = { num_hidden_layers: 3, layer_types: types, sliding_window: 2, max_position_embeddings: 6 };
  const model = makeModel(parseConfig({ ...QWEN3, ...sizes, use_sliding_window: true }, 'qwen3'));
  const batches = batchesOf(5, true);
  const whole = await alone(model, batches);
  for (const size of [2, 3]) {
    const stages = await Promise.all(Array.from({ length: size }, (_, rank) => stageAt(model, batches, rank, size)));
    runInAnyOrder(stages, new Random(1, 'turns'));
    for (const { gradients, memory } of stages) {
      for (const [name, tensor] of gradients) expect(memory.of(tensor), name).toEqual(whole.gradients.get(name));
    }
    const { memory, lossSum } = at(stages, size - 1);
    expect(at(memory.of(lossSum), 0)).toBe(whole.loss);
  }
});

it('adds up the gradient of a table that both ends have: the bits of one micro-batch, near those of several', async () => {
  const model = gpt2(3, true);
  for (const count of [1, 4]) {
    const batches = batchesOf(count);
    const whole = await alone(model, batches);
    const stages = await Promise.all([0, 1, 2].map((rank) => stageAt(model, batches, rank, 3)));
    runInAnyOrder(stages, new Random(1, 'turns'));
    const expected = whole.gradients.get('wte.weight') ?? new Float64Array();
    const ends = [at(stages, 0), at(stages, 2)].map(({ memory, gradients }) =>
      memory.of(gradients.get('wte.weight') as Tensor),
    );
    for (const found of ends) {
      if (count === 1) expect(found).toEqual(expected);
      const worst = found.reduce((most, value, i) => Math.max(most, Math.abs(value - at(expected, i))), 0);
      expect(worst).toBeLessThan(1e-14);
    }
    expect(at(stages, 1).gradients.has('wte.weight')).toBe(false);
  }
});

it('has the activations of no more micro-batches at once than there are stages from it on', () => {
  const model = gpt2(8);
  const bytesOf = (rank: number, count: number) => {
    const place = { rank, size: 4 };
    const { first, next, inputs, tied } = traceStep(model, 1, SEQ, { place });
    return liveBytes(oneForwardOneBackward({ first, next }, place, count, { inputs: inputs.all, tied }).program);
  };
  for (let rank = 0; rank < 4; rank++) {
    expect(microBatchesAtOnce({ rank, size: 4 }, 9)).toBe(4 - rank);
    expect(bytesOf(rank, 9)).toBe(bytesOf(rank, 4 - rank + 1));
    if (rank > 0) expect(bytesOf(rank, 9)).toBeLessThan(bytesOf(rank - 1, 9));
  }
});

it('deals out blocks evenly, the first stages the rest', () => {
  const stages = [...stagesOf(traceStep(gpt2(5), 1, SEQ).first, 3).ofBlock.values()];
  expect(stages).toEqual([0, 0, 1, 1, 2]);
  expect(() => checkStages(2, 3)).toThrow(
    '--pipeline-parallel 3: the model has 2 blocks, and each stage needs one; give at most 2',
  );
});
