// A change of the GPU budget happens or does not: whichever call inside it fails, for lack of memory or because the
// device is lost, training goes on within the new budget or the old one, with the bits of a run that nothing
// disturbed, and nothing is left behind. The n-th call fails for n = 0, 1, 2, ... until one change meets no fault.

import fc from 'fast-check';
import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { TokenBatch } from '../../src/data/batches.ts';
import type { ChoiceRecord } from '../../src/engine/compile/choices.ts';
import { refitMemory } from '../../src/engine/compile/fit.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { Generator } from '../../src/train/inference/generator.ts';
import type { StepMetrics, Trainer } from '../../src/train/step/trainer.ts';
import { at } from '../../src/util/at.ts';
import { HoldfastError } from '../../src/util/errors.ts';
import { Random } from '../../src/util/random.ts';
import { collect, type Values } from '../../src/values/tensor-source.ts';
import { chooseVariants } from '../choose-variants.ts';
import { leading } from '../entry.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { MemoryBlockFile } from '../memory-files.ts';
import { type Call, type Fragile, fragileDevice } from './fragile.ts';
import { batchesOf, budgetFor, leastHostUnder, MODELS, openTrainer, SAMPLING, SMALLEST, type Work } from './runs.ts';

// Every case is many more than the time of one test allows for.
if (EVERY_CASE) vi.setConfig({ testTimeout: 1_800_000 });
const recoveries = ['step', 'checkpoint'] as const;
type Recovery = (typeof recoveries)[number];

let real: Device;
beforeAll(async () => {
  real = await testDevice();
});
beforeEach(() => chooseVariants(1));
afterEach(() => {
  vi.restoreAllMocks();
});

/** What a step, and the state behind it, must be. */
interface Reference {
  readonly work: Work;
  readonly choices: ChoiceRecord;
  readonly metrics: readonly StepMetrics[];
  /** By steps done. */
  readonly evaluations: readonly number[];
  readonly texts: readonly (readonly number[])[];
  readonly weights: readonly Values[];
  readonly moments: readonly Values[];
}

const PROMPT = Int32Array.of(3, 1, 2);
const TOKENS = 7;

/** Text, and what happens before its tokens. */
async function text(
  trainer: Trainer,
  between: (token: number) => Promise<unknown> = async () => {},
): Promise<number[]> {
  const found: number[] = [];
  const { generator } = trainer as { generator: Generator };
  for await (const id of generator.generate(PROMPT, TOKENS, SAMPLING, new Random(11, 'text'))) {
    await between(found.length);
    found.push(id);
  }
  return found;
}

const windowsOf = (work: Work): TokenBatch => leading(1, batchesOf(work))[0][0];

async function referenceOf(work: Work): Promise<Reference> {
  const trainer = await openTrainer(real, work);
  const metrics: StepMetrics[] = [];
  const evaluations: number[] = [];
  const texts: number[][] = [];
  const weights: Values[] = [];
  const moments: Values[] = [];
  for (let step = 0; ; step++) {
    if (work.between) {
      evaluations.push(await trainer.evaluate(windowsOf(work)));
      texts.push(await text(trainer));
    }
    weights.push(await collect(trainer.values('parameter')));
    moments.push(await collect(trainer.values('moment2')));
    if (step === work.steps) break;
    metrics.push(await trainer.start(at(batchesOf(work), step)));
  }
  const choices = trainer.choices.record();
  await trainer.destroy();
  return { work, choices, metrics, evaluations, texts, weights, moments };
}

async function expectStateOf(trainer: Trainer, { weights, moments }: Reference, what: string): Promise<void> {
  const { step } = trainer;
  expect(await collect(trainer.values('parameter')), `${what}: weights of step ${step}`).toEqual(weights[step]);
  expect(await collect(trainer.values('moment2')), `${what}: moments of step ${step}`).toEqual(moments[step]);
}

/** Parts of the way from the smallest budget that a trainer's chunks fit into to the one that moves nothing. */
function budgetsOf({ session }: Trainer): { least: number; whole: number; part: (part: number) => number } {
  const { fit, device, leastBudget: least } = session;
  const { peak: whole } = refitMemory(fit, limitsOf(device), 100 * least);
  return { least, whole, part: (part) => Math.floor(least + (whole - least) * part) };
}

