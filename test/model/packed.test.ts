// Rows of several documents, trained on: no document knows of the others, the loss is that of the documents by themselves,
// and a run on records that was stopped goes on with the same bits and can be replayed.

import { afterEach, beforeAll, beforeEach, describe, expect, it, test, vi } from 'vitest';
import type { Batch } from '../../src/data/batches.ts';
import { ByteTokenizer } from '../../src/data/tokenizer.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { checkpointsOf } from '../../src/formats/checkpoint.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Device } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { loadCase } from '../../src/parity/reference-case.ts';
import { replay } from '../../src/parity/replay-case.ts';
import { loadRun, replayRun } from '../../src/parity/replay-run.ts';
import { trainRun } from '../../src/train/run/run.ts';
import type { RunSettings } from '../../src/train/run/run-settings.ts';
import { datasetOf, readText, withEpochs } from '../../src/train/run/run-text.ts';
import { savedState } from '../../src/train/run/saved-state.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { chooseVariants } from '../choose-variants.ts';
import { TEMPLATES } from '../data/chat-templates.ts';
import { documentRows } from '../document-rows.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, THOROUGH, testHost } from '../host.ts';
import { MemoryFiles, memoryClaims } from '../memory-files.ts';

const CASE = 'test/fixtures/reference/chat-mask';
const IGNORED = -100;
const tokenizer = new ByteTokenizer();
const SIZES = {
  ...{ vocab_size: 61, max_position_embeddings: 24, hidden_size: 24, intermediate_size: 40 },
  ...{ num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2 },
};
const CONFIGS = {
  gpt2: { model_type: 'gpt2', vocab_size: 61, n_positions: 24, n_embd: 24, n_layer: 2, n_head: 3 },
  llama: { model_type: 'llama', ...SIZES },
  // Windows shorter than the longest document: in both layers, or in the first alone.
  mistral: { model_type: 'mistral', ...SIZES, sliding_window: 4 },
  gemma3: { model_type: 'gemma3_text', ...SIZES, head_dim: 6, sliding_window: 4, sliding_window_pattern: 2 },
};
const schedule = { decay: 'constant', peak: 1e-2, min: 1e-3, warmup: 0, steps: 10 } as const;

let device: Device;
beforeAll(async () => {
  device = await testDevice();
});
afterEach(() => {
  vi.restoreAllMocks();
});

// In the sample parity.test.ts has it.
test.runIf(EVERY_CASE)('the reference within the smallest budget', async () => {
  // By timing, its variants take longer than its steps.
  chooseVariants(1);
  const reference = await loadCase(testHost, CASE);
  const { model, batch, seq, accumulate } = reference;
  const workload = trainingWorkload(model, traceStep(model, batch, seq, { packed: true }), accumulate);
  const gpu = smallestBudget(workload, limitsOf(device));
  const { worst, unchecked } = await replay(device, reference, { memory: { gpu, host: 100e6 } });
  expect(worst).toBeLessThanOrEqual(1);
  expect(unchecked).toEqual([]);
});

describe.each(Object.entries(CONFIGS).slice(THOROUGH ? 0 : -1))('%s', (_, json) => {
  const model = makeModel(parseConfig(json, 'test'));
  const random = new Random(7, 'documents');
  const documents = [5, 2, 9, 1, 6].map((length) => Array.from({ length }, () => random.below(61)));

  beforeEach(() => chooseVariants(2));

  async function withTrainer<T>(packed: boolean, work: (trainer: Trainer) => Promise<T>, batch = 1): Promise<T> {
    const trainer = await Trainer.create(device, model, { batch, seq: 24, packed, schedule });
    try {
      await trainer.setWeights(initialWeights(model, 2));
      return await work(trainer);
    } finally {
      await trainer.destroy();
    }
  }

  it('the loss of documents in one row is that of each by itself', async () => {
    const alone = await withTrainer(false, (trainer) => trainer.evaluate(documentRows(documents, 24, false)));
    const packed = await withTrainer(true, (trainer) => trainer.evaluate(documentRows(documents, 24, true)));
    // 17 targets of nats near 4: float32 sums of them differ by their order alone.
    expect(Math.abs(packed - alone)).toBeLessThan(2e-6);
  });

  it('so is the norm of the gradient', async () => {
    const step = (packed: boolean) => async (trainer: Trainer) =>
      (await trainer.start([documentRows(documents, 24, packed)])).gradNorm;
    const alone = await withTrainer(false, step(false), documents.length);
    const packed = await withTrainer(true, step(true));
    expect(Math.abs(packed / alone - 1)).toBeLessThan(2e-6);
  });

  it('no bit of a document depends on the others', async () => {
    const others = documents.map((document, n) => (n === 2 ? document : document.map((id) => (id + 17) % 61)));
    const only = (batch: Batch): Batch => ({
      ...batch,
      targets: Int32Array.from(batch['targets'] as Int32Array, (target, i) =>
        (batch['documents'] as Int32Array)[i] === 3 ? target : IGNORED,
      ),
    });
    await withTrainer(true, async (trainer) => {
      const given = await trainer.evaluate(only(documentRows(documents, 24, true)));
      expect(await trainer.evaluate(only(documentRows(others, 24, true)))).toBe(given);
      const seen = documents.map((document, n) => (n === 2 ? document.map((id) => (id + 1) % 61) : document));
      expect(await trainer.evaluate(only(documentRows(seen, 24, true)))).not.toBe(given);
    });
  });

  it('a trainer takes what it was made for', async () => {
    await withTrainer(false, async (trainer) => {
      await expect(trainer.start([documentRows(documents, 24, true)])).rejects.toThrow(
        'a batch of packed documents: this trainer was made',
      );
    });
    await withTrainer(true, async (trainer) => {
      const plain = documentRows(documents.slice(0, 1), 24, false);
      await expect(trainer.start([plain])).rejects.toThrow(HoldfastError);
      await expect(trainer.start([plain])).rejects.toThrow('a batch has no documents');
    });
  });
});

