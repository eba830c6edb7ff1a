// A benchmark of what a GPU budget costs: the same steps with everything on the GPU and with ever less of it, in turns,
// in one process, and where the difference was spent.

import type { ChoiceRecord } from '../../engine/compile/choices.ts';
import { fitMemory } from '../../engine/compile/fit.ts';
import { limitsOf } from '../../engine/run/arrangement.ts';
import { WARM_UP_STEPS } from '../../engine/run/warm-up.ts';
import { parseConfig } from '../../formats/config.ts';
import type { Device } from '../../gpu/device.ts';
import { makeModel } from '../../nn/index.ts';
import { initialWeights } from '../../nn/initialise.ts';
import { traceStep } from '../../train/step/step-programs.ts';
import { Trainer } from '../../train/step/trainer.ts';
import { trainingWorkload } from '../../train/step/training-workload.ts';
import { at } from '../../util/at.ts';
import { formatBytes } from '../../util/bytes.ts';
import { median } from '../../util/median.ts';
import { Random } from '../../util/random.ts';
import { digits, percentage, table } from './text.ts';

/** Large enough that a chunk is worth moving, small enough for a CPU that runs shaders. */
const SHAPE = { layers: 4, width: 128, heads: 4, vocabulary: 256, batch: 4, seq: 64 };
/** Of the model data. */
const SHARES = [1, 0.5, 0.25, 0.1] as const;
const ROUNDS = 5;
const STEPS = 1;

export interface BudgetFigure {
  /** Of the model data that the budget has slots for; 1: the resident run. */
  readonly share: number;
  readonly recovery: 'step' | 'checkpoint';
  readonly gpuBytes: number;
  readonly millisecondsPerStep: number;
  /** Over the resident run's, by rounds: the median of the pairs. */
  readonly ratio: number;
  readonly bytesPerStep: { readonly h2d: number; readonly d2h: number };
  /** Milliseconds a step. */
  readonly waits: { readonly down: number; readonly up: number; readonly below: number };
}

export async function measureBudgets(device: Device): Promise<BudgetFigure[]> {
  const { layers, width, heads, vocabulary, batch, seq } = SHAPE;
  const fields = { vocab_size: vocabulary, n_positions: seq, n_embd: width, n_layer: layers, n_head: heads };
  const model = makeModel(parseConfig({ model_type: 'gpt2', ...fields }, 'bench'));
  const random = new Random(1, 'bench');
  const tokens = Int32Array.from({ length: batch * seq + 1 }, () => random.below(vocabulary));
  const example = { ids: tokens.slice(0, -1), targets: tokens.slice(1), batch, seq };
  const workload = trainingWorkload(model, traceStep(model, batch, seq), 1);
  const whole = fitMemory(workload, limitsOf(device), undefined);
  const modelBytes = whole.map.count * whole.map.chunkBytes;
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;

  const runs: { share: number; recovery: 'step' | 'checkpoint'; trainer: Trainer; rounds: number[] }[] = [];
  let choices: ChoiceRecord = {};
  for (const share of SHARES) {
    for (const recovery of share === 1 ? (['step'] as const) : (['checkpoint', 'step'] as const)) {
      const gpu = Math.ceil(whole.nonModel.arenas + whole.nonModel.persistent + share * modelBytes);
      const memory = share === 1 ? {} : { memory: { gpu, recovery } };
      const trainer = await Trainer.create(device, model, { batch, seq, schedule, choices, ...memory });
      choices = trainer.choices.record();
      await trainer.setWeights(initialWeights(model, 1));
      for (let step = 0; step <= WARM_UP_STEPS; step++) await trainer.start([example]);
      runs.push({ share, recovery, trainer, rounds: [] });
    }
  }
  const before = runs.map(({ trainer }) => structuredClone(trainer.session.executor.ledger));
  for (let round = 0; round < ROUNDS; round++) {
    for (const { trainer, rounds } of runs) {
      const start = performance.now();
      for (let step = 0; step < STEPS; step++) await trainer.start([example]);
      await device.idle();
      rounds.push((performance.now() - start) / STEPS);
    }
  }
  const resident = runs[0]?.rounds ?? [];
  const figures = runs.map(({ share, recovery, trainer, rounds }, i): BudgetFigure => {
    const { ledger } = trainer.session.executor;
    const old = at(before, i);
    const perStep = (now: number, then: number) => (now - then) / (ROUNDS * STEPS);
    return {
      share,
      recovery,
      gpuBytes: trainer.session.fit.peak,
      millisecondsPerStep: median(rounds),
      ratio: median(rounds.map((time, round) => time / at(resident, round))),
      bytesPerStep: { h2d: perStep(ledger.h2dBytes, old.h2dBytes), d2h: perStep(ledger.d2hBytes, old.d2hBytes) },
      waits: {
        down: perStep(ledger.waits.down, old.waits.down),
        up: perStep(ledger.waits.up, old.waits.up),
        below: perStep(ledger.waits.below, old.waits.below),
      },
    };
  });
  for (const { trainer } of runs) await trainer.destroy();
  return figures;
}

export function budgetTable(figures: readonly BudgetFigure[]): string {
  const rows = figures.map(({ share, recovery, gpuBytes, millisecondsPerStep, ratio, bytesPerStep, waits }) => [
    share === 1 ? 'all' : percentage(share),
    share === 1 ? '' : recovery,
    formatBytes(gpuBytes),
    digits(millisecondsPerStep),
    ratio.toFixed(2),
    formatBytes(bytesPerStep.h2d),
    formatBytes(bytesPerStep.d2h),
    digits(waits.up),
    digits(waits.down),
    digits(waits.below),
  ]);
  const header = [
    'on the GPU',
    'recovery',
    'GPU bytes',
    'ms a step',
    'ratio',
    'up',
    'down',
    'wait up',
    'wait down',
    'wait below',
  ];
  return `a GPU budget, GPT of 4 layers, width 128, batch 4 x 64; waits of the encoding CPU in ms a step\n${table(header, rows)}`;
}
