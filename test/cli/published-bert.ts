// BERT's published folders, small: as Hugging Face's libraries write each of its classes, with random values; and a few labelled
// texts in the words of their vocabulary.

import { Random } from '../../src/util/random.ts';
import { bert as wordPieces } from '../data/tokenizers.ts';
import { fileOf, floats, type Stored } from '../formats/raw-tensors.ts';

export const C = 12;
export const SIZES = { hidden_size: C, num_hidden_layers: 2, num_attention_heads: 3, intermediate_size: 20 };
/** As Transformers writes it. */
export const CONFIG = {
  ...{ architectures: ['BertForSequenceClassification'], attention_probs_dropout_prob: 0.1, classifier_dropout: null },
  ...{ gradient_checkpointing: false, hidden_act: 'gelu', hidden_dropout_prob: 0.1, initializer_range: 0.02 },
  ...{ layer_norm_eps: 1e-12, max_position_embeddings: 11, model_type: 'bert', pad_token_id: 0 },
  ...{ position_embedding_type: 'absolute', problem_type: 'single_label_classification', torch_dtype: 'float32' },
  ...{ transformers_version: '4.50.0', type_vocab_size: 2, use_cache: true, vocab_size: 16, ...SIZES },
  ...{ id2label: { 0: 'bad', 1: 'good', 2: 'odd' }, label2id: { bad: 0, good: 1, odd: 2 } },
};

const dense = (name: string, rows: number, columns = C): [string, number[]][] => [
  [`${name}.weight`, [rows, columns]],
  [`${name}.bias`, [rows]],
];
const norm = (name: string): [string, number[]][] => [
  [`${name}.weight`, [C]],
  [`${name}.bias`, [C]],
];
const BODY: [string, number[]][] = [
  ['embeddings.word_embeddings.weight', [16, C]],
  ['embeddings.position_embeddings.weight', [11, C]],
  ['embeddings.token_type_embeddings.weight', [2, C]],
  ...norm('embeddings.LayerNorm'),
  ...[0, 1].flatMap((i) => {
    const l = `encoder.layer.${i}`;
    return [
      ...['query', 'key', 'value'].flatMap((of) => dense(`${l}.attention.self.${of}`, C)),
      ...[...dense(`${l}.attention.output.dense`, C), ...norm(`${l}.attention.output.LayerNorm`)],
      ...[
        ...dense(`${l}.intermediate.dense`, 20),
        ...dense(`${l}.output.dense`, C, 20),
        ...norm(`${l}.output.LayerNorm`),
      ],
    ];
  }),
];
const POOLER = dense('pooler.dense', C);
const below = (prefix: string, tensors: [string, number[]][]) =>
  tensors.map(([name, shape]): [string, number[]] => [prefix + name, shape]);
const MASKED: [string, number[]][] = [
  ...dense('cls.predictions.transform.dense', C),
  ...norm('cls.predictions.transform.LayerNorm'),
  ['cls.predictions.bias', [16]],
];
const TENSORS = {
  BertForSequenceClassification: [...below('bert.', [...BODY, ...POOLER]), ...dense('classifier', 3)],
  BertModel: [...BODY, ...POOLER],
  BertForMaskedLM: [...below('bert.', BODY), ...MASKED],
  BertForPreTraining: [...below('bert.', [...BODY, ...POOLER]), ...MASKED, ...dense('cls.seq_relationship', 2)],
} as const;
export type Architecture = keyof typeof TENSORS;

/** A published folder, and its values by their names in it. */
export function published(architecture: Architecture, changes: object = {}) {
  const random = new Random(7, architecture);
  const values = new Map<string, Float32Array>();
  const stored = new Map<string, Stored>([
    ['bert.embeddings.position_ids', { dtype: 'I64', shape: [1, 11], bytes: new Uint8Array(88) }],
  ]);
  for (const [name, shape] of TENSORS[architecture]) {
    const gain = /LayerNorm\.weight$/.test(name) ? 1 : 0;
    const size = shape.reduce((a, b) => a * b, 1);
    const tensor = Float32Array.from({ length: size }, () => gain + 0.3 * random.normal());
    values.set(name, tensor);
    stored.set(name, floats(shape, tensor));
  }
  const files = {
    'm/config.json': JSON.stringify({ ...CONFIG, architectures: [architecture], ...changes }),
    'm/model.safetensors': fileOf(stored),
    'm/tokenizer.json': JSON.stringify(wordPieces()),
  };
  return { files, values };
}

export const lines = (...records: object[]) => records.map((record) => JSON.stringify(record)).join('\n');
export const TEXTS = ['the cats', 'cat', 'the the the the the the the the the the the', '', 'the cat s . 日 the'];
const NAMES = ['bad', 'good', 'odd'];
export const REVIEWS = lines(...TEXTS.map((text, i) => ({ text, label: NAMES[(i * 2) % 3] })));
/** Steps that are too small to change a bit, but of what is 0. */
export const STILL = ['--lr', '1e-30', '--min-lr', '1e-30', '--weight-decay', '0'];
export const QUICK = ['--batch', '2', '--steps', '2', '--eval-every', '0', '--warmup', '0'];
