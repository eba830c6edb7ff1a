// A lost device costs time, never a bit: whichever call meets the loss, whatever is under way, the run goes on from
// the tiers below and brings what an undisturbed one brings. Where nothing is kept below, one clear error.

import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { typicalRates } from '../../src/engine/compile/rates.ts';
import type { MemoryOptions } from '../../src/engine/run/arrangement.ts';
import { Executor } from '../../src/engine/run/executor.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { Generator } from '../../src/train/inference/generator.ts';
import type { StepMetrics, Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { collect, sourceOf } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { type Call, type Fragile, fragileDevice } from './fragile.ts';
import {
  batchesOf,
  budgetFor,
  chunksUnder,
  expectSame,
  leastBudget,
  MODELS,
  memoryDisk,
  type Outcome,
  openTrainer,
  run,
  SAMPLING,
  SMALLEST,
  train,
  type Work,
  write,
} from './runs.ts';

const isDeno = 'Deno' in globalThis;
/** How many calls lie between two losses: all of them would take minutes. */
const every = (stride: number) => (EVERY_CASE ? 1 : stride);
// In Deno every read takes 10 ms at least: there, fewer cases, of a model with less to read.
const MODEL = isDeno ? SMALLEST : MODELS['gpt2, untied'];

let real: Device;
beforeAll(async () => {
  real = await testDevice();
});
beforeEach(() => chooseVariants(1));
afterEach(() => {
  vi.restoreAllMocks();
});

interface Case {
  readonly work: Work;
  readonly wanted: Outcome;
  readonly choices: ChoiceRecord;
  readonly memory: MemoryOptions;
}

async function prepare(work: Work, memory: MemoryOptions): Promise<Case> {
  chooseVariants(1);
  const { outcome, choices } = await run(real, work);
  return { work, wanted: outcome, choices, memory };
}

/** Losses at the n-th call of a kind, of each device in turn. */
interface Plan {
  readonly call: Call;
  readonly at: readonly number[];
}

/** Opens a trainer on a device that can be lost, hands it on, and looks at what is left. */
async function onFragile<T>(given: Case, use: (trainer: Trainer, fragile: Fragile) => Promise<T>): Promise<T> {
  const { work, choices, memory } = given;
  const fragile = await fragileDevice(real);
  const trainer = await openTrainer(fragile.device, work, { memory, choices });
  try {
    return await use(trainer, fragile);
  } finally {
    fragile.before = undefined;
    await trainer.destroy();
    expect(fragile.device.allocator.bytes, 'bytes left on the last device').toBe(0);
  }
}

function arm(fragile: Fragile, { call, at }: Plan): void {
  let calls = 0;
  const before = fragile.losses;
  fragile.before = (made) => {
    if (made !== call || calls++ !== at[fragile.losses - before]) return;
    calls = 0;
    fragile.lose();
  };
}

const disturbed = (given: Case, plan: Plan): Promise<number> =>
  onFragile(given, async (trainer, fragile) => {
    const begun = vi.spyOn(Executor.prototype, 'begin');
    arm(fragile, plan);
    expectSame(await train(trainer, given.work), given.wanted, `${plan.call} ${plan.at}`);
    await trainer.settle();
    expect(trainer.recoveries, `${JSON.stringify(plan)}`).toBe(fragile.losses);
    // Two steps at a time are under way: no more than these were done again.
    const step = trainer.session.scheduleOf(trainer.session.fit.passes.step);
    const steps = begun.mock.calls.filter(([, schedule]) => schedule === step).length;
    expect(steps).toBeLessThanOrEqual(given.work.steps + 2 * fragile.losses);
    begun.mockRestore();
    return fragile.losses;
  });

describe('a device lost at the n-th', () => {
  let plain: Case;
  let tiered: Case;
  beforeAll(async () => {
    const model = MODEL;
    const work: Work = { model, batch: 1, seq: 8, accumulate: 1, steps: 3 };
    plain = await prepare(work, { gpu: leastBudget(real, work) });
    const several: Work = { model, batch: 1, seq: 8, accumulate: 3, steps: 2 };
    const memory = { gpu: budgetFor(real, several, 1 / 2) };
    const { chunks, bytes } = chunksUnder(real, several, memory);
    tiered = await prepare(several, { ...memory, host: Math.ceil(chunks / 4) * bytes, disk: memoryDisk() });
  });

  test.each([
    ['submit', every(isDeno ? 5 : 151)],
    ['writeBuffer', every(13)],
    ['mapAsync', every(isDeno ? 47 : 113)],
    ['onSubmittedWorkDone', every(isDeno ? 3 : 43)],
  ] as const)('%s, every %d-th of them in turn', async (call, stride) => {
    let met = 0;
    for (let n = 0; await disturbed(plain, { call, at: [n] }); n += stride) met++;
    expect(met).toBeGreaterThan(1);
  });

  test.each([
    ['mapAsync', every(isDeno ? 9 : 101)],
    ['submit', every(isDeno ? 7 : 139)],
  ] as const)('%s, every %d-th of them, with micro-batches and a disk', async (call, stride) => {
    let met = 0;
    for (let n = 1; await disturbed(tiered, { call, at: [n] }); n += stride) met++;
    expect(met).toBeGreaterThan(1);
  });

  test('call, and the next device as well: in the recovery, or soon after', async () => {
    const cases = [
      ['submit', 5, 0],
      ['submit', 5, 1],
      ['submit', 4, 4],
      ['mapAsync', 12, 0],
      ['mapAsync', 12, 1],
      ['mapAsync', 9, 9],
      ['writeBuffer', 20, 0],
      ['writeBuffer', 20, 3],
    ] as const;
    for (const [call, ...at] of EVERY_CASE ? cases : cases.filter((_, i) => [1, 2, 5, 6].includes(i))) {
      expect(await disturbed(plain, { call, at }), `${call} ${at}`).toBe(2);
    }
  });

  test('call of every device ends in one clear error, and so does everything after', async () => {
    await onFragile(plain, async (trainer, fragile) => {
      fragile.before = (call) => {
        if (call === 'submit') fragile.lose();
      };
      const [batches] = leading(1, batchesOf(plain.work));
      const failed = await Promise.all(
        [trainer.start(batches), trainer.start(batches), trainer.evaluate(batches[0])].map((work) =>
          work.then(
            () => 'done',
            (error) => error,
          ),
        ),
      );
      for (const error of failed) expect(error).toBeInstanceOf(HoldfastError);
      expect(new Set(failed).size).toBe(1);
      expect(failed[0].message).toMatch(/lost 6 times in a row .* resume from the last checkpoint/);
      await expect(trainer.start(batches)).rejects.toBe(failed[0]);
      await expect(trainer.evaluate(batches[0])).rejects.toBe(failed[0]);
      await expect(collect(trainer.values('parameter'))).rejects.toBe(failed[0]);
      await expect(trainer.settle()).rejects.toBe(failed[0]);
    });
  });
});

describe('a device lost during', () => {
  let given: Case;
  beforeAll(async () => {
    const work: Work = { model: MODEL, batch: 1, seq: 8, accumulate: 1, steps: 4, between: true };
    given = await prepare(work, { gpu: leastBudget(real, work) });
  });

  test.each(isDeno ? [31] : [0, 2, 31, 60, 95])('training, evaluation, text or reading: map %d', async (n) => {
    expect(await disturbed(given, { call: 'mapAsync', at: [n] })).toBe(1);
  });

  /** Does `what` behind two steps, undisturbed and with a loss at its n-th call, for every n that there is. */
  async function everywhere<T>(call: Call, stride: number, what: (trainer: Trainer) => Promise<T>): Promise<void> {
    const [one, two] = leading(2, batchesOf(given.work));
    let wanted: T | undefined;
    for (let n = -1, lost = 1; lost > 0; n = n < 0 ? 0 : n + stride) {
      await onFragile(given, async (trainer, fragile) => {
        await Promise.all([trainer.start(one), trainer.start(two)]);
        await trainer.settle();
        arm(fragile, { call, at: [n] });
        const found = await what(trainer);
        wanted ??= found;
        expect(found, `${call} ${n}`).toEqual(wanted);
        expect(trainer.recoveries).toBe(fragile.losses);
        lost = n < 0 ? 1 : fragile.losses;
      });
    }
  }

  test('an evaluation', () => everywhere('submit', every(isDeno ? 20 : 61), (trainer) => trainer.evaluate(batch(0))));

  test('a text', () =>
    everywhere('mapAsync', every(isDeno ? 9 : 43), async (trainer) => {
      const { generator } = trainer;
      return write(generator as Generator);
    }));

  test('the reading of weights', () =>
    everywhere('mapAsync', every(5), (trainer) => collect(trainer.values('moment1'))));

  test('the setting of weights', () =>
    everywhere('submit', every(3), async (trainer) => {
      const wpe = await collect(trainer.values('parameter'));
      await trainer.setValues('moment1', sourceOf(wpe));
      return collect(trainer.values('moment1'));
    }));

  test('an evaluation that was asked for between two steps: it comes between them', () =>
    everywhere('submit', every(isDeno ? 50 : 97), async (trainer) => {
      const [, , three, four] = leading(4, batchesOf(given.work));
      const loss = ({ loss, gradNorm }: StepMetrics) => [loss, gradNorm];
      return Promise.all([
        trainer.start(three).then(loss),
        trainer.evaluate(batch(0)),
        trainer.start(four).then(loss),
        trainer.evaluate(batch(0)),
      ]);
    }));

  test('a recovery, work that is asked for comes in its turn', () =>
    everywhere('submit', every(isDeno ? 40 : 97), async (trainer) => {
      const [, , three, four] = leading(4, batchesOf(given.work));
      const turn = () => new Promise((resolve) => setTimeout(resolve, 1));
      const found: Promise<unknown>[] = [trainer.start(three).then(({ loss }) => loss)];
      for (let i = 0; i < 10 && trainer.recoveries === 0; i++) await turn();
      for (const work of [() => trainer.start(four).then(({ loss }) => loss), () => trainer.evaluate(batch(0))]) {
        found.push(work());
        await turn();
      }
      return Promise.all(found);
    }));

  test('nothing at all, between two tokens of a text', async () => {
    const texts: number[][] = [];
    for (const at of isDeno ? [-1, 3] : [-1, 0, 3, 5]) {
      await onFragile(given, async (trainer, fragile) => {
        const text: number[] = [];
        const { generator } = trainer as { generator: Generator };
        for await (const id of generator.generate(Int32Array.of(3, 1, 2), 7, SAMPLING, new Random(11, 'text'))) {
          if (text.length === at) {
            fragile.lose();
            // It is the evaluation that finds the device lost, not the generator.
            await trainer.evaluate(batch(0));
          }
          text.push(id);
        }
        texts.push(text);
        expect(trainer.recoveries).toBe(at < 0 ? 0 : 1);
      });
    }
    expect(new Set(texts.map(String)).size).toBe(1);
  });

  const batch = (step: number) => at(batchesOf(given.work), step)[0];
});

test('two texts at once do not mix', async () => {
  const work: Work = { model: MODEL, batch: 1, seq: 8, accumulate: 1, steps: 1, between: true };
  const { memory, choices } = await prepare(work, {});
  await onFragile({ work, memory, choices } as Case, async ({ generator }) => {
    const begin = () => (generator as Generator).generate(Int32Array.of(3, 1, 2), 7, SAMPLING, new Random(11, 'text'));
    const alone = await write(generator as Generator);
    const [one, two] = [begin(), begin()];
    const texts = { one: [] as (number | undefined)[], two: [] as (number | undefined)[] };
    for (const _ of alone) {
      texts.one.push((await one.next()).value);
      texts.two.push((await two.next()).value);
    }
    expect(texts).toEqual({ one: alone, two: alone });
  });
});

test.each([
  ['without a budget', {}],
  ["with recovery 'checkpoint'", { recovery: 'checkpoint' }],
  [
    "where recovery 'auto' leaves its states out",
    { recovery: 'auto', rates: { ...typicalRates(false), downBytes: 1e6 } },
  ],
] as const)('%s a lost device ends the run with one error that says what to do', async (_, given: MemoryOptions) => {
  const work: Work = { model: MODEL, batch: 1, seq: 8, accumulate: 1, steps: 2 };
  const { recovery } = given;
  const memory = recovery ? { ...given, gpu: leastBudget(real, work, recovery) } : {};
  const prepared = await prepare(work, memory);
  await onFragile(prepared, async (trainer, fragile) => {
    const micros = batchesOf(work);
    const [one] = leading(1, micros);
    await trainer.start(one);
    arm(fragile, { call: 'submit', at: [0] });
    const errors = await Promise.all(micros.map((batches) => trainer.start(batches).catch((error) => error)));
    for (const error of errors) {
      expect(error).toBeInstanceOf(HoldfastError);
      expect(error.message).toMatch(/the GPU device was lost .*; resume from the last checkpoint; with a GPU budget/);
    }
    await expect(trainer.start(one)).rejects.toThrow('resume from the last checkpoint');
    expect(trainer.recoveries).toBe(0);
  });
});

// The real thing, which compiles everything again: once in every part of a step.
test('a real device that is destroyed', async () => {
  const work: Work = { model: MODEL, batch: 1, seq: 8, accumulate: 1, steps: 3 };
  const { wanted, choices } = await prepare(work, {});
  const device = await real.reopen();
  const trainer = await openTrainer(device, work, {
    memory: { gpu: leastBudget(real, work), recovery: 'step' },
    choices,
  });
  // While the first steps are under way, however fast they are.
  const found = await train(trainer, work, async (pair) => {
    if (pair === 0) trainer.device.gpu.destroy();
  });
  expectSame(found, wanted, 'destroyed');
  expect(trainer.recoveries).toBe(1);
  await trainer.destroy();
  trainer.device.close();
});
