// What `using` and `await using` call: the end of all that is opened on a device, and of the device; also where there are no symbols.

import { expect, test, vi } from 'vitest';
import { parseConfig } from '../../src/formats/config.ts';
import { openDevice } from '../../src/gpu/device.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { BatchGenerator } from '../../src/train/inference/batch-generator.ts';
import { Classifier } from '../../src/train/inference/classifier.ts';
import { Generator } from '../../src/train/inference/generator.ts';
import { Evaluator } from '../../src/train/step/evaluator.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { CONFIG } from '../cli/published-bert.ts';
import { ADAPTER, testHost } from '../host.ts';
import { SMALLEST } from './runs.ts';

test('everything is freed behind its block, and the device at the end of its own', async () => {
  const device = await openDevice(testHost, { adapter: ADAPTER });
  const [batch, seq, schedule] = [1, 4, { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 1 } as const];
  const weights = initialWeights(SMALLEST, 1);
  const bert = makeModel(parseConfig(CONFIG, 'a classifier'));
  for (const open of [
    () => Trainer.create(device, SMALLEST, { batch, seq, schedule }),
    () => Generator.open(device, SMALLEST, weights),
    () => BatchGenerator.open(device, SMALLEST, weights, { batch: 2 }),
    () => Evaluator.open(device, SMALLEST, weights, { batch, seq }),
    () => Classifier.open(device, bert, initialWeights(bert, 1)),
  ]) {
    const opened = await open();
    expect(device.allocator.bytes).toBeGreaterThan(0);
    await opened[Symbol.asyncDispose]();
    expect(device.allocator.bytes).toBe(0);
  }
  device[Symbol.dispose]();
  expect(device.status).toBe('closed');
});

test('a browser without the symbols has those that compilers take there', async () => {
  const others = Object.getOwnPropertyNames(Symbol).filter(
    (name) => !/dispose$|^(?:length|name|prototype)$/i.test(name),
  );
  const own = others.map((name) => [name, Symbol[name as keyof typeof Symbol]]);
  vi.stubGlobal(
    'Symbol',
    Object.assign((text: string) => Symbol.for(text), Object.fromEntries(own)),
  );
  vi.resetModules();
  const { DISPOSE, ASYNC_DISPOSE } = await import('../../src/util/dispose.ts');
  vi.unstubAllGlobals();
  expect([DISPOSE, ASYNC_DISPOSE]).toEqual([Symbol.for('Symbol.dispose'), Symbol.for('Symbol.asyncDispose')]);
});
