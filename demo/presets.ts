// Models to begin with, from one that learns while you watch to GPT-2 itself, and the settings of a run as the form
// has them. What is not in a preset is a setting of its own with one default.

import {
  configOfShape,
  DEFAULT_SHAPE,
  defaultSettings,
  type FamilyName,
  parseConfig,
  type RunSettings,
  shapeOf,
} from '../src/browser/index.ts';

/** The fields of the form. */
export interface Shape {
  family: FamilyName;
  layers: number;
  width: number;
  heads: number;
  /** Llama's heads of keys and values; GPT-2 has as many as heads. */
  kvHeads: number;
  /** Tokens in a sequence. */
  context: number;
  vocabulary: number;
  batch: number;
  accumulate: number;
  steps: number;
  lr: number;
  warmup: number;
  schedule: RunSettings['schedule'];
  clip: number;
  weightDecay: number;
  seed: number;
  evalEvery: number;
  evalWindows: number;
  sampleEvery: number;
  saveEvery: number;
}

export type PresetName = 'tiny' | 'small' | 'medium' | 'large' | 'gpt2' | 'llama';

const { family, layers, width, heads, context, vocabulary } = DEFAULT_SHAPE;
const { batch, accumulate, steps, lr, warmup, schedule, clip, weightDecay, seed, evalWindows } = defaultSettings();
/** The defaults of `holdfast train`, looked at more often. */
const TINY: Shape = {
  ...{ family, layers, width, heads, kvHeads: heads, context, vocabulary },
  ...{ batch, accumulate, steps, lr, warmup, schedule, clip, weightDecay, seed, evalWindows },
  ...{ evalEvery: 100, sampleEvery: 100, saveEvery: 100 },
};

const SMALL = { layers: 4, width: 128, context: 128, batch: 16, steps: 3000, lr: 0.002 };

export const PRESETS: Readonly<Record<PresetName, Shape>> = {
  tiny: TINY,
  small: { ...TINY, ...SMALL, kvHeads: 4 },
  llama: { ...TINY, ...SMALL, family: 'llama', heads: 8, kvHeads: 2 },
  medium: { ...TINY, ...SMALL, layers: 6, width: 192, heads: 6, kvHeads: 6, steps: 5000, lr: 0.001 },
  large: {
    ...TINY,
    ...{ layers: 6, width: 384, heads: 6, kvHeads: 6, context: 256, batch: 16, steps: 5000, lr: 0.001 },
    ...{ evalEvery: 250, evalWindows: 32, sampleEvery: 250, saveEvery: 250 },
  },
  // Its own vocabulary, so that it is all of GPT-2; text is read as bytes, the first 256 of its tokens.
  gpt2: {
    ...TINY,
    ...{ layers: 12, width: 768, heads: 12, kvHeads: 12, context: 128, vocabulary: 50257, batch: 1, steps: 1000 },
    ...{ lr: 0.0003, evalEvery: 100, evalWindows: 8, sampleEvery: 100, saveEvery: 200 },
  },
};

/** Errors: HoldfastError for a shape that makes no model. */
export function settingsOf(form: Shape): RunSettings {
  const { family, layers, width, heads, kvHeads, context, vocabulary, ...settings } = form;
  // With its family's own vocabulary it has its family's positions, however few of them a sequence uses.
  const own = shapeOf(parseConfig({ model_type: family }, 'the defaults'));
  const positions = vocabulary === own.vocabulary ? Math.max(context, own.context) : context;
  const shape = { family, layers, width, heads, kvHeads, context: positions, vocabulary };
  return defaultSettings({ ...settings, config: configOfShape(shape, 'these settings'), seq: context });
}
