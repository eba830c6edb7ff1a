// The kinds of layers that `layer_types` names.

/** What a layer's queries see: every token before, or a window of them. */
export type LayerType = 'full_attention' | 'sliding_attention';

export const LAYER_TYPES: readonly LayerType[] = ['full_attention', 'sliding_attention'];
