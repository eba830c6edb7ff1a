// The dry run of real steps, and how near the planner comes to the bound on them: a sample of the cells of
// `holdfast plan --compare`.

import type { Highs } from 'highs';
import { beforeAll, describe, expect, it } from 'vitest';
import { CELLS, cellTrace } from '../../src/cli/plan/compare.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { stepPass } from '../../src/engine/compile/pass.ts';
import { DEFAULT_LIMITS } from '../../src/engine/compile/workload.ts';
import { parseConfig } from '../../src/formats/config.ts';
import { liveBytes } from '../../src/graph/liveness.ts';
import { type ChunkMap, mapChunks } from '../../src/memory/layout/chunk-map.ts';
import { ELEMENT_BYTES } from '../../src/memory/layout/kinds.ts';
import { leastChunkElements } from '../../src/memory/layout/layout.ts';
import { loadSolver } from '../../src/memory/plan/bound.ts';
import { compare, PLANNER, ratioTo } from '../../src/memory/plan/compare.ts';
import { checkPlan, makePlan } from '../../src/memory/plan/plan.ts';
import { planStep } from '../../src/memory/plan/planner.ts';
import { chunkName, type Trace } from '../../src/memory/plan/trace.ts';
import { makeModel } from '../../src/nn/index.ts';
import { withLora } from '../../src/nn/lora.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { median } from '../../src/util/median.ts';
import { entry } from '../entry.ts';
import { EVERY_CASE } from '../host.ts';
import { checkTrace } from './check-trace.ts';

const gpt2 = (n_layer: number, n_embd: number, vocab_size: number) =>
  makeModel(parseConfig({ model_type: 'gpt2', n_layer, n_embd, n_head: 4, n_positions: 32, vocab_size }, 'gpt2'));
const llama = (layers: number, width: number, vocab_size: number) =>
  makeModel(
    parseConfig(
      {
        model_type: 'llama',
        num_hidden_layers: layers,
        hidden_size: width,
        intermediate_size: 2 * width,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        max_position_embeddings: 32,
        vocab_size,
      },
      'llama',
    ),
  );
const MODELS = [
  ['gpt2, 2 layers', gpt2(2, 64, 65)],
  ['gpt2, odd sizes', gpt2(3, 52, 331)],
  ['gpt2, a large vocabulary', gpt2(2, 64, 9001)],
  ['llama, 2 layers', llama(2, 64, 128)],
  ['llama, 5 layers', llama(5, 96, 1000)],
] as const;

/** The layouts of a model: one chunk, about eight chunks, and the smallest chunks there are. */
function layoutsOf(model: ReturnType<typeof gpt2>) {
  const bytes = ELEMENT_BYTES * model.parameters.reduce((sum, { shape }) => sum + shape.reduce((a, b) => a * b, 1), 0);
  const least = leastChunkElements(model.parameters);
  const ranges = [
    { minBytes: bytes, maxBytes: 2 * bytes },
    { minBytes: bytes / 10, maxBytes: Math.max(bytes / 8, least * ELEMENT_BYTES) },
    { minBytes: least * ELEMENT_BYTES, maxBytes: least * ELEMENT_BYTES },
  ];
  return ranges.map((range) => mapChunks(model.parameters, true, range)) as [ChunkMap, ChunkMap, ChunkMap];
}

/** How a chunk list is accessed over a step, moment by moment, without repetitions. */
function modesOf(trace: Trace, kind: string): Map<number, string> {
  const modes = new Map<number, string>();
  for (const { accesses, frees } of trace.moments) {
    for (const { chunk, mode } of accesses) {
      if (!chunkName(trace, chunk).startsWith(kind)) continue;
      const sign = mode[0] + (frees.includes(chunk) ? '.' : '');
      const known = modes.get(chunk) ?? '';
      if (!known.endsWith(sign)) modes.set(chunk, known + sign);
    }
  }
  return modes;
}

