// Each variant of each kernel, in its place in the traced step: whatever the engine's timing chooses, the loss
// and the gradient norm are those of the float64 interpreter. Shapes with aligned and with odd sizes.

import { describe, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { onTensors } from '../../src/graph/program.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { entry } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { THOROUGH } from '../host.ts';
import { Memory } from '../interpret.ts';

const SHAPES = {
  'GPT-2, aligned': { model_type: 'gpt2', vocab_size: 65, n_positions: 32, n_embd: 32, n_layer: 1, n_head: 2 },
  'GPT-2, odd': { model_type: 'gpt2', vocab_size: 37, n_positions: 19, n_embd: 15, n_layer: 1, n_head: 3 },
  'Llama, grouped heads': {
    model_type: 'llama',
    vocab_size: 41,
    max_position_embeddings: 24,
    hidden_size: 24,
    intermediate_size: 52,
    num_hidden_layers: 1,
    num_attention_heads: 6,
    num_key_value_heads: 2,
    head_dim: 8,
  },
  'Gemma 3, norms of heads and windows': {
    model_type: 'gemma3_text',
    vocab_size: 41,
    max_position_embeddings: 20,
    hidden_size: 24,
    intermediate_size: 52,
    num_hidden_layers: 2,
    num_attention_heads: 4,
    num_key_value_heads: 1,
    head_dim: 12,
    query_pre_attn_scalar: 20,
    sliding_window: 6,
    sliding_window_pattern: 2,
    final_logit_softcapping: 5,
  },
};

const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 2 } as const;

describe.each(Object.entries(SHAPES).slice(THOROUGH ? 0 : -1))('%s', (_name, config) => {
  const model = makeModel(parseConfig(config, 'test'));
  const { context: seq, vocabulary } = model.shape;
  const batch = 2;
  const ids = Int32Array.from({ length: batch * seq }, (_, i) => (i * i * 7 + 3 * i) % vocabulary);
  const targets = ids.map((id) => (id * 7 + 3) % vocabulary);
  const micro = { ids, targets, batch, seq };
  const weights = initialWeights(model, 1);
  const options = { batch, seq, schedule };

  test('every variant gives the oracle’s loss and gradient norm', async () => {
    const traced = traceStep(model, batch, seq);
    const memory = new Memory();
    memory.setInputs(model, traced, micro, 1 / ids.length);
    const values = await collect(weights);
    for (const [name, tensor] of traced.parameters) memory.set(tensor, entry(values, name));
    memory.run(traced.first);
    const loss = memory.of(traced.scalars.lossSum)[0]! / ids.length;
    const squares = [...traced.gradients.values()].flatMap((tensor) => [...memory.of(tensor)].map((g) => g * g));
    const gradNorm = Math.sqrt(squares.reduce((a, b) => a + b, 0));

    // Those that are not asked for: by a die, which is as good, and takes no time.
    chooseVariants(1);
    const device = await testDevice();
    const chosen = await Trainer.create(device, model, options);
    const record = chosen.choices.record();
    chosen.destroy();
    const kernels = new Map(onTensors(traced.first).map(({ kernel }) => [kernel.name, kernel]));
    let tried = 0;
    for (const { name, variants } of kernels.values()) {
      if (variants.length < 2) continue;
      for (const variant of variants) {
        const forced = Object.entries(record).map(([key, value]) => [
          key,
          key.startsWith(`${name} `) ? variant.name : value,
        ]);
        const choices = Object.fromEntries(forced);
        const trainer = await Trainer.create(device, model, { ...options, choices });
        // A variant that this adapter or shape does not support was measured anew: nothing to test.
        const used = Object.entries(trainer.choices.record()).some(
          ([key, value]) => key.startsWith(`${name} `) && value === variant.name,
        );
        if (used) {
          await trainer.setWeights(weights);
          const metrics = await trainer.start([micro]);
          // f32 against f64 on sums of some hundred terms: the reference cases' own tolerances are 2e-6 to 5e-6.
          expect(Math.abs(metrics.loss - loss), `${name}.${variant.name} loss`).toBeLessThan(5e-6);
          expect(Math.abs(metrics.gradNorm / gradNorm - 1), `${name}.${variant.name} gradient norm`).toBeLessThan(5e-6);
          tried++;
        }
        trainer.destroy();
      }
    }
    expect(tried).toBeGreaterThanOrEqual(6);
  });
});
