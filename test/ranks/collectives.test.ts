// The step of one of several ranks, on paper: all ranks exchange the same in the same order, a rank touches no moment of
// another's, its trace is legal, its memory falls with the number of ranks, and its bytes are those of a ring's all-reduce.

import { describe, expect, it } from 'vitest';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { networkBound, networkBytes } from '../../src/engine/ranks/collectives.ts';
import { onlyOwnerOf, ownerOf, ZERO_STAGES, type ZeroStage } from '../../src/engine/ranks/sharding.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { indicesIn, lastingKinds } from '../../src/memory/layout/kinds.ts';
import { makeModel } from '../../src/nn/index.ts';
import { computedIn, momentsIn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { MODELS } from '../model/runs.ts';
import { checkTrace } from '../plan/check-trace.ts';

const wide = makeModel(
  parseConfig({ model_type: 'gpt2', n_layer: 3, n_embd: 256, n_head: 4, n_positions: 16, vocab_size: 300 }, 'wide'),
);

const fitOf = (size: number, rank: number, stage: ZeroStage, model = wide, accumulate = 1) => {
  const sharding = { rank, size, stage };
  const programs = traceStep(model, 1, 16);
  return fitMemory(
    trainingWorkload(model, programs, accumulate, undefined, { accumulateOrder: 'batch', sharding }),
    DEFAULT_LIMITS,
    undefined,
  );
};

/** Parameters in sixteen bits and their moments. */
const narrowIn = (dtype: 'bf16' | 'f16') => momentsIn(computedIn(wide, dtype), 'bf16');
const NARROW = ['bf16', 'f16'] as const;

describe.each(ZERO_STAGES)('ZeRO %i', (stage) => {
  it.each([2, 3, 8])('gives %i ranks the same collectives in the same order', (size) => {
    for (const accumulate of [2]) {
      const lists = Array.from({ length: size }, (_, rank) =>
        fitOf(size, rank, stage, wide, accumulate).passes.step.operations.flatMap((operation) =>
          operation.op === 'collective' ? [`${operation.label}: ${JSON.stringify(operation.parts)}`] : [],
        ),
      );
      expect(at(lists, 0).length).toBeGreaterThan(2 * size);
      for (const list of lists) expect(list).toEqual(lists[0]);
    }
  });

  it('has a legal trace on every rank, also on one that owns no chunk', () => {
    const owned = new Set<number>();
    for (let rank = 0; rank < 64; rank += 9) {
      const { passes, map } = fitOf(64, rank, stage, MODELS['llama, grouped heads']);
      checkTrace(passes.step.trace);
      owned.add(map.trainable.used.filter((_, index) => ownerOf(index, map, { size: 64 }) === rank).length);
    }
    expect(owned).toContain(0);
  });

  it.each(NARROW)('gives ranks the same collectives in the same order, and legal traces, in %s', (dtype) => {
    const narrow = narrowIn(dtype);
    const lists = [0, 1, 2].map((rank) => {
      const { passes, map } = fitOf(3, rank, stage, narrow);
      checkTrace(passes.step.trace);
      // Halves of one chunk are of one owner.
      for (const { kind, first, chunks } of map.lists) {
        if (indicesIn(kind) === 1) continue;
        for (let i = 0; i < chunks; i++) {
          const only = onlyOwnerOf(first + i, map, { rank, size: 3, stage });
          if (only !== undefined) expect(ownerOf(2 * i, map, { size: 3 })).toBe(only);
        }
      }
      return passes.step.operations.flatMap((operation) =>
        operation.op === 'collective' ? [`${operation.label}: ${JSON.stringify(operation.parts)}`] : [],
      );
    });
    for (const list of lists) expect(list).toEqual(lists[0]);
  });

  it.each(NARROW)('gathers for half the bytes what is computed with in %s: 3/4 of those of f32', (dtype) => {
    const narrow = narrowIn(dtype);
    const bytes = [0, 1].map((rank) =>
      networkBytes(fitOf(2, rank, stage, narrow).passes.step.operations, { rank, size: 2 }),
    );
    const { map } = fitOf(2, 0, stage, narrow);
    const bound = (4 + (stage === 3 ? 2 : 1) * 2) * map.trainable.held;
    const sent = bytes.reduce((sum, each) => sum + each.sent, 0);
    expect(sent).toBe(bytes.reduce((sum, each) => sum + each.received, 0));
    expect(sent).toBeGreaterThanOrEqual(bound);
    expect(sent / bound).toBeLessThan(1.02);
    expect(networkBound(map, { size: 2, stage }, 1)).toBe(bound / 2);
  });

  it('sends no more than the least, but for padding and norms', () => {
    for (const size of [2, 3, 4]) {
      const bytes = Array.from({ length: size }, (_, rank) => {
        const { passes } = fitOf(size, rank, stage);
        return networkBytes(passes.step.operations, { rank, size });
      });
      const { map } = fitOf(size, 0, stage);
      // A reduction and a gathering, or one gathering for each way through the model: 1.5 times as much.
      const bound = (stage === 3 ? 3 : 2) * (size - 1) * 4 * map.trainable.held;
      const sent = bytes.reduce((sum, each) => sum + each.sent, 0);
      expect(sent).toBe(bytes.reduce((sum, each) => sum + each.received, 0));
      expect(sent).toBeGreaterThanOrEqual(bound);
      expect(sent / bound).toBeLessThan(1.02);
    }
  });
});

it('holds moments of its own chunks alone from ZeRO 1 on, and gradients for no longer than needed from 2 on', () => {
  const size = 4;
  const chunksOf = (stage: ZeroStage) =>
    Array.from({ length: size }, (_, rank) => {
      const { residents: enough, slots, passes, map } = fitOf(size, rank, stage);
      const { trace } = passes.step;
      const touched = new Set(trace.moments.flatMap(({ accesses }) => accesses.map(({ chunk }) => chunk)));
      const own = map.trainable.used.flatMap((_, index) => (ownerOf(index, map, { size }) === rank ? [index] : []));
      for (const kind of lastingKinds('f32')) {
        const { first } = map.list(kind);
        const held = map.trainable.used.flatMap((_, index) => (touched.has(first + index) ? [index] : []));
        const all = kind === 'parameter' || stage === 0;
        expect(held).toEqual(all ? map.trainable.used.map((_, index) => index) : own);
      }
      expect(slots).toBe(enough);
      const freed = new Set(trace.moments.flatMap(({ frees }) => frees));
      const kept = touched.size - freed.size;
      return { enough, kept, indices: map.trainable.chunks, own: own.length };
    });
  for (const { enough, indices } of chunksOf(0)) expect(enough).toBe(4 * indices);
  for (const { enough, indices, own } of chunksOf(1)) expect(enough).toBe(2 * indices + 2 * own);
  // A parameter and 3/n of one, and gradients under way.
  for (const { enough, indices, own } of chunksOf(2)) {
    expect(enough).toBeGreaterThanOrEqual(indices + 3 * own);
    expect(enough).toBeLessThan(indices + 3 * own + indices / 2);
  }
  // 4/n of it, and at once what one phase of the step has gathered.
  for (const { kept, own } of chunksOf(3)) expect(kept).toBe(3 * own);
});
