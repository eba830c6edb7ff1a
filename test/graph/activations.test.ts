// Does a program whose activations are made again compute the same gradients, to the last bit, in less memory? Interpreted
// in float64 with the kernels' references, where what was not written is NaN; no device.

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { LoraOptions } from '../../src/formats/adapter.ts';
import { parseConfig } from '../../src/formats/config.ts';
import {
  ACTIVATION_MODES,
  type ActivationMode,
  blocksOf,
  recompute,
  saved,
  withActivations,
} from '../../src/graph/activations.ts';
import { liveBytes, place } from '../../src/graph/liveness.ts';
import { ACTIVATION_POLICIES, type Setting } from '../../src/graph/policies/index.ts';
import { onTensors, operandsOf, type Program, type Tensor } from '../../src/graph/program.ts';
import { attention } from '../../src/kernels/attention.ts';
import { layernorm } from '../../src/kernels/layernorm.ts';
import { matmul } from '../../src/kernels/matmul.ts';
import { rmsnorm } from '../../src/kernels/rmsnorm.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import type { Model } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { at } from '../../src/util/at.ts';
import { Random } from '../../src/util/random.ts';
import { field, leading } from '../entry.ts';
import { GEMMA3 } from '../families/gemma3.ts';
import { LLAMA } from '../families/llama.ts';
import { QWEN3 } from '../families/qwen3.ts';
import { DECODERS } from '../families.ts';
import { Memory } from '../interpret.ts';

const GPT2 = { model_type: 'gpt2', vocab_size: 11, n_positions: 7, n_embd: 6, n_head: 2, n_layer: 3, n_inner: 10 };
const models: [string, Model][] = [
  ['gpt2', makeModel(parseConfig(GPT2, 'test'))],
  ['gpt2 with lora', withLora(makeModel(parseConfig(GPT2, 'test')), { rank: 2, alpha: 3, dropout: 0.25 })],
  ...Object.entries(DECODERS).map(([name, config]): [string, Model] => [name, makeModel(parseConfig(config, 'test'))]),
  ...Object.entries({ qwen3: QWEN3, gemma3: GEMMA3 }).map(([name, config]): [string, Model] => [
    `${name} with lora`,
    withLora(makeModel(parseConfig(config, 'test')), { rank: 2, dropout: 0.25 }),
  ]),
  [
    'llama with lora on some linears',
    withLora(makeModel(parseConfig(LLAMA, 'test')), { rank: 2, targets: ['v_proj', 'down_proj'], dropout: 0.25 }),
  ],
];
const BATCH = 2;
const SEQ = 5;

/** Of a machine that computes and moves about as fast. */
const settingOf = (room: number): Setting => ({
  room,
  secondsOf: (instruction) =>
    instruction.op === 'dispatch' ? 1e-6 + instruction.kernel.flops(instruction.problem) / 1e9 : 0,
  linkBytes: 1e8,
});

