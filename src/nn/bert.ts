// BERT, by Hugging Face's names. Weights of projections are stored (out, in). Post-norm blocks: x = norm(x + attn(x));
// x = norm(x + mlp(x)). Every token sees those on both sides. Behind the last block comes a transform, whose products with
// the embedding tell the tokens that were hidden.

import type { BertConfig } from '../formats/families/bert.ts';
import { shapeOf } from '../formats/families/index.ts';
import type { Graph, Tensor } from '../graph/graph.ts';
import { add } from '../graph/operators/add.ts';
import { attention } from '../graph/operators/attention.ts';
import { embedding } from '../graph/operators/embedding.ts';
import { linear, packedLinear } from '../graph/operators/linear.ts';
import { layernorm } from '../graph/operators/norm.ts';
import { textInputs } from './inputs.ts';
import type { Initial, Model, Parameter, Weights } from './model.ts';
import { maskedLanguageModel } from './objective.ts';

export function bert(config: BertConfig): Model {
  const shape = shapeOf(config);
  const { layers, width: C, vocabulary: V, context: S } = shape;
  const { intermediate_size: inner, type_vocab_size: types, layer_norm_eps: eps } = config;

  const normal: Initial = { normal: config.initializer_range };
  const zeros: Initial = { constant: 0 };
  const ones: Initial = { constant: 1 };

  const embeddings = 'bert.embeddings';
  const head = 'cls.predictions';
  const parameters: Parameter[] = [
    { name: `${embeddings}.word_embeddings.weight`, shape: [V, C], initial: normal },
    { name: `${embeddings}.position_embeddings.weight`, shape: [S, C], initial: normal },
    { name: `${embeddings}.token_type_embeddings.weight`, shape: [types, C], initial: normal },
  ];
  const norm = (name: string) =>
    parameters.push(
      { name: `${name}.weight`, shape: [C], initial: ones },
      { name: `${name}.bias`, shape: [C], initial: zeros },
    );
  const dense = (name: string, outputs: number, inputs: number) =>
    parameters.push(
      { name: `${name}.weight`, shape: [outputs, inputs], initial: normal },
      { name: `${name}.bias`, shape: [outputs], initial: zeros },
    );
  norm(`${embeddings}.LayerNorm`);
  for (let i = 0; i < layers; i++) {
    const l = `bert.encoder.layer.${i}`;
    for (const name of PROJECTIONS) dense(`${l}.attention.self.${name}`, C, C);
    dense(`${l}.attention.output.dense`, C, C);
    norm(`${l}.attention.output.LayerNorm`);
    dense(`${l}.intermediate.dense`, inner, C);
    dense(`${l}.output.dense`, C, inner);
    norm(`${l}.output.LayerNorm`);
  }
  dense(`${head}.transform.dense`, C, C);
  norm(`${head}.transform.LayerNorm`);
  parameters.push({ name: `${head}.bias`, shape: [V], initial: zeros });

  return {
    config,
    parameters,
    constants: [],
    shape,
    objective: maskedLanguageModel,
    inputs: (seq) => textInputs(V, types, seq),
    forward(g, inputs, w, { observe } = {}) {
      const tokens = inputs.tokens('ids');
      const mask = { keyMask: inputs.tensor('attentionMask') };
      const words = embedding(g, tokens, w(`${embeddings}.word_embeddings.weight`), {
        positionWeight: w(`${embeddings}.position_embeddings.weight`),
      }); // (B, T, C)
      const kinds = embedding(g, inputs.tokens('tokenTypes'), w(`${embeddings}.token_type_embeddings.weight`));
      let x = normed(g, add(g, words, kinds, embeddings), w, `${embeddings}.LayerNorm`, eps);
      observe?.('embed', x);
      for (let i = 0; i < layers; i++) {
        const l = `bert.encoder.layer.${i}`;
        g.block(l, () => {
          const projections = PROJECTIONS.map((name) => ({
            weight: w(`${l}.attention.self.${name}.weight`),
            bias: w(`${l}.attention.self.${name}.bias`),
          }));
          const qkv = packedLinear(g, x, projections, stored, `${l}.attention.self.qkv`); // (B, T, 3C)
          const y = attention(g, qkv, tokens, shape, `${l}.attention.self`, { mask }); // (B, T, C)
          const attended = project(g, y, w, `${l}.attention.output.dense`, { residual: x });
          x = normed(g, attended, w, `${l}.attention.output.LayerNorm`, eps);

          const wide = project(g, x, w, `${l}.intermediate.dense`, { gelu: 'erf' }); // (B, T, inner)
          const sum = project(g, wide, w, `${l}.output.dense`, { residual: x });
          x = normed(g, sum, w, `${l}.output.LayerNorm`, eps);
        });
        observe?.(`layers.${i}`, x);
      }
      const transformed = project(g, x, w, `${head}.transform.dense`, { gelu: 'erf' });
      const hidden = normed(g, transformed, w, `${head}.transform.LayerNorm`, eps); // (B, T, C)
      observe?.('norm', hidden);
      return { hidden, head: { weight: w(`${embeddings}.word_embeddings.weight`), bias: w(`${head}.bias`) } };
    },
  };
}

const PROJECTIONS = ['query', 'key', 'value'] as const;
const stored = 'out,in';

/** A linear with its bias, by the name of its module. */
export const project = (
  g: Graph,
  x: Tensor,
  w: Weights,
  name: string,
  options: { gelu?: 'erf'; residual?: Tensor } = {},
) => linear(g, x, w(`${name}.weight`), { stored, bias: w(`${name}.bias`), ...options });

/** A LayerNorm by the name of its module. */
export const normed = (g: Graph, x: Tensor, w: Weights, name: string, eps: number) =>
  layernorm(g, x, w(`${name}.weight`), w(`${name}.bias`), eps);
