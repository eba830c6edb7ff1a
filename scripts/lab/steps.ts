// The dispatches of whole training steps, traced without a device: what the lab compiles, and counts the waves of.

import { fitMemory } from '../../src/engine/compile/fit.ts';
import { type DispatchOperation, isDispatch } from '../../src/engine/compile/operations.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { ActivationDtype } from '../../src/graph/narrow-activations.ts';
import type { TrainingDtype } from '../../src/memory/layout/kinds.ts';
import { makeModel } from '../../src/nn/index.ts';
import { computedIn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';

/** One training step of a model, by Hugging Face's fields. */
interface Step {
  readonly name: string;
  readonly config: object;
  readonly batch: number;
  readonly context: number;
  /** @default 'f32' */
  readonly dtype?: TrainingDtype;
  /** @default 'f32' */
  readonly activationDtype?: ActivationDtype;
}

const LLAMA: Step = {
  name: 'Llama of width 2,048, 1 x 2,048',
  config: {
    ...{ model_type: 'llama', vocab_size: 32000, max_position_embeddings: 2048, hidden_size: 2048 },
    ...{ intermediate_size: 5632, num_hidden_layers: 2, num_attention_heads: 32, num_key_value_heads: 4 },
    rms_norm_eps: 1e-5,
  },
  batch: 1,
  context: 2048,
};

/**
 * GPT-2 124M, TinyLlama with two of its 22 blocks, which are alike, and Gemma 3 270M with two of its 18 and a small vocabulary; the
 * Llama in sixteen bits, too, with activations in them and without.
 */
export const STEPS: readonly Step[] = [
  {
    name: 'GPT-2 124M, 8 x 1,024',
    config: { model_type: 'gpt2', vocab_size: 50257, n_positions: 1024, n_embd: 768, n_layer: 12, n_head: 12 },
    batch: 8,
    context: 1024,
  },
  LLAMA,
  {
    name: 'Gemma 3 of width 640, 1 x 1,024',
    config: {
      ...{ model_type: 'gemma3_text', vocab_size: 32768, max_position_embeddings: 1024, hidden_size: 640 },
      ...{ intermediate_size: 2048, num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 1 },
      ...{ head_dim: 256, query_pre_attn_scalar: 256, sliding_window: 512, sliding_window_pattern: 2 },
      ...{ rope_theta: 1e6, rope_local_base_freq: 1e4, rms_norm_eps: 1e-6 },
    },
    batch: 1,
    context: 1024,
  },
  { ...LLAMA, name: `${LLAMA.name}, f16`, dtype: 'f16' },
  { ...LLAMA, name: `${LLAMA.name}, bf16`, dtype: 'bf16' },
  { ...LLAMA, name: `${LLAMA.name}, activations in f16, too`, dtype: 'f16', activationDtype: 'f16' },
];

/** With everything on the GPU, in bindings as large as GPUs have them. */
const BINDING = 2 ** 31 - 4;

/** In the order in which they run. */
export function dispatchesOf({
  name,
  config,
  batch,
  context,
  dtype = 'f32',
  activationDtype,
}: Step): DispatchOperation[] {
  const model = computedIn(makeModel(parseConfig(config, name)), dtype);
  const workload = trainingWorkload(model, traceStep(model, batch, context, activationDtype && { activationDtype }), 1);
  const fit = fitMemory(workload, { ...DEFAULT_LIMITS, binding: BINDING, buffer: BINDING }, undefined);
  return fit.passes.step.operations.filter(isDispatch);
}
