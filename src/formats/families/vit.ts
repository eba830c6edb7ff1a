// ViT, the vision transformer, as a record: its configuration by Hugging Face's field names, and the facts that follow from
// it. It tells classes of images apart. Not its forward pass (nn/vit.ts). Dropout rates are dropped: Holdfast trains without.

import { ENCODER_LINEARS, type EncoderConfig, parseEncoder } from './encoder.ts';
import { DEFAULT_IMAGES, type Family, type ImageShape, type TensorShape } from './family.ts';
import type { Fields } from './fields.ts';
import { classesOf, type Labels, labelsOf, parseLabels, unnamedLabels } from './labels.ts';

/** Both sides, or height and width. */
export type Sides = number | readonly [height: number, width: number];

/** ViT with a head for classes, by the field names of Hugging Face. */
export interface ViTConfig extends EncoderConfig, Labels {
  /** The family. */
  model_type: 'vit';
  /** Of an image: multiples of the patch's. @default 224 */
  image_size: Sides;
  /** Of a patch. @default 16 */
  patch_size: Sides;
  /** Numbers of a pixel. @default 3 */
  num_channels: number;
  /** Whether q, k and v have biases. @default true */
  qkv_bias: boolean;
}

/** Height and width. */
export const sidesOf = (size: Sides): readonly [number, number] => (typeof size === 'number' ? [size, size] : size);

/** The patches of an image. */
export function patchesOf({ image_size, patch_size }: Pick<ViTConfig, 'image_size' | 'patch_size'>): number {
  const [[height, width], [patchHeight, patchWidth]] = [sidesOf(image_size), sidesOf(patch_size)];
  return (height / patchHeight) * (width / patchWidth);
}

function parseViT(fields: Fields): ViTConfig {
  const image_size = fields.countOrTwo('image_size', 224);
  const patch_size = fields.countOrTwo('patch_size', 16);
  const patches = sidesOf(patch_size);
  sidesOf(image_size).forEach((side, i) => {
    fields.divides('patch_size', patches[i] ?? side, 'image_size', side);
  });
  return {
    model_type: 'vit',
    image_size,
    patch_size,
    num_channels: fields.count('num_channels', 3),
    ...parseEncoder(fields),
    qkv_bias: fields.only('qkv_bias', [true, false], true),
    ...parseLabels(fields),
  };
}

export const VIT: Family<ViTConfig> = {
  label: 'ViT',
  architecture: () => 'ViTForImageClassification',
  writes: false,
  groupedHeads: false,
  parse: parseViT,
  harmless: [
    ...['hidden_dropout_prob', 'attention_probs_dropout_prob'],
    // Of a head over tokens.
    'tie_word_embeddings',
    // Of a pooler and of a masked image's decoder, which this head has no use for.
    ...['encoder_stride', 'pooler_act', 'pooler_output_size'],
  ],
  shape: (config) => ({
    layers: config.num_hidden_layers,
    width: config.hidden_size,
    vocabulary: 0,
    classes: classesOf(config),
    context: 1 + patchesOf(config),
    heads: config.num_attention_heads,
    kvHeads: config.num_attention_heads,
    headSize: config.hidden_size / config.num_attention_heads,
  }),
  fromShape({ layers, width, heads, images = DEFAULT_IMAGES as ImageShape }) {
    return {
      ...{ hidden_size: width, intermediate_size: 4 * width, num_hidden_layers: layers, num_attention_heads: heads },
      ...{ image_size: images.image, patch_size: images.patch, num_channels: images.channels },
      ...labelsOf(images.names ?? unnamedLabels(images.classes)),
    };
  },
  tensors(config) {
    const { hidden_size: C, intermediate_size: inner, num_channels: channels, qkv_bias } = config;
    const [patchHeight, patchWidth] = sidesOf(config.patch_size);
    const classes = classesOf(config);
    const projection: TensorShape[] = qkv_bias ? [[C, C], [C]] : [[C, C]];
    return {
      layersField: 'num_hidden_layers',
      block: [
        ...[...projection, ...projection, ...projection],
        ...([[C, C], [C], [inner, C], [inner], [C, inner], [C], [C], [C], [C], [C]] as const),
      ],
      rest: [
        ...([
          [1, C],
          [1, (1 + patchesOf(config)) * C],
        ] as const),
        ...([[C, channels * patchHeight * patchWidth], [C], [C], [C], [classes, C], [classes]] as const),
      ],
    };
  },
  linears: ENCODER_LINEARS,
  stored: {
    prefix: '',
    buffers: /^$/,
    head: 'classifier.weight',
    embedding: 'vit.embeddings.cls_token',
    // As a bare one has them.
    renamed: [[/^(?=(?:embeddings|encoder|layernorm|pooler)\.)/, 'vit.']],
  },
  images({ image_size, patch_size, num_channels: channels }) {
    const [height, width] = sidesOf(image_size);
    return { channels, height, width, patch: sidesOf(patch_size) };
  },
  // Of a ViTModel's own head.
  unused: () => /^vit\.pooler\./,
  classifier: {
    labels: ({ id2label, label2id }) => ({ id2label, label2id }),
    tells: (config, labels) => ({ ...config, ...labels }),
    head: 'classifier',
  },
};