interface Setting {
  readonly reference: Reference;
  readonly recovery: Recovery;
  readonly disk: boolean;
  readonly policy?: 'planned' | 'LRU';
  /** Of the way from the smallest budget to the one that moves nothing. */
  readonly from: number;
}

/** Opens a trainer on a device that can be lost, hands it on, and looks at what is left when it was destroyed. */
async function onFragile(
  { reference: { work, choices }, recovery, disk, policy = 'planned', from }: Setting,
  use: (trainer: Trainer, fragile: Fragile) => Promise<void>,
): Promise<void> {
  const fragile = await fragileDevice(real);
  const memory = { gpu: budgetFor(real, work, 1 / 2, recovery), recovery, policy };
  let file: MemoryBlockFile | undefined;
  const open = async (size: number) => {
    file = new MemoryBlockFile('/tier/block-file', size);
    return file;
  };
  const tiers = disk ? { host: leastHostUnder(real, work, memory), disk: { open } } : {};
  const trainer = await openTrainer(fragile.device, work, { memory: { ...memory, ...tiers }, choices });
  try {
    await trainer.setBudget(budgetsOf(trainer).part(from));
    await use(trainer, fragile);
  } finally {
    fragile.before = undefined;
    await trainer.destroy();
    expect(fragile.device.allocator.bytes, 'bytes left on the last device').toBe(0);
    if (disk) expect(file?.removed, 'the file is gone').toBe(true);
  }
}

/** Faults, one after the other: each at the n-th call, of any kind or of one, behind the fault before it. */
interface Strike {
  readonly at: number;
  readonly call?: Call;
  readonly fault: (fragile: Fragile) => void;
}

/** Arms faults; returns how many have struck. */
function arm(fragile: Fragile, strikes: readonly Strike[]): () => number {
  let struck = 0;
  let calls = 0;
  fragile.before = (call) => {
    const next = strikes[struck];
    if (!next || (next.call && call !== next.call) || calls++ !== next.at) return;
    struck++;
    calls = 0;
    next.fault(fragile);
  };
  return () => struck;
}

const lose = (fragile: Fragile) => fragile.lose();
const exhaust = (fragile: Fragile) => fragile.exhaust();
const refuse = () => {
  throw new RangeError('not now');
};
const runOut = (fragile: Fragile) => fragile.runOut();

const failureOf = (work: Promise<unknown>): Promise<Error | undefined> =>
  work.then(
    () => undefined,
    (error) => error,
  );

