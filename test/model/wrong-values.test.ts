// Values that are none, of what the library exports: each is refused by the name of its argument, where it was a TypeError, an
// endless loop, or was taken without a word. What else may be given is in exports.test.ts.

import { expect, test, vi } from 'vitest';
import { decode, formatBytes, parseBytes, shapeOf } from '../../src/browser/index.ts';
import {
  computedIn,
  configOfShape,
  defaultSettings,
  EarlyStopping,
  evenWindows,
  initialWeights,
  loadWeights,
  mergedWeights,
  momentsIn,
  parseSafetensors,
  Random,
  RandomWindows,
  saveCheckpoint,
  serializeSafetensors,
  sourceOf,
  stridedWindows,
  Trainer,
  withLora,
  withStored,
} from '../../src/index.ts';
import { chooseVariants } from '../choose-variants.ts';
import { expectMistake } from '../expect-mistake.ts';
import { testDevice } from '../harness.ts';
import { MemoryFiles } from '../memory-files.ts';
import { SMALLEST as model } from './runs.ts';

const tokens = Uint16Array.from({ length: 60 }, (_, i) => i % 40);
const weights = initialWeights(model, 1);
const none = <T>(value: unknown): T => value as T;
const bare: unknown = Object.create(null);
const windows = (changes: object) => [...stridedWindows(tokens, { context: 8, stride: 2, batch: 2, ...changes })];
const arrays = 'an Int32Array, a Uint8Array, a Uint16Array or a Uint32Array';

test.each<[string, () => unknown, string]>([
  ['a dtype', () => computedIn(model, none('f99')), 'dtype is "f99"; it must be one of "f32", "bf16", "f16"'],
  ['a dtype of moments', () => momentsIn(model, none('f16')), 'dtype is "f16"; it must be one of "f32", "bf16"'],
  ['a model', () => computedIn(none(undefined), 'f32'), 'model is missing; it must be a model, as makeModel gives'],
  [
    'what says how tensors are stored',
    () => withStored(model, none('f16')),
    'storedAs is "f16"; it must be a function',
  ],
  [
    'how one is stored',
    () => withStored(model, () => none('q9')),
    'what wte.weight is stored as is "q9"; it must be one of ',
  ],
  ['tokens', () => new RandomWindows(none([1, 2, 3]), 1, 2, 1), `tokens is a list of 3; it must be ${arrays}`],
  ['a stride', () => new RandomWindows(tokens, 1, 2, 1, 0), 'stride is 0; it must be a whole number, 1 or more'],
  ['tokens to validate', () => evenWindows(none('text'), 2, 1), `tokens is "text"; it must be ${arrays}`],
  ['a context', () => windows({ context: Number.NaN }), 'the options of windows: context is NaN; it must be'],
  ['a batch', () => windows({ batch: undefined }), 'the options of windows: batch is missing; it must be'],
  ['a seed', () => initialWeights(model, Number.NaN), 'seed is NaN; it must be a whole number, 0 or more'],
  ['pieces', () => initialWeights(model, 1, 0), 'pieceElements is 0; it must be a whole number, 1 or more'],
  ['pieces of values', () => sourceOf(new Map(), -1), 'pieceElements is -1; it must be a whole number, 1 or more'],
  ['values', () => sourceOf(none({})), 'values is an object; it must be a Map'],
  ['a patience', () => new EarlyStopping(Number.NaN), 'patience is NaN; it must be a whole number, 1 or more'],
  ['a threshold', () => new EarlyStopping(1, -1), 'threshold is -1; it must be a number, 0 or more'],
  ['a bound', () => new Random(1, 'test').below(0), 'below 0: must be a whole number from 1 to 4294967296'],
  ['a rank', () => withLora(model, none(undefined)), 'low-rank updates is missing; it must be an object'],
  ['a dropout', () => withLora(model, { rank: 1, dropout: none([]) }), 'low-rank updates: the dropout is '],
  ['bytes', () => parseSafetensors(none(new ArrayBuffer(20)), 'x'), 'bytes is an object; it must be a Uint8Array'],
  [
    'data of a file',
    () => serializeSafetensors([['a', { shape: [2], data: none(new Uint8Array(2)) }]]),
    'a tensor and its name: [1].data is an object; it must be a Float32Array, an Int32Array or a Float64Array',
  ],
  // What no template of a message takes, and no arithmetic.
  ['a seed that is a BigInt', () => new Random(none(1n), 'test'), 'seed 1n: must be a whole number from 0 to'],
  ['a seed that is a symbol', () => new Random(none(Symbol('s')), 'test'), 'seed symbol: must be a whole number'],
  ['a seed without a prototype', () => new Random(none(bare), 'test'), 'seed an object: must be a whole number'],
  [
    'a rank that is a BigInt',
    () => withLora(model, { rank: none(1n) }),
    'low-rank updates: the rank is 1n; it must be',
  ],
  [
    'a rank that is a symbol',
    () => withLora(model, { rank: none(Symbol('r')) }),
    'low-rank updates: the rank is symbol;',
  ],
  [
    'an adapter',
    () => mergedWeights(withLora(model, { rank: 1 }), weights, none(bare)),
    'the model has no adapter an object',
  ],
  ['a width', () => configOfShape({ width: none(1n) }), 'this shape: width is 1n; it must be a number'],
  [
    'a rate',
    () => defaultSettings({ lr: none(Symbol('r')) }),
    'the settings: lr is symbol; it must be a number, 0 or more',
  ],
  [
    'a configuration',
    () => shapeOf(none({ ...model.config, n_embd: 1n })),
    'the configuration of the model has a size',
  ],
  [
    'a number of sequences',
    () => new RandomWindows(tokens, none(bare), 2, 1),
    'a batch of an object sequences of 2 tokens',
  ],
  ['a text of bytes', () => parseBytes(none(Symbol('b'))), '"Symbol(b)" is not a byte count: write a number and'],
  ['a number of bytes', () => formatBytes(none(1n)), '"1" is not a number of bytes: give a number'],
  ['a code', () => decode(none(1n)), 'nothing has the code that is given; it must be one from 0 to'],
])('%s', async (_, mistake, says) => {
  await expectMistake(mistake, new RegExp(`^${says.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')}`));
});

