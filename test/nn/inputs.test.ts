// The inputs of programs, without a device: what batches may be, what tensors get of them, for inputs of every kind that
// an objective may ask for.

import fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Batch } from '../../src/data/batches.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { Mask } from '../../src/graph/operators/attention.ts';
import { tokenIndex } from '../../src/kernels/embedding.ts';
import { makeModel } from '../../src/nn/index.ts';
import { BatchInputs, type InputSpec, textInputs, tokenIds } from '../../src/nn/inputs.ts';
import { languageModel } from '../../src/nn/objective.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { GEMMA3 } from '../families/gemma3.ts';
import { MISTRAL } from '../families/mistral.ts';

const PIXELS: InputSpec = { name: 'pixels', type: 'f32', row: [3, 2, 2] };
const LABEL: InputSpec = { name: 'label', type: 'i32', row: [], below: 10, ignored: -100 };

it('takes measured numbers of any shape, and one label a row', () => {
  const inputs = new BatchInputs([PIXELS, LABEL], 2, 4);
  expect([inputs.tensor('pixels').shape, inputs.tensor('label').shape]).toEqual([[2, 3, 2, 2], [2]]);
  const pixels = Float32Array.from({ length: 36 }, (_, i) => i / 7 - 2);
  const batch = { pixels, label: Int32Array.of(9, -100, 0), batch: 3, seq: 4 };
  inputs.check(batch);
  // Three rows are two parts; behind the last row there is one that does not count.
  const [first, last] = [inputs.part(batch, 0), inputs.part(batch, 2)];
  expect(first).toEqual({ pixels: pixels.slice(0, 24), label: Int32Array.of(9, -100), batch: 2, seq: 4 });
  const padded = Float32Array.from({ length: 24 }, (_, i) => pixels[24 + i] ?? 0);
  expect(last).toEqual({ pixels: padded, label: Int32Array.of(0, -100), batch: 2, seq: 4 });
  expect(inputs.values(first)).toEqual([
    [inputs.tensor('pixels'), first['pixels']],
    [inputs.tensor('label'), first['label']],
  ]);
});

it.each<[string, Partial<Record<string, Batch[string]>>, string]>([
  ['no array', { label: 7 }, 'a batch has no label: give them as Int32Array'],
  ['an array of another type', { pixels: new Int32Array(24) }, 'a batch has no pixels: give them as Float32Array'],
  ['too few', { pixels: new Float32Array(23) }, 'a batch of 2 x 4 with 23 pixels: give 24'],
  [
    'a class that is none',
    { label: Int32Array.of(3, 10) },
    'a batch has 10 among its label: for this model, they end at 9',
  ],
  ['other rows', { batch: 3 }, 'a batch of 3 x 4 tokens: this trainer was made for 2 x 4 (batch, seq)'],
])('refuses %s', (_, changes, message) => {
  const inputs = new BatchInputs([PIXELS, LABEL], 2, 4);
  const right = { pixels: new Float32Array(24), label: new Int32Array(2), batch: 2, seq: 4 };
  inputs.check(right, 2);
  const wrong = { ...right, ...changes } as Batch;
  expect(() => inputs.check(wrong, 2)).toThrow(HoldfastError);
  expect(() => inputs.check(wrong, 2)).toThrow(message);
});

it('groups the rows of everything that is embedded', () => {
  const segments: InputSpec = { name: 'segments', type: 'i32', row: [3], below: 2, embedded: true };
  const inputs = new BatchInputs([...tokenIds(50, 3), segments], 2, 3);
  const batch = { ids: Int32Array.of(7, 2, 7, 9, 2, 7), segments: Int32Array.of(0, 0, 1, 1, 0, 1), batch: 2, seq: 3 };
  inputs.check(batch);
  const held = new Map(inputs.values(batch));
  for (const name of ['ids', 'segments'] as const) {
    const { ids, index } = inputs.tokens(name);
    const { tokens, starts, order } = tokenIndex(batch[name]);
    expect([ids, index.tokens, index.starts, index.order].map((tensor) => held.get(tensor))).toEqual([
      batch[name],
      tokens,
      starts,
      order,
    ]);
  }
});

