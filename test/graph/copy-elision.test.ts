// Do operators that may overwrite an input do so wherever that is its last use, and nowhere else? Programs with the copies that
// nothing needs left out are interpreted in float64 with the kernels' references; no device.

import { describe, expect, it } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { ACTIVATION_MODES, withActivations } from '../../src/graph/activations.ts';
import { withoutCopies } from '../../src/graph/copy-elision.ts';
import { liveBytes } from '../../src/graph/liveness.ts';
import { makeTensor, onTensors, type Program, type Tensor, type TensorInstruction } from '../../src/graph/program.ts';
import { withDecision } from '../../src/graph/update-in-backward.ts';
import { add } from '../../src/kernels/add.ts';
import { copyTensor } from '../../src/kernels/copy-tensor.ts';
import { dropout, dropoutInPlace } from '../../src/kernels/dropout.ts';
import { swigluBackward } from '../../src/kernels/gated.ts';
import { tanh, tanhBackward } from '../../src/kernels/tanh.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { field } from '../entry.ts';
import { LLAMA } from '../families/llama.ts';
import { SMALL_MODELS } from '../families.ts';
import { EVERY_CASE } from '../host.ts';
import { Memory } from '../interpret.ts';

const modelOf = (config: object) => makeModel(parseConfig(config, 'test'));
const copiesIn = (program: Program): TensorInstruction[] =>
  onTensors(program).filter(({ kernel }) => kernel === copyTensor);

const IN_PLACE = new Set(['swigluBackward', 'gegluBackward', 'tanhBackward', 'geluBackward', 'geluErfBackward']);

describe('the operators of all families', () => {
  const seen = new Set<string>();

  it.each(Object.entries(SMALL_MODELS))('%s: none works on a copy, in any mode', (_, { config, lora }) => {
    const model = lora ? withLora(modelOf(config), lora) : modelOf(config);
    const { first } = traceStep(model, 2, Math.min(5, model.shape.context));
    for (const { kernel } of onTensors(first)) if (IN_PLACE.has(kernel.name)) seen.add(kernel.name);
    for (const mode of ACTIVATION_MODES) {
      const program = withActivations(first, () => mode);
      const without = withoutCopies(program);
      expect(
        copiesIn(without).map(({ label }) => label),
        mode,
      ).toEqual([]);
      expect(onTensors(without).length, mode).toBe(onTensors(program).length - copiesIn(program).length);
    }
  });

  it('are those that may overwrite an input', () => {
    expect(seen).toEqual(IN_PLACE);
  });
});

/** Sequences, and tokens of each: in two slices of rows, and in three. */
const SLICED = [
  [2, 40],
  [1, 130],
];

describe.each([
  ['llama', modelOf({ ...LLAMA, max_position_embeddings: 200 })],
  [
    'llama with lora',
    withLora(modelOf({ ...LLAMA, max_position_embeddings: 200 }), { rank: 2, dropout: 0.25, targets: ['down_proj'] }),
  ],
])('%s', (_, model) => {
  it.each(EVERY_CASE ? [...SLICED, [2, 100], [1, 200]] : SLICED)(
    '%i sequences of %i tokens have the same gradients to the last bit, in any mode',
    (batch, seq) => {
      const traced = traceStep(model, batch, seq);
      const random = new Random(7, 'copies test');
      const weights = [...traced.parameters.values()].map((tensor): [Tensor, Float64Array] => [
        tensor,
        Float64Array.from({ length: tensor.size }, () => 0.5 * random.normal()),
      ]);
      const ids = Int32Array.from({ length: batch * seq }, () => random.below(11));
      const tokens = { ids, targets: ids.map(() => random.below(11)), batch, seq };
      const results = (...programs: Program[]) => {
        const memory = new Memory();
        for (const [tensor, values] of weights) memory.set(tensor, values);
        for (const program of programs) {
          memory.setInputs(model, traced, tokens, 1 / 200);
          memory.run(program);
        }
        return [traced.scalars.lossSum, ...traced.gradients.values()].map((tensor) => [...memory.of(tensor)]);
      };
      const expected = results(traced.first, traced.next);
      let whole = 0;
      for (const mode of ACTIVATION_MODES) {
        const programs = [traced.first, traced.next].map((program) =>
          withoutCopies(withActivations(program, () => mode)),
        );
        expect(programs.flatMap(copiesIn), mode).toEqual([]);
        if (mode.startsWith('slice')) expect(at(programs, 0).instructions.length, mode).toBeGreaterThan(whole);
        else whole = Math.max(whole, at(programs, 0).instructions.length);
        expect(results(...programs), mode).toEqual(expected);
      }
    },
  );
});

