// What a page finds of classes in files that were chosen, before anything is kept: the head that they ask for, what trains
// beside an adapter, and what cannot be learned, in one line.

import { expect, test } from 'vitest';
import { classesIn } from '../../src/browser/class-settings.ts';
import { inspectFiles } from '../../src/browser/models.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { fineTuningSettings } from '../../src/train/run/fine-tuning.ts';
import { type Architecture, lines, published } from '../cli/published-bert.ts';
import { png } from '../data/png-writer.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

const host = memoryHost(new MemoryFiles());
const LORA = { rank: 2, alpha: 4, targets: ['all-linear'], dropout: 0, rslora: false };
const chosen = (files: Readonly<Record<string, string | Uint8Array>>) =>
  Object.entries(files).map(([path, bytes]) => ({
    path,
    file: new File([typeof bytes === 'string' ? bytes : Uint8Array.from(bytes)], path.replace(/^.*\//, '')),
  }));
const inspected = (architecture: Architecture) => inspectFiles(host, chosen(published(architecture).files));

const REVIEWS = lines({ text: 'the cat', label: 'bad' }, { text: 'cats', label: 'good' });
const OTHERS = lines({ text: 'the cat', label: 'up' }, { text: 'cats', label: 'down' });

test('a BERT with no head, one of another task, and one of these classes', async () => {
  const bare = await inspected('BertModel');
  expect(bare).toMatchObject({ name: 'm', tokens: 16, chats: false });
  expect(bare).not.toHaveProperty('classes');
  const masked = await inspected('BertForMaskedLM');
  const classifier = await inspected('BertForSequenceClassification');
  expect(classifier.classes).toBe(3);
  for (const { config } of [bare, masked]) {
    const found = await classesIn(host, fineTuningSettings({ config, lora: LORA }), OTHERS);
    expect(found).toMatchObject({ classes: 2, names: 'down, up', settings: { newHead: true, data: [] } });
    expect(found?.settings.config).toMatchObject({ id2label: { 0: 'down', 1: 'up' } });
    expect(found?.settings.lora?.modulesToSave).toEqual(['classifier', 'bert.pooler']);
  }
  const { config } = classifier;
  const own = await classesIn(host, fineTuningSettings({ config, lora: LORA }), new Blob([REVIEWS]));
  expect(own).toMatchObject({ classes: 3, names: 'bad, good, odd' });
  expect(own?.settings.newHead).toBeUndefined();
  expect(own?.settings.lora?.modulesToSave).toEqual(['classifier']);
  expect(await classesIn(host, fineTuningSettings({ config: masked.config }), 'a text and no record')).toBeUndefined();
  await expect(
    classesIn(host, fineTuningSettings({ config }), lines({ text: 'a', label: 'bad' }, { text: 'b', label: 'new' })),
  ).rejects.toThrow('the data/text:2: the class "new" is none of the model\'s; it tells bad, good, odd apart');
});

test('a folder of images, whatever it is called, with images to test with or without', async () => {
  const config = parseConfig(
    {
      ...{ model_type: 'vit', image_size: 4, patch_size: 2, hidden_size: 8, intermediate_size: 16 },
      ...{ num_hidden_layers: 1, num_attention_heads: 2, id2label: { 0: 'x', 1: 'y' } },
    },
    'the config',
  );
  const image = png(new Uint8Array(12), { width: 2, height: 2, kind: 2 });
  const settings = fineTuningSettings({ config });
  for (const top of ['pets/', 'pets/train/', '']) {
    const files = chosen({ [`${top}cat/1.png`]: image, [`${top}dog/1.png`]: image });
    const found = await classesIn(host, settings, files);
    expect(found, top).toMatchObject({ classes: 2, names: 'cat, dog', settings: { newHead: true } });
  }
  await expect(classesIn(host, settings, chosen({ 'pets/1.png': image }))).rejects.toThrow(
    'the data/1.png: lies in no folder of a class; give each class a folder',
  );
  await expect(classesIn(host, settings, chosen({ 'pets/cat/1.jpg': image }))).rejects.toThrow('is no PNG');
});
