// GPT-2, by Hugging Face's names (hub names, without "transformer."). Weights of projections are stored
// (in, out). Pre-norm blocks: x += attn(ln_1(x)); x += mlp(ln_2(x)).

import type { GPT2Config } from '../formats/families/gpt2.ts';
import { shapeOf } from '../formats/families/index.ts';
import { add } from '../graph/operators/add.ts';
import { attention } from '../graph/operators/attention.ts';
import { embedding } from '../graph/operators/embedding.ts';
import { linear } from '../graph/operators/linear.ts';
import { layernorm } from '../graph/operators/norm.ts';
import { at } from '../util/at.ts';
import { packedDocuments, tokenIds } from './inputs.ts';
import type { Initial, Model, Parameter } from './model.ts';
import { languageModel } from './objective.ts';

export function gpt2(config: GPT2Config): Model {
  const shape = shapeOf(config);
  const { layers, width: C, vocabulary: V, context: S, headSize } = shape;
  const { n_inner: inner, layer_norm_epsilon: eps } = config;

  const normal: Initial = { normal: config.initializer_range };
  const zeros: Initial = { constant: 0 };
  const ones: Initial = { constant: 1 };
  // Residual projections start smaller, so that the residual stream's variance does not grow with depth.
  const residual: Initial = { normal: config.initializer_range / Math.sqrt(2 * layers) };

  const parameters: Parameter[] = [
    { name: 'wte.weight', shape: [V, C], initial: normal },
    { name: 'wpe.weight', shape: [S, C], initial: normal },
  ];
  for (let i = 0; i < layers; i++) {
    const h = `h.${i}`;
    parameters.push(
      { name: `${h}.ln_1.weight`, shape: [C], initial: ones },
      { name: `${h}.ln_1.bias`, shape: [C], initial: zeros },
      { name: `${h}.attn.c_attn.weight`, shape: [C, 3 * C], initial: normal },
      { name: `${h}.attn.c_attn.bias`, shape: [3 * C], initial: zeros },
      { name: `${h}.attn.c_proj.weight`, shape: [C, C], initial: residual },
      { name: `${h}.attn.c_proj.bias`, shape: [C], initial: zeros },
      { name: `${h}.ln_2.weight`, shape: [C], initial: ones },
      { name: `${h}.ln_2.bias`, shape: [C], initial: zeros },
      { name: `${h}.mlp.c_fc.weight`, shape: [C, inner], initial: normal },
      { name: `${h}.mlp.c_fc.bias`, shape: [inner], initial: zeros },
      { name: `${h}.mlp.c_proj.weight`, shape: [inner, C], initial: residual },
      { name: `${h}.mlp.c_proj.bias`, shape: [C], initial: zeros },
    );
  }
  parameters.push(
    { name: 'ln_f.weight', shape: [C], initial: ones },
    { name: 'ln_f.bias', shape: [C], initial: zeros },
  );
  if (!config.tie_word_embeddings) parameters.push({ name: 'lm_head.weight', shape: [V, C], initial: normal });

  return {
    config,
    parameters,
    shape,
    objective: languageModel,
    inputs: (seq, packed = false) => [...tokenIds(V, seq), ...(packed ? packedDocuments(seq, S) : [])],
    forward(g, inputs, w, { caches, observe } = {}) {
      const tokens = inputs.tokens('ids');
      const mask = inputs.seen();
      const { positions } = inputs;
      let x = positions
        ? add(g, embedding(g, tokens, w('wte.weight')), embedding(g, positions, w('wpe.weight')))
        : embedding(g, tokens, w('wte.weight'), { positionWeight: w('wpe.weight') }); // (B, T, C)
      observe?.('embed', x);
      for (let i = 0; i < layers; i++) {
        const h = `h.${i}`;
        g.block(h, () => {
          const attended = layernorm(g, x, w(`${h}.ln_1.weight`), w(`${h}.ln_1.bias`), eps);
          const qkv = linear(g, attended, w(`${h}.attn.c_attn.weight`), { bias: w(`${h}.attn.c_attn.bias`) }); // (B, T, 3C)
          const heads = at(qkv.shape, 2) / (3 * headSize);
          const y = attention(g, qkv, tokens, { heads, kvHeads: heads, headSize }, `${h}.attn`, {
            caches: caches?.[i],
            mask,
          }); // (B, T, C)
          x = linear(g, y, w(`${h}.attn.c_proj.weight`), { bias: w(`${h}.attn.c_proj.bias`), residual: x });

          const normed = layernorm(g, x, w(`${h}.ln_2.weight`), w(`${h}.ln_2.bias`), eps);
          const wide = linear(g, normed, w(`${h}.mlp.c_fc.weight`), {
            bias: w(`${h}.mlp.c_fc.bias`),
            activation: 'gelu',
          }); // (B, T, 4C)
          x = linear(g, wide, w(`${h}.mlp.c_proj.weight`), { bias: w(`${h}.mlp.c_proj.bias`), residual: x });
        });
        observe?.(h, x);
      }
      const hidden = layernorm(g, x, w('ln_f.weight'), w('ln_f.bias'), eps); // (B, T, C)
      observe?.('ln_f', hidden);
      return { hidden, head: { weight: w(config.tie_word_embeddings ? 'wte.weight' : 'lm_head.weight') } };
    },
  };
}
