// BERT as a record: its configuration by Hugging Face's field names, and the facts that follow from it. It is trained for
// the tokens that were masked, or for the class of a text; a bare one is what a classifier is made of. Other heads are refused
// by name. Not its forward pass (nn/bert.ts). Dropout rates are dropped: Holdfast trains without.

import { ENCODER_LINEARS, type EncoderConfig, parseEncoder } from './encoder.ts';
import type { Family, TensorShape } from './family.ts';
import type { Fields } from './fields.ts';
import { classesOf, type Labels, parseLabels } from './labels.ts';

/** The heads that there are; `BertModel` has none. */
export type BertArchitecture = 'BertForMaskedLM' | 'BertForSequenceClassification' | 'BertModel';

/** BERT, by the field names of Hugging Face; its labels are there where it tells classes of texts apart. */
export interface BertConfig extends EncoderConfig, Partial<Labels> {
  /** The family. */
  model_type: 'bert';
  /** Its head: one. @default BertForMaskedLM */
  architectures: readonly BertArchitecture[];
  /** Tokens in the vocabulary: V. */
  vocab_size: number;
  /** The longest T. */
  max_position_embeddings: number;
  /** Kinds of tokens, such as those of a first and a second sentence. */
  type_vocab_size: number;
  /** Whether the head over tokens is the embedding: always. */
  tie_word_embeddings: boolean;
}

/** As files have it: those of a first training hold the head over tokens, and another beside it. */
const ARCHITECTURES = ['BertForMaskedLM', 'BertForSequenceClassification', 'BertModel', 'BertForPreTraining'] as const;
const CLASSIFIER = 'BertForSequenceClassification';

function parseBert(fields: Fields): BertConfig {
  fields.only('position_embedding_type', ['absolute'], 'absolute');
  const [found = 'BertForMaskedLM'] = fields.items('architectures', ARCHITECTURES) ?? [];
  const architecture = found === 'BertForPreTraining' ? 'BertForMaskedLM' : found;
  // Of the one head over tokens: others are tied to nothing, whatever the file says.
  fields.only('tie_word_embeddings', architecture === 'BertForMaskedLM' ? [true] : [true, false], true);
  return {
    model_type: 'bert',
    architectures: [architecture],
    vocab_size: fields.count('vocab_size', 30522),
    max_position_embeddings: fields.count('max_position_embeddings', 512),
    type_vocab_size: fields.count('type_vocab_size', 2),
    ...parseEncoder(fields),
    tie_word_embeddings: true,
    ...(architecture === CLASSIFIER && parseLabels(fields)),
  };
}

/** Whether it has no head, and so tells nothing: a classifier is made of it. */
export const isBare = ({ architectures: [architecture] }: Pick<BertConfig, 'architectures'>): boolean =>
  architecture === 'BertModel';

/** The classes that it tells apart, if it does. */
export const bertLabels = ({ id2label, label2id }: BertConfig): Labels | undefined =>
  id2label && label2id && { id2label, label2id };

export const BERT: Family<BertConfig> = {
  label: 'BERT',
  architecture: ({ architectures: [architecture = 'BertForMaskedLM'] }) => architecture,
  writes: false,
  groupedHeads: false,
  parse: parseBert,
  harmless: [
    ...['hidden_dropout_prob', 'attention_probs_dropout_prob'],
    // Of a pooler that Google's multilingual files describe; none of it is read anywhere.
    ...['directionality', 'pooler_fc_size', 'pooler_num_attention_heads', 'pooler_num_fc_layers'],
    ...['pooler_size_per_head', 'pooler_type'],
  ],
  shape(config) {
    const labels = bertLabels(config);
    return {
      layers: config.num_hidden_layers,
      width: config.hidden_size,
      vocabulary: config.vocab_size,
      classes: labels ? classesOf(labels) : config.vocab_size,
      context: config.max_position_embeddings,
      heads: config.num_attention_heads,
      kvHeads: config.num_attention_heads,
      headSize: config.hidden_size / config.num_attention_heads,
    };
  },
  fromShape: ({ layers, width, heads, context, vocabulary }) => ({
    ...{ vocab_size: vocabulary, hidden_size: width, intermediate_size: 4 * width, num_hidden_layers: layers },
    ...{ num_attention_heads: heads, max_position_embeddings: context },
  }),
  tensors(config) {
    const { hidden_size: C, intermediate_size: inner, vocab_size: V, max_position_embeddings: S } = config;
    const dense: TensorShape[] = [[C, C], [C]];
    const norm: TensorShape[] = [[C], [C]];
    const labels = bertLabels(config);
    const classes = labels && classesOf(labels);
    const head: TensorShape[] = classes === undefined ? [...dense, ...norm, [V]] : [...dense, [classes, C], [classes]];
    return {
      layersField: 'num_hidden_layers',
      block: [...dense, ...dense, ...dense, ...dense, ...norm, [inner, C], [inner], [C, inner], [C], ...norm],
      rest: [[V, C], [S, C], [config.type_vocab_size, C], ...norm, ...head],
    };
  },
  linears: { ...ENCODER_LINEARS, 'transform.dense': 'whole', 'pooler.dense': 'whole' },
  stored: {
    prefix: '',
    // Numbers from 0 up, as positions and as types.
    buffers: /^bert\.embeddings\.(?:position_ids|token_type_ids)$/,
    head: 'cls.predictions.decoder.weight',
    embedding: 'bert.embeddings.word_embeddings.weight',
    headBias: 'cls.predictions.bias',
    copies: { 'cls.predictions.decoder.bias': 'cls.predictions.bias' },
    renamed: [
      // As TensorFlow called them.
      [/LayerNorm\.gamma$/, 'LayerNorm.weight'],
      [/LayerNorm\.beta$/, 'LayerNorm.bias'],
      // As a bare one has them.
      [/^(?=(?:embeddings|encoder|pooler)\.)/, 'bert.'],
    ],
  },
  // Heads of other tasks, which the files of a first training hold together.
  unused: (config) => (bertLabels(config) ? /^cls\./ : /^(?:bert\.pooler|cls\.seq_relationship)\./),
  classifier: {
    labels: bertLabels,
    tells: (config, labels) => ({ ...config, architectures: [CLASSIFIER], ...labels }),
    isBare,
    head: 'classifier',
    // A masked language model is saved without.
    lacking: 'bert.pooler',
  },
};