// The deepest takes as long as the others together.
describe.each(EVERY_CASE ? MODELS : MODELS.slice(0, -1))('the dry run of %s', (name, model) => {
  const programs = traceStep(model, 2, 16);

  it.each([1, 3])('is a legal trace with %d micro-batches, whatever the chunk size', (accumulate) => {
    for (const map of layoutsOf(model)) {
      const { trace, operations, starts, update } = stepPass(programs, map, accumulate);
      checkTrace(trace);
      expect(trace.lists.map(({ kind }) => kind)).toEqual(['parameter', 'gradient', 'moment1', 'moment2']);
      expect(operations.length).toBe(trace.moments.length);
      expect(starts.length).toBe(accumulate);
      const updated = update?.completions.filter(({ moment }) => moment >= update.decided);
      expect(updated?.map(({ index }) => index)).toEqual([...Array(map.trainable.chunks).keys()]);
      // Parameters are read until the optimizer writes them; moments are its own.
      for (const modes of modesOf(trace, 'parameter').values()) expect(modes).toMatch(/^rw$/);
      for (const modes of modesOf(trace, 'moment').values()) expect(modes).toBe('w');
      // Gradients: overwritten first, added to, read for the norm and last by the optimizer, then free.
      for (const modes of modesOf(trace, 'gradient').values()) expect(modes).toMatch(/^o(w|r)*r\.$/);
      expect(modesOf(trace, 'gradient').size).toBe(map.trainable.chunks);
      const pinned = Math.max(...trace.moments.map(({ accesses }) => accesses.length));
      expect(pinned).toBeGreaterThanOrEqual(4);
    }
  });

  it('sums the squares of each gradient chunk once, behind its last write', () => {
    for (const map of layoutsOf(model)) {
      const { trace, update } = stepPass(programs, map, 2);
      const { first, chunks } = map.list('gradient');
      for (let index = 0; index < chunks; index++) {
        const summed =
          update?.completions.find((found) => found.index === index && found.kinds[0] === 'gradient')?.moment ?? -1;
        expect(at(trace.moments, summed).accesses).toEqual([{ chunk: first + index, mode: 'read', tier: 'gpu' }]);
        const writes = trace.moments.flatMap(({ accesses }, m) =>
          accesses.some(({ chunk, mode }) => chunk === first + index && mode !== 'read') ? [m] : [],
        );
        expect(Math.max(...writes)).toBeLessThan(summed);
      }
    }
  });

  it('fits into the smallest budget, into each larger one, and into no smaller one', () => {
    const workload = trainingWorkload(model, programs, 2);
    const recoveries = ['step', 'checkpoint'] as const;
    for (const recovery of EVERY_CASE ? recoveries : [at(recoveries, name.length % 2)]) {
      const least = smallestBudget(workload, DEFAULT_LIMITS, { recovery });
      const more = EVERY_CASE ? [least + 1, Math.floor(least * 1.1), least * 10] : [Math.floor(least * 1.1)];
      const larger = recovery === 'step' ? more : [least * 2];
      for (const budget of [least, ...larger]) {
        const { peak, slots, passes, staging, durable } = fitMemory(workload, DEFAULT_LIMITS, budget, { recovery });
        expect(peak).toBeLessThanOrEqual(budget);
        expect(staging.down).toBeGreaterThanOrEqual(recovery === 'step' ? 3 : 1);
        expect(durable).toBe(recovery === 'step');
        for (const { trace } of Object.values(passes)) {
          const room = trace.moments.map(() => slots);
          expect(checkPlan(trace, makePlan('planner', planStep(trace, room)), room).peakSlots).toBeLessThanOrEqual(
            slots,
          );
        }
      }
      expect(() => fitMemory(workload, DEFAULT_LIMITS, least - 1, { recovery })).toThrow(`${least} bytes`);
    }
  });

  it('takes chunks that are no larger than the tiers below can hold, where there are such', () => {
    const workload = trainingWorkload(model, programs, 1);
    const budget = 10 * smallestBudget(workload, DEFAULT_LIMITS);
    const free = fitMemory(workload, DEFAULT_LIMITS, budget).map.chunkBytes;
    const sizes = [free, free - 1, free / 3, 1].map((mostChunk) => {
      const least = smallestBudget(workload, DEFAULT_LIMITS, { mostChunk });
      expect(() => fitMemory(workload, DEFAULT_LIMITS, least - 1, { mostChunk })).toThrow(`${least} bytes`);
      return fitMemory(workload, DEFAULT_LIMITS, budget, { mostChunk }).map.chunkBytes;
    });
    const [same = 0, smaller = 0, third = 0, smallest = 0] = sizes;
    expect(same).toBeLessThanOrEqual(free);
    expect(smallest).toBeLessThanOrEqual(third);
    if (smaller > smallest) expect(smaller).toBeLessThan(free);
    if (third > smallest) expect(third).toBeLessThanOrEqual(free / 3);
  });

  it('counts activations as they are placed', () => {
    const { nonModel } = fitMemory(trainingWorkload(model, programs, 1), DEFAULT_LIMITS, undefined);
    expect(nonModel.alive).toBeGreaterThanOrEqual(liveBytes(programs.first));
    expect(nonModel.arenas).toBeGreaterThanOrEqual(nonModel.alive);
  });
});

