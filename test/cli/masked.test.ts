// BERT as a masked language model in its own tokens, from the command line: windows lie between [CLS] and [SEP], and no special token
// is to be told; runs of bytes, and those of earlier versions, have bare windows and go on so.

import { beforeAll, expect, test } from 'vitest';
import type { TokenBatch } from '../../src/data/batches.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { loadCheckpoint } from '../../src/formats/checkpoint.ts';
import { configOfShape } from '../../src/formats/shape.ts';
import { defaultSettings, type RunSettings } from '../../src/train/run/run-settings.ts';
import { datasetOf, readText, tokenizerFor } from '../../src/train/run/run-text.ts';
import { savedSettings } from '../../src/train/run/saved-state.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { bert } from '../data/tokenizers.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { done } from './in-process.ts';
import { published } from './published-bert.ts';

chooseVariants(5);

const [CLS, SEP, MASK, SPECIAL] = [2, 3, 15, 5];
const tokenizer = bert();
const { vocab } = tokenizer.model;
delete vocab['𠀀'];
vocab['[MASK]'] = MASK;
tokenizer.added_tokens.push({ id: MASK, content: '[MASK]', special: true });

const files = new MemoryFiles({
  ...published('BertForMaskedLM').files,
  'm/tokenizer.json': JSON.stringify(tokenizer),
  'text.txt': 'the cats. the cat the s 日 cafe xyz. '.repeat(60),
});
const host = memoryHost(files);
const FEW = ['--batch', '4', '--eval-windows', '4', '--warmup', '0', '--lr', '1e-2', '--save-every', '1'];
const train = (out: string, ...more: string[]) =>
  done(files, ['train', '--model', 'm', '--data', 'text.txt', '--steps', '3', ...FEW, '--out', out, ...more]);
const trainedIn = async (run: string) => collect((await loadCheckpoint(files, run)).weights);

async function batchesOf(settings: RunSettings): Promise<TokenBatch[]> {
  const dataset = await datasetOf(settings, await readText(host, settings, await tokenizerFor(files, settings)));
  const next = Array.from({ length: 20 }, () => dataset.next());
  return [dataset.validation, ...(await Promise.all(next))] as TokenBatch[];
}

beforeAll(() => train('whole'));

test('windows lie between [CLS] and [SEP], and no special token is to be told, in training and validation', async () => {
  const settings = await savedSettings(host, 'whole');
  expect(settings).toMatchObject({ markedWindows: true, seq: 11, tokenizer: { kind: 'huggingface' } });
  for (const { ids, targets, batch, seq } of await batchesOf(settings)) {
    expect(seq).toBe(11);
    for (let row = 0; row < batch; row++) {
      expect([ids[row * seq], ids[row * seq + seq - 1]]).toEqual([CLS, SEP]);
      const told = [...targets.subarray(row * seq, (row + 1) * seq)].filter((id) => id !== -100);
      expect(told.filter((id) => id < SPECIAL - 1 || id === MASK)).toEqual([]);
    }
  }
  const report = new TextDecoder().decode(await files.read('whole/report.html'));
  expect(report).toContain('markedWindows</dt><dd>yes<');
});

test('stopped and gone on with, the run ends in the same bits, and so does its replay', async () => {
  await train('parts', '--until', '1');
  await done(files, ['train', '--resume', '--out', 'parts']);
  expect(await trainedIn('parts')).toEqual(await trainedIn('whole'));
  expect(JSON.parse(await done(files, ['parity', 'parts', '--json']))).toMatchObject({ pass: true, sameBits: true });
});

test('a run of an earlier version has bare windows, and goes on and is replayed with them', async () => {
  await train('bare');
  const state = 'bare/checkpoint-3/holdfast_state.json';
  const json = JSON.parse(new TextDecoder().decode(await files.read(state)));
  // Its last steps are of others: nothing of it is looked at but its settings.
  delete json.settings.markedWindows;
  const { markedWindows: _, ...settings } = await savedSettings(host, 'bare');
  const [validation] = await batchesOf(settings);
  expect([...(validation?.ids ?? [])].filter((_, i) => i % 11 === 0)).not.toEqual(Array(4).fill(CLS));
  await files.remove('bare/checkpoint-3/SHA256SUMS');
  await files.writeAtomic(state, JSON.stringify({ ...json, settings: json.settings }));
  await done(files, ['train', '--resume', '--out', 'bare', '--steps', '4']);
  expect((await savedSettings(host, 'bare')).markedWindows).toBeUndefined();
});

test('by default it is said of masked language models in tokens alone', () => {
  const config = (family: 'bert' | 'gpt2' | 'vit') => configOfShape({ family });
  const named = { kind: 'huggingface', path: 'm', sha256: '' } as const;
  expect(defaultSettings({ config: config('bert'), tokenizer: named }).markedWindows).toBe(true);
  expect(defaultSettings({ config: config('bert'), tokenizer: named, markedWindows: false }).markedWindows).toBe(false);
  expect(defaultSettings({ config: config('bert') }).markedWindows).toBeUndefined();
  for (const family of ['gpt2', 'vit'] as const)
    expect(defaultSettings({ config: config(family), tokenizer: named }).markedWindows).toBeUndefined();
  expect(new ByteTokenizer()).not.toHaveProperty('marks');
});
