// Micro-batches layer by layer, as programs: they do what those one after the other do, instruction for instruction, and a
// step of many moves the parameters and gradients of a step of one. Needs no device.

import { describe, expect, it } from 'vitest';
import { stepPass } from '../../src/engine/compile/pass.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { type ActivationMode, withActivations } from '../../src/graph/activations.ts';
import { layerMajor, reorderedGradient } from '../../src/graph/layer-major.ts';
import { liveBytes } from '../../src/graph/liveness.ts';
import { withSharedTables } from '../../src/graph/shared-table.ts';
import { mapChunks } from '../../src/memory/layout/chunk-map.ts';
import { makeModel } from '../../src/nn/index.ts';
import { type StepPrograms, traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { LLAMA } from '../families/llama.ts';

const SIZES = { n_layer: 6, n_embd: 64, n_head: 4, n_positions: 32, vocab_size: 900 };
const MODELS = {
  'gpt2, tied': makeModel(parseConfig({ model_type: 'gpt2', ...SIZES, tie_word_embeddings: true }, 'test')),
  'gpt2, untied': makeModel(parseConfig({ model_type: 'gpt2', ...SIZES, tie_word_embeddings: false }, 'test')),
  llama: makeModel(
    parseConfig(
      {
        ...{ ...LLAMA, vocab_size: 900, max_position_embeddings: 32 },
        ...{ hidden_size: 64, num_hidden_layers: 6, intermediate_size: 160 },
      },
      'test',
    ),
  ),
};

function together(programs: StepPrograms, count: number, mode: ActivationMode) {
  const [first, next] = [programs.first, programs.next].map((program) => withActivations(program, () => mode));
  if (!first || !next) throw new Error('two programs');
  return layerMajor(withSharedTables({ first, next }), count, programs.inputs.all);
}

describe.each(Object.entries(MODELS))('%s', (name, model) => {
  const programs = traceStep(model, 2, 16);
  const map = mapChunks(model.parameters, true, { minBytes: 16_000, maxBytes: 32_000 });

  it('moves parameters and gradients once a step', () => {
    const moved = (count: number, order: 'batch' | 'layer') => {
      const layers = order === 'layer' ? together(programs, count, 'spill') : undefined;
      const { trace } = stepPass({ ...programs, inOne: layers }, map, count);
      const { h2d, d2h } = schedule(trace, Math.floor(map.count / 5), 'planned').moved;
      return h2d + d2h;
    };
    const one = moved(1, 'batch');
    expect(moved(16, 'layer')).toBeLessThanOrEqual(1.05 * one);
    expect(moved(16, 'batch')).toBeGreaterThan(4 * one);
  });

  it('keeps of each micro-batch little but what goes from layer to layer', () => {
    const stream = 4 * 2 * 16 * 64;
    const more = liveBytes(together(programs, 12, 'spill').program) - liveBytes(together(programs, 4, 'spill').program);
    // The stream, its gradient, and of a tied head what it read.
    expect(more / 8).toBeLessThan(4 * stream);
  });

  it('gives each micro-batch inputs of its own', () => {
    const { inputs, program } = together(programs, 3, 'keep');
    expect(inputs.map(({ size }) => size)).toEqual([0, programs.inputs.all.length, programs.inputs.all.length]);
    const used = new Set(
      program.instructions.flatMap((instruction) =>
        instruction.op === 'dispatch' ? Object.values(instruction.operands) : [],
      ),
    );
    const targets = programs.inputs.tensor('targets');
    expect([targets, ...inputs.slice(1).map((own) => own.get(targets))].every((one) => one && used.has(one))).toBe(
      true,
    );
  });

  it(`adds gradients up in one order${name === 'gpt2, tied' ? ', where the head and the embedding share one, too' : ''}`, () => {
    expect(reorderedGradient(programs)?.name).toBe(name === 'gpt2, tied' ? 'wte.weight' : undefined);
    expect(reorderedGradient(withSharedTables(programs))).toBeUndefined();
  });
});

it('an order that would change results is refused', () => {
  const model = MODELS.llama;
  const { next, ...others } = traceStep(model, 1, 8);
  const written = next.instructions.filter(
    (instruction) =>
      instruction.op === 'dispatch' && Object.values(instruction.operands).some(({ role }) => role === 'gradient'),
  );
  const [some] = written.slice(-3);
  if (!some) throw new Error('gradients are written');
  const twice = { ...next, instructions: [...next.instructions, { ...some, layer: 'another' }] };
  const asked = (accumulateOrder: 'auto' | 'batch' | 'layer') =>
    trainingWorkload(model, { ...others, next: twice }, 2, undefined, { accumulateOrder });
  expect(() => asked('layer')).toThrow('would add up in another order; let them go one after the other');
  for (const order of ['auto', 'batch'] as const) expect(asked(order).order?.menu).toEqual(['batch']);
  expect(trainingWorkload(model, { ...others, next }, 2).order?.menu).toEqual(['batch', 'layer']);
});
