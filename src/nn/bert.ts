// BERT, by Hugging Face's names. Weights of projections are stored (out, in). Post-norm blocks: x = norm(x + attn(x));
// x = norm(x + mlp(x)). Every token sees those on both sides. Behind the last block comes a transform, whose products with
// the embedding tell the tokens that were hidden; or a pooler over the first token, whose products tell a text's class.

import { type BertConfig, isBare } from '../formats/families/bert.ts';
import { labelsIn, shapeOf } from '../formats/families/index.ts';
import { tanh } from '../graph/operators/activation.ts';
import { add } from '../graph/operators/add.ts';
import { attention } from '../graph/operators/attention.ts';
import { embedding } from '../graph/operators/embedding.ts';
import { firstRow } from '../graph/operators/image.ts';
import { packedLinear } from '../graph/operators/linear.ts';
import { HoldfastError } from '../util/errors.ts';
import { EncoderParameters, headsIn, normed, PROJECTIONS, project, stored } from './encoder.ts';
import { textInputs } from './inputs.ts';
import type { Model } from './model.ts';
import { classifier, languageModel } from './objective.ts';

export function bert(config: BertConfig): Model {
  const shape = shapeOf(config);
  const { layers, width: C, vocabulary: V, context: S, classes, headSize } = shape;
  const { intermediate_size: inner, type_vocab_size: types, layer_norm_eps: eps } = config;

  const embeddings = 'bert.embeddings';
  if (isBare(config))
    throw new HoldfastError(
      'a bare BertModel has no head: it tells nothing yet; fine-tune it on records with a text and a label',
    );
  const isClassifier = labelsIn(config) !== undefined;
  const head = 'cls.predictions';
  const pooler = 'bert.pooler.dense';
  const made = new EncoderParameters({ normal: config.initializer_range });
  made.add(`${embeddings}.word_embeddings.weight`, [V, C]);
  made.add(`${embeddings}.position_embeddings.weight`, [S, C]);
  made.add(`${embeddings}.token_type_embeddings.weight`, [types, C]);
  made.norm(`${embeddings}.LayerNorm`, C);
  for (let i = 0; i < layers; i++) {
    const l = `bert.encoder.layer.${i}`;
    for (const name of PROJECTIONS) made.dense(`${l}.attention.self.${name}`, [C, C]);
    made.dense(`${l}.attention.output.dense`, [C, C]);
    made.norm(`${l}.attention.output.LayerNorm`, C);
    made.dense(`${l}.intermediate.dense`, [inner, C]);
    made.dense(`${l}.output.dense`, [C, inner]);
    made.norm(`${l}.output.LayerNorm`, C);
  }
  if (isClassifier) {
    made.dense(pooler, [C, C]);
    made.dense('classifier', [classes, C]);
  } else {
    made.dense(`${head}.transform.dense`, [C, C]);
    made.norm(`${head}.transform.LayerNorm`, C);
    made.add(`${head}.bias`, [V], { constant: 0 });
  }

  return {
    config,
    parameters: made.list,
    shape,
    objective: isClassifier ? classifier : languageModel,
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
          const y = attention(g, qkv, tokens, headsIn(qkv, headSize), `${l}.attention.self`, { mask }); // (B, T, C)
          const attended = project(g, y, w, `${l}.attention.output.dense`, { residual: x });
          x = normed(g, attended, w, `${l}.attention.output.LayerNorm`, eps);

          const wide = project(g, x, w, `${l}.intermediate.dense`, { activation: 'geluErf' }); // (B, T, inner)
          const sum = project(g, wide, w, `${l}.output.dense`, { residual: x });
          x = normed(g, sum, w, `${l}.output.LayerNorm`, eps);
        });
        observe?.(`layers.${i}`, x);
      }
      if (isClassifier) {
        const pooled = tanh(g, project(g, firstRow(g, x, 'first token'), w, pooler)); // (B, C)
        return { hidden: pooled, head: { weight: w('classifier.weight'), bias: w('classifier.bias') } };
      }
      const transformed = project(g, x, w, `${head}.transform.dense`, { activation: 'geluErf' });
      const hidden = normed(g, transformed, w, `${head}.transform.LayerNorm`, eps); // (B, T, C)
      observe?.('norm', hidden);
      return { hidden, head: { weight: w(`${embeddings}.word_embeddings.weight`), bias: w(`${head}.bias`) } };
    },
  };
}
