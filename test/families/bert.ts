// Tiny BERTs: of masked tokens, and of classes.

import type { SmallModel } from '../families.ts';

const BERT = {
  ...{ model_type: 'bert', vocab_size: 11, max_position_embeddings: 7, type_vocab_size: 3, hidden_size: 6 },
  ...{ num_attention_heads: 2, num_hidden_layers: 2, intermediate_size: 10 },
};

const CLASSIFIER = { ...BERT, architectures: ['BertForSequenceClassification'], num_labels: 3 };

export const models: Record<string, SmallModel> = {
  bert: { config: BERT },
  'bert with lora': { config: BERT, lora: { rank: 2, alpha: 3 } },
  'bert, of classes': { config: CLASSIFIER },
  'bert, of classes, with lora': {
    config: CLASSIFIER,
    lora: { rank: 2, alpha: 3, targets: ['query', 'pooler.dense'] },
  },
};
