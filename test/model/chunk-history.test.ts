// What the recorder saw of real steps: it agrees with the trace and the plan at every moment, states change only as
// the table allows, and recording changes nothing.

import { beforeAll, describe, expect, test } from 'vitest';
import { RandomWindows } from '../../src/data/batches.ts';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { offloadedBytes, recomputedFlops } from '../../src/engine/compile/pass-figures.ts';
import {
  activationBytesOf,
  type ChunkHistory,
  decode,
  expand,
  slotsInUse,
} from '../../src/engine/observe/chunk-codes.ts';
import { chunkHistory } from '../../src/engine/observe/chunk-history.ts';
import { linkBytes, type Recording } from '../../src/engine/observe/recording.ts';
import { type ChromeTrace, chromeTrace } from '../../src/engine/observe/timeline.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { WARM_UP_STEPS } from '../../src/engine/run/warm-up.ts';
import { parseConfig } from '../../src/formats/config.ts';
import type { OptimizerDeviceChoice } from '../../src/graph/operators/optimizer.ts';
import { TRANSITIONS } from '../../src/memory/layout/states.ts';
import { makeModel } from '../../src/nn/index.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { at } from '../../src/util/at.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading, only } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { THOROUGH } from '../host.ts';
import { MemoryBlockFile } from '../memory-files.ts';

chooseVariants(7);

const config = { model_type: 'gpt2', vocab_size: 97, n_positions: 12, n_embd: 32, n_layer: 3, n_head: 4 };
const model = makeModel(parseConfig(config, 'test'));
const tokens = Int32Array.from({ length: 300 }, (_, i) => (i * i + 3 * i) % 97);
const schedule = { decay: 'constant', peak: 1e-3, min: 0, warmup: 0, steps: 10 } as const;
/** Measured once. */
let choices: ChoiceRecord = {};
/** Behind the first, in which moments are zeros and weights come from below, steps are all alike. */
const WARM = WARM_UP_STEPS + 1;
const STEPS = WARM + 3;

interface Case {
  name: string;
  accumulate: number;
  /** @default 'gpu' */
  optimizerDevice?: OptimizerDeviceChoice;
  memory: (least: number) => MemoryOptions;
}

const disk = { open: async (bytes: number) => new MemoryBlockFile('tier', bytes) };
/** A forward and a backward pass for each micro-batch. */
const inBatches = { accumulateOrder: 'batch' } as const;
const cases: Case[] = [
  { name: 'no budget', accumulate: 1, memory: () => ({}) },
  { name: 'the smallest budget', accumulate: 1, memory: (least) => ({ gpu: least }) },
  {
    name: 'some slots more, two micro-batches',
    accumulate: 2,
    memory: (least) => ({ gpu: least + 6 * 16384, ...inBatches }),
  },
  {
    name: 'not kept below, on disk',
    accumulate: 1,
    memory: (least) => ({ gpu: least + 4 * 16384, host: 9 * 16384, disk, recovery: 'checkpoint' }),
  },
  { name: 'AdamW on the host', accumulate: 1, optimizerDevice: 'cpu', memory: (least) => ({ gpu: least }) },
  {
    name: 'AdamW on either, on disk',
    accumulate: 1,
    optimizerDevice: 'auto',
    // Keeping values below waits for room at the moment of the decision, too.
    memory: (least) => ({ gpu: least + 2 * 16384, host: 16 * 16384, disk }),
  },
  {
    name: 'kept below, on disk, least recently used leave, activations moved',
    accumulate: 2,
    memory: (least) => ({
      gpu: least + 8 * 16384,
      host: 9 * 16384,
      disk,
      policy: 'LRU',
      activations: 'offload',
      ...inBatches,
    }),
  },
];
/** Of AdamW on either: tensors on the GPU. */
const SPLIT = 30;

