// Chunks among the activations: in runs within budgets, at no moment does one lie where an activation lives; there are such
// chunks, they move less than without them, and no bit depends on it.

import { afterEach, beforeAll, beforeEach, describe, expect, test, vi } from 'vitest';
import type { Fit } from '../../src/engine/compile/fitted.ts';
import type { Pass } from '../../src/engine/compile/pass.ts';
import { schedule } from '../../src/engine/compile/schedule.ts';
import { Executor } from '../../src/engine/run/executor.ts';
import { Slots } from '../../src/engine/run/slots.ts';
import { Storage } from '../../src/engine/run/storage.ts';
import type { Device } from '../../src/gpu/device.ts';
import type { BufferRange } from '../../src/gpu/dispatch.ts';
import type { Tensor } from '../../src/graph/program.ts';
import { at } from '../../src/util/at.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { budgetFor, expectSame, MODELS, type Outcome, openTrainer, run, train, type Work } from './runs.ts';

let real: Device;
beforeAll(async () => {
  real = await testDevice();
});
beforeEach(() => chooseVariants(2));
afterEach(() => {
  vi.restoreAllMocks();
});

/** Of each activation of a pass and each of its micro-batches: its first and its last moment, told from the instructions alone. */
function livesIn({ operations, starts }: Pass): { tensor: Tensor; first: number; last: number }[] {
  return starts.flatMap((start, i) => {
    const end = starts[i + 1] ?? operations.length;
    const lives = new Map<Tensor, { tensor: Tensor; first: number; last: number }>();
    for (let m = start; m < end; m++) {
      const operation = at(operations, m);
      const used =
        operation.op === 'dispatch'
          ? Object.values(operation.operands)
          : 'tensor' in operation
            ? [operation.tensor]
            : [];
      for (const tensor of used) {
        if ('chunk' in tensor || tensor.role !== 'activation') continue;
        const life = lives.get(tensor) ?? { tensor, first: m, last: m };
        life.last = m;
        lives.set(tensor, life);
      }
    }
    return [...lives.values()];
  });
}

const meets = (a: BufferRange, b: BufferRange): boolean =>
  a.buffer === b.buffer && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;

/** Looks at all chunks behind each moment of what runs from now on. Returns how many were seen among activations. */
function watch(): { seen: number } {
  const found = { seen: 0 };
  const lives = new Map<Pass, ReturnType<typeof livesIn>>();
  const { begin, run: many } = Executor.prototype;
  let now: { pass: Pass; moment: number } | undefined;
  let storage: Storage | undefined;
  const { placeActivations } = Storage.prototype;
  vi.spyOn(Storage.prototype, 'placeActivations').mockImplementation(function (this: Storage, ...given) {
    storage = this;
    return placeActivations.apply(this, given);
  });
  vi.spyOn(Slots.prototype, 'check').mockImplementation(function (this: Slots) {
    if (!now || !storage) return;
    const { pass, moment } = now;
    const all = lives.get(pass) ?? livesIn(pass);
    lives.set(pass, all);
    const chunks = this.residents().map((chunk) => this.range(chunk));
    found.seen += this.residents().filter((chunk) => this.of(chunk) >= this.always).length;
    for (const { tensor, first, last } of all) {
      if (moment < first || last < moment) continue;
      const place = storage.range(tensor);
      expect(chunks.some((chunk) => meets(chunk, place))).toBe(false);
    }
    chunks.forEach((one, i) => {
      expect(chunks.slice(i + 1).some((other) => meets(one, other))).toBe(false);
    });
  });
  vi.spyOn(Executor.prototype, 'begin').mockImplementation(function (this: Executor, pass, ...rest) {
    now = { pass, moment: 0 };
    return begin.call(this, pass, ...rest);
  });
  vi.spyOn(Executor.prototype, 'run').mockImplementation(async function (this: Executor, from, to) {
    for (let moment = from; moment < to; moment++) {
      await many.call(this, moment, moment + 1);
      if (now) now.moment = moment;
      this.copies.check();
    }
  });
  return found;
}

const works: readonly (readonly [string, Work])[] = [
  ['one micro-batch', { model: MODELS['gpt2, untied'], batch: 3, seq: 8, accumulate: 1, steps: 4, between: true }],
  ['three micro-batches', { model: MODELS['gpt2, tied'], batch: 2, seq: 8, accumulate: 3, steps: 4, between: true }],
  ['a Llama', { model: MODELS['llama, grouped heads'], batch: 3, seq: 8, accumulate: 1, steps: 4, between: false }],
];

describe.each(works)('%s', (_, work) => {
  let wanted: Outcome;
  let choices: Awaited<ReturnType<typeof run>>['choices'];
  beforeAll(async () => {
    chooseVariants(2);
    ({ outcome: wanted, choices } = await run(real, work));
  });

  test.each([0.45, 0.7])('on %d of its model data: no chunk lies where an activation does', async (part) => {
    const found = watch();
    const memory = { gpu: budgetFor(real, work, part), activations: 'keep' } as const;
    const trainer = await openTrainer(real, work, { memory, choices });
    try {
      const outcome = await train(trainer, work);
      expectSame(outcome, wanted, 'among activations');
      expect(found.seen).toBeGreaterThan(0);
      const { fit } = trainer.session as { fit: Fit };
      const { step } = fit.passes as { step: Pass };
      const moved = ({ h2d, d2h }: { h2d: number; d2h: number }) => h2d + d2h;
      const without = schedule(step.trace, fit.slots, 'planned').moved;
      const within = schedule(step.trace, fit.slots, 'planned', step.extra).moved;
      expect(moved(within)).toBeLessThan(moved(without));
    } finally {
      await trainer.destroy();
    }
  });
});
