// Llama, by Hugging Face's names ("model." in front of all but the head). Weights of projections are stored (out, in), no biases.
// RMSNorm, rotary positions, grouped-query attention, SwiGLU.

import type { LlamaConfig } from '../formats/config.ts';
import { shapeOf } from '../formats/families/index.ts';
import { makeTensor } from '../graph/graph.ts';
import { swiglu } from '../graph/operators/activation.ts';
import { attention, rope } from '../graph/operators/attention.ts';
import { embedding } from '../graph/operators/embedding.ts';
import { linear, packedLinear } from '../graph/operators/linear.ts';
import { rmsnorm } from '../graph/operators/norm.ts';
import { ropeTable } from '../kernels/rope.ts';
import { packedDocuments, seenBy, tokenIds } from './inputs.ts';
import type { Initial, Model, Parameter } from './model.ts';
import { languageModel } from './objective.ts';

export function llama(config: LlamaConfig): Model {
  const shape = shapeOf(config);
  const { layers, width: C, vocabulary: V, context: S, heads, kvHeads, headSize } = shape;
  const { intermediate_size: inner, rms_norm_eps: eps } = config;
  const stored = 'out,in';

  const normal: Initial = { normal: config.initializer_range };
  const residual: Initial = { normal: config.initializer_range / Math.sqrt(2 * layers) };
  const ones: Initial = { constant: 1 };

  const parameters: Parameter[] = [{ name: 'model.embed_tokens.weight', shape: [V, C], initial: normal }];
  for (let i = 0; i < layers; i++) {
    const l = `model.layers.${i}`;
    parameters.push(
      { name: `${l}.input_layernorm.weight`, shape: [C], initial: ones },
      { name: `${l}.self_attn.q_proj.weight`, shape: [heads * headSize, C], initial: normal },
      { name: `${l}.self_attn.k_proj.weight`, shape: [kvHeads * headSize, C], initial: normal },
      { name: `${l}.self_attn.v_proj.weight`, shape: [kvHeads * headSize, C], initial: normal },
      { name: `${l}.self_attn.o_proj.weight`, shape: [C, heads * headSize], initial: residual },
      { name: `${l}.post_attention_layernorm.weight`, shape: [C], initial: ones },
      { name: `${l}.mlp.gate_proj.weight`, shape: [inner, C], initial: normal },
      { name: `${l}.mlp.up_proj.weight`, shape: [inner, C], initial: normal },
      { name: `${l}.mlp.down_proj.weight`, shape: [C, inner], initial: residual },
    );
  }
  parameters.push({ name: 'model.norm.weight', shape: [C], initial: ones });
  if (!config.tie_word_embeddings) parameters.push({ name: 'lm_head.weight', shape: [V, C], initial: normal });

  const table = makeTensor('rope table', [S, headSize], 'persistent');

  return {
    config,
    parameters,
    constants: [{ tensor: table, values: () => ropeTable(S, headSize, config.rope_theta) }],
    shape,
    objective: languageModel,
    // Of positions, rope sees only differences: those of a row serve each document in it.
    inputs: (seq, packed = false) => [...tokenIds(V, seq), ...(packed ? packedDocuments(seq) : [])],
    forward(g, inputs, w, { caches, observe } = {}) {
      const tokens = inputs.tokens('ids');
      const mask = seenBy(inputs);
      let x = embedding(g, tokens, w('model.embed_tokens.weight')); // (B, T, C)
      observe?.('embed', x);
      for (let i = 0; i < layers; i++) {
        const l = `model.layers.${i}`;
        g.block(l, () => {
          const attended = rmsnorm(g, x, w(`${l}.input_layernorm.weight`), eps);
          const qkv = packedLinear(
            g,
            attended,
            ['q', 'k', 'v'].map((name) => w(`${l}.self_attn.${name}_proj.weight`)),
            stored,
            `${l}.self_attn.qkv`,
          ); // (B, T, (NH + 2 NKV) HS)
          rope(g, qkv, tokens, table, shape);
          const y = attention(g, qkv, tokens, shape, `${l}.self_attn`, { cache: caches?.[i], mask }); // (B, T, NH HS)
          x = linear(g, y, w(`${l}.self_attn.o_proj.weight`), { stored, residual: x });

          const normed = rmsnorm(g, x, w(`${l}.post_attention_layernorm.weight`), eps);
          const gate = linear(g, normed, w(`${l}.mlp.gate_proj.weight`), { stored }); // (B, T, inner)
          const up = linear(g, normed, w(`${l}.mlp.up_proj.weight`), { stored });
          x = linear(g, swiglu(g, gate, up, `${l}.mlp`), w(`${l}.mlp.down_proj.weight`), { stored, residual: x });
        });
        observe?.(`layers.${i}`, x);
      }
      const hidden = rmsnorm(g, x, w('model.norm.weight'), eps); // (B, T, C)
      observe?.('norm', hidden);
      return { hidden, head: w(config.tie_word_embeddings ? 'model.embed_tokens.weight' : 'lm_head.weight') };
    },
  };
}