describe('LoRA', () => {
  it('reads frozen parameters from chunks of their own, which nothing writes', () => {
    const config = parseConfig(
      { model_type: 'gpt2', n_layer: 2, n_embd: 64, n_head: 4, n_positions: 32, vocab_size: 65 },
      'gpt2',
    );
    const model = withLora(makeModel(config), { rank: 4 });
    const map = mapChunks(model.parameters, true, { minBytes: 30_000, maxBytes: 80_000 });
    const { trace } = stepPass(traceStep(model, 2, 16), map, 2);
    checkTrace(trace);
    expect(trace.lists.at(-1)).toMatchObject({ kind: 'frozen', chunks: map.frozen.chunks });
    for (const modes of modesOf(trace, 'frozen').values()) expect(modes).toBe('r');
    const slots = trace.moments.map(() => 5);
    expect(checkPlan(trace, makePlan('planner', planStep(trace, slots)), slots).loads).toBeGreaterThan(0);
  });
});

describe('holdfast plan --compare', () => {
  let highs: Highs;
  beforeAll(async () => {
    highs = await loadSolver();
  });

  it('has at least 60 cells: both families, 4 to 48 layers, 5 % to 90 %, one micro-batch and four', () => {
    expect(CELLS.length).toBeGreaterThanOrEqual(60);
    const values = <T>(of: (cell: (typeof CELLS)[number]) => T) => [...new Set(CELLS.map(of))];
    expect(values(({ model }) => model)).toEqual(['gpt2', 'llama']);
    expect(values(({ accumulate }) => accumulate)).toEqual([1, 4]);
    const layers = values(({ size }) => size.layers);
    expect([Math.min(...layers), Math.max(...layers)]).toEqual([4, 48]);
    const shares = values(({ share }) => share);
    expect([Math.min(...shares), Math.max(...shares)]).toEqual([0.05, 0.9]);
  });

  it('moves at most 1.02 times the bound in the median and 1.05 times at worst; every other order more', () => {
    const cells = CELLS.filter(({ size }) => size.layers <= (EVERY_CASE ? 12 : 4));
    const results = cells.map((cell) => {
      const { trace, slots } = cellTrace(cell);
      return compare(highs, trace, slots, 0);
    });
    const ratios = (name: string) => results.map(({ linear, costs }) => ratioTo(linear, entry(costs, name)));
    const planner = ratios(PLANNER);
    expect(Math.min(...planner)).toBeGreaterThanOrEqual(1 - 1e-9);
    expect(median(planner)).toBeLessThanOrEqual(1.02);
    expect(Math.max(...planner)).toBeLessThanOrEqual(1.05);
    const sum = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);
    for (const name of ['OPT', 'PatrickStar order', 'Gemini order', 'LRU', 'FIFO', 'ZeRO-Offload split']) {
      expect(sum(ratios(name)), name).toBeGreaterThan(sum(planner));
    }
  });

  it('stays as near to the bound with moments in bf16, which are less to move', () => {
    const cells = CELLS.filter(({ model, size, share }) => model === 'gpt2' && size.layers === 4 && share === 0.5);
    for (const cell of cells) {
      const { trace, slots } = cellTrace(cell, 'bf16');
      const { linear, costs } = compare(highs, trace, slots, 0);
      expect(ratioTo(linear, entry(costs, PLANNER))).toBeLessThanOrEqual(1.05);
      const wide = cellTrace(cell).trace;
      const bytes = (trace: Trace) => trace.chunkBytes * trace.lists.reduce((sum, { chunks }) => sum + chunks, 0);
      // 12 bytes a parameter in place of 16, but for padding.
      expect(bytes(trace) / bytes(wide)).toBeCloseTo(0.75, 1);
    }
  });
});