test.each([1.5, -1, Number.NaN])('the step of a checkpoint: %d is not written', async (step) => {
  const files = new MemoryFiles();
  const shapes = new Map(model.parameters.map(({ name, shape }) => [name, shape]));
  const checkpoint = { config: model.config, state: {}, shapes, weights, moment1: weights, moment2: weights };
  const says = new RegExp(`^step is ${step}; it must be a whole number, 0 or more$`);
  await expectMistake(() => saveCheckpoint(files, 'run', step, checkpoint), says);
  expect(await files.stat('run')).toBeUndefined();
  await saveCheckpoint(files, 'run', 2, checkpoint);
  expect((await loadWeights(files, 'run')).config).toEqual(model.config);
});

test('of a trainer', async () => {
  chooseVariants(1);
  const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 9 } as const;
  const options = { batch: 2, seq: 8, schedule };
  const device = await testDevice();
  const opened = (changes: object) => () => Trainer.create(device, model, { ...options, ...changes });
  await expectMistake(() => Trainer.create(none(undefined), model, options), /^device is missing; it must be a device/);
  await expectMistake(
    opened({ memory: { gpu: 1e8, disk: '/tmp' } }),
    /^the memory options: disk is "\/tmp"; it must be an object$/,
  );
  await expectMistake(opened({ memory: { disk: {} } }), /^the memory options: disk.open is missing; .* a function$/);
  await expectMistake(opened({ memory: '1 GB' }), /^the memory options is "1 GB"; it must be an object$/);
  await expectMistake(
    opened({ schedule: { ...schedule, min: [] } }),
    /^minimum learning rate a list of 0: must lie between/,
  );
  const trainer = await Trainer.create(device, model, { ...options, optimizerDevice: none(undefined) });
  try {
    await trainer.setWeights(weights);
    await expectMistake(() => trainer.values(none('foo')), /^kind is "foo"; it must be one of "parameter", /);
    await expectMistake(() => trainer.setValues(none('foo'), weights), /^kind is "foo"; it must be one of/);
    await expectMistake(
      () => trainer.setWeights(none(undefined)),
      /^weights is missing; it must be a source of tensors/,
    );
    const state = await trainer.state();
    for (const step of [-1, 0.5, Number.NaN]) {
      const says = new RegExp(`^the state of a trainer: step is ${step}; it must be a whole number, 0 or more$`);
      await expectMistake(() => trainer.restore({ ...state, step }), says);
    }
    await expectMistake(
      () => trainer.restore({ step: 3, control: [] }),
      /^the state of a trainer: control is a list of 0; it must be a list of 8 or 10$/,
    );
    expect(trainer.step).toBe(0);
    await expectMistake(() => trainer.start(none(undefined)), /^the batches of a step is missing; it must be a list$/);
    await expectMistake(() => trainer.evaluate(none(undefined)), /^the batch is missing; it must be an object$/);
  } finally {
    await trainer.destroy();
    vi.restoreAllMocks();
  }
});
