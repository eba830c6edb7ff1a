// Does a program whose blocks go some rows at a time compute the same, to the last bit, in less memory? Interpreted in float64
// with the kernels' references, where what was not written is NaN; no device.

import { describe, expect, it, vi } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { BLOCK_MODES, withActivations, withSlices } from '../../src/graph/activations.ts';
import { liveBytes } from '../../src/graph/liveness.ts';
import type { Program, Tensor } from '../../src/graph/program.ts';
import { inRowSlices, SLICE_COUNTS } from '../../src/graph/row-slices.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import type { Model } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { Random } from '../../src/util/random.ts';
import { GEMMA3 } from '../families/gemma3.ts';
import { LLAMA } from '../families/llama.ts';
import { QWEN3 } from '../families/qwen3.ts';
import { Memory } from '../interpret.ts';

// Small vocabularies in two tiles, as larger ones go in several.
vi.mock('../../src/graph/operators/head-tiles.ts', async (original) => {
  const tiles = await original<typeof import('../../src/graph/operators/head-tiles.ts')>();
  const vocabularyTile = (vocabulary: number) =>
    vocabulary < 64 ? Math.ceil(vocabulary / 2) : tiles.vocabularyTile(vocabulary);
  return { ...tiles, vocabularyTile };
});

const GPT2 = { model_type: 'gpt2', vocab_size: 11, n_positions: 400, n_embd: 4, n_head: 2, n_layer: 2, n_inner: 6 };
const modelOf = (config: object) => makeModel(parseConfig({ ...config }, 'test'));
const long = (config: object) => modelOf({ ...config, max_position_embeddings: 400, num_hidden_layers: 2 });

/** Sequences, and tokens of each: slices of several sequences, of which the last has fewer, and of rows of a single one. */
const CASES: [name: string, model: Model, batch: number, seq: number, packed?: boolean][] = [
  ['gpt2', modelOf(GPT2), 5, 32],
  ['gpt2', modelOf(GPT2), 3, 96],
  ['gpt2', modelOf(GPT2), 1, 300],
  ['gpt2 of six heads, in groups beside slices of a sequence', modelOf({ ...GPT2, n_embd: 6, n_head: 6 }), 2, 128],
  ['llama', long(LLAMA), 5, 32],
  ['llama', long(LLAMA), 1, 160],
  ['qwen3', long(QWEN3), 5, 32],
  ['gemma3', long(GEMMA3), 5, 32],
  ['gemma3, several documents in a row', long(GEMMA3), 5, 32, true],
  ['gpt2 with lora', withLora(modelOf(GPT2), { rank: 2, alpha: 3, dropout: 0.25 }), 5, 32],
];

describe.each(CASES)('%s', (_, model, batch, seq, packed = false) => {
  const traced = traceStep(model, batch, seq, { packed });
  const random = new Random(3, 'slices test');
  const weights = [...traced.parameters.values()].map((tensor): [Tensor, Float64Array] => [
    tensor,
    Float64Array.from({ length: tensor.size }, () => 0.5 * random.normal()),
  ]);
  const ids = Int32Array.from({ length: batch * seq }, () => random.below(11));
  const targets = ids.map((_id, i) => (i === 4 ? -100 : random.below(11)));
  // Other lengths in each row.
  const documents = packed && { documents: ids.map((_id, i) => Math.floor((i % seq) / (3 + Math.floor(i / seq)))) };
  const tokens = { ids, targets, ...documents, batch, seq };

  /** Loss and gradients after two micro-batches and an evaluation. */
  function results(...programs: Program[]): number[][] {
    const memory = new Memory();
    for (const [tensor, values] of weights) memory.set(tensor, values);
    for (const [micro, program] of programs.entries()) {
      memory.setInputs(model, traced, tokens, 1 / 18);
      if (traced.dropoutKey) memory.set(traced.dropoutKey, [3 + micro, 7]);
      memory.run(program);
    }
    return [traced.scalars.lossSum, ...traced.gradients.values()].map((tensor) => [...memory.of(tensor)]);
  }

  it(`has the same loss and gradients to the last bit, of ${batch} x ${seq}`, () => {
    const whole = [traced.first, traced.next, traced.evaluate];
    const expected = results(...whole);
    const inSlices = [
      withActivations(traced.first, () => 'slice'),
      withActivations(traced.next, () => 'slice'),
      withSlices(traced.evaluate, () => 'slice'),
    ];
    expect(results(...inSlices)).toEqual(expected);
    // Whatever else is kept: what lives on is then used in part.
    for (const count of SLICE_COUNTS)
      expect(results(...whole.map((program) => inRowSlices(program, () => count))), `${count}`).toEqual(expected);
    for (const [i, program] of inSlices.entries()) {
      expect(program.instructions.length).toBeGreaterThan(2 * (whole[i]?.instructions.length ?? 0));
    }
  });
});

it('leaves a program with few rows as it is', () => {
  const { evaluate } = traceStep(modelOf(GPT2), 2, 32);
  expect(inRowSlices(evaluate, () => 8)).toBe(evaluate);
});

it('brings the default model below 0.8 MB, and larger budgets do without', () => {
  const sizes = { layers: 2, width: 64, heads: 4, vocabulary: 256, context: 64 };
  const model = makeModel(configOfShape({ family: 'gpt2', ...sizes }));
  const programs = traceStep(model, 8, 64);
  const workload = trainingWorkload(model, programs, 1);
  const least = smallestBudget(workload, DEFAULT_LIMITS);
  expect(least).toBeLessThan(0.8e6);
  const within = (budget: number) => fitMemory(workload, DEFAULT_LIMITS, budget);
  expect(within(least).peak).toBeLessThanOrEqual(least);
  expect(within(least).workload.activations?.modes).toEqual(['slice', 'slice']);
  expect(() => within(least - 1)).toThrow(`${least} bytes`);
  expect(within(4e6).workload.activations?.modes).not.toContain('slice');
});

it('brings what attention of one sequence makes for its backward pass to fewer heads at a time', () => {
  const sizes = { layers: 2, width: 768, heads: 12, vocabulary: 50257, context: 1024 };
  const { first } = traceStep(makeModel(configOfShape({ family: 'gpt2', ...sizes })), 1, 1024);
  const alive = ([slices]: readonly number[]) =>
    liveBytes(withActivations(first, () => 'slice', 'as modes say', slices));
  const gradients = 1024 * 3 * 768 * 4;
  expect(alive(SLICE_COUNTS)).toBeLessThan(30e6);
  // Of two groups, half of them more.
  expect(alive([2]) - alive(SLICE_COUNTS)).toBe(gradients / 3);
});

it('brings the activations of GPT-2 at 8 x 1,024 to a third of what any other way needs', () => {
  const sizes = { layers: 2, width: 768, heads: 12, vocabulary: 50257, context: 1024 };
  const { first, evaluate } = traceStep(makeModel(configOfShape({ family: 'gpt2', ...sizes })), 8, 1024);
  const others = BLOCK_MODES.map((mode) => liveBytes(withActivations(first, () => mode)));
  const most = 0.36 * Math.min(...others, liveBytes(evaluate));
  expect(liveBytes(withActivations(first, () => 'slice'))).toBeLessThan(most);
  expect(liveBytes(withSlices(evaluate, () => 'slice'))).toBeLessThan(most);
});
