// A training step of the model that all peers were measured on: time to the first one and of each, and where it goes.

import { flopsOf } from '../../engine/compile/pass-figures.ts';
import type { Peak } from '../../engine/observe/peak.ts';
import { type Profile, profile } from '../../engine/observe/profile.ts';
import { parseConfig } from '../../formats/config.ts';
import type { Device } from '../../gpu/device.ts';
import { makeModel } from '../../nn/index.ts';
import { initialWeights } from '../../nn/initialise.ts';
import type { Host } from '../../runtime/host.ts';
import { keepStepTime } from '../../train/plan/step-times.ts';
import { stepWayOf } from '../../train/run/kept-time.ts';
import { defaultSettings } from '../../train/run/run-settings.ts';
import { Trainer } from '../../train/step/trainer.ts';
import { counted } from '../../util/counted.ts';
import { median } from '../../util/median.ts';
import { Random } from '../../util/random.ts';
import { digits, percentage, table } from './text.ts';

/** The GPT that all peers were measured on: tokens (B, T), two blocks of width C. */
const PEERS = { layers: 2, width: 64, heads: 4, vocabulary: 65, batch: 4, seq: 64 };

export interface StepFigures {
  readonly shape: typeof PEERS;
  /** From an open device to the first loss: tracing, compiling, measuring variants, running. */
  readonly firstStepMilliseconds: number;
  readonly trials: number;
  readonly millisecondsPerStep: number;
  readonly tokensPerSecond: number;
  readonly dispatches: number;
  readonly submits: number;
  readonly profile: Profile;
}

/** Windows of time that the training is cut into; the figure is their median. */
const WINDOWS = 5;
/** Steps under way at once: the next is encoded while this one runs. */
const IN_FLIGHT = 3;

/** What such a step takes is kept, for what is expected of others. */
export async function measureStep(host: Host, device: Device, seconds: number): Promise<StepFigures> {
  const { layers, width, heads, vocabulary, batch, seq } = PEERS;
  const fields = { vocab_size: vocabulary, n_positions: seq, n_embd: width, n_layer: layers, n_head: heads };
  const config = parseConfig({ model_type: 'gpt2', ...fields }, 'bench');
  const model = makeModel(config);
  const random = new Random(1, 'bench');
  const tokens = Int32Array.from({ length: batch * seq + 1 }, () => random.below(vocabulary));
  const example = { ids: tokens.slice(0, -1), targets: tokens.slice(1), batch, seq };

  const opened = performance.now();
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1 } as const;
  const trainer = await Trainer.create(device, model, { batch, seq, schedule });
  await trainer.setWeights(initialWeights(model, 1));
  await trainer.start([example]);
  const firstStepMilliseconds = performance.now() - opened;
  await trainer.start([example]);

  const windows: number[] = [];
  for (let window = 0; window < WINDOWS; window++) {
    const underWay: Promise<unknown>[] = [];
    const start = performance.now();
    let steps = 0;
    do {
      underWay.push(trainer.start([example]));
      if (underWay.length === IN_FLIGHT) await underWay.shift();
      steps++;
    } while (performance.now() - start < (seconds * 1000) / WINDOWS);
    await Promise.all(underWay);
    windows.push((performance.now() - start) / steps);
  }
  const millisecondsPerStep = median(windows);
  const pass = trainer.session.fit.passes.step;
  const timed = { dispatches: trainer.dispatches, flops: flopsOf(pass), seconds: millisecondsPerStep / 1000 };
  await keepStepTime(host, device, stepWayOf(defaultSettings({ config, batch, seq })), timed);
  const before = trainer.session.executor.ledger.submits;
  await trainer.start([example]);
  const submits = trainer.session.executor.ledger.submits - before;
  const figures = {
    shape: PEERS,
    firstStepMilliseconds,
    trials: trainer.choices.measured,
    millisecondsPerStep,
    tokensPerSecond: (batch * seq * 1000) / millisecondsPerStep,
    dispatches: trainer.dispatches,
    submits,
    profile: await profile(trainer.session, pass),
  };
  await trainer.destroy();
  return figures;
}

export function stepText(step: StepFigures, peak: Peak): string {
  const { layers, width, heads, vocabulary, batch, seq } = step.shape;
  const { kernels, milliseconds, wall, host } = step.profile;
  const facts = [
    '',
    `training step: GPT, ${layers} layers, width ${width}, ${heads} heads, vocabulary ${vocabulary}, batch ${batch} x ${seq}, AdamW, f32`,
    `  ${digits(step.millisecondsPerStep)} ms a step, ${Math.round(step.tokensPerSecond).toLocaleString('en')} tokens/s`,
    `  ${digits(step.firstStepMilliseconds)} ms to the first step, ${step.trials} kernel choices measured among them`,
    `  ${step.dispatches} dispatches in ${counted(step.submits, 'submit')} a step`,
    `  ${digits(host)} ms of the host to encode and submit them, ${digits((1000 * host) / step.dispatches)} us a dispatch`,
    milliseconds === undefined
      ? '  this adapter has no timestamp queries: no time by kernel'
      : `  ${digits(milliseconds)} ms in kernels timed one by one, ${digits(wall)} ms as it is trained, without timestamps`,
    '',
  ];
  const rows = kernels.map((k) => [
    k.kernel,
    String(k.dispatches),
    milliseconds && k.milliseconds !== undefined ? percentage(k.milliseconds / milliseconds) : '',
    digits(k.milliseconds),
    digits(k.gflops),
    k.gflops === undefined ? '' : percentage(k.gflops / peak.gflops),
    k.milliseconds ? digits(k.bytes / k.milliseconds / 1e6) : '',
  ]);
  const header = ['kernel', 'dispatches', 'share', 'ms', 'GFLOP/s', 'of peak', 'GB/s'];
  return `${facts.join('\n')}${table(header, rows)}`;
}
