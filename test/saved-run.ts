// A run's checkpoint in memory, made by hand: whole and small, with no device. For tests of what reads one.

import { ByteTokenizer } from '../src/data/tokenizer.ts';
import { saveCheckpoint } from '../src/formats/checkpoint.ts';
import { parseConfig } from '../src/formats/config.ts';
import { makeModel } from '../src/nn/index.ts';
import { initialWeights } from '../src/nn/initialise.ts';
import type { RunSettings } from '../src/train/run/run-settings.ts';
import { readText } from '../src/train/run/run-text.ts';
import type { SavedState } from '../src/train/run/saved-state.ts';
import { Random } from '../src/util/random.ts';
import { sourceOf } from '../src/values/tensor-source.ts';
import { MemoryFiles, memoryHost } from './memory-files.ts';

export const STEPS = 12;
export const TEXT = 'a run that is read again says what it said. '.repeat(20);
export const RUN = 'run';
export const CHECKPOINT = `${RUN}/checkpoint-${STEPS}`;

export const SETTINGS: RunSettings = {
  config: parseConfig(
    { model_type: 'gpt2', n_positions: 8, n_embd: 4, n_layer: 1, n_head: 2, vocab_size: 256 },
    'test',
  ),
  ...{ data: ['text.txt'], batch: 2, seq: 8, accumulate: 1, steps: 20, lr: 0.01, minLr: 0.001, schedule: 'cosine' },
  ...{ warmup: 2, clip: 1, weightDecay: 0.1, seed: 3, evalEvery: 4, evalWindows: 2, sampleEvery: 6, sampleTokens: 5 },
  saveEvery: 4,
};

/** The same of a Llama, whose config.json has fields that may be absent. */
export const LLAMA_SETTINGS: RunSettings = {
  ...SETTINGS,
  config: parseConfig(
    {
      ...{
        model_type: 'llama',
        max_position_embeddings: 8,
        hidden_size: 4,
        intermediate_size: 8,
        num_hidden_layers: 1,
      },
      ...{ num_attention_heads: 2, num_key_value_heads: 1, vocab_size: 256 },
    },
    'test',
  ),
};

/** Step 7 was skipped, and before step 5 the run had another learning rate. */
export async function savedRun(settings: RunSettings = SETTINGS): Promise<{ files: MemoryFiles; state: SavedState }> {
  const files = new MemoryFiles({ 'text.txt': TEXT });
  const host = memoryHost(files);
  const model = makeModel(settings.config);
  const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
  const zeros = new Map(
    model.parameters.map(({ name, shape }) => [name, new Float32Array(shape.reduce((a, b) => a * b, 1))]),
  );
  const updates = STEPS - 1;
  const control = [1 - 0.9 ** updates, 1 - 0.95 ** updates, 0.5, 2, 4.25, 0, 1, updates].map(Math.fround);
  const state: SavedState = {
    format: 'holdfast 1',
    settings,
    earlier: [{ settings: { ...settings, lr: 0.02 }, until: 5 }],
    corpus: (await readText(host, settings, new ByteTokenizer())).identity,
    trainer: { step: STEPS, control },
    batches: new Random(settings.seed, 'batches').state(),
    sampling: new Random(settings.seed, 'samples').state(),
    choices: { 'matmul M=16 N=16 tiled|rows': 'rows', 'layernorm rows=16 rows|workgroup': 'workgroup' },
    rates: { flops: 2e13, upBytes: 1e10, downBytes: 9e9, launchSeconds: 4e-6, memoryBytes: 1e12, copies: 'serial' },
    adapter: 'an adapter',
    history: {
      steps: Array.from({ length: STEPS }, (_, step) => ({
        ...{ step, loss: step === 7 ? Number.NaN : 5.5 - step / 10, lr: 0.01, gradNorm: step === 7 ? Number.NaN : 1.5 },
        tokensPerSecond: 1000 + step,
      })),
      validations: [4, 8].map((step) => ({ step, loss: 5.5 - step / 10 })),
      samples: [{ step: 6, text: 'a text\u0000 of "its" own' }],
    },
  };
  const source = sourceOf(zeros);
  const weights = initialWeights(model, settings.seed);
  await saveCheckpoint(files, RUN, STEPS, {
    ...{ config: settings.config, weights, shapes, moment1: source, moment2: source, state },
  });
  // What a test changes is not to be found by its checksum.
  await files.remove(`${CHECKPOINT}/SHA256SUMS`);
  return { files, state };
}

/** The same run whose state, as JSON, was changed. */
// biome-ignore lint/suspicious/noExplicitAny: JSON to break
export async function changedRun(change: (state: any) => unknown, settings = SETTINGS): Promise<MemoryFiles> {
  const { files, state } = await savedRun(settings);
  const json = JSON.parse(JSON.stringify(state));
  change(json);
  await files.writeAtomic(`${CHECKPOINT}/holdfast_state.json`, JSON.stringify(json));
  return files;
}
