// What the simulation says that a step moves, beside what a run on this adapter moved: the same, to the byte.

import { beforeAll, expect, it } from 'vitest';
import { smallestBudget } from '../../src/engine/compile/least.ts';
import { limitsOf } from '../../src/engine/run/arrangement.ts';
import { knownMachine } from '../../src/engine/simulate/hardware.ts';
import { simulate } from '../../src/engine/simulate/simulate.ts';
import { initialWeights } from '../../src/nn/initialise.ts';
import { optimizedOn } from '../../src/nn/model.ts';
import { traceStep } from '../../src/train/step/step-programs.ts';
import { Trainer } from '../../src/train/step/trainer.ts';
import { trainingWorkload } from '../../src/train/step/training-workload.ts';
import { Random } from '../../src/util/random.ts';
import { chooseVariants } from '../choose-variants.ts';
import { testDevice } from '../harness.ts';
import { EVERY_CASE } from '../host.ts';
import { LARGEST } from '../model/runs.ts';

/** Of an optimizer on either: tensors on the GPU. */
const SPLIT = 20;
const [BATCH, SEQ, ACCUMULATE, WARM_UP] = [2, 12, 2, 3];
const STEPS = EVERY_CASE ? 3 : 1;

beforeAll(() => chooseVariants(1));

const CASES = [
  ['step', 'auto', 1.3, 'gpu'],
  ['checkpoint', 'offload', 1.1, 'gpu'],
  ['step', 'spill', 2, 'gpu'],
  ['checkpoint', 'keep', 1.6, 'gpu'],
  ['step', 'keep', 1.3, 'cpu'],
  ['step', 'offload', 1.1, 'cpu'],
  ['step', 'keep', 1.2, 'auto'],
  ['checkpoint', 'keep', 1.2, 'auto'],
] as const;

it.each(EVERY_CASE ? CASES : CASES.filter((_, i) => [1, 2, 4, 6].includes(i)))(
  'recovery by %s, activations %s, %d times the smallest budget, AdamW on the %s',
  async (recovery, activations, times, optimizerDevice) => {
    const device = await testDevice();
    const machine = knownMachine('rtx-3050-laptop');
    expect(machine).toBeDefined();
    if (!machine) return;
    const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
    const split = optimizerDevice === 'auto' ? { optimizerSplit: SPLIT } : {};
    const options = { batch: BATCH, seq: SEQ, accumulate: ACCUMULATE, schedule, optimizerDevice, ...split };
    const model = optimizedOn(LARGEST, optimizerDevice, SPLIT);
    const workload = trainingWorkload(model, traceStep(model, BATCH, SEQ), ACCUMULATE, undefined, { activations });
    const gpu = Math.floor(times * smallestBudget(workload, limitsOf(device), { recovery }));
    const trainer = await Trainer.create(device, LARGEST, { ...options, memory: { gpu, recovery, activations } });
    try {
      await trainer.setWeights(initialWeights(LARGEST, 1));
      const random = new Random(1, 'tokens');
      const tokens = () => Int32Array.from({ length: BATCH * SEQ }, () => random.below(97));
      const step = () =>
        trainer.start(
          Array.from({ length: ACCUMULATE }, () => ({ ids: tokens(), targets: tokens(), batch: BATCH, seq: SEQ })),
        );
      // Those of warm-up have a plan of their own, and the one behind them begins where it ends.
      for (let i = 0; i < WARM_UP; i++) await step();
      const { session } = trainer;
      // Copies that are kept may go down behind the end of their step.
      await trainer.settle();
      const before = session.report().link;
      for (let i = 0; i < STEPS; i++) await step();
      await trainer.settle();
      const after = session.report().link;
      const { fit } = session;
      const { step: pass } = fit.passes;
      const { bytes } = simulate(fit, pass, session.scheduleOf(pass), machine);
      expect(after.h2dBytes - before.h2dBytes).toBe(STEPS * bytes.up);
      expect(after.d2hBytes - before.d2hBytes).toBe(STEPS * bytes.down);
      expect(after.recoveryBytes - before.recoveryBytes).toBe(STEPS * bytes.recovery);
      expect(bytes.up).toBeGreaterThan(0);
    } finally {
      await trainer.destroy();
    }
  },
);
