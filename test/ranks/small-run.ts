// The settings and the text of a small run on two ranks.

import { parseConfig } from '../../src/formats/config.ts';
import { defaultSettings, type RunSettings } from '../../src/train/run/run-settings.ts';
import { MemoryFiles } from '../memory-files.ts';

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 8, n_embd: 16, n_layer: 1, n_head: 2 },
  'test',
);

export const smallRun = (changes: Partial<RunSettings>): RunSettings =>
  defaultSettings({
    ...{ config, data: ['text.txt'], batch: 2, warmup: 0, sampleTokens: 2, evalWindows: 2, ranks: 2 },
    ...changes,
  });

export const smallText = (): MemoryFiles => new MemoryFiles({ 'text.txt': 'hold fast, hold on; '.repeat(12) });
