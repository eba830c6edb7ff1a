// Trains the default model and prints its losses: the least that a page can do with holdfast/browser.

import { openHoldfast, parseConfig, type RunEvent, type RunSettings } from '../src/browser/index.ts';

const settings: RunSettings = {
  config: parseConfig(
    { model_type: 'gpt2', vocab_size: 256, n_positions: 64, n_embd: 64, n_layer: 2, n_head: 4 },
    'the model',
  ),
  data: [],
  batch: 8,
  seq: 64,
  accumulate: 1,
  steps: 1700,
  lr: 0.006,
  minLr: 0.0006,
  schedule: 'cosine',
  warmup: 100,
  clip: 1,
  weightDecay: 0.1,
  seed: 1,
  evalEvery: 250,
  evalWindows: 64,
  sampleEvery: 250,
  sampleTokens: 160,
  saveEvery: 250,
};

const state = document.querySelector('#state') as HTMLElement;
const log = document.querySelector('#log') as HTMLElement;

function show(events: RunEvent[]): void {
  for (const event of events) {
    if (event.type === 'step') state.textContent = `step ${event.step}, loss ${event.loss.toFixed(4)}`;
    if (event.type === 'validation') log.append(`step ${event.step}: validation ${event.loss.toFixed(4)}\n`);
    if (event.type === 'sample') log.append(`${event.text}\n`);
    if (event.type === 'failed') state.textContent = event.message;
  }
}

try {
  const holdfast = await openHoldfast({ onEvents: show });
  log.append(holdfast.environment.adapter.name, '\n', ...holdfast.environment.notes.map((note) => `${note}\n`));
  await holdfast.persist();
  const [last] = await holdfast.trainer.runs();
  if (last?.status === 'running' && last.open === 'no') await holdfast.trainer.resume(last.id);
  else await holdfast.trainer.start({ settings });
} catch (error) {
  state.textContent = error instanceof Error ? error.message : String(error);
}
