// Does a head whose rows come in several tiles compute the same, to the last bit, when each tile goes some rows at a time, and is
// what exists at once then smaller? Interpreted in float64 with the kernels' references; no device.

import { expect, it, vi } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { type ActivationMode, withActivations, withSlices } from '../../src/graph/activations.ts';
import { vocabularyTile } from '../../src/graph/operators/head-tiles.ts';
import { onTensors, type Program, type Tensor } from '../../src/graph/program.ts';
import { inRowSlices, type Slicing } from '../../src/graph/row-slices.ts';
import { makeModel } from '../../src/nn/index.ts';
import type { Model } from '../../src/nn/model.ts';
import { type StepPrograms, traceEvaluation, traceStep } from '../../src/train/step/step-programs.ts';
import { Random } from '../../src/util/random.ts';
import { Memory } from '../interpret.ts';

const most = vi.hoisted(() => ({ rows: 160 }));
// Small vocabularies in two tiles, as larger ones go in several.
vi.mock('../../src/graph/operators/head-tiles.ts', async (original) => {
  const tiles = await original<typeof import('../../src/graph/operators/head-tiles.ts')>();
  return {
    ...tiles,
    rowTile: (rows: number) => Math.min(rows, most.rows),
    vocabularyTile: (vocabulary: number) => (vocabulary === 11 ? 6 : tiles.vocabularyTile(vocabulary)),
  };
});

const GPT2 = { model_type: 'gpt2', vocab_size: 11, n_positions: 400, n_embd: 4, n_head: 2, n_layer: 2, n_inner: 6 };
const BERT = { model_type: 'bert', vocab_size: 11, max_position_embeddings: 400, hidden_size: 4, intermediate_size: 6 };
const batch = 3;

function results(model: Model, seq: number, traced: StepPrograms, ...programs: Program[]): number[][] {
  const random = new Random(3, 'slices test');
  const memory = new Memory();
  for (const tensor of traced.parameters.values()) {
    memory.set(
      tensor,
      Float64Array.from({ length: tensor.size }, () => 0.5 * random.normal()),
    );
  }
  const ids = Int32Array.from({ length: batch * seq }, () => random.below(11));
  const targets = ids.map(() => random.below(11));
  for (const program of programs) {
    memory.setInputs(model, traced, { ids, targets, batch, seq }, 1 / 600);
    memory.run(program);
  }
  return [traced.scalars.lossSum, ...traced.gradients.values()].map((tensor) => [...memory.of(tensor)]);
}

/** Rows of each activation that holds logits. */
function logitsOf(program: Program): number[] {
  const tensors = new Set(onTensors(program).flatMap(({ operands }) => Object.values(operands)));
  const isLogits = ({ name, role, partOf }: Tensor) => role === 'activation' && !partOf && / logits /.test(name);
  return [...tensors].filter(isLogits).map(({ size }) => size / 6);
}

it.each([
  ['gpt2', 'tiles of 160 and 140 rows', GPT2, 100, 160],
  // So many that the bias's gradient is a sum of sums.
  ['bert', 'tiles of 320 and 280 rows', { ...BERT, num_attention_heads: 2, num_hidden_layers: 2 }, 200, 320],
] as const)('%s: in slices of rows, of %s', (_, __, config, seq, rows) => {
  most.rows = rows;
  const model = makeModel(parseConfig(config, 'test'));
  const traced = traceStep(model, batch, seq);
  const whole = [traced.first, traced.next];
  expect(Math.max(...logitsOf(traced.first))).toBe(rows);
  const expected = results(model, seq, traced, ...whole);
  const inMode = (mode: ActivationMode) => whole.map((program) => withActivations(program, () => mode));
  expect(results(model, seq, traced, ...inMode('slice'))).toEqual(expected);
  const [sliced] = inMode('slice');
  expect(Math.max(...logitsOf(sliced!))).toBe(64);
  // What is small already is cut no further where memory is not that short.
  const [made] = inMode('recompute');
  expect(Math.max(...logitsOf(made!))).toBe(rows);
  const cut = (slicing: Slicing) => inRowSlices(traced.evaluate, () => slicing);
  expect(cut('large')).toBe(traced.evaluate);
  expect(Math.max(...logitsOf(cut(8)))).toBe(64);
});

it('in larger slices where more is kept, but not where all is', () => {
  most.rows = Number.POSITIVE_INFINITY;
  const large = makeModel(parseConfig({ ...GPT2, vocab_size: 50257, n_positions: 1024 }, 'test'));
  const { first } = traceStep(large, 3, 1024);
  const tile = vocabularyTile(50257);
  const most3072 = (program: Program) => Math.max(...logitsOf(program)) * (6 / Math.ceil(tile));
  expect(most3072(withActivations(first, () => 'keep'))).toBe(3072);
  const light = most3072(withActivations(first, () => 'light'));
  expect(light).toBeGreaterThan(512);
  expect(light * tile).toBeLessThanOrEqual(1.1 * 2 ** 23);
  expect(most3072(withActivations(first, (block) => (block === 'h.0' ? 'light' : 'keep')))).toBe(light);
  expect(most3072(withActivations(first, () => 'slice'))).toBe(384);
});

it('of an evaluation alone, and where blocks may do nothing else than keep all', () => {
  most.rows = Number.POSITIVE_INFINITY;
  const large = makeModel(parseConfig({ ...GPT2, vocab_size: 50257, n_positions: 1024 }, 'test'));
  const bytesOf = (program: Program) => 4 * 6 * Math.max(...logitsOf(withSlices(program, () => 'keep', 'some')));
  const { program } = traceEvaluation(large, { batch: 3, seq: 1024 });
  for (const each of [program, traceStep(large, 3, 1024).first]) expect(bytesOf(each)).toBeLessThan(1.1 * 2 ** 25);
});
