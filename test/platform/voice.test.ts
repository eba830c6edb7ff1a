// How a run on a page can be asked: by its settings, or the files of weights that came alone, and by what it learned from.

import { expect, test } from 'vitest';
import type { RunRecord } from '../../src/browser/protocol.ts';
import { voiceIn } from '../../src/browser/voice.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { BrowserHost } from '../../src/runtime/browser.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { type Architecture, CONFIG, published } from '../cli/published-bert.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { SETTINGS } from '../saved-run.ts';

const FOLDER = 'runs/abcd1234';
const TEXT = `${FOLDER}/text`;
const VIT = {
  ...{ model_type: 'vit', image_size: 4, patch_size: 2, hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1 },
  ...{ num_attention_heads: 2, id2label: { 0: 'dark', 1: 'light' } },
};
const hostOf = (files: MemoryFiles) => memoryHost(files) as unknown as BrowserHost;
const record = (settings?: RunRecord['settings']): RunRecord => ({
  ...{ id: 'abcd1234', name: 'mine', created: 1, memory: {}, status: 'stopped', savedStep: 0 },
  ...(settings && { settings }),
});

async function voiceOf(config: object, files: Record<string, string>, data: string[] = [TEXT]) {
  const settings = defaultSettings({ config: parseConfig(config, 'test'), data });
  return voiceIn(hostOf(new MemoryFiles(files)), record(settings), FOLDER);
}

test('a run on pairs of texts tells pairs, one on single texts does not, and without its data nothing says so', async () => {
  const pair = '{"premise": "a", "hypothesis": "b", "label": "bad"}\n';
  const tells = { writes: false, chats: false, adapter: false, tells: 'texts' };
  expect(await voiceOf(CONFIG, { [TEXT]: pair })).toEqual({ ...tells, pairs: true });
  expect(await voiceOf(CONFIG, { [TEXT]: '{"text": "a", "label": "bad"}\n' })).toEqual({ ...tells, pairs: false });
  expect(await voiceOf(CONFIG, {})).toEqual(tells);
  expect(await voiceOf(CONFIG, { 'at/home.jsonl': pair }, ['elsewhere/home.jsonl'])).toEqual(tells);
});

test('a run on images tells images, and a GPT writes', async () => {
  expect(await voiceOf(VIT, {})).toEqual({ writes: false, chats: false, adapter: false, tells: 'images' });
  expect(await voiceIn(hostOf(new MemoryFiles()), record(SETTINGS), FOLDER)).toEqual({
    ...{ writes: true, chats: false, adapter: false },
  });
});

test.each<[Architecture, object]>([
  ['BertForSequenceClassification', { tells: 'texts' }],
  ['BertForMaskedLM', {}],
])('weights alone, of %s, say by their config.json what they do', async (architecture, said) => {
  const files = new MemoryFiles();
  for (const [name, bytes] of Object.entries(published(architecture).files))
    await files.writeAtomic(`${FOLDER}/${name.replace('m/', '')}`, bytes);
  expect(await voiceIn(hostOf(files), record(), FOLDER)).toEqual({
    ...{ writes: false, chats: false, adapter: false },
    ...said,
  });
});
