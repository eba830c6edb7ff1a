// Sizes that nothing holds, and names that are no names: one line and status 2, before a device is opened and before
// anything of that size is made. In process: a GPU that is asked for, or a stack trace, fails the test.

import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { estimateRun } from '../../src/browser/estimate.ts';
import { run } from '../../src/cli/run.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { Graph } from '../../src/graph/graph.ts';
import { crossEntropyHead } from '../../src/graph/operators/cross-entropy.ts';
import { MOST_LOGIT_TILES, mostRows } from '../../src/graph/operators/head-tiles.ts';
import { makeTensor } from '../../src/graph/program.ts';
import { crossEntropyTile } from '../../src/kernels/cross-entropy.ts';
import { makeModel } from '../../src/nn/index.ts';
import { parameterCount } from '../../src/nn/model.ts';
import { checkSize, sizeOf } from '../../src/nn/size.ts';
import { loadRun } from '../../src/parity/replay-run.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { memoryHost } from '../memory-files.ts';
import { CHECKPOINT, RUN, SETTINGS, savedRun } from '../saved-run.ts';

/** Of more tokens than bytes. */
const LARGER = parseConfig({ ...SETTINGS.config, vocab_size: 300 }, 'test');

async function refusal(...args: string[]): Promise<string> {
  const { files } = await savedRun();
  const put = async (folder: string, config: object) => {
    await files.writeAtomic(`${folder}/config.json`, JSON.stringify(config));
    await files.writeAtomic(`${folder}/model.safetensors`, await files.read(`${CHECKPOINT}/model.safetensors`));
  };
  await put('deep', { model_type: 'gpt2', vocab_size: 256, n_embd: 4, n_head: 2, n_layer: 2 ** 31 });
  const larger = await savedRun({ ...SETTINGS, config: LARGER });
  for (const name of ['config.json', 'model.safetensors'])
    await files.writeAtomic(`large/${name}`, await larger.files.read(`${CHECKPOINT}/${name}`));
  let said = '';
  const warn = (text: string) => {
    said += text;
  };
  const host = memoryHost(files, {
    args,
    terminal: { interactive: false, columns: 80, write() {}, warn },
    gpuSources: () => Promise.reject(new Error('a GPU was asked for')),
  });
  const before = process.memoryUsage();
  expect(await run(host)).toBe(2);
  const after = process.memoryUsage();
  expect(after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers).toBeLessThan(100e6);
  expect(said).toMatch(/^holdfast: [^\n]+\n$/);
  return said;
}

