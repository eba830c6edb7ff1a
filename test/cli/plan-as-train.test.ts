// `plan` in place of `train` in a command line: it takes the same flags, and plans the run that they make, on the adapter that they
// name. In process, on the adapter under test.

import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, test, vi } from 'vitest';
import { estimateRun } from '../../src/browser/estimate.ts';
import { planCommand } from '../../src/cli/plan.ts';
import { run } from '../../src/cli/run.ts';
import { trainCommand } from '../../src/cli/train.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { headlessHost } from '../../src/runtime/headless.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { chooseVariants } from '../choose-variants.ts';
import { FileServer } from '../formats/file-server.ts';
import { ADAPTER } from '../host.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';
import { recordedTerminal } from '../recorded-terminal.ts';
import { inProcess } from './in-process.ts';

chooseVariants(7);

const CONFIG = {
  ...{ model_type: 'llama', hidden_size: 32, intermediate_size: 48, num_hidden_layers: 3, num_attention_heads: 4 },
  ...{ num_key_value_heads: 2, max_position_embeddings: 48, vocab_size: 320, tie_word_embeddings: false },
};
const RECORD = JSON.stringify({ prompt: 'What holds? ', completion: 'What is held fast.' });
const files = new MemoryFiles({
  'text.txt': 'hold fast, and then hold on; '.repeat(400),
  'records.jsonl': `${RECORD}\n`.repeat(40),
  'sizes/config.json': JSON.stringify(CONFIG),
});

/** It must succeed. */
async function said(...args: string[]): Promise<string> {
  const found = await inProcess(files, args);
  expect(found.status, found.said).toBe(0);
  return found.out;
}
const refused = async (...args: string[]) => (await inProcess(files, ['plan', ...args])).said;
const plan = async (...args: string[]) => {
  const { planMilliseconds: _, ...found } = JSON.parse(await said('plan', ...args, '--json'));
  return found;
};
const train = async (...args: string[]) => {
  const lines = (await said('train', ...args, '--eval-windows', '2', '--warmup', '0', '--json')).trim().split('\n');
  return JSON.parse(lines.at(-1) ?? '').summary;
};

const SHAPE = ['--layers', '2', '--width', '32', '--heads', '2', '--context', '24', '--batch', '4'];
const OF_BYTES = [...SHAPE, '--vocab-size', '256'];

test('there is no flag of train that plan does not know, and the warm-up is told alike', () => {
  const names = (command: ReturnType<typeof planCommand>) => command.options.map(({ long }) => long);
  const host = memoryHost(files);
  const [planned, trained] = [planCommand(host), trainCommand(host)];
  expect(names(planned)).toEqual(expect.arrayContaining(names(trained)));
  const warmupOf = ({ options }: typeof planned) => options.find(({ long }) => long === '--warmup')?.description;
  expect(warmupOf(planned)).toBe(warmupOf(trained));
});

