// The step that updates chunks inside its backward pass, on paper: where each chunk's update stands, what of the gradients has a
// value at once, and that a first pass leaves the second everything as it was.

import { describe, expect, test } from 'vitest';
import { isDispatch, type Operation } from '../../src/engine/compile/operations.ts';
import { heldAtOnce } from '../../src/engine/compile/pass.ts';
import { ACTIVATION_MODES } from '../../src/graph/activations.ts';
import { copyTensor } from '../../src/kernels/copy-tensor.ts';
import { stepControl } from '../../src/kernels/step-control.ts';
import { mapChunks } from '../../src/memory/layout/chunk-map.ts';
import { computedIn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { LARGEST, MODELS } from '../model/runs.ts';
import { checkTrace } from './check-trace.ts';

const MODELS_HERE = [
  ['tied', LARGEST],
  ['untied', MODELS['gpt2, untied']],
  ['in bf16', computedIn(LARGEST, 'bf16')],
  ['a decoder', MODELS['gemma3, every switch']],
] as const;

const updates = ({ each }: Operation) => each?.eager === 'unused';

describe.each(MODELS_HERE)('%s', (_, model) => {
  test.each([
    ['one pass', 1, 1, 'keep'],
    ['two passes', 2, 1, 'keep'],
    ['two passes, of three micro-batches', 2, 3, 'recompute'],
  ] as const)(
    '%s: each chunk is updated right behind its last use, and its gradient is gone',
    (_, passes, accumulate, activations) => {
      const programs = traceStep(model, 1, 8, { passes });
      const workload = trainingWorkload(model, programs, accumulate, undefined, { activations });
      const map = mapChunks(model.parameters, true, { minBytes: 4096, maxBytes: 10240 });
      const { step } = workload.passes(map);
      checkTrace(step.trace);
      const chunksOf = ({ uses }: Operation) => uses.map(({ list, piece }) => list.first + piece.chunk);
      const found = step.operations.filter(updates);
      expect(found.map(({ each }) => each?.index).toSorted((a, b) => (a ?? 0) - (b ?? 0))).toEqual(
        map.trainable.used.map((_, index) => index),
      );
      for (const [moment, operation] of step.operations.entries()) {
        if (!updates(operation)) continue;
        const own = new Set(chunksOf(operation));
        // What else is updated behind the same operation may lie beside it in narrow chunks.
        const later = step.operations.slice(moment + 1).filter((other) => !updates(other));
        expect(
          later.filter((other) => chunksOf(other).some((chunk) => own.has(chunk))).map(({ label }) => label),
        ).toEqual([]);
        const before = step.operations.slice(0, moment).findLast((other) => other.each === undefined);
        // What narrow gradients are rounded from is read in between; two of them lie in one chunk.
        const { index = 0 } = operation.each ?? {};
        const rounded = [index, index ^ 1].map((each) => map.list('gradient').first + each);
        for (const chunk of map.dtype === 'f32' ? [] : rounded) own.add(chunk);
        expect(
          chunksOf(before as Operation).some((chunk) => own.has(chunk)),
          `${operation.label} could come earlier`,
        ).toBe(true);
      }
      const gradients = map.lists.filter(({ kind }) => kind.startsWith('gradient'));
      const all = gradients.reduce((sum, { chunks }) => sum + chunks, 0);
      const held = heldAtOnce([step], map, true) - (map.count - all);
      const atEnd = map.list(map.dtype === 'f32' ? 'gradient' : 'gradientBF16').chunks;
      // Of narrow ones, those that are not complete lie there in f32.
      expect(held).toBeLessThan((map.dtype === 'f32' ? 0.75 : 1) * atEnd);
    },
  );

  test.each(ACTIVATION_MODES)('%s: the second pass does what the first did', (activations) => {
    const { programs } = trainingWorkload(model, traceStep(model, 1, 8, { passes: 2 }), 1, undefined, {
      activations,
    });
    const { instructions } = at(programs, 0);
    const decided = instructions.findIndex((one) => one.op === 'dispatch' && one.kernel === stepControl);
    // What the first overwrites and the second reads again, it copies.
    const isCopy = (one: (typeof instructions)[number]) => one.op === 'dispatch' && one.kernel === copyTensor;
    expect(instructions.slice(decided).filter(isCopy)).toEqual([]);
    const backward = (part: typeof instructions) =>
      part.filter((one) => one.phase === 'backward' && !isCopy(one)).map(({ op, label }) => `${op} ${label}`);
    const [first, second] = [backward(instructions.slice(0, decided)), backward(instructions.slice(decided))];
    expect(first.length).toBeGreaterThan(0);
    expect(second).toEqual(first);
  });
});

test('micro-batches that hold all gradients from one to the next are refused', () => {
  const programs = traceStep(LARGEST, 1, 8, { passes: 1 });
  const workload = (accumulate: number) =>
    trainingWorkload(LARGEST, programs, accumulate, undefined, { accumulateOrder: 'batch' });
  expect(() => workload(2)).toThrow(/one after the other hold.*--accumulate-order layer/);
  expect(workload(1).order).toBeUndefined();
  expect(trainingWorkload(LARGEST, programs, 2).order?.menu).toEqual(['layer']);
  const { step } = workload(1).passes(mapChunks(LARGEST.parameters, true, { minBytes: 4096, maxBytes: 10240 }));
  // The norm is the last, and known only then.
  expect(step.update?.known).toBe(step.operations.length);
  expect(step.operations.filter(isDispatch).at(-1)?.kernel.name).toBe('recordNorm');
});
