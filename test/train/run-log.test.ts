// The log of a run in Hugging Face's fields: made event by event or out of a history, it is the same; and what its figures
// are. Early stopping's count, and epochs.

import fc from 'fast-check';
import { expect, test } from 'vitest';
import { EarlyStopping, staleness } from '../../src/train/run/callbacks.ts';
import { Epochs } from '../../src/train/run/epochs.ts';
import { RunLog } from '../../src/train/run/huggingface-state.ts';
import type { RunHistory } from '../../src/train/run/saved-state.ts';
import { SETTINGS } from '../saved-run.ts';

const rows = [5, 7, 4];
const epochs = () => new Epochs({ rowsOf: (epoch) => rows[epoch % 3]! }, 2);
const EMPTY: RunHistory = { steps: [], validations: [], samples: [] };
const record = (step: number, loss: number) => ({ step, loss, lr: 0.1, gradNorm: 2, tokensPerSecond: 9 });

test('an epoch is as long as its own order makes it; a step belongs to that of its first sequence', () => {
  const counted = epochs();
  // Two sequences a step: 5 are done in the middle of the third, 12 after the sixth, 16 after the eighth.
  expect([0, 1, 2, 3, 6, 8].map((steps) => counted.after(steps))).toEqual([0, 2 / 5, 4 / 5, 1 + 1 / 7, 2, 3]);
  const steps = Array.from({ length: 9 }, (_, step) => step);
  expect(steps.filter((step) => counted.endsWith(step))).toEqual([2, 5, 7]);
  expect(steps.filter((step) => counted.beginsWith(step))).toEqual([0, 3, 6, 8]);
  expect(counted.about(10)).toBe(4);
  // Whatever was asked about before.
  const all = Array.from({ length: 60 }, (_, i) => i);
  const backwards = all.toReversed().map((steps) => counted.after(steps));
  expect(backwards.toReversed()).toEqual(all.map((steps) => epochs().after(steps)));
});

test('out of a history it is what it was, event by event', () => {
  const loss = fc.oneof(fc.double({ min: 0, max: 9, noNaN: true }), fc.constant(Number.NaN));
  const events = fc.array(fc.record({ loss, validation: fc.option(loss, { nil: undefined }) }), { maxLength: 40 });
  const property = fc.property(events, fc.integer({ min: 1, max: 3000 }), (events, steps) => {
    const settings = { ...SETTINGS, steps, keepBest: true };
    const live = new RunLog(settings, epochs(), 'out', EMPTY);
    const history: RunHistory = { steps: [], validations: [], samples: [] };
    let best = Number.POSITIVE_INFINITY;
    for (const [step, { loss, validation }] of events.entries()) {
      history.steps.push(record(step, loss));
      live.stepped(record(step, loss));
      if (validation === undefined) continue;
      history.validations.push({ step: step + 1, loss: validation });
      const { isBest } = live.evaluated({ step: step + 1, loss: validation });
      // Behind skipped steps the weights are those from before them.
      const unskipped = events.slice(0, step + 1).findLastIndex(({ loss }) => !Number.isNaN(loss)) + 1;
      if (isBest) expect(live.state.best_model_checkpoint).toBe(`out/checkpoint-${unskipped}`);
      expect(isBest).toBe(validation < best);
      best = Math.min(best, Number.isNaN(validation) ? best : validation);
    }
    const kept = [0, ...events.keys()].map((step, i) => `out/checkpoint-${i === 0 ? step : step + 1}`);
    expect(new RunLog(settings, epochs(), 'out', history, kept).state).toEqual(live.state);
    expect(live.at(history)).toEqual(live.state);
    // A checkpoint that is gone is none, whatever it was.
    const gone = { ...live.state, best_model_checkpoint: null };
    expect(new RunLog(settings, epochs(), 'out', history, ['out/checkpoint-9999']).state).toEqual(gone);
    expect(live.state.best_metric).toBe(best === Number.POSITIVE_INFINITY ? null : best);
    expect(live.state.log_history.map(({ step }) => step)).toEqual(
      live.state.log_history.map(({ step }) => step).toSorted((a, b) => a - b),
    );
  });
  fc.assert(property, { seed: 9, numRuns: 100 });
});

test('an entry is the mean of the finite losses since the last, and there are a thousand at most', () => {
  const log = new RunLog({ ...SETTINGS, steps: 2500 }, epochs(), 'out', EMPTY);
  expect(log.state.logging_steps).toBe(3);
  for (const [step, loss] of [4, Number.NaN, 2, Number.NaN, Number.NaN, Number.NaN, 1].entries())
    log.stepped(record(step, loss));
  expect(log.state.log_history).toEqual([
    { epoch: 1 + 1 / 7, loss: 3, grad_norm: 2, learning_rate: 0.1, step: 3 },
    { epoch: 2, loss: Number.NaN, grad_norm: 2, learning_rate: 0.1, step: 6 },
  ]);
  expect(log.state).toMatchObject({ global_step: 7, max_steps: 2500, num_input_tokens_seen: 7 * 2 * 8 });
});

test('patience is counted from the last validation that was the best', () => {
  expect(staleness([], 0)).toBe(0);
  expect(staleness([3, 2, 2, 2.5, 1.9], 0)).toBe(0);
  expect(staleness([3, 2, 2, Number.NaN, 2.5], 0)).toBe(3);
  // Not better by a tenth.
  expect(staleness([3, 2.95, 2.92, 2.8], 0.1)).toBe(0);
  expect(staleness([3, 2.95, 2.92, 2.91], 0.1)).toBe(3);
  const log = new RunLog(SETTINGS, epochs(), 'out', EMPTY);
  const control = { shouldTrainingStop: false, shouldEvaluate: false, shouldSave: false };
  const stopping = new EarlyStopping(2);
  const stops = [3, 2, 4, 1, 1, 2].map((loss, i) => {
    log.evaluated({ step: i, loss });
    stopping.onEvaluate(log.state, control);
    return control.shouldTrainingStop;
  });
  expect(stops).toEqual([false, false, false, false, false, true]);
});
