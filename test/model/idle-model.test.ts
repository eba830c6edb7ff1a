// The model of a run that another tab trains, opened to write: its checkpoint is replaced at any moment while it is read, and the one
// that is there then writes.

import { expect, test } from 'vitest';
import { IdleModel } from '../../src/browser/idle-model.ts';
import type { Runs } from '../../src/browser/runs.ts';
import { Writer } from '../../src/browser/writer.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { BrowserHost } from '../../src/runtime/browser.ts';
import { trainRun } from '../../src/train/run/run.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles, memoryHost } from '../memory-files.ts';

// By other kernels, last bits would be others.
chooseVariants(6);

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 8, n_embd: 16, n_layer: 1, n_head: 2 },
  'test',
);
const settings = defaultSettings({
  ...{ config, data: ['text.txt'], batch: 4, warmup: 0, sampleTokens: 0, sampleEvery: 0, evalEvery: 0, saveEvery: 2 },
});

/** As a browser has them: what was opened cannot be read once it is removed. */
class SiteFiles extends MemoryFiles {
  /** At the weights, since it was set. */
  looks = 0;
  /** What happens before a look of them. */
  before: ((look: number) => Promise<void>) | undefined;

  override async stat(path: string) {
    await this.#look(path);
    return super.stat(path);
  }

  override async open(path: string) {
    await this.#look(path);
    const { bytes } = await super.open(path);
    const readRange = async (offset: number, count: number) => {
      await this.#look(path);
      return this.readRange(path, offset, count);
    };
    return { bytes, readRange, close: async () => {} };
  }

  async #look(path: string): Promise<void> {
    if (path.endsWith('/model.safetensors')) await this.before?.(++this.looks);
  }
}

async function trained(files: MemoryFiles, steps: number): Promise<void> {
  const resume = (await files.list('run')).length > 0;
  await trainRun(memoryHost(files), await testDevice(), { ...settings, steps, lr: 0.1 }, 'run', { resume });
}

/** How likely the run in these files takes what may come next. */
async function expected(files: MemoryFiles): Promise<readonly number[]> {
  const runs = { folder: () => 'run', get: async (id: string) => ({ id, savedStep: 2, memory: {} }) };
  const idle = new IdleModel(memoryHost(files) as BrowserHost, runs as unknown as Runs, testDevice);
  const opened = await (await idle.open('a', () => false))?.opened;
  if (!(opened instanceof Writer)) throw new Error('it is none that writes');
  const next = await opened.next('hold ', 256);
  await idle.close();
  return next.map(({ probability }) => probability);
}

test('a run that was removed in another tab is told as that, and one that has no checkpoint as such', async () => {
  const opened = (get: () => Promise<unknown>) => {
    const runs = { folder: () => 'run', get };
    return new IdleModel(memoryHost(new MemoryFiles()) as BrowserHost, runs as unknown as Runs, testDevice).open(
      'a',
      () => false,
    );
  };
  await expect(opened(async () => ({}))).rejects.toThrow('run a has no checkpoint yet');
  await expect(opened(() => Promise.reject(new Error('there is none')))).rejects.toThrow('there is none');
});

test('where a checkpoint is replaced while it is read, the new one writes', async () => {
  const files = new SiteFiles({ 'text.txt': 'hold fast, hold on; '.repeat(12) });
  await trained(files, 2);
  files.before = async () => {};
  let found = await expected(files);
  const { looks } = files;
  expect(looks).toBeGreaterThan(2);
  for (const [i, at] of [1, 2, Math.ceil(looks / 2), looks].entries()) {
    const before = found;
    files.looks = 0;
    files.before = async (look) => {
      if (look !== at) return;
      files.before = undefined;
      await trained(files, 10 * (i + 1));
    };
    found = await expected(files);
    expect(found, `replaced before look ${at} of ${looks}`).toEqual(await expected(files));
    expect(found).not.toEqual(before);
  }
});
