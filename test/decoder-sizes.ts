// The sizes of the tiny decoders of families/.

export const SIZES = {
  vocab_size: 11,
  max_position_embeddings: 7,
  hidden_size: 6,
  intermediate_size: 7,
  num_hidden_layers: 3,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 4, // not hidden_size / num_attention_heads
};