describe('refused at once', () => {
  const huge = '1000000000';
  test.each<[string[], RegExp]>([
    [['train', '--layers', '1000000'], /1000000 layers has 12000004 tensors.*n_layer may be up to 341/],
    [['train', '--model', 'llama', '--layers', huge], /num_hidden_layers may be up to 454/],
    [['train', '--width', huge, '--heads', '1'], /parameters: .* at most are planned; use a smaller width/],
    [['train', '--context', huge], /sequences of 1000000000 tokens: 33554432 tokens at most/],
    [['train', '--batch', huge], /a batch of 1000000000 sequences of 64 tokens: .* use at most 524288 sequences/],
    [['train', '--accumulate', huge], /a step of 1000000000 micro-batches .* accumulate at most \d+$/m],
    [['train', '--eval-windows', huge], /of 64 tokens: .* use at most 524288 sequences \(--eval-windows\), or shorter/],
    [['train', '--steps', '9007199254740991'], /9007199254740991 steps .* more than the record of a run holds/],
    [['train', '--sample-tokens', huge], /samples of 1000000000 tokens: more than the record of a run holds/],
    [['train', '--lr', '1e39'], /It must be a number, 0 or more, that float32 holds/],
    [['train', '--batch', '99999999999999999999'], /It must be a whole number, 1 or more/],
    [['train', '--policy', 'constructor'], /'constructor' is invalid\. It must be one of planned, lru/],
    [['train', '--policy', '__proto__'], /'__proto__' is invalid\. It must be one of planned, lru/],
    [['train', '--model', 'deep'], /2147483648 layers has 25769803780 tensors/],
    [['generate', 'deep'], /2147483648 layers has 25769803780 tensors/],
    [['plan', '--layers', '1000000'], /1000000 layers has 12000004 tensors/],
    [['plan', '--vocab-size', huge], /of 1000000000 tokens: vocab_size may be up to/],
    [['plan', '--batch', huge], /a batch of 1000000000 sequences of 256 tokens: .* use at most 131072 sequences/],
    [
      ['plan', '--batch', '131072'],
      /a batch of 33554432 tokens: over a vocabulary of 50257 .* use at most 5439488 tokens/,
    ],
    [['plan', '--context', huge], /768123653376 parameters: .* use a smaller width, vocabulary or context/],
    [
      ['plan', '--model', 'llama', '--context', huge],
      /of 1000000000 tokens: 33554432 tokens at most .* use shorter ones/,
    ],
    [['plan', '--model', 'bert', '--batch', huge], /a batch of 1000000000 sequences of 256 tokens/],
    [['plan', '--batch', huge, '--hardware', 'rtx-3060'], /a batch of 1000000000 sequences of 256 tokens/],
    [['plan', '--batch', huge, '--ranks', '2'], /a batch of 1000000000 sequences of 256 tokens/],
    [['plan', '--batch', huge, '--compare', '--activations'], /a batch of 1000000000 sequences of 256 tokens/],
    [['plan', '--accumulate', huge], /a step of 1000000000 micro-batches .* accumulate at most \d+$/m],
  ])('%j', async (args, message) => {
    expect(await refusal(...args)).toMatch(message);
  });

  test('micro-batches, by the operators of a step', () => {
    const model = makeModel(
      parseConfig({ model_type: 'gpt2', vocab_size: 256, n_embd: 8, n_head: 2, n_layer: 1 }, 'test'),
    );
    const programs = traceStep(model, 1, 8);
    const workload = (accumulate: number) => trainingWorkload(model, programs, accumulate);
    let message = '';
    try {
      workload(1e9);
    } catch (error) {
      message = (error as Error).message;
    }
    const most = Number(/accumulate at most (\d+)$/.exec(message)?.[1]);
    expect(() => workload(most)).not.toThrow();
    expect(() => workload(most + 1)).toThrow(`a step of ${most + 1} micro-batches`);
  });

  test('batches of more logits than are planned', () => {
    const program = (vocabulary: number, rows: number) => {
      const hidden = makeTensor('hidden', [rows, 4], 'persistent');
      const [weight, targets] = [
        makeTensor('head', [vocabulary, 4], 'parameter'),
        makeTensor('targets', [rows], 'persistent', 'i32'),
      ];
      const g = new Graph('loss');
      const sum = makeTensor('sum', [1], 'persistent');
      crossEntropyHead(g, hidden, { weight }, targets, { sum, accumulate: false });
      return g.program();
    };
    for (const vocabulary of [1, 2, 300, 50257, 2 ** 24]) {
      const most = mostRows(vocabulary);
      expect(() => program(vocabulary, most + 1)).toThrow(`a batch of ${most + 1} tokens`);
      const { instructions } = program(vocabulary, most);
      const tiles = instructions.filter((one) => 'kernel' in one && one.kernel === crossEntropyTile).length;
      expect(tiles).toBeLessThanOrEqual(MOST_LOGIT_TILES);
      expect(tiles).toBeGreaterThan(MOST_LOGIT_TILES / 2);
    }
  });

  // By what it would be, before any of it is made.
  test('what a page asks an estimate of, as it is typed', () => {
    const settings = defaultSettings();
    const estimate = (changes: object) => () => estimateRun({ ...settings, ...changes }, {});
    expect(estimate({ batch: 1e9 })).toThrow('tokens at most are held at once; use at most');
    expect(estimate({ batch: 2 ** 19, accumulate: 1e9 })).toThrow(
      'a step of 1000000000 micro-batches of this model has 1361000000000 operators, 262144 at most are planned',
    );
  });
});

test('a vocabulary that is not the tokenizer’s: generate and train say the same', async () => {
  const same = /large: its vocabulary has 300 tokens, of a tokenizer that is not there; .* vocab_size 256/;
  expect(await refusal('generate', 'large')).toMatch(same);
  expect(await refusal('train', '--model', 'large')).toMatch(same);
});

test('so does parity of a run', async () => {
  const { files } = await savedRun({ ...SETTINGS, config: LARGER });
  await expect(loadRun(memoryHost(files), RUN)).rejects.toThrow('run: its vocabulary has 300 tokens, of a tokenizer');
});

test('what sizeOf says is what makeModel makes', () => {
  const shape = fc.record({
    ...{
      layers: fc.integer({ min: 1, max: 4 }),
      heads: fc.integer({ min: 1, max: 3 }),
      size: fc.integer({ min: 1, max: 5 }),
    },
    ...{
      vocab: fc.integer({ min: 1, max: 70 }),
      context: fc.integer({ min: 1, max: 9 }),
      inner: fc.integer({ min: 1, max: 30 }),
    },
    ...{ tied: fc.boolean(), llama: fc.boolean(), width: fc.integer({ min: 1, max: 9 }) },
  });
  const property = fc.property(shape, ({ layers, heads, size, vocab, context, inner, tied, llama, width }) => {
    const shared = { vocab_size: vocab, tie_word_embeddings: tied };
    const config = llama
      ? {
          ...{
            ...shared,
            model_type: 'llama',
            hidden_size: width,
            intermediate_size: inner,
            num_hidden_layers: layers,
          },
          ...{
            num_attention_heads: 2 * heads,
            num_key_value_heads: heads,
            head_dim: 2 * size,
            max_position_embeddings: context,
          },
        }
      : {
          ...shared,
          model_type: 'gpt2',
          n_embd: heads * size,
          n_head: heads,
          n_layer: layers,
          n_positions: context,
          n_inner: inner,
        };
    const parsed = parseConfig(config, 'test');
    checkSize(parsed);
    const model = makeModel(parsed);
    expect(sizeOf(parsed)).toEqual({ tensors: model.parameters.length, parameters: parameterCount(model) });
  });
  fc.assert(property, { seed: 1, numRuns: 200 });
});
