// Do programs whose products make the gradients of biases on their way compute what those with sums of their own do, and does
// each bias have one? Interpreted in float64 with the kernels' references; no device. The bits on one: kernels/matmul.test.ts.

import { describe, expect, it } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { withActivations } from '../../src/graph/activations.ts';
import { withFusedTotals } from '../../src/graph/fused-totals.ts';
import { onTensors, type Program, type Tensor } from '../../src/graph/program.ts';
import { columnSum } from '../../src/kernels/column-sum.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import type { MatmulProblem } from '../../src/kernels/matmul-problem.ts';
import { makeModel } from '../../src/nn/index.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Random } from '../../src/util/random.ts';
import { QWEN2 } from '../families/qwen2.ts';
import { Memory } from '../interpret.ts';

const GPT2 = { model_type: 'gpt2', vocab_size: 11, n_positions: 400, n_embd: 4, n_head: 2, n_layer: 2, n_inner: 6 };
const modelOf = (config: object) => makeModel(parseConfig({ ...config }, 'test'));

const sumsOf = (program: Program, isBias: (tensor: Tensor) => boolean): number =>
  onTensors(program).filter(({ kernel, operands }) => kernel === columnSum && operands['y'] && isBias(operands['y']))
    .length;
const fusedIn = (program: Program) =>
  onTensors(program).filter(({ kernel, problem }) => kernel === matmul && (problem as MatmulProblem).totalsOf);
const isBias = ({ role, name }: Tensor) => role === 'gradient' && /bias$/.test(name) && !/ln_|norm/i.test(name);

describe.each([
  ['gpt2', modelOf(GPT2), 8],
  ['qwen2', modelOf({ ...QWEN2, max_position_embeddings: 400, num_hidden_layers: 2 }), 6],
] as const)('%s', (_, model, biases) => {
  const [batch, seq] = [3, 100];
  const traced = traceStep(model, batch, seq);
  const random = new Random(5, 'totals test');
  const weights = [...traced.parameters.values()].map((tensor): [Tensor, Float64Array] => [
    tensor,
    Float64Array.from({ length: tensor.size }, () => 0.5 * random.normal()),
  ]);
  const ids = Int32Array.from({ length: batch * seq }, () => random.below(11));
  const tokens = { ids, targets: ids.map(() => random.below(11)), batch, seq };

  function gradients(...programs: Program[]): number[] {
    const memory = new Memory();
    for (const [tensor, values] of weights) memory.set(tensor, values);
    for (const program of programs) {
      memory.setInputs(model, traced, tokens, 1 / 300);
      memory.run(program);
    }
    return [traced.scalars.lossSum, ...traced.gradients.values()].flatMap((tensor) => [...memory.of(tensor)]);
  }

  it.each(['keep', 'recompute', 'offload'] as const)('%s: each bias has a product for its gradient', (mode) => {
    const whole = [traced.first, traced.next].map((program) => withActivations(program, () => mode));
    const fused = whole.map(withFusedTotals);
    for (const [i, program] of fused.entries()) {
      expect(sumsOf(program, isBias)).toBe(0);
      expect(fusedIn(program)).toHaveLength(biases);
      expect(whole[i]!.instructions.length - program.instructions.length).toBe(2 * biases);
    }
    const expected = gradients(...whole);
    gradients(...fused).forEach((value, i) => {
      expect(Math.abs(value - expected[i]!)).toBeLessThanOrEqual(1e-12 * (1 + Math.abs(expected[i]!)));
    });
  });

  it('in slices of rows, sums stay as they are', () => {
    const sliced = withActivations(traced.first, () => 'slice');
    expect(withFusedTotals(sliced).instructions.filter(({ label }) => / slice /.test(label))).toEqual(
      sliced.instructions.filter(({ label }) => / slice /.test(label)),
    );
  });
});

it('leaves few rows, and such as loads of four cannot take, as they are', () => {
  for (const [batch, seq] of [
    [1, 60], // summed in one pass
    [3, 101], // 303
  ] as const) {
    const { first } = traceStep(modelOf(GPT2), batch, seq);
    expect(withFusedTotals(first)).toBe(first);
  }
});

it('leaves the parts of a bias that lies in tiles', () => {
  const BERT = {
    model_type: 'bert',
    vocab_size: 300,
    max_position_embeddings: 400,
    hidden_size: 4,
    num_hidden_layers: 2,
  };
  const { first } = traceStep(modelOf({ ...BERT, num_attention_heads: 2, intermediate_size: 8 }), 3, 100);
  const ofHead = (tensor: Tensor) => isBias(tensor) && tensor.size === 300;
  const sums = sumsOf(first, ofHead);
  expect(sums).toBeGreaterThan(1);
  const fused = withFusedTotals(first);
  expect(sumsOf(fused, ofHead)).toBe(sums);
  expect(sumsOf(fused, (tensor) => isBias(tensor) && !ofHead(tensor))).toBe(0);
});