describe.each(models)('%s', (_, model) => {
  const traced = traceStep(model, BATCH, SEQ);
  const random = new Random(3, 'recompute test');
  const weights = [...traced.parameters.values()].map((tensor): [Tensor, Float64Array] => [
    tensor,
    Float64Array.from({ length: tensor.size }, () => 0.5 * random.normal()),
  ]);
  const ids = Int32Array.from({ length: BATCH * SEQ }, () => random.below(11));
  const batch = { ids, targets: ids.map((_id, i) => (i === 4 ? -100 : random.below(11))), batch: BATCH, seq: SEQ };

  /** Loss and gradients after two micro-batches. */
  function results(first: Program, next: Program): number[][] {
    const memory = new Memory();
    for (const [tensor, values] of weights) memory.set(tensor, values);
    for (const [micro, program] of [first, next].entries()) {
      memory.setInputs(model, traced, batch, 1 / 18);
      if (traced.dropoutKey) memory.set(traced.dropoutKey, [3 + micro, 7]);
      memory.run(program);
    }
    return [traced.scalars.lossSum, ...traced.gradients.values()].map((tensor) => [...memory.of(tensor)]);
  }
  const expected = results(traced.first, traced.next);
  const units = saved(traced.first);

  it.each(ACTIVATION_MODES)('has the same gradients to the last bit with --activations %s', (mode) => {
    expect(
      results(
        withActivations(traced.first, () => mode),
        withActivations(traced.next, () => mode),
      ),
    ).toEqual(expected);
  });

  it('has them whichever activations are dropped', () => {
    const some = fc.uniqueArray(fc.nat(units.length - 1));
    fc.assert(
      fc.property(some, (chosen) => {
        const rewrite = (program: Program) => {
          const all = saved(program);
          return recompute(program, new Set(chosen.map((i) => at(all, i).tensor)));
        };
        expect(results(rewrite(traced.first), rewrite(traced.next))).toEqual(expected);
      }),
      { seed: 5, numRuns: process.env['HOLDFAST_TESTS'] === 'all' ? 2000 : 10 },
    );
  });

  it.each(ACTIVATION_POLICIES)('has them under the policy $name, in any room', ({ name, apply, fillsRoom }) => {
    const all = liveBytes(traced.first);
    for (const share of fillsRoom ? [0.5, 0.65, 0.8, 1] : [1]) {
      const rewrite = (program: Program) => apply(program, settingOf(share * all));
      const [first, next] = [rewrite(traced.first), rewrite(traced.next)];
      if (!first || !next) expect(name === 'DTR' && share < 1, `${name} finds no way in ${share}`).toBe(true);
      else expect(results(first, next)).toEqual(expected);
      // In as much as there was, nothing changes.
      if (share === 1 && fillsRoom && name !== 'SuperNeurons')
        expect(first?.instructions).toEqual(traced.first.instructions);
    }
  });

  it.each(ACTIVATION_MODES.slice(1))(
    'holds nothing else of a block until its backward pass with --activations %s',
    (mode) => {
      const known = new Set(units.map(({ tensor }) => tensor));
      const made = new Set<Tensor>();
      const held = new Set<string>();
      for (const { phase, block, kernel, problem, operands } of onTensors(withActivations(traced.first, () => mode))) {
        for (const [name, { access }] of Object.entries(kernel.operands(problem))) {
          const tensor = field(operands, name);
          if (phase === 'forward' && block !== undefined && access !== 'read') made.add(tensor);
          if (phase === 'backward' && made.has(tensor) && !known.has(tensor)) held.add(tensor.name);
        }
      }
      expect([...held]).toEqual([]);
    },
  );

  it('keeps of each block what the others read, and every mode needs less memory than all of them', () => {
    const blocks = new Set(units.map(({ block }) => block));
    expect(blocks.size).toBe(3);
    // The residual stream: what each block begins with; where nothing before the first one trains, its input is not read.
    const inputs = units.filter(({ kind }) => kind === 'input').map(({ block }) => block);
    expect([...blocks].slice(-inputs.length)).toEqual(inputs);
    expect(inputs.length).toBeGreaterThanOrEqual(2);
    // Between the halves of each block; the norm and the product behind it read nothing older.
    expect(units.filter(({ kind }) => kind === 'waist').map(({ block }) => block)).toEqual([...blocks]);
    const larger = traceStep(model, 16, 7).first;
    const bytes = ACTIVATION_MODES.map((mode) => liveBytes(withActivations(larger, () => mode)));
    for (const less of bytes.slice(1)) expect(less).toBeLessThan(bytes[0] ?? 0);
  });
});

// What is normed in place by heads is made again with all that made it: light is what is light along with that.
it.each(Object.entries(DECODERS))('makes no matrix product of %s again with --activations light', (_, config) => {
  // Wide enough that a product is none of the light ones.
  const wide = { ...config, hidden_size: 24, intermediate_size: 24, head_dim: 8 };
  const { first } = traceStep(makeModel(parseConfig(wide, 'test')), BATCH, SEQ);
  const again = onTensors(withActivations(first, () => 'light')).filter((instruction) => instruction.again);
  expect(again.length).toBeGreaterThan(0);
  expect(again.filter(({ kernel }) => kernel === matmul).map(({ label }) => label)).toEqual([]);
});

const WIDE_GPT2 = { ...GPT2, n_embd: 24 };
const WIDE_LLAMA = { ...LLAMA, hidden_size: 24, intermediate_size: 24, head_dim: 8 };