describe('a model folder', () => {
  const settings = defaultSettings({ config: parseConfig(CONFIG, 'test'), batch: 1 });

  test('has its own sizes, and is planned from its config.json alone', async () => {
    const found = await plan('--model', 'sizes');
    expect(found).toMatchObject({
      parameters: estimateRun(settings, {}).parameters,
      smallestBudget: estimateRun(settings, {}).smallest,
    });
    expect(await said('plan', '--model', 'sizes')).toMatch(
      /^llama, 3 layers of width 32, vocabulary 320: .*batch 1 x 48 \(/ms,
    );
    const short = estimateRun({ ...settings, seq: 16 }, {}).smallest;
    expect((await plan('--model', 'sizes', '--context', '16')).smallestBudget).toBe(short);
    expect(await said('plan', '--model', 'sizes', '--hardware', 'rtx-3060')).toContain('llama, 3 layers of width 32');
    expect(await said('plan', '--model', 'sizes', '--ranks', '2')).toContain('llama, 3 layers of width 32');
    expect(await refused('--model', 'sizes', '--layers', '2')).toContain('--layers: the model in sizes has its own');
    expect(await refused('--model', 'sizes', '--vocab-size', '9')).toContain('--vocab-size: the model in sizes has');
  });

  test('a frozen one lies in memory as its config.json says that it is stored', async () => {
    await files.writeAtomic('narrow/config.json', JSON.stringify({ ...CONFIG, torch_dtype: 'bfloat16' }));
    const low = (model: string, ...args: string[]) => plan('--model', model, '--lora-rank', '2', ...args);
    expect(await low('narrow')).toEqual(await low('sizes', '--base-dtype', 'bf16'));
    expect((await low('narrow')).modelDataBytes).toBeLessThan((await low('sizes')).modelDataBytes);
  });
});

describe('a model of the hub', () => {
  const SHA = 'e'.repeat(40);
  const server = new FileServer({
    'org/model/config.json': JSON.stringify(CONFIG),
    'org/model/model.safetensors': new Uint8Array(64),
  });
  const cacheFolder = mkdtempSync(path.join(os.tmpdir(), 'holdfast-plan-'));
  let address: string;
  beforeAll(async () => {
    address = await server.listen();
    const network = fetch;
    vi.stubGlobal('fetch', (input: string | URL | Request, init?: RequestInit) => {
      const { pathname } = new URL(String(input instanceof Request ? input.url : input));
      if (pathname.startsWith('/api/')) return Promise.resolve(Response.json({ id: 'org/model', sha: SHA, _id: '1' }));
      return network(`${address}${pathname.replace(`/resolve/${SHA}/`, '/')}`, init);
    });
  });
  afterAll(async () => {
    vi.unstubAllGlobals();
    await server.close();
    rmSync(cacheFolder, { recursive: true, force: true });
  });

  const fromHub = async (model: string) => {
    const terminal = recordedTerminal();
    const status = await run({ ...headlessHost(), cacheFolder, terminal, args: ['plan', '--model', model, '--json'] });
    return { status, ...terminal };
  };

  test('is planned from its config.json, and none of its weights are brought', async () => {
    const { status, out, said } = await fromHub('hf://org/model');
    expect(`${status} ${said}`).toBe('0 ');
    const { parameters, smallestBudget } = await plan('--model', 'sizes');
    expect(JSON.parse(out)).toMatchObject({ parameters, smallestBudget });
    expect(server.requests.filter((request) => !request.includes('config.json'))).toEqual([]);
    const zip = await fromHub('https://example.org/model.zip');
    expect(zip.status).toBe(2);
    expect(zip.said).toContain('model.zip: holds the weights with the sizes, and a plan brings no weights');
  });
});

describe('a flag', () => {
  const BUDGET = ['--gpu-memory', '300KB'];

  test('that changes nothing of what a step needs leaves the plan as it is', async () => {
    const found = await plan(...OF_BYTES, ...BUDGET);
    const others = [
      ...['--steps', '9', '--until', '3', '--lr', '0.01', '--min-lr', '0.001', '--warmup', '2', '--schedule', 'linear'],
      ...['--weight-decay', '0', '--clip', '2', '--seed', '4', '--eval-every', '3', '--eval-windows', '4'],
      ...['--save-every', '0', '--sample-every', '5', '--keep-best', '--early-stopping-patience', '2', '--out', 'o'],
      ...['--data', 'text.txt', '--validation', '0.2', '--timeline', 't.json', '--tokenizer', 'bytes'],
    ];
    expect(await plan(...SHAPE, ...BUDGET, ...others)).toEqual(found);
    expect(await plan(...SHAPE, ...BUDGET, '--tokenizer', 'bytes', '--epochs', '3')).toEqual(found);
    expect(await refused(...SHAPE, '--gpu-memory', 'auto')).toContain('--gpu-memory auto: a GPU is asked how much');
  });

  test('of data that is records makes rows of several, unless they are not packed', async () => {
    const records = ['--data', 'records.jsonl'];
    const [plain, packed] = [await plan(...OF_BYTES, ...BUDGET), await plan(...OF_BYTES, ...BUDGET, ...records)];
    expect(packed.nonModelBytes.persistent).toBeGreaterThan(plain.nonModelBytes.persistent);
    expect(await plan(...OF_BYTES, ...BUDGET, '--pack', 'yes')).toEqual(packed);
    for (const args of [
      ['--pack', 'no'],
      [...records, '--pack', 'no'],
    ])
      expect(await plan(...OF_BYTES, ...BUDGET, ...args)).toEqual(plain);
    expect(await refused('--data', 'text.txt', '--pack', 'yes')).toContain('--pack: is for JSON records');
    // Wherever a step is predicted.
    for (const where of [
      ['--ranks', '2'],
      ['--hardware', 'rtx-3060'],
    ])
      expect(await plan(...OF_BYTES, ...where, '--pack', 'yes')).not.toEqual(await plan(...OF_BYTES, ...where));
  });

  test('that names a tokenizer says how many tokens there are', async () => {
    await said('tokenizer', 'train', '--vocab-size', '270', '--data', 'text.txt', '--out', 'bpe');
    const { model, added_tokens: added } = JSON.parse(new TextDecoder().decode(await files.read('bpe/tokenizer.json')));
    const tokens = new Set([...Object.keys(model.vocab), ...added.map((token: { content: string }) => token.content)]);
    expect(await plan(...SHAPE, '--tokenizer', 'bpe')).toEqual(
      await plan(...SHAPE, '--vocab-size', String(tokens.size)),
    );
    expect(await refused('--tokenizer', 'bpe', '--vocab-size', '9')).toContain('--vocab-size: is that of the --token');
  });

  test('that names a tokenizer without a mask is refused for a masked language model, as train refuses it', async () => {
    await said('tokenizer', 'train', '--vocab-size', '262', '--data', 'text.txt', '--out', 'unmasked');
    for (const data of ['text.txt', 'synthetic']) {
      const asked = ['--model', 'bert', ...SHAPE, '--tokenizer', 'unmasked', '--data', data];
      const trained = (await inProcess(files, ['train', ...asked, '--out', 'never'])).said;
      expect(trained).toContain('unmasked: has no token [MASK] or <mask>');
      expect(await refused(...asked)).toBe(trained);
    }
    expect(await refused('--model', 'bert', ...SHAPE, '--tokenizer', 'unmasked')).toContain('has no token [MASK]');
  });

  test('that names an adapter to go on from has its rank and targets', async () => {
    const short = ['--data', 'text.txt', '--steps', '2', '--sample-tokens', '0'];
    await train(...SHAPE, ...short, '--out', 'base');
    const lora = ['--lora-rank', '3', '--lora-targets', 'c_attn'];
    await train('--model', 'base', ...lora, ...short, '--out', 'tuned');
    const own = await plan('--model', 'base', ...lora);
    expect(own.trained).toBe(2 * 3 * (32 + 96));
    expect(await plan('--model', 'base', '--lora-from', 'tuned')).toEqual(own);
  });

  test('that goes on with a run plans what that computes', async () => {
    const own = ['--data', 'text.txt', '--optimizer-state', 'bf16', '--sample-tokens', '0'];
    await train(...SHAPE, ...own, '--steps', '2', '--out', 'saved');
    const found = await plan(...OF_BYTES, ...own, ...BUDGET);
    expect(await plan('--resume', '--out', 'saved', ...BUDGET)).toEqual(found);
    expect(await refused('--resume', '--out', 'nowhere')).toMatch(/^holdfast: nowhere/);
  });
});

test('an adapter that a run named, but that is not the one chosen by itself, has the rates, slots and seconds of that run', async () => {
  const flags = [...SHAPE, '--gpu-memory', '300KB', '--sample-tokens', '0'];
  const summary = await train(...flags, '--data', 'text.txt', '--steps', '24', '--out', 'named');
  const { fit, bytesPerStep, recoveryBytesPerStep } = summary.memory;
  const planned = (...args: string[]) => plan(...flags, '--tokenizer', 'bytes', ...args);
  const found = await planned('--adapter', ADAPTER);
  expect(found).toMatchObject({
    slots: fit.slots,
    predictedPeak: summary.peakGpuBytes,
    rates: { adapter: summary.adapter },
  });
  expect(found.bytesPerStep).toEqual({ h2d: bytesPerStep.h2d, d2h: bytesPerStep.d2h - recoveryBytesPerStep });
  expect(found.step).toMatchObject({ from: 'run' });
  const part = summary.adapter.slice(1, 6).toUpperCase();
  expect(await planned('--adapter', part)).toEqual(found);
  expect(await said('plan', ...flags, '--tokenizer', 'bytes', '--adapter', ADAPTER)).toContain(
    `tokens/s on ${summary.adapter}, as the steps of such a run took there`,
  );
  // None was chosen here, and of another nothing is known.
  const unknown = await planned();
  expect(unknown).toMatchObject({ step: null, rates: { adapter: null } });
  expect((await planned('--adapter', 'another')).rates).toEqual(unknown.rates);
  expect(await said('plan', ...SHAPE, '--adapter', 'another')).toContain(
    'by rates typical of a GPU; a run or `bench` tells of that of --adapter another\n',
  );
});