describe('memory', () => {
  /** Four bytes of one hidden activation: 64 tokens, 1,024 wide. */
  const HIDDEN = 4 * 64 * 1024;
  const config = {
    ...LLAMA,
    hidden_size: 8,
    intermediate_size: 1024,
    num_hidden_layers: 2,
    max_position_embeddings: 64,
  };

  it('a gated MLP has three hidden widths at once in its backward pass, not five', () => {
    const { first } = traceStep(modelOf(config), 1, 64);
    const spilled = withActivations(first, () => 'spill');
    expect(liveBytes(spilled) / HIDDEN).toBeGreaterThan(4);
    expect(liveBytes(withoutCopies(spilled)) / HIDDEN).toBeLessThan(3.5);
  });

  it('dropout of what a low-rank update hands back goes over it', () => {
    const lora = { rank: 2, dropout: 0.25, targets: ['down_proj'] };
    const { first } = traceStep(withLora(modelOf(config), lora), 1, 64);
    const kernels = onTensors(first).flatMap(({ phase, kernel }) => (phase === 'backward' ? [kernel] : []));
    expect(kernels.filter((kernel) => kernel === dropoutInPlace)).toHaveLength(1);
    expect(kernels).not.toContain(dropout);
  });
});

describe('a copy stays', () => {
  const [x, y, z] = ['x', 'y', 'z'].map((name) => makeTensor(name, [4], 'activation')) as [Tensor, Tensor, Tensor];
  const common = { op: 'dispatch', phase: 'backward', label: 'test' } as const;
  const made: TensorInstruction = { ...common, kernel: tanh, problem: { size: 4 }, operands: { x: z, y: x } };
  const copied: TensorInstruction = { ...common, kernel: copyTensor, problem: { size: 4 }, operands: { x, y } };
  const overwritten: TensorInstruction = {
    ...common,
    ...{ kernel: tanhBackward, problem: { size: 4 }, operands: { y: z, dx: y } },
  };
  const instructions = [made, copied, overwritten];

  it('nowhere without a reason', () => {
    const { instructions: left, outputs } = withoutCopies({ name: 'test', instructions, outputs: [y] });
    expect(left).toEqual([made, { ...overwritten, operands: { y: z, dx: x } }]);
    expect(outputs).toEqual([x]);
  });

  it('where the tensor is read again, or given back', () => {
    const reads: TensorInstruction = { ...common, kernel: add, problem: { size: 4 }, operands: { a: x, b: y, y: z } };
    const again: Program = { name: 'test', instructions: [...instructions, reads], outputs: [] };
    expect(withoutCopies(again)).toBe(again);
    const given: Program = { name: 'test', instructions, outputs: [x] };
    expect(withoutCopies(given)).toBe(given);
  });

  it('where the tensor is stored narrow, in as many bytes, too', () => {
    const narrow: Tensor = { ...makeTensor('x', [1], 'activation'), stored: 'bf16' };
    const one = makeTensor('y', [1], 'activation');
    const program: Program = {
      name: 'test',
      instructions: [{ ...copied, operands: { x: narrow, y: one } }],
      outputs: [],
    };
    expect(withoutCopies(program)).toBe(program);
    const { first } = traceStep(modelOf(LLAMA), 2, 5, { activationDtype: 'bf16' });
    const kinds = copiesIn(withoutCopies(first)).map(({ operands }) => field(operands, 'x').stored);
    expect(kinds).toEqual(Array.from({ length: LLAMA.num_hidden_layers }, () => 'bf16'));
  });

  it('where a second backward pass reads the tensor, and only in the first', () => {
    const { first, inBackward } = traceStep(modelOf(LLAMA), 2, 5, { passes: 2 });
    if (!inBackward) throw new Error('two passes update in the second');
    const inMode = (mode: 'keep' | 'recompute') =>
      withoutCopies(
        withDecision(
          withActivations(first, () => mode),
          inBackward,
        ),
      );
    const layers = LLAMA.num_hidden_layers;
    expect(copiesIn(inMode('keep'))).toHaveLength(layers);
    const gated = onTensors(inMode('keep')).filter(({ kernel }) => kernel === swigluBackward);
    const isCopy = ({ operands }: TensorInstruction) => field(operands, 'dgate').name.startsWith('d gate');
    expect(gated.map(isCopy)).toEqual([...Array(layers).fill(true), ...Array(layers).fill(false)]);
    expect(copiesIn(inMode('recompute'))).toEqual([]);
  });
});