/** So many that attention is none of the light operators. */
const LONG_SEQ = 32;
it.each([
  ['GPT-2', { ...WIDE_GPT2, n_positions: LONG_SEQ }],
  ['Llama', { ...WIDE_LLAMA, max_position_embeddings: LONG_SEQ }],
] as const)('makes of %s no attention again with --activations attention', (_, config) => {
  const { first } = traceStep(makeModel(parseConfig(config, 'test')), BATCH, LONG_SEQ);
  const againIn = (mode: ActivationMode) => onTensors(withActivations(first, () => mode)).filter(({ again }) => again);
  const attending = ({ kernel }: { readonly kernel: { readonly name: string } }) => kernel.name === attention.name;
  expect(againIn('stream').filter(attending).length).toBeGreaterThan(0);
  expect(againIn('attention').filter(attending)).toEqual([]);
  expect(againIn('attention').length).toBe(againIn('stream').length - againIn('stream').filter(attending).length);
});

it.each(['attention', 'stream', 'recompute', 'spill'] as const)(
  'makes no product again for what the head reads with --activations %s: that stays',
  (mode) => {
    const { first } = traceStep(makeModel(parseConfig({ ...WIDE_GPT2, n_inner: 24 }, 'test')), BATCH, SEQ);
    const again = onTensors(withActivations(first, () => mode)).filter((instruction) => instruction.again);
    const last = Math.max(...blocksOf(first).keys());
    const products = again.filter(({ kernel, label }) => kernel === matmul && label.startsWith(`h.${last}.mlp`));
    expect(products.map(({ label }) => label)).toEqual([`h.${last}.mlp.c_fc.weight, again`]);
  },
);

it.each<[string, object, LoraOptions?]>([
  ['gpt2', WIDE_GPT2],
  ['llama', WIDE_LLAMA],
  // What is multiplied with frozen weights alone is not read by the backward pass.
  ['gpt2 with lora on one linear', WIDE_GPT2, { rank: 2, targets: ['c_fc'] }],
])(
  '%s: no statistics stay of a norm that is made again, and --activations light makes none for them alone',
  (_, config, lora) => {
    const base = makeModel(parseConfig(config, 'test'));
    const { first } = traceStep(lora ? withLora(base, lora) : base, BATCH, SEQ);
    const normsIn = (program: Program) =>
      onTensors(program).filter(({ kernel }) => kernel === layernorm || kernel === rmsnorm);
    const read = (program: Program) =>
      new Set(onTensors(program).flatMap((some) => (some.phase === 'backward' ? operandsOf(some, 'in') : [])));
    const light = withActivations(first, () => 'light');
    const again = normsIn(light).filter((norm) => norm.again);
    expect(again.length).toBeGreaterThan(2);
    for (const { label, operands } of again) expect(read(light).has(field(operands, 'y')), label).toBe(true);
    for (const mode of ACTIVATION_MODES) {
      if (mode === 'keep' || mode === 'offload-all') continue;
      const program = withActivations(first, () => mode);
      const stays = read(program);
      for (const instruction of program.instructions) if (instruction.op === 'offload') stays.add(instruction.tensor);
      for (const { label, operands } of normsIn(program)) {
        if (again.every((norm) => norm.label !== `${label}, again`)) continue;
        const statistics = ['mean', 'rstd'].flatMap((name) => operands[name] ?? []);
        expect(
          statistics.filter((tensor) => stays.has(tensor)).map(({ name }) => name),
          mode,
        ).toEqual([]);
      }
    }
  },
);

it('brings the activations of GPT-2 124M below a sixth', () => {
  const config = { model_type: 'gpt2', vocab_size: 50257, n_positions: 1024, n_embd: 768, n_head: 12, n_layer: 12 };
  const { first } = traceStep(makeModel(parseConfig(config, 'test')), 1, 1024);
  const bytes = ACTIVATION_MODES.map((mode) =>
    place(
      withActivations(first, () => mode),
      2 ** 30,
    ).arenas.reduce((a, b) => a + b, 0),
  );
  const [keep, light, attending, stream, least] = leading(5, bytes);
  // Of the 16 residual streams that a block saves, two are outputs of norms and four those of its GELU; of the rest, one stays.
  expect(light / keep).toBeLessThan(0.66);
  expect(light / keep).toBeGreaterThan(0.62);
  // Where a GELU by itself has other bits, it is made again with its product.
  const otherwise = { ...first, appliesAlone: false };
  const inAll = (program: Program) =>
    place(
      withActivations(program, () => 'light'),
      2 ** 30,
    ).arenas.reduce((a, b) => a + b, 0);
  expect(inAll(otherwise) / keep).toBeGreaterThan(0.85);
  expect(stream / keep).toBeLessThan(1 / 5);
  // One more stays, and the logarithms of sums.
  expect((attending - stream) / keep).toBeGreaterThan(0.9 / 16);
  expect((attending - stream) / keep).toBeLessThan(1.1 / 16);
  expect(least / keep).toBeLessThan(1 / 6);
});