// Deno waits 10 ms for each read: the case with all of it.
describe.each(THOROUGH ? cases : cases.slice(-1))('$name', ({ accumulate, optimizerDevice = 'gpu', memory }) => {
  const optimizerSplit = optimizerDevice === 'auto' ? SPLIT : undefined;
  let trainer: Trainer;
  let recordings: readonly Recording[];
  let histories: ChunkHistory[];
  let moved: { h2d: number; d2h: number; diskRead: number; diskWrite: number };

  beforeAll(async () => {
    const device = await testDevice();
    const trained = optimizedOn(model, optimizerDevice, optimizerSplit);
    const workload = trainingWorkload(trained, traceStep(trained, 1, 12), accumulate);
    const options = memory(smallestBudget(workload, limitsOf(device)));
    trainer = await Trainer.create(device, model, {
      batch: 1,
      seq: 12,
      accumulate,
      schedule,
      choices,
      optimizerDevice,
      optimizerSplit,
      memory: options,
    });
    choices = trainer.choices.record();
    await trainer.setWeights(initialWeights(model, 3));
    const batches = new RandomWindows(tokens, 1, 12, 1);
    const step = () => trainer.start(Array.from({ length: accumulate }, () => batches.next()));
    for (let i = 0; i < WARM; i++) await step();
    await trainer.settle();
    const before = trainer.session.report();
    const recorder = trainer.session.executor.startRecording(trainer.session.fit.passes.step, STEPS - WARM);
    // Two under way at once, as in a run.
    await Promise.all([step(), step()]);
    await step();
    await trainer.settle();
    const after = trainer.session.report();
    moved = {
      h2d: after.link.h2dBytes - before.link.h2dBytes,
      d2h: after.link.d2hBytes - before.link.d2hBytes,
      diskRead: after.below.diskReadBytes - before.below.diskReadBytes,
      diskWrite: after.below.diskWriteBytes - before.below.diskWriteBytes,
    };
    recordings = recorder.recordings;
    histories = recordings.map((recording) => chunkHistory(recording, trainer.session.fit));
    return () => trainer.destroy();
  });

  test('there is a history of each step, of every moment and chunk', () => {
    expect(histories.length).toBe(STEPS - WARM);
    const { map } = trainer.session;
    for (const { chunks, operators, staged } of histories) {
      expect(chunks.length).toBe(map.count);
      for (const runs of [...chunks, staged]) expect(expand(runs).length).toBe(operators.length);
      expect(operators.length).toBe(trainer.dispatches);
    }
  });

  test('every row of every parameter lies in one chunk of each kind', () => {
    const { map } = trainer.session;
    for (const { lists, tensors } of histories) {
      for (const { first, chunks } of lists) {
        const rows = new Map<string, number[]>();
        for (const part of tensors.slice(first, first + chunks).flat()) {
          const [, name = '', from, to] = /^([\w.]+)(?:, rows (\d+) to (\d+))?$/.exec(part) ?? [];
          const { row, rows: count } =
            map.pieces(name).length > 1
              ? { row: Number(from), rows: Number(to) - Number(from) + 1 }
              : only(map.pieces(name));
          rows.set(name, [...(rows.get(name) ?? []), ...Array.from({ length: count }, (_, i) => row + i)]);
        }
        expect([...rows.keys()].sort()).toEqual(model.parameters.map(({ name }) => name).sort());
        for (const found of rows.values()) expect(found.sort((a, b) => a - b)).toEqual([...found.keys()]);
      }
    }
  });

  test('an operator finds its chunks on the GPU, an update on the host below it, in COMPUTE, and nothing else is', () => {
    for (const [i, history] of histories.entries()) {
      const chunks = history.chunks.map((runs) => expand(runs).map(decode));
      at(recordings, i).pass.trace.moments.forEach(({ accesses, onHost = [] }, m) => {
        const now = chunks.map((codes) => at(codes, m));
        const computing = [...now.entries()].filter(([, { state }]) => state === 'COMPUTE');
        const used = [...accesses, ...onHost].map(({ chunk }) => chunk);
        expect(computing.map(([chunk]) => chunk)).toEqual(used.sort((a, b) => a - b));
        for (const [, { tier }] of computing) expect(tier === 'gpu', `moment ${m}`).toBe(onHost.length === 0);
      });
    }
  });

  test('on the GPU is what the plan says, within the slots', () => {
    const [{ pass }] = leading(1, recordings);
    const { plan, starts } = trainer.session.scheduleOf(pass);
    const { moments } = pass.trace;
    histories.forEach((history, i) => {
      const round = (WARM + i) % plan.steps;
      const here = new Set(at(starts, round));
      const chunks = history.chunks.map((runs) => expand(runs).map((code) => decode(code).tier === 'gpu'));
      const used = slotsInUse(history.chunks);
      moments.forEach(({ frees }, m) => {
        const { drop, load, claim } = at(plan.moments, round * moments.length + m);
        for (const chunk of drop) here.delete(chunk);
        for (const chunk of [...load, ...claim]) here.add(chunk);
        const found = chunks.flatMap((isHere, chunk) => (isHere[m] ? [chunk] : []));
        expect(found, `moment ${m}`).toEqual([...here].sort((a, b) => a - b));
        expect(used[m]).toBe(here.size);
        expect(here.size).toBeLessThanOrEqual(history.slots);
        for (const chunk of frees) here.delete(chunk);
      });
    });
  });

  test('states change as the table allows, and the last one of a step leads to the first of the next', () => {
    for (const { chunks, lists } of histories) {
      chunks.forEach((runs, chunk) => {
        const states = expand(runs).map((code) => decode(code).state);
        const [, gradients] = leading(2, lists);
        const isGradient = chunk >= gradients.first && chunk < gradients.first + gradients.chunks;
        expect(['COMPUTE', isGradient ? 'FREE' : 'HOLD']).toContain(states[0]);
        states.forEach((state, m) => {
          const before = states[m - 1] ?? state;
          if (before !== state) expect(TRANSITIONS[before], `chunk ${chunk}, moment ${m}`).toContain(state);
        });
        expect(states).toContain('COMPUTE');
      });
    }
  });

  test('a chunk with a value lies somewhere, a FREE one not on the GPU; host memory stays within its limit', () => {
    const hostLimit = trainer.session.memory.host ?? Number.POSITIVE_INFINITY;
    for (const { chunks, operators, chunkBytes } of histories) {
      const all = chunks.map((runs) => expand(runs).map(decode));
      const wrong = all.flatMap((moments, chunk) =>
        moments.flatMap(({ tier, state }, m) =>
          (state === 'FREE' ? tier === 'gpu' : tier === 'none') ? [{ chunk, m, tier, state }] : [],
        ),
      );
      expect(wrong).toEqual([]);
      operators.forEach((_, m) => {
        const host = all.filter((moments) => at(moments, m).tier === 'host').length;
        expect(host * chunkBytes).toBeLessThanOrEqual(hostLimit);
      });
    }
  });

  test('activations are kept, moved or made again as the pass has it, used on the GPU alone, and all that is alive', () => {
    const { placements, nonModel } = trainer.session.fit;
    expect(placements.length).toBeGreaterThan(0);
    histories.forEach((history, i) => {
      const { pass } = at(recordings, i);
      const { activations, operators } = history;
      const states = activations.codes.map((runs) => expand(runs).map(decode));
      expect(new Set(activations.tensors.map(({ name }) => name)).size).toBe(activations.tensors.length);
      expect(activations.tensors.length).toBeGreaterThan(8 * config.n_layer);
      const seen = new Set<string>();
      states.forEach((moments, a) => {
        expect(moments.length).toBe(operators.length);
        const path = moments.map(({ activation }) => activation ?? '').filter((state, m, all) => state !== all[m - 1]);
        // The first may be made at the first moment.
        const [first, ...rest] = path;
        const turn = (first === 'absent' ? rest : path).join(' > ');
        const { name } = at(activations.tensors, a);
        expect(turn, name).toMatch(
          /^(kept( > (given up > again|(leaving > )?(host|disk|leaving)( > (leaving|host|disk))* > back))?( > absent)?( > |$))+$/,
        );
        for (const { state, tier, activation } of moments) {
          seen.add(activation ?? '');
          if (state === 'COMPUTE') expect(tier, name).toBe('gpu');
        }
      });
      expect(seen.has('again')).toBe(recomputedFlops(pass).flops > 0);
      expect(seen.has('back')).toBe(offloadedBytes(pass) > 0);
      expect(seen.has('leaving') || seen.has('host') || seen.has('disk')).toBe(seen.has('back'));
      const { kept, again, working } = activationBytesOf(history);
      const alive = operators.map((_, m) => at(kept, m) + at(again, m) + at(working, m));
      const most = Math.max(...alive);
      // Each lies at a multiple of 256 bytes.
      expect(most).toBeLessThanOrEqual(nonModel.alive);
      expect(most).toBeGreaterThan(0.9 * nonModel.alive);
      expect(most).toBeLessThanOrEqual(history.activationBytes);
      expect(Math.min(...working)).toBeGreaterThanOrEqual(0);
    });
  });

  test('what was recorded on each link is what was counted; staging never holds more than it has', () => {
    const links = ['h2d', 'd2h', 'diskRead', 'diskWrite'] as const;
    const recorded = recordings.map((recording) => {
      const bytes = linkBytes(recording);
      // Of activations it has what goes to disk and comes from there.
      const offloaded = offloadedBytes(recording.pass);
      return { ...bytes, h2d: bytes.h2d + offloaded, d2h: bytes.d2h + offloaded };
    });
    // The state's eight numbers are not chunks and go another way.
    for (const link of links)
      expect(
        recorded.reduce((sum, bytes) => sum + bytes[link], 0),
        link,
      ).toBe(moved[link]);
    for (const { staged, staging } of histories) expect(Math.max(...expand(staged))).toBeLessThanOrEqual(staging);
    for (const { transfers } of recordings) {
      // What is read ahead, and the room made for it, may go on behind the last step.
      for (const { link, from, to } of transfers) {
        if (link === 'd2h' || to !== undefined) expect(to).toBeGreaterThanOrEqual(from);
      }
    }
  });

  test('the timeline: slices that do not overlap, named tracks, counters that end at nothing in flight', () => {
    const { traceEvents } = JSON.parse(JSON.stringify(chromeTrace(recordings))) as ChromeTrace;
    const names = new Map<number, unknown>();
    for (const { ph, name, tid, args } of traceEvents) {
      if (ph === 'M' && name === 'thread_name') names.set(tid, args?.['name']);
    }
    const until = new Map<number, number>();
    const since = new Map<number, number>();
    const slices = new Map<unknown, number>();
    for (const { ph, name, tid, ts, dur, args } of traceEvents) {
      if (ph === 'M') continue;
      expect(name).not.toBe('');
      expect(ts).toBeGreaterThanOrEqual(since.get(tid) ?? 0);
      since.set(tid, ts);
      if (ph === 'C') {
        for (const value of Object.values(args ?? {})) expect(value).toBeGreaterThanOrEqual(0);
      } else expect(names.has(tid)).toBe(true);
      if (ph !== 'X') continue;
      expect(dur).toBeGreaterThanOrEqual(0);
      // Times are rounded to a tenth of a microsecond.
      expect(ts).toBeGreaterThanOrEqual((until.get(tid) ?? 0) - 1e-6);
      until.set(tid, ts + (dur as number));
      const track = names.get(tid);
      slices.set(track, (slices.get(track) ?? 0) + 1);
    }
    expect(slices.get('steps')).toBe(recordings.length);
    expect(slices.get('operators, as the CPU encodes them')).toBe(recordings.length * trainer.dispatches);
    expect(slices.get('phases')).toBe(recordings.length * (2 * accumulate + 1));
    const inFlight = new Map<string, unknown>();
    for (const { ph, name, args } of traceEvents) {
      if (ph === 'C' && name.startsWith('bytes in flight')) inFlight.set(name, args?.['bytes']);
    }
    for (const bytes of inFlight.values()) expect(bytes).toBe(0);
    expect(inFlight.has('bytes in flight, host to GPU')).toBe(moved.h2d > 0);
    const bytesOn = (link: string) =>
      traceEvents
        .filter(({ ph, tid }) => ph === 'X' && String(names.get(tid)).replace(/, \d+$/, '') === link)
        .reduce((sum, { args }) => sum + Number(args?.['bytes']), 0);
    expect(bytesOn('host to GPU')).toBe(moved.h2d);
    expect(bytesOn('GPU to host')).toBe(moved.d2h);
  });
});