it('fills in what a batch may leave out, and lets rows that do not count be tokens', () => {
  const inputs = new BatchInputs(textInputs(9, 2, 3), 2, 3);
  const ids = Int32Array.of(1, 2, 3, 4, 5, 6, 7, 8, 0);
  const batch = { ids, batch: 3, seq: 3 };
  inputs.check(batch);
  const last = inputs.part(batch, 2);
  const ones = new Int32Array(6).fill(1);
  expect(last).toMatchObject({
    ids: Int32Array.of(7, 8, 0, 0, 0, 0),
    attentionMask: ones,
    tokenTypes: new Int32Array(6),
  });
  expect(
    new Map(inputs.values({ ids: ids.slice(0, 6), batch: 2, seq: 3 })).get(inputs.tensor('attentionMask')),
  ).toEqual(ones);
  const attentionMask = Int32Array.of(1, 1, 0, 1, 0, 0, 1, 1, 1);
  expect(inputs.part({ ...batch, attentionMask }, 0)['attentionMask']).toEqual(attentionMask.slice(0, 6));
  expect(() => inputs.check({ ...batch, attentionMask: attentionMask.map(() => 2) })).toThrow(
    'a batch has 2 among its attentionMask: for this model, they end at 1',
  );
});

it('counts the labels of a batch, whole or part by part', () => {
  const rows = fc.array(fc.array(fc.constantFrom(-100, 0, 4), { minLength: 3, maxLength: 3 }), { minLength: 1 });
  const counted = fc.property(rows, fc.integer({ min: 1, max: 4 }), (targets, batch) => {
    const flat = Int32Array.from(targets.flat());
    const whole = { ids: flat.map(() => 1), targets: flat, batch: targets.length, seq: 3 };
    const inputs = new BatchInputs([...tokenIds(5, 3), ...languageModel.labels(5, 3)], batch, 3);
    inputs.check(whole);
    let sum = 0;
    for (let row = 0; row < whole.batch; row += batch) sum += languageModel.count(inputs.part(whole, row));
    expect(sum).toBe(flat.filter((target) => target !== -100).length);
    expect(languageModel.count(whole)).toBe(sum);
  });
  fc.assert(counted, { seed: 3, numRuns: 60 });
});

it('says where what a token sees begins, for each window that hides some of a row and for none', () => {
  const { config, inputs, objective } = makeModel(parseConfig(GEMMA3, 'test'));
  expect(inputs(4).map(({ name }) => name)).toEqual(['ids']);
  expect(inputs(4, true).map(({ name }) => name)).toEqual(['ids', 'documents']);
  expect(config).toMatchObject({ sliding_window: 3 });
  const packed = (seq: number) => new BatchInputs([...inputs(seq, true), ...objective.labels(11, seq)], 2, seq);
  const rows = packed(7);
  const [whole, within] = [rows.seen(), rows.seen(3)];
  expect([whole, within]).toEqual([
    { documentStarts: expect.anything() },
    { documentStarts: expect.anything(), window: 3 },
  ]);
  // One tensor for all layers that see alike.
  expect([rows.seen(), rows.seen(3), rows.seen(7), rows.seen(99)]).toEqual([whole, within, whole, whole]);
  const batch = {
    ids: new Int32Array(14),
    targets: new Int32Array(14),
    documents: Int32Array.of(5, 5, 5, 5, 5, 2, 2, /**/ 2, 2, 2, 2, 0, 1, 1),
    ...{ batch: 2, seq: 7 },
  };
  rows.check(batch);
  const held = new Map(rows.values(batch));
  const startsOf = (mask: Mask) =>
    typeof mask === 'object' && 'documentStarts' in mask && Array.from(held.get(mask.documentStarts) ?? []);
  expect(startsOf(whole)).toEqual([0, 0, 0, 0, 0, 5, 5, /**/ 0, 0, 0, 0, 4, 5, 5]);
  expect(startsOf(within)).toEqual([0, 0, 0, 1, 2, 5, 5, /**/ 0, 0, 0, 1, 4, 5, 5]);
  expect(rows.all.filter(({ name }) => name.startsWith('document starts')).map(({ name }) => name)).toEqual([
    'document starts',
    'document starts within 3',
  ]);
  // In rows of one document there is nothing to say.
  const plain = new BatchInputs(inputs(7), 2, 7);
  expect([plain.seen(), plain.seen(3)]).toEqual(['causal', { window: 3 }]);
});

it('makes no operand that no layer reads', () => {
  const { inputs } = traceStep(makeModel(parseConfig(MISTRAL, 'test')), 1, 7, { packed: true });
  const names = inputs.all.map(({ name }) => name).filter((name) => name.startsWith('document'));
  expect(names).toEqual(['document starts within 3']);
});