describe('policies, for GPT-2 with six blocks', () => {
  const config = { model_type: 'gpt2', vocab_size: 101, n_positions: 64, n_embd: 64, n_head: 4, n_layer: 6 };
  const { first } = traceStep(makeModel(parseConfig(config, 'test')), 8, 64);
  const all = liveBytes(first);
  const policy = (name: string) => {
    const found = ACTIVATION_POLICIES.find((policy) => policy.name === name);
    if (!found) throw new Error(name);
    return (share: number) => found.apply(first, settingOf(share * all));
  };
  const againIn = (program: Program | undefined) =>
    program
      ? onTensors(program).reduce((sum, { again, kernel, problem }) => sum + (again ? kernel.flops(problem) : 0), 0)
      : 0;
  const movedIn = (program: Program | undefined) => program?.instructions.filter(({ op }) => op === 'offload').length;

  it('checkpoints of segments need more room than of blocks, and much less than all; both make about all of it again once', () => {
    const [sqrt, each] = [policy('√N checkpoints')(1), policy('recompute all')(1)];
    if (!sqrt || !each) throw new Error('a policy without a room fills it');
    expect(liveBytes(each)).toBeLessThan(liveBytes(sqrt));
    expect(liveBytes(sqrt)).toBeLessThan(0.6 * all);
    expect(againIn(sqrt) / againIn(each)).toBeGreaterThan(0.9);
    expect(againIn(sqrt) / againIn(each)).toBeLessThan(1.3);
  });

  it('vDNN moves and makes nothing again; SuperNeurons moves less, what is light it makes again', () => {
    const [moved, cached] = [policy('offload all (vDNN)')(1), policy('SuperNeurons')(0.5)];
    expect(againIn(moved)).toBe(0);
    expect(againIn(cached)).toBeGreaterThan(0);
    expect(movedIn(cached)).toBeGreaterThan(0);
    expect(movedIn(cached)).toBeLessThan(movedIn(moved) ?? 0);
  });

  it.each(['SuperNeurons', 'Capuchin', 'DTR'])(
    '%s keeps to its room, and gives up less where there is more',
    (name) => {
      const rewrite = policy(name);
      const costs = [0.45, 0.6, 0.8, 1].map((share) => {
        const program = rewrite(share);
        if (!program) throw new Error(`${name} found no way in ${share}`);
        expect(liveBytes(program), `${share}`).toBeLessThanOrEqual(share * all);
        return againIn(program) / 1e9 + (movedIn(program) ?? 0);
      });
      expect(costs).toEqual(costs.toSorted((a, b) => b - a));
    },
  );

  it('DTR gives up where there is no room for what an operator needs at once', () => {
    expect(policy('DTR')(0.05)).toBe(undefined);
  });
});

it('keeps the inputs of every third of nine blocks with --activations sqrt, and makes each activation again once', () => {
  const config = { model_type: 'gpt2', vocab_size: 64, n_positions: SEQ, n_embd: 16, n_head: 2, n_layer: 9 };
  const { first } = traceStep(makeModel(parseConfig(config, 'test')), BATCH, SEQ);
  const known = new Map(saved(first).map((activation) => [activation.tensor, activation]));
  const made = new Set<Tensor>();
  const held = new Set<string>();
  for (const { phase, kernel, problem, operands } of onTensors(withActivations(first, () => 'sqrt'))) {
    for (const [name, { access }] of Object.entries(kernel.operands(problem))) {
      const tensor = field(operands, name);
      if (phase === 'forward' && access !== 'read') made.add(tensor);
      const of = known.get(tensor);
      if (phase === 'backward' && made.has(tensor) && of?.kind === 'input') held.add(of.block);
    }
  }
  expect([...held].sort()).toEqual(['h.0', 'h.3', 'h.6']);
  const again = (mode: 'recompute' | 'sqrt') =>
    onTensors(withActivations(first, () => mode)).filter((instruction) => instruction.again).length;
  // Beside what each block makes again, the ends of those that no checkpoint follows, at most.
  expect(again('sqrt')).toBeGreaterThan(again('recompute'));
  expect(again('sqrt')).toBeLessThan(1.5 * again('recompute'));
});