describe('a run on conversations', () => {
  const SUMS = Array.from({ length: 60 }, (_, i) => [i % 10, Math.floor(i / 10)] as const);
  const jsonl = SUMS.map(([a, b]) =>
    JSON.stringify({
      messages: [
        { role: 'user', content: `${a}+${b}` },
        { role: 'assistant', content: String(a + b) },
      ],
    }),
  ).join('\n');
  const files = new MemoryFiles({ 'sums.jsonl': jsonl, 'held.jsonl': jsonl.split('\n').slice(0, 7).join('\n') });
  const host = { ...testHost, ...memoryClaims, files, cacheFolder: '/dev/null/none' };
  const settings: RunSettings = {
    config: parseConfig(
      {
        model_type: 'llama',
        vocab_size: 256,
        max_position_embeddings: 256,
        hidden_size: 32,
        intermediate_size: 64,
        num_hidden_layers: 1,
        num_attention_heads: 4,
      },
      'test',
    ),
    ...{
      data: ['sums.jsonl'],
      batch: 2,
      seq: EVERY_CASE ? 256 : 128,
      accumulate: 2,
      steps: 9,
      lr: 2e-2,
      minLr: 1e-3,
      schedule: 'cosine',
    },
    ...{ warmup: 1, clip: 1, weightDecay: 0.1, seed: 5, evalEvery: 4, sampleEvery: 0, saveEvery: 0 },
    ...{ evalWindows: 4, sampleTokens: 4 },
    records: { trainOn: 'answers', pack: 'yes', template: TEMPLATES.qwen3 },
  };

  it('stopped and resumed, it has the losses and the place of one that was not, and is replayed with the same bits', async () => {
    const notes: string[] = [];
    const whole = await trainRun(host, device, settings, 'whole', {
      events: { ready: (ready) => void notes.push(...ready.notes) },
    });
    await trainRun(host, device, settings, 'parts', { until: 4 });
    await trainRun(host, device, settings, 'parts', { resume: true, until: 7 });
    await trainRun(host, device, settings, 'parts', { resume: true });
    const [a, b] = [await savedState(host, 'whole'), await savedState(host, 'parts')];
    const figures = ({ history }: typeof a) => ({
      steps: history.steps.map(({ tokensPerSecond: _, ...figures }) => figures),
      ...{ validations: history.validations, samples: history.samples },
    });
    expect(figures(b)).toEqual(figures(a));
    expect(b.batches).toEqual(a.batches);
    expect(a.batches).toHaveLength(2);
    const weights = async (run: string) =>
      files.read(`${(await checkpointsOf(files, run)).at(-1)?.path}/model.safetensors`);
    expect(await weights('parts')).toEqual(await weights('whole'));
    expect(notes).toEqual(['60 records (messages) in 1 file, 5,055 tokens']);
    // A sample begins with a question.
    expect(a.history.samples.at(-1)?.text).toMatch(
      /^<\|im_start\|>user\n\d\+\d<\|im_end\|>\n<\|im_start\|>assistant\n/,
    );
    const first = a.history.steps[0]?.loss ?? 0;
    expect(first).toBeGreaterThan(5);
    expect(whole.finalLoss).toBeLessThan(first - 1);
    expect((await replayRun(device, await loadRun(host, 'parts'))).sameBits).toBe(true);
  });

  it('other data, or a row that is none, does not go on', async () => {
    const other = { ...host, files: new MemoryFiles({ 'sums.jsonl': `${jsonl}\n${jsonl.split('\n')[0]}` }) };
    for (const [path, bytes] of files.contents) if (path.startsWith('whole/')) other.files.contents.set(path, bytes);
    await expect(trainRun(other, device, settings, 'whole', { resume: true })).rejects.toThrow('give the same --data');
  });

  it('epochs are steps: all rows of so many passes', async () => {
    const text = await readText(host, settings, tokenizer);
    const dataset = await datasetOf(settings, text);
    const { steps, epochs } = await withEpochs(settings, text, 3);
    expect([steps, epochs]).toEqual([Math.ceil(dataset.rowsIn(3) / 4), 3]);
    for (let i = 0; i < steps * 2; i++) await dataset.next();
    expect(dataset.state()[0]).toBe(3);
  });

  it('and of a text, all windows side by side', async () => {
    const { records: _, ...plain } = { ...settings, data: ['sums.jsonl'], seq: 64 };
    const text = await readText(host, plain, tokenizer);
    const run = await withEpochs(plain, text, 2);
    const tokens = Math.floor(jsonl.length * 0.9);
    const each = Math.ceil((tokens - 65) / 64) + 1;
    expect(run.steps).toBe(Math.ceil((2 * each) / 4));
    const dataset = await datasetOf(run, text);
    expect([dataset.rowsOf(0), dataset.rowsIn(2)]).toEqual([each, 2 * each]);
    // Given the same number of passes again, it has as many steps.
    expect((await withEpochs(run, text, 2)).steps).toBe(run.steps);
  });

  it('a file to validate on is validated on, and nothing is held back', async () => {
    const held = { ...settings, validationFile: 'held.jsonl' };
    const text = await readText(host, held, tokenizer);
    const { train, validation } = text.content.kind === 'records' ? text.content.documents : {};
    expect([train?.documents.count, validation?.documents.count]).toEqual([60, 7]);
    const dataset = await datasetOf(held, text);
    const without = await datasetOf(settings, await readText(host, settings, tokenizer));
    expect(dataset.rowsIn(1)).toBeGreaterThan(without.rowsIn(1));
  });
});
