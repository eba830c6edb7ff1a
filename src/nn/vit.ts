// ViT, the vision transformer, by Hugging Face's names. Patches of an image are the rows of a sequence, with a learned one
// in front that stands for the whole. Pre-norm blocks as GPT-2's, without a mask: x += attn(norm(x)); x += mlp(norm(x)).
// Weights of projections are stored (out, in), that of the patches (out, channel, row, column).

import { shapeOf } from '../formats/families/index.ts';
import { sidesOf, type ViTConfig } from '../formats/families/vit.ts';
import { attention } from '../graph/operators/attention.ts';
import { firstRow, patchRows, withFirstRow } from '../graph/operators/image.ts';
import { packedLinear } from '../graph/operators/linear.ts';
import { makeConstant } from '../graph/program.ts';
import { EncoderParameters, headsIn, normed, PROJECTIONS, project, stored } from './encoder.ts';
import type { Model } from './model.ts';
import { classifier } from './objective.ts';

export function vit(config: ViTConfig): Model {
  const shape = shapeOf(config);
  const { layers, width: C, context: S, classes, headSize } = shape;
  const { intermediate_size: inner, layer_norm_eps: eps, num_channels: channels, qkv_bias } = config;
  const [height, width] = sidesOf(config.image_size);
  const patch = sidesOf(config.patch_size);

  const embeddings = 'vit.embeddings';
  const patches = `${embeddings}.patch_embeddings.projection`;
  const made = new EncoderParameters({ normal: config.initializer_range });
  made.add(`${embeddings}.cls_token`, [1, 1, C]);
  made.add(`${embeddings}.position_embeddings`, [1, S, C]);
  made.dense(patches, [C, channels, ...patch]);
  for (let i = 0; i < layers; i++) {
    const l = `vit.encoder.layer.${i}`;
    for (const name of PROJECTIONS) made.dense(`${l}.attention.attention.${name}`, [C, C], qkv_bias);
    made.dense(`${l}.attention.output.dense`, [C, C]);
    made.dense(`${l}.intermediate.dense`, [inner, C]);
    made.dense(`${l}.output.dense`, [C, inner]);
    made.norm(`${l}.layernorm_before`, C);
    made.norm(`${l}.layernorm_after`, C);
  }
  made.norm('vit.layernorm', C);
  made.dense('classifier', [classes, C]);

  const position = makeConstant('position', [1], 'u32', () => new Uint32Array(1));

  return {
    config,
    parameters: made.list,
    shape,
    objective: classifier,
    inputs: () => [{ name: 'pixels', type: 'f32', row: [channels, height, width] }],
    forward(g, inputs, w, { observe } = {}) {
      const pixels = inputs.tensor('pixels');
      const [batch = 0] = pixels.shape;
      const rows = { batch, seq: S, position };
      const embedded = project(g, patchRows(g, pixels, patch), w, patches); // (B, patches, C)
      const places = w(`${embeddings}.position_embeddings`);
      let x = withFirstRow(g, embedded, w(`${embeddings}.cls_token`), places, position); // (B, T, C)
      observe?.('embed', x);
      for (let i = 0; i < layers; i++) {
        const l = `vit.encoder.layer.${i}`;
        g.block(l, () => {
          const attended = normed(g, x, w, `${l}.layernorm_before`, eps);
          const projections = PROJECTIONS.map((name) => ({
            weight: w(`${l}.attention.attention.${name}.weight`),
            bias: qkv_bias ? w(`${l}.attention.attention.${name}.bias`) : undefined,
          }));
          const qkv = packedLinear(g, attended, projections, stored, `${l}.attention.attention.qkv`); // (B, T, 3C)
          const y = attention(g, qkv, rows, headsIn(qkv, headSize), `${l}.attention.attention`, { mask: 'none' }); // (B, T, C)
          x = project(g, y, w, `${l}.attention.output.dense`, { residual: x });

          const after = normed(g, x, w, `${l}.layernorm_after`, eps);
          const wide = project(g, after, w, `${l}.intermediate.dense`, { activation: 'geluErf' }); // (B, T, inner)
          x = project(g, wide, w, `${l}.output.dense`, { residual: x });
        });
        observe?.(`layers.${i}`, x);
      }
      const last = normed(g, x, w, 'vit.layernorm', eps); // (B, T, C)
      observe?.('norm', last);
      const hidden = firstRow(g, last, 'first row'); // (B, C)
      return { hidden, head: { weight: w('classifier.weight'), bias: w('classifier.bias') } };
    },
  };
}
