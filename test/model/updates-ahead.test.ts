// Updates on the host that begin while the backward pass runs: the bits of those that wait for the decision, whether it is
// foreseen or not; in host memory that is left within its limit, or as much as is of use where it has none; with faults, the bits again or one clear error.

import { afterAll, afterEach, beforeAll, describe, expect, test, vi } from 'vitest';
import { needBelow } from '../../src/engine/compile/candidate.ts';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { fitMemory } from '../../src/engine/compile/fit.ts';
import { limitsOf, type MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { HostOptimizer } from '../../src/engine/run/host-optimizer.ts';
import { UpdatesAhead } from '../../src/engine/run/updates-ahead.ts';
import type { Device } from '../../src/gpu/device.ts';
import { MOMENT_DTYPES, TRAINING_DTYPES } from '../../src/memory/layout/kinds.ts';
import { Backing } from '../../src/memory/tiers/backing.ts';
import { bytesBelow, sharesOf } from '../../src/memory/tiers/shares.ts';
import { computedIn, momentsIn } from '../../src/nn/model.ts';
import type { BlockFile, Threads } from '../../src/runtime/host.ts';
import { at } from '../../src/util/at.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { collect } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE, testHost } from '../host.ts';
import { FaultyFile } from '../memory/block-files.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { fragileDevice } from './fragile.ts';
import {
  batchesOf,
  budgetFor,
  expectSame,
  LARGEST,
  MODELS,
  type Outcome,
  openTrainer,
  run,
  SMALLEST,
  train,
  type Work,
  workloadOf,
} from './runs.ts';

let device: Device;
let adapter: Device['adapter'];
const withAdapter = (value: Device['adapter']) =>
  Object.defineProperty(device, 'adapter', { value, configurable: true, enumerable: true, writable: true });
beforeAll(async () => {
  device = await testDevice();
  ({ adapter } = device);
  // A software adapter, on the same processor, waits for the decision.
  withAdapter({ ...adapter, software: false });
});
afterEach(() => vi.restoreAllMocks());
afterAll(() => withAdapter(adapter));

const WORK: Work = {
  ...{ model: MODELS['gpt2, tied'], batch: 1, seq: 8, accumulate: 1, steps: 6, clip: 100 },
  optimizerDevice: 'cpu',
};

const { take } = UpdatesAhead.prototype;
const { decide } = HostOptimizer.prototype;

/** The GPU decides late: what may begin before has the time. */
function slowDecisions(): void {
  vi.spyOn(HostOptimizer.prototype, 'decide').mockImplementation(function (this: HostOptimizer, state) {
    decide.call(
      this,
      Promise.all([state, new Promise((resolve) => setTimeout(resolve, LATE_MS))]).then(([state]) => state),
    );
  });
}

/** Of a step of these models and what updates it. */
const LATE_MS = 150;

/** What became of operations in all steps from now on: true where the values that were made ahead took their places. */
function watched(): boolean[] {
  const told: boolean[] = [];
  vi.spyOn(UpdatesAhead.prototype, 'take').mockImplementation(async function (this: UpdatesAhead, ...work) {
    const isTaken = await take.apply(this, work);
    told.push(isTaken);
    return isTaken;
  });
  return told;
}

const needOf = (work: Work, gpu: number | undefined) => needBelow(fitMemory(workloadOf(work), limitsOf(device), gpu));

/** Within it there is host memory for so many times what must be below. */
function memoryOf(work: Work, share: number, times: number): MemoryOptions {
  const gpu = budgetFor(device, work, share);
  return { gpu, host: Math.floor(times * bytesBelow(needOf(work, gpu))) };
}

const WIDTHS = TRAINING_DTYPES.flatMap((dtype) => MOMENT_DTYPES.map((moments) => [dtype, moments] as const));

// Each value in chunks of its own; and some of two indices in one.
const SAMPLED = WIDTHS.filter(([dtype, moments]) => dtype !== 'f16' && moments === 'f32');

describe.each(EVERY_CASE ? WIDTHS : SAMPLED)('parameters in %s, moments in %s', (dtype, moments) => {
  const model = momentsIn(computedIn(WORK.model, dtype), moments);

  test.each([
    ['clipped never', 100],
    ['not clipped', 0],
  ])('%s: updates begin while the backward pass runs, and the bits are the same', async (_, clip) => {
    chooseVariants(1);
    const work = { ...WORK, model, clip };
    const { outcome: wanted, choices } = await run(device, work, { threads: testHost.threads });
    const told = watched();
    slowDecisions();
    for (const memory of [memoryOf(work, 0.3, 4), ...(EVERY_CASE ? [memoryOf(work, 3, 4)] : [])]) {
      const { outcome } = await run(device, work, { memory, choices, threads: testHost.threads });
      expectSame(outcome, wanted, JSON.stringify(memory));
    }
    // All but those of a first step, of which nothing is foreseen, and what one that a busy machine delays leaves over.
    expect(told.length).toBeGreaterThan(0);
    expect(told.filter((isTaken) => !isTaken).length).toBeLessThan(told.length / 2);
  });

  test('clipped now and then: what was foreseen wrongly is given up, and the bits are the same', async () => {
    chooseVariants(1);
    const { outcome: free } = await run(device, { ...WORK, model });
    const norms = free.steps.map(([, norm]) => norm);
    const risen = norms.findIndex((norm, i) => norm > at(norms, Math.max(0, i - 1)));
    const work = { ...WORK, model, clip: (at(norms, risen) + at(norms, risen - 1)) / 2 };
    const { outcome: wanted, choices } = await run(device, work);
    const told = watched();
    slowDecisions();
    const { outcome } = await run(device, work, { memory: memoryOf(work, 0.5, 4), choices });
    expectSame(outcome, wanted, `clipped to ${work.clip}`);
    expect(
      outcome.steps.some(([, norm], i) => i > 0 && norm > work.clip && at(outcome.steps, i - 1)[1] < work.clip),
    ).toBe(true);
    expect(told).toContain(false);
  });
});

/** Within it what two updates ahead have under way has room in host memory, and little more; all else is in a file that `open` makes. */
function tiersOf(
  work: Work,
  open: (bytes: number) => BlockFile = (bytes) => new MemoryBlockFile('/tier', bytes),
): MemoryOptions {
  const gpu = budgetFor(device, work, 0.05);
  const { chunkBytes, updates } = needOf(work, gpu);
  return { gpu, host: 4 * updates * chunkBytes, disk: { open: async (bytes) => open(bytes) } };
}

describe.each(EVERY_CASE ? WIDTHS : SAMPLED)('values on disk, parameters in %s, moments in %s', (dtype, moments) => {
  const model = momentsIn(computedIn(LARGEST, dtype), moments);

  test('what the host updates is read, made and written while the backward pass runs, and the bits are the same', async () => {
    chooseVariants(1);
    const work = { ...WORK, model };
    const { outcome: wanted, choices } = await run(device, work, { threads: testHost.threads });
    const told = watched();
    slowDecisions();
    const memory = tiersOf(work);
    const { outcome, report } = await run(device, work, { memory, choices, threads: testHost.threads });
    expectSame(outcome, wanted, 'on disk');
    expect(told).toContain(true);
    expect(report.host.peak).toBeLessThanOrEqual(memory.host ?? 0);
  });

  test('what was foreseen wrongly is given up, also where it lies on disk already', async () => {
    chooseVariants(1);
    const { outcome: free } = await run(device, { ...WORK, model });
    const norms = free.steps.map(([, norm]) => norm);
    const risen = norms.findIndex((norm, i) => norm > at(norms, Math.max(0, i - 1)));
    const work = { ...WORK, model, clip: (at(norms, risen) + at(norms, risen - 1)) / 2 };
    const { outcome: wanted, choices } = await run(device, work);
    const told = watched();
    const dropped = vi.spyOn(Backing.prototype, 'dropStowed');
    slowDecisions();
    const { outcome } = await run(device, work, { memory: tiersOf(work), choices });
    expectSame(outcome, wanted, `clipped to ${work.clip}`);
    expect(told).toContain(false);
    expect(dropped).toHaveBeenCalled();
  });
});

/** The device is lost at every so many of its calls, each in a run of its own: all bring the same. */
async function lostAtEachCall(
  work: Work,
  memory: MemoryOptions,
  stride: number,
  wanted: Outcome,
  choices: ChoiceRecord,
): Promise<void> {
  let n = 0;
  for (let struck = true; struck; n += stride) {
    struck = false;
    const fragile = await fragileDevice(device);
    const trainer = await openTrainer(fragile.device, work, { memory, choices });
    let calls = 0;
    fragile.before = () => {
      if (calls++ !== n) return;
      struck = true;
      fragile.lose();
    };
    expectSame(await train(trainer, work), wanted, `lost at call ${n}`);
    expect(trainer.recoveries).toBe(Number(struck));
    fragile.before = undefined;
    await trainer.destroy();
  }
  expect(n).toBeGreaterThan(stride);
}

describe('values on disk', () => {
  const own: Work = { ...WORK, model: LARGEST, steps: 4 };

  test('a device that is lost at the n-th call takes nothing that was made ahead for more than it is', async () => {
    chooseVariants(1);
    const { outcome: wanted, choices } = await run((await fragileDevice(device)).device, own);
    const told = watched();
    slowDecisions();
    const stride = EVERY_CASE ? 23 : 911;
    await lostAtEachCall(own, tiersOf(own), stride, wanted, choices);
    expect(told).toContain(true);
  });

  test('the disk fails at the n-th move: the bits, or one clear error', async () => {
    chooseVariants(1);
    const { outcome: wanted, choices } = await run(device, own);
    const told = watched();
    slowDecisions();
    const stride = EVERY_CASE ? 5 : 97;
    let failures = 0;
    // The first ones are of the weights: nothing takes the place of these.
    let n = EVERY_CASE ? 0 : 3;
    for (let fired = true; fired; n += stride) {
      let faulty: FaultyFile | undefined;
      const memory = tiersOf(own, (bytes) => {
        faulty = new FaultyFile(new MemoryBlockFile('/tier', bytes), 'broken', n);
        return faulty;
      });
      const trainer = await openTrainer(device, own, { memory, choices }).catch((error: unknown) => error as Error);
      const found =
        trainer instanceof Error ? trainer : await train(trainer, own).catch((error: unknown) => error as Error);
      fired = faulty?.fired ?? false;
      if (found instanceof Error) {
        failures++;
        expect(found, `at ${n}`).toBeInstanceOf(HoldfastError);
        expect(found.message).toContain('/tier');
      } else expectSame(found, wanted, `at ${n}`);
      if (!(trainer instanceof Error)) await trainer.destroy();
    }
    expect(failures).toBeGreaterThan(0);
    expect(told).toContain(true);
  });

  test('a budget that changes between steps, and values that are read there, find what was put', async () => {
    chooseVariants(1);
    const { outcome: wanted, choices } = await run(device, own);
    const told = watched();
    slowDecisions();
    const trainer = await openTrainer(device, own, { memory: tiersOf(own), choices });
    const steps = [];
    for (const [i, micros] of batchesOf(own).entries()) {
      steps.push(await trainer.start(micros));
      if (i === 1) await trainer.setBudget(2 * trainer.session.leastBudget);
      if (i === 2) await collect(trainer.values('moment1'));
    }
    expect(steps.map(({ loss, gradNorm, skipped }) => [loss, gradNorm, skipped])).toEqual(wanted.steps);
    expect(await collect(trainer.values('parameter'))).toEqual(wanted.parameter);
    expect(await collect(trainer.values('moment2'))).toEqual(wanted.moment2);
    expect(told).toContain(true);
    await trainer.destroy();
  });
});

test('a step behind one that was clipped waits: nothing is made that is not likely to be used', async () => {
  chooseVariants(1);
  const told = watched();
  await run(device, { ...WORK, clip: 1e-3 }, { memory: memoryOf(WORK, 0.5, 4) });
  expect(told).not.toContain(true);
  const made = vi.spyOn(UpdatesAhead.prototype, 'begin');
  await run(device, { ...WORK, clip: 1e-3 }, { memory: memoryOf(WORK, 0.5, 4) });
  expect(made).not.toHaveBeenCalled();
});

test('host memory is used within its limit, as far as planned, and to the byte as planned where it has none', async () => {
  chooseVariants(1);
  const work: Work = { ...WORK, model: LARGEST };
  slowDecisions();
  const peakIn = async (memory: MemoryOptions) => {
    const told = watched();
    const { report } = await run(device, work, { memory });
    return { peak: report.host.peak, taken: told.filter((isTaken) => isTaken).length };
  };
  const gpu = budgetFor(device, work, 0.3);
  const need = needOf(work, gpu);
  const unlimited = await peakIn({ gpu });
  expect(unlimited).toEqual({ peak: (need.held + (need.beside ?? 0)) * need.chunkBytes, taken: expect.any(Number) });
  expect(unlimited.taken).toBeGreaterThan(0);
  const exact = await peakIn({ gpu, host: bytesBelow(need) });
  expect(exact).toEqual({ peak: bytesBelow(need), taken: 0 });
  const [some, more] = [1.8, 4].map((times) => Math.floor(times * bytesBelow(need))) as [number, number];
  const few = await peakIn({ gpu, host: some });
  expect(few.taken).toBeGreaterThan(0);
  expect(few.peak).toBeLessThanOrEqual(some);
  const all = await peakIn({ gpu, host: more });
  expect(all.taken).toBeGreaterThan(few.taken);
  const { chunks, stashes } = sharesOf(need, { host: more, disk: 0 }) ?? expect.fail('no room');
  expect(chunks.host + stashes.host).toBe(more);
  expect(all.peak).toBeGreaterThan(bytesBelow(need));
  expect(all.peak).toBeLessThanOrEqual(bytesBelow(need) + ((need.beside ?? 0) + need.largestPut) * need.chunkBytes);
});

test('a software adapter waits: its arithmetic is on the same processor', async () => {
  chooseVariants(1);
  withAdapter({ ...adapter, software: true });
  const told = watched();
  try {
    await run(device, { ...WORK, steps: 2 }, { memory: memoryOf(WORK, 0.5, 4) });
  } finally {
    withAdapter({ ...adapter, software: false });
  }
  expect(told).toEqual([]);
});

test('a device that is lost at the n-th call takes nothing that was made ahead for more than it is', async () => {
  const own: Work = { ...WORK, model: SMALLEST, steps: 4 };
  chooseVariants(1);
  const { outcome: wanted, choices } = await run((await fragileDevice(device)).device, own);
  const told = watched();
  const stride = EVERY_CASE ? 7 : 211;
  await lostAtEachCall(own, memoryOf(own, 0.4, 4), stride, wanted, choices);
  expect(told).toContain(true);
});

test('a thread that fails ahead of the decision is one error, of the step that it was for', async () => {
  chooseVariants(1);
  const work: Work = { ...WORK, model: LARGEST };
  const own = testHost.threads as Threads;
  let isFailing = false;
  const threads: Threads = {
    count: 1,
    start: async (worker, told) => {
      const thread = await own.start(worker, told);
      const failing = (message: object) => ({ ...message, calls: [['unknown']] });
      const post = (message: unknown) => thread.post(isFailing ? failing(message as object) : message);
      return { ...thread, post };
    },
  };
  // In one chunk, so that there is enough for a thread.
  const trainer = await openTrainer(device, work, { memory: { host: 1e9 }, threads });
  const [one, two, three] = leading(3, batchesOf(work));
  for (const micros of [one, two]) await trainer.start(micros);
  await trainer.settle();
  isFailing = true;
  const began = vi.spyOn(UpdatesAhead.prototype, 'begin');
  const step = trainer.start(three).then(() => trainer.settle());
  const error = await step.catch((reason: unknown) => reason);
  expect(began).toHaveBeenCalled();
  expect(error).toBeInstanceOf(HoldfastError);
  expect((error as Error).message).toMatch(
    /a thread of the optimizer on the host failed.*resume from the last checkpoint/,
  );
  await trainer.destroy();
});
