// Qwen 2 and 2.5 as a record: Llama with biases on q, k and v. A window, where it is switched on, is that of the layers
// from `max_window_layers` on, or of those that `layer_types` names; Qwen 3 has the same.

import { QWEN2_GGUF } from '../gguf/families/qwen.ts';
import {
  type DecoderConfig,
  decoderFamily,
  LAYER_TYPES,
  type LayerType,
  newDecoder,
  parseDecoder,
  ropeOf,
} from './decoder.ts';
import type { Fields } from './fields.ts';

/** Qwen's windows. */
export interface QwenWindow {
  /** Whether there are any. @default false */
  use_sliding_window: boolean;
  /** Tokens that a query sees in layers that have one, its own among them; null where there are none. */
  sliding_window: number | null;
  /** The first layer that has one. @default 28 */
  max_window_layers: number;
  /** Which layers have one. @default those from max_window_layers on */
  layer_types?: readonly LayerType[];
}

/** Qwen 2 and 2.5, by the field names of Hugging Face. */
export interface Qwen2Config extends DecoderConfig, QwenWindow {
  /** The family. */
  model_type: 'qwen2';
  /** SwiGLU's. */
  hidden_act: 'silu';
}

export function parseQwenWindow(fields: Fields, layers: number): QwenWindow {
  const use_sliding_window = fields.only('use_sliding_window', [true, false], false);
  const window = fields.countOrNull('sliding_window', 4096);
  const layer_types = fields.items('layer_types', LAYER_TYPES, layers);
  const sliding_window = use_sliding_window ? window : null;
  if (sliding_window === null && layer_types?.includes('sliding_attention'))
    fields.refuse(
      'layer_types has "sliding_attention" in it, but there is no window; give sliding_window, and use_sliding_window true',
    );
  return {
    use_sliding_window,
    sliding_window,
    max_window_layers: fields.countFrom0('max_window_layers', 28),
    ...(layer_types && { layer_types }),
  };
}

/** The window of layer `i`. */
export function qwenWindow(
  { sliding_window, max_window_layers, layer_types }: QwenWindow,
  i: number,
): number | undefined {
  const isWindowed = layer_types ? layer_types[i] === 'sliding_attention' : i >= max_window_layers;
  return isWindowed ? (sliding_window ?? undefined) : undefined;
}

export const QWEN2 = decoderFamily<Qwen2Config>({
  label: 'Qwen 2',
  architecture: () => 'Qwen2ForCausalLM',
  parse(fields) {
    const decoder = parseDecoder(fields, {
      ...{ vocab_size: 151936, max_position_embeddings: 32768, hidden_size: 4096, intermediate_size: 22016 },
      ...{ num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 32 },
    });
    return {
      model_type: 'qwen2',
      ...decoder,
      hidden_act: fields.only('hidden_act', ['silu'], 'silu'),
      ...parseQwenWindow(fields, decoder.num_hidden_layers),
    };
  },
  harmless: [],
  design: (config) => ({
    qkvBiases: true,
    attention: (i) => ({ window: qwenWindow(config, i), rope: ropeOf(config) }),
  }),
  fromShape: newDecoder,
  gguf: QWEN2_GGUF,
});
