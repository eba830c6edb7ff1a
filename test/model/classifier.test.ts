// What a classifier makes of one example: the probabilities of the logits that its forward pass gives, within any budget, and of a
// text those of the row that training makes of it.

import { expect, test } from 'vitest';
import { LabelledTexts } from '../../src/data/labelled-texts.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { KernelChoices } from '../../src/engine/compile/choices.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { labelsOf } from '../../src/formats/families/labels.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { Classifier } from '../../src/train/inference/classifier.ts';
import { forwardActivations } from '../../src/train/step/inspect.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { expectMistake } from '../expect-mistake.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

test('the probabilities of the logits, within a budget to the same bit', async () => {
  const fields = {
    ...{ model_type: 'vit', image_size: 4, patch_size: 2, hidden_size: 32, intermediate_size: 64 },
    ...{ num_hidden_layers: 4, num_attention_heads: 2, num_labels: 3, initializer_range: 0.2 },
  };
  const model = makeModel(parseConfig(fields, 'the config'));
  const weights = await collect(initialWeights(model, 1));
  const pixels = Float32Array.from({ length: 3 * 4 * 4 }, (_, i) => Math.sin(i));
  const example = { pixels, batch: 1, seq: model.shape.context };
  const device = await testDevice();
  const made = new KernelChoices(device);
  const logits = (await forwardActivations(device, model, weights, example, made)).get('logits') ?? new Float32Array();
  const choices = made.record();
  const classifier = await Classifier.open(device, model, sourceOf(weights), { choices });
  const told = await classifier.tell(example);
  const refused = /^the model looks at images, and reads no text; give tell their pixels$/;
  await expectMistake(() => classifier.tellText(new ByteTokenizer(), 'a cat'), refused);
  await classifier.close();
  expect(told.reduce((a, b) => a + b, 0)).toBeCloseTo(1, 12);
  for (const [i, p] of told.entries())
    expect(Math.log(p / (told[0] ?? 0))).toBeCloseTo((logits[i] ?? 0) - (logits[0] ?? 0), 9);
  const small = await Classifier.open(device, model, sourceOf(weights), { choices, memory: { gpu: 80_000 } });
  expect(await small.tell(example)).toEqual(told);
  await small.close();
});

test('of a text, and of a pair, those of the row that it is learned as, and an end that is cut off', async () => {
  const labels = labelsOf(['a', 'b', 'c']);
  const fields = {
    ...{ model_type: 'bert', architectures: ['BertForSequenceClassification'], vocab_size: 256, ...labels },
    ...{ hidden_size: 32, intermediate_size: 64, num_hidden_layers: 1, num_attention_heads: 2 },
    ...{ max_position_embeddings: 16, initializer_range: 0.2 },
  };
  const model = makeModel(parseConfig(fields, 'the config'));
  const device = await testDevice();
  const classifier = await Classifier.open(device, model, initialWeights(model, 1));
  const tokenizer = new ByteTokenizer();
  const pairs: [string, string?][] = [
    ['a film'],
    ['a film that is far too long'],
    ['a film', 'and a book of it'],
    [''],
  ];
  for (const [text, pair] of pairs) {
    const record = { text, ...(pair !== undefined && { text_pair: pair }), label: 'a' };
    const host = memoryHost(new MemoryFiles({ 'r.jsonl': JSON.stringify(record) }));
    const texts = await LabelledTexts.read(host, ['r.jsonl'], tokenizer, { labels, seq: 16 });
    const told = await classifier.tellText(tokenizer, text, pair);
    expect(told).toEqual(await classifier.tell(await texts.batch([0])));
    expect(told).toHaveLength(3);
  }
  expect(await classifier.tellText(tokenizer, 'a')).not.toEqual(await classifier.tellText(tokenizer, 'b'));
  await expectMistake(() => classifier.tellText(tokenizer, 3 as never), /^text is 3; it must be a text$/);
  await expectMistake(() => classifier.tellText({} as never, 'a'), /^tokenizer is .*; it must be a tokenizer/);
  await classifier.close();
});
