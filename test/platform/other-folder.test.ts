// A run of a program that goes to another folder meanwhile: all its files lie where it began.

import { existsSync, mkdirSync, mkdtempSync, readdirSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { trainRun } from '../../src/train/run/run.ts';
import { defaultSettings } from '../../src/train/run/run-settings.ts';
import { testDevice } from '../harness.ts';
import { testHost } from '../host.ts';

const here = process.cwd();
let folder: string;
beforeEach(() => {
  folder = realpathSync(mkdtempSync(path.join(os.tmpdir(), 'holdfast-elsewhere-')));
});
afterEach(() => {
  process.chdir(here);
  rmSync(folder, { recursive: true, force: true });
});

const config = parseConfig(
  { model_type: 'gpt2', vocab_size: 256, n_positions: 8, n_embd: 16, n_layer: 1, n_head: 2 },
  'test',
);

test('checkpoints of a run in a folder of a relative name lie together', async () => {
  const text = path.join(folder, 'text.txt');
  writeFileSync(text, 'hold fast, hold on; '.repeat(12));
  mkdirSync(path.join(folder, 'elsewhere'));
  const settings = defaultSettings({
    ...{ config, data: [text], batch: 2, steps: 3, warmup: 0, sampleTokens: 0, evalWindows: 2, evalEvery: 0 },
    ...{ saveEvery: 1 },
  });
  process.chdir(folder);
  const saved: string[] = [];
  const { checkpoint } = await trainRun(testHost, await testDevice(), settings, 'run', {
    events: {
      saved: (place) => {
        saved.push(place);
        process.chdir(path.join(folder, 'elsewhere'));
      },
    },
  });
  expect(saved).toEqual([1, 2, 3].map((step) => path.join(folder, 'run', `checkpoint-${step}`)));
  expect(saved.at(-1)).toBe(checkpoint);
  expect(existsSync(checkpoint)).toBe(true);
  expect(readdirSync(path.join(folder, 'elsewhere'))).toEqual([]);
  expect(readdirSync(path.join(folder, 'run'))).not.toContain('run.lock');
});