describe('a change of the budget', () => {
  const work: Work = { model: SMALLEST, batch: 1, seq: 8, accumulate: 1, steps: 3 };
  let reference: Reference;
  beforeAll(async () => {
    chooseVariants(1);
    reference = await referenceOf(work);
  });

  const stride = EVERY_CASE ? 1 : 151;

  /** One step, a change with faults in it, and if that leaves a way to go on, the rest. */
  async function changed(
    recovery: Recovery,
    disk: boolean,
    [from, to]: readonly [number, number],
    strikes: readonly Strike[],
    what: string,
  ): Promise<{ failure: Error | undefined; struck: number; isOver: boolean; budget: number }> {
    let result = { failure: undefined as Error | undefined, struck: 0, isOver: false, budget: 0 };
    await onFragile({ reference, recovery, disk, from }, async (trainer, fragile) => {
      const asked = budgetsOf(trainer).part(to);
      const [one, two, three] = leading(3, batchesOf(work));
      expect(await trainer.start(one), what).toEqual(reference.metrics[0]);
      await trainer.settle();
      const before = trainer.session.report().gpu;
      const struck = arm(fragile, strikes);
      const failure = await failureOf(trainer.setBudget(asked));
      fragile.before = undefined;
      const { gpu: report } = trainer.session.report();
      if (failure) expect(failure, what).toBeInstanceOf(HoldfastError);
      else expect(report.budget, what).toBe(asked);
      result = {
        failure,
        struck: struck(),
        isOver: trainer.session.over !== undefined,
        budget: report.budget as number,
      };
      if (recovery === 'checkpoint' && fragile.device.status === 'lost') return;
      if (failure && trainer.recoveries === 0 && !result.isOver && strikes.length === 1)
        expect(report, what).toEqual(before);
      const metrics = await Promise.all([trainer.start(two), trainer.start(three)]).catch((error) => error);
      if (recovery === 'checkpoint' && metrics instanceof Error) {
        expect(metrics.message, what).toMatch(/resume from the last checkpoint/);
        return;
      }
      expect(metrics, what).toEqual(reference.metrics.slice(1));
      const { predictedPeak } = trainer.session.report().gpu;
      expect(trainer.device.allocator.bytes, `${what}: bytes in use`).toBe(predictedPeak);
      expect(trainer.device.allocator.peak, `${what}: peak`).toBe(predictedPeak);
      await expectStateOf(trainer, reference, what);
    });
    return result;
  }

  const directions: Record<'up' | 'down', readonly [number, number]> = { up: [0, 0.7], down: [1, 0.3] };
  const all = recoveries.flatMap((recovery) =>
    [true, false].flatMap((disk) =>
      Object.entries(directions).map(([name, direction]) => ({ recovery, disk, name, direction })),
    ),
  );
  // Or every pair of them: an orthogonal array.
  const isPaired = ({ recovery, disk, name }: (typeof all)[number]) =>
    (Number(recovery === 'step') + Number(disk) + Number(name === 'up')) % 2 === 1;
  const cases = EVERY_CASE ? all : all.filter(isPaired);

  /** The n-th call fails, for every n that there is. Returns how the changes failed. */
  async function everywhere(
    { recovery, disk, direction }: (typeof all)[number],
    fault: Strike['fault'],
    call?: Call,
  ): Promise<(Error | undefined)[]> {
    const failures: (Error | undefined)[] = [];
    for (let n = 0; ; n += n < 3 ? 1 : stride) {
      const strike = { at: n, fault, ...(call && { call }) };
      const { failure, struck } = await changed(recovery, disk, direction, [strike], `call ${n}`);
      if (struck === 0) break;
      failures.push(failure);
    }
    expect(failures.length).toBeGreaterThan(3);
    return failures;
  }

  /** In the sample each fault in two of the cases, which differ in recovery and direction. */
  const isSampled = (given: (typeof all)[number], nth: number) => EVERY_CASE || (cases.indexOf(given) + nth) % 2 === 0;

  describe.each(cases)('$name, recovery $recovery, disk $disk', (given) => {
    const failing = [
      ['for lack of memory', exhaust],
      ['at once', refuse],
    ] as const;
    test.each(failing.filter((_, nth) => isSampled(given, nth)))(
      'with an allocation that fails %s is refused, and all is as before',
      async (_, fault) => {
        for (const failure of await everywhere(given, fault, 'createBuffer')) {
          expect(failure?.message).toMatch(/^the GPU has not the memory for a budget of .* the run goes on within/);
        }
      },
    );

    test.runIf(isSampled(given, 0))('in which the device is lost is recovered like any other work', async () => {
      for (const failure of await everywhere(given, lose)) {
        if (given.recovery === 'step') expect(failure).toBeUndefined();
        else if (failure) expect(failure.message).toMatch(/during a change of the GPU budget .*; resume from the last/);
      }
    });

    test.runIf(isSampled(given, 1))(
      'in which the GPU finds that it has not the memory goes on within less than before',
      async () => {
        for (const failure of await everywhere({ ...given, direction: [1, 1] }, runOut)) {
          if (given.recovery === 'step') expect(failure?.message ?? '').toMatch(/^$|goes on within/);
          else if (failure) expect(failure.message).toMatch(/resume from the last/);
        }
      },
    );
  });

  test('that fails for lack of memory, and whose device is lost while the old budget is made again', async () => {
    for (let n = 0; ; n += stride) {
      const strikes = [
        { at: 4, call: 'createBuffer', fault: exhaust },
        { at: n, fault: lose },
      ] as const;
      const { failure, struck } = await changed('step', true, directions.up, strikes, `second fault at ${n}`);
      if (struck < 2) break;
      // Behind the recovery it is tried once more, and nothing fails then.
      expect(failure?.message ?? '').toMatch(/^$|goes on within/);
      expect(n).toBeLessThan(500);
    }
  });

  test('for which the GPU has not the memory, and then not for the budget before: what fits is found', async () => {
    await onFragile({ reference, recovery: 'step', disk: true, from: 0.6 }, async (trainer, fragile) => {
      const { least, whole, part } = budgetsOf(trainer);
      const [one, two, three] = leading(3, batchesOf(work));
      await trainer.start(one);
      // Others have taken it meanwhile.
      fragile.memory = part(0.3);
      const failure = await failureOf(trainer.setBudget(whole));
      expect(failure).toBeInstanceOf(HoldfastError);
      const { budget, predictedPeak } = trainer.session.report().gpu;
      expect(predictedPeak).toBeLessThanOrEqual(part(0.3));
      expect(predictedPeak).toBeGreaterThanOrEqual(least);
      expect(budget).toBeLessThan(part(0.6));
      expect(await Promise.all([trainer.start(two), trainer.start(three)])).toEqual(reference.metrics.slice(1));
      await expectStateOf(trainer, reference, 'less than before');
    });
  });

  test('behind which nothing fits any more ends the run with that error, and leaves nothing', async () => {
    await onFragile({ reference, recovery: 'step', disk: true, from: 0.6 }, async (trainer, fragile) => {
      const { least, whole, part } = budgetsOf(trainer);
      const [one] = leading(1, batchesOf(work));
      await trainer.start(one);
      fragile.memory = least - 1;
      const failure = await failureOf(trainer.setBudget(whole));
      expect(failure).toBeInstanceOf(HoldfastError);
      expect(failure?.message).toMatch(/does not fit into the GPU's memory/);
      for (const work of [trainer.start(one), trainer.settle(), trainer.setBudget(part(1)), trainer.evaluate(one[0])]) {
        expect(await failureOf(work)).toBe(failure);
      }
    });
  });

  test('that comes while steps are being started takes its turn among them', async () => {
    for (const recovery of recoveries) {
      await onFragile({ reference, recovery, disk: false, from: 0.5 }, async (trainer) => {
        const { part } = budgetsOf(trainer);
        const metrics: Promise<StepMetrics>[] = [];
        const changes: Promise<void>[] = [];
        for (const [i, batches] of batchesOf(work).entries()) {
          metrics.push(trainer.start(batches));
          changes.push(trainer.setBudget(part(i / 3)));
        }
        expect(await Promise.all(metrics)).toEqual(reference.metrics);
        await Promise.all(changes);
        expect(trainer.session.report().gpu.budget).toBe(part(2 / 3));
        await expectStateOf(trainer, reference, 'among steps');
      });
    }
  });
});

describe.each(['gpt2, untied', 'llama, grouped heads'] as const)('%s', (name) => {
  const work: Work = { model: MODELS[name], batch: 1, seq: 8, accumulate: 1, steps: 5, between: true };
  let reference: Reference;
  beforeAll(async () => {
    chooseVariants(1);
    reference = await referenceOf(work);
  });

  const sampled = name === 'gpt2, untied' ? 'step' : 'checkpoint';
  test.each(EVERY_CASE ? recoveries : ([sampled] as const))(
    'a text across changes of the budget is the text without, recovery %s',
    async (recovery) => {
      for (let token = 0; token < TOKENS; token += EVERY_CASE ? 1 : 5) {
        await onFragile({ reference, recovery, disk: false, from: 0.5 }, async (trainer) => {
          const { part } = budgetsOf(trainer);
          const change = async (at: number) => {
            if (at === token) await trainer.setBudget(part(at % 2));
          };
          expect(await text(trainer, change), `a change before token ${token}`).toEqual(reference.texts[0]);
        });
      }
    },
  );

  type Fault = { readonly kind: 'none' | 'loss' | 'memory'; readonly at: number };
  type Op =
    | { readonly op: 'steps'; readonly count: number; readonly wait: boolean }
    | { readonly op: 'budget'; readonly part: number; readonly fault: Fault; readonly wait: boolean }
    | { readonly op: 'text'; readonly token: number; readonly part: number; readonly fault: Fault }
    | { readonly op: 'evaluate' }
    | { readonly op: 'values' }
    | { readonly op: 'lose'; readonly at: number };

  const fault: fc.Arbitrary<Fault> = fc.record({
    kind: fc.constantFrom('none', 'loss', 'memory'),
    at: fc.nat(70),
  });
  const part = fc.double({ min: -0.02, max: 1.1, noNaN: true });
  const ops: fc.Arbitrary<Op[]> = fc.array(
    fc.oneof(
      fc.record({ op: fc.constant('steps' as const), count: fc.integer({ min: 1, max: 3 }), wait: fc.boolean() }),
      fc.record({ op: fc.constant('budget' as const), part, fault, wait: fc.boolean() }),
      fc.record({ op: fc.constant('text' as const), token: fc.nat(TOKENS - 1), part, fault }),
      fc.record({ op: fc.constant('evaluate' as const) }),
      fc.record({ op: fc.constant('values' as const) }),
      fc.record({ op: fc.constant('lose' as const), at: fc.nat(150) }),
    ),
    { minLength: 4, maxLength: 12 },
  );
  const setting = fc.record({
    recovery: fc.constantFrom(...recoveries),
    disk: fc.boolean(),
    from: fc.double({ min: 0, max: 1, noNaN: true }),
    policy: fc.constantFrom('planned' as const, 'LRU' as const),
  });

  /** For each model; of 300 with every case. */
  const numRuns = EVERY_CASE ? 150 : 2;

  test(`${numRuns} random mixes of steps, budgets, evaluations, texts and losses change no bit`, async () => {
    const property = fc.asyncProperty(setting, ops, async (given, mix) => {
      const { recovery } = given;
      await onFragile({ reference, ...given }, async (trainer, fragile) => {
        const budgets = budgetsOf(trainer);
        let losses = 0;
        const underWay: Promise<unknown>[] = [];
        const started: Promise<unknown>[] = [];
        const start = (count: number) => {
          for (; count > 0 && trainer.step < work.steps; count--) {
            const { step } = trainer;
            const expected = trainer
              .start(at(batchesOf(work), step))
              .then((found) => expect(found).toEqual(reference.metrics[step]));
            expected.catch(() => {});
            underWay.push(expected);
            started.push(expected);
          }
        };
        const loseAt = (at: number, call?: Call) => {
          // Where nothing is kept below, a loss ends the run; and more than some in a row are given up.
          if (recovery === 'checkpoint' || losses++ >= 4) return;
          arm(fragile, [{ at, fault: lose, ...(call && { call }) }]);
        };
        const change = async (part: number, { kind, at }: Fault) => {
          // No two faults in one change: out of memory in a recovery may end the run.
          if (kind === 'memory') await Promise.all(underWay.splice(0));
          const lost = fragile.losses;
          if (kind === 'loss') loseAt(at);
          if (kind === 'memory') {
            await trainer.settle();
            arm(fragile, [{ at, call: 'createBuffer', fault: exhaust }]);
          }
          const before = trainer.session.report().gpu;
          const failure = await failureOf(trainer.setBudget(budgets.part(part)));
          if (kind === 'memory') fragile.before = undefined;
          if (!failure) return;
          expect(failure.message).toMatch(budgets.part(part) < budgets.least ? /needs \d+ bytes/ : /goes on within/);
          if (fragile.losses === lost && kind === 'memory') expect(trainer.session.report().gpu).toEqual(before);
        };
        for (const next of mix) {
          if (next.op === 'steps') {
            start(next.count);
            if (next.wait) await Promise.all(underWay.splice(0));
          } else if (next.op === 'budget') {
            const changed = change(next.part, next.fault);
            if (next.wait || next.fault.kind === 'memory') await changed;
            else underWay.push(changed);
          } else if (next.op === 'text') {
            const { step } = trainer;
            const between = async (token: number) => {
              if (token === next.token) await change(next.part, next.fault);
            };
            expect(await text(trainer, between)).toEqual(reference.texts[step]);
          } else if (next.op === 'evaluate') {
            const { step } = trainer;
            expect(await trainer.evaluate(windowsOf(work))).toBe(reference.evaluations[step]);
          } else if (next.op === 'values') {
            await expectStateOf(trainer, reference, 'in between');
          } else loseAt(next.at);
        }
        await Promise.all(underWay);
        start(work.steps);
        await Promise.all(started);
        await trainer.settle();
        await expectStateOf(trainer, reference, 'at the end');
        expect(trainer.recoveries).toBe(fragile.losses);
      });
    });
    await fc.assert(property, { seed: 20261121, numRuns, endOnFailure: !EVERY_CASE });
  });
});
