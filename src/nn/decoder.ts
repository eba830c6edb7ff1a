// Llama and its descendants, by Hugging Face's names ("model." in front of all but the head). Weights of projections are
// stored (out, in). Pre-norm blocks of RMSNorm, rotary positions, grouped-query attention and a gated MLP:
// x += attn(input_layernorm(x)); x += mlp(post_attention_layernorm(x)). What differs between families is in their designs
// (formats/families).

import type { ModelConfig } from '../formats/config.ts';
import type { DecoderConfig, DecoderDesign, LayerAttention } from '../formats/families/decoder.ts';
import { shapeOf } from '../formats/families/index.ts';
import { makeTensor, type Tensor } from '../graph/graph.ts';
import { swiglu } from '../graph/operators/activation.ts';
import { attention, rope } from '../graph/operators/attention.ts';
import { embedding } from '../graph/operators/embedding.ts';
import { linear, packedLinear } from '../graph/operators/linear.ts';
import { rmsnorm } from '../graph/operators/norm.ts';
import { ropeTable } from '../kernels/rope.ts';
import { tokenIds } from './inputs.ts';
import type { Constant, Initial, Model, Parameter } from './model.ts';
import { languageModel } from './objective.ts';

export function decoder(config: Extract<ModelConfig, DecoderConfig>, design: DecoderDesign): Model {
  const shape = shapeOf(config);
  const { layers, width: C, vocabulary: V, context: S, heads, kvHeads, headSize } = shape;
  const { intermediate_size: inner, rms_norm_eps: eps } = config;
  const { qkvBiases = false } = design;
  const stored = 'out,in';

  const normal: Initial = { normal: config.initializer_range };
  const residual: Initial = { normal: config.initializer_range / Math.sqrt(2 * layers) };
  const zeros: Initial = { constant: 0 };
  const ones: Initial = { constant: 1 };

  const parameters: Parameter[] = [{ name: 'model.embed_tokens.weight', shape: [V, C], initial: normal }];
  for (let i = 0; i < layers; i++) {
    const l = `model.layers.${i}`;
    parameters.push({ name: `${l}.input_layernorm.weight`, shape: [C], initial: ones });
    for (const [name, count] of Object.entries({ q: heads, k: kvHeads, v: kvHeads })) {
      const width = count * headSize;
      parameters.push({ name: `${l}.self_attn.${name}_proj.weight`, shape: [width, C], initial: normal });
      if (qkvBiases) parameters.push({ name: `${l}.self_attn.${name}_proj.bias`, shape: [width], initial: zeros });
    }
    parameters.push(
      { name: `${l}.self_attn.o_proj.weight`, shape: [C, heads * headSize], initial: residual },
      { name: `${l}.post_attention_layernorm.weight`, shape: [C], initial: ones },
      { name: `${l}.mlp.gate_proj.weight`, shape: [inner, C], initial: normal },
      { name: `${l}.mlp.up_proj.weight`, shape: [inner, C], initial: normal },
      { name: `${l}.mlp.down_proj.weight`, shape: [C, inner], initial: residual },
    );
  }
  parameters.push({ name: 'model.norm.weight', shape: [C], initial: ones });
  if (!config.tie_word_embeddings) parameters.push({ name: 'lm_head.weight', shape: [V, C], initial: normal });

  const { constants, tables } = ropeTables(design, layers, S, headSize);

  return {
    config,
    parameters,
    constants,
    shape,
    objective: languageModel,
    inputs: (seq) => tokenIds(V, seq),
    forward(g, inputs, w, { caches, observe } = {}) {
      const tokens = inputs.tokens('ids');
      let x = embedding(g, tokens, w('model.embed_tokens.weight')); // (B, T, C)
      observe?.('embed', x);
      for (const [i, table] of tables.entries()) {
        const l = `model.layers.${i}`;
        const { window = S } = design.attention(i);
        g.block(l, () => {
          const attended = rmsnorm(g, x, w(`${l}.input_layernorm.weight`), eps);
          const projections = ['q', 'k', 'v'].map((name) => ({
            weight: w(`${l}.self_attn.${name}_proj.weight`),
            bias: qkvBiases ? w(`${l}.self_attn.${name}_proj.bias`) : undefined,
          }));
          const qkv = packedLinear(g, attended, projections, stored, `${l}.self_attn.qkv`); // (B, T, (NH + 2 NKV) HS)
          rope(g, qkv, tokens, table, shape);
          const mask = window < S ? { window } : 'causal';
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

/** The table of each layer's rotations: one for all layers that turn alike. */
function ropeTables(design: DecoderDesign, layers: number, positions: number, headSize: number) {
  const known = new Map<string, Constant>();
  const tables: Tensor[] = [];
  for (let i = 0; i < layers; i++) {
    const { rope } = design.attention(i);
    const key = JSON.stringify(rope);
    const constant = known.get(key) ?? tableOf(rope, known.size, positions, headSize);
    known.set(key, constant);
    tables.push(constant.tensor);
  }
  return { constants: [...known.values()], tables };
}

function tableOf(rope: LayerAttention['rope'], others: number, positions: number, headSize: number): Constant {
  const name = others === 0 ? 'rope table' : `rope table ${others + 1}`;
  return {
    tensor: makeTensor(name, [positions, headSize], 'persistent'),
    values: () => ropeTable(positions, headSize, rope.theta, rope.scaling),
  };
}
