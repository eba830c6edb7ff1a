// Bytes of the tensors that stay on the GPU beside every budget, told from the programs: rotations are tabulated for the
// positions that a pass uses, not for the model's context.

import { describe, expect, it } from 'vitest';
import { chunkSizes, mapOf } from '../../src/engine/compile/chunk-sizes.ts';
import { tally } from '../../src/engine/compile/tally.ts';
import { DEFAULT_LIMITS, type Workload } from '../../src/engine/compile/workload.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { bytesOf, onTensors } from '../../src/graph/program.ts';
import { HYPER, STATE } from '../../src/kernels/step-control.ts';
import { makeModel } from '../../src/nn/index.ts';
import type { Model } from '../../src/nn/model.ts';
import { generationWorkload, traceGeneration } from '../../src/train/inference/generation-workload.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { GEMMA3 } from '../families/gemma3.ts';
import { LLAMA } from '../families/llama.ts';
import { DECODERS } from '../families.ts';

const [CONTEXT, BATCH, SEQ] = [4096, 2, 64];
const ROWS = BATCH * SEQ;
const modelOf = (config: object) => makeModel(parseConfig({ ...config, max_position_embeddings: CONTEXT }, 'test'));
const llama = modelOf(LLAMA);

/** Bytes of what stays, by name, as often as there is one. */
function lastingOf(workload: Workload): [name: string, bytes: number][] {
  const { lasting } = tally(workload.programs, mapOf(workload, at(chunkSizes(workload, DEFAULT_LIMITS), 0)));
  return [...lasting].map((tensor): [string, number] => [tensor.name, bytesOf(tensor)]).sort();
}

/** Bytes of rotations for so many positions. */
const table = (positions: number) => 4 * LLAMA.head_dim * positions;
const tablesIn = (workload: Workload) => lastingOf(workload).filter(([name]) => name.startsWith('rope'));
const generating = (model: Model, capacity: number) => generationWorkload(model, traceGeneration(model, capacity));
/** With `capacity`, it also writes text. */
const training = (model: Model, capacity?: number) => {
  const generation = capacity === undefined ? undefined : traceGeneration(model, capacity);
  return trainingWorkload(model, traceStep(model, BATCH, SEQ), 1, generation);
};

describe(`of a small Llama with a context of ${CONTEXT}`, () => {
  it(`trained at ${SEQ} tokens`, () => {
    // Each parameter is one block.
    const blocks = { squares: 4 * llama.parameters.length, 'decay mask': 4 };
    const scalars = {
      hyper: 4 * HYPER.size,
      'step state': 4 * STATE.size,
      'loss scale': 4,
      'loss sum': 4,
      position: 4,
    };
    const index = { 'index order': 4 * ROWS, 'index starts': 4 * (ROWS + 1), 'index tokens': 4 * ROWS };
    const batch = { ids: 4 * ROWS, targets: 4 * ROWS, ...index };
    const expected = { ...blocks, ...scalars, ...batch, [`rope table of ${SEQ} positions`]: table(SEQ) };
    expect(lastingOf(training(llama))).toEqual(Object.entries(expected).sort());
  });

  it('that also writes text of as many tokens: one table', () => {
    expect(tablesIn(training(llama, SEQ))).toEqual([[`rope table of ${SEQ} positions`, table(SEQ)]]);
  });

  it('that also writes text of another length: two', () => {
    const expected = [20, SEQ].map((positions) => [`rope table of ${positions} positions`, table(positions)]);
    expect(tablesIn(training(llama, 20))).toEqual(expected);
  });

  it('that writes text: as many positions as its caches have, at most the context', () => {
    expect(tablesIn(generating(llama, 20))).toEqual([['rope table of 20 positions', table(20)]]);
    const whole = [[`rope table of ${CONTEXT} positions`, table(CONTEXT)]];
    expect(tablesIn(generating(llama, CONTEXT))).toEqual(whole);
    expect(tablesIn(generating(llama, CONTEXT + 1))).toEqual(whole);
  });
});

it('of Gemma 3, whose layers turn in two ways: a table for each', () => {
  expect(tablesIn(training(modelOf(GEMMA3), SEQ))).toEqual([
    [`rope table 2 of ${SEQ} positions`, table(SEQ)],
    [`rope table of ${SEQ} positions`, table(SEQ)],
  ]);
});

it.each(Object.entries(DECODERS))('%s: a shorter table is the beginning of a longer one', (_, config) => {
  const model = modelOf(config);
  const constants = (capacity: number) =>
    traceGeneration(model, capacity)
      .programs.flatMap(onTensors)
      .flatMap(({ operands: { table } }) => (table?.constant ? [table.constant()] : []));
  const [short, long] = [constants(20), constants(CONTEXT)];
  expect(short.length).toBeGreaterThan(0);
  expect(short).toEqual(long.map((table) => table.subarray(0, 20 * LLAMA.head_dim)));
});
