// The replay of a case of the numeric reference on a device: its weights, its batches, what comes of them.

import { arrayOf, type Batch, type BatchArray } from '../data/batches.ts';
import type { ChoiceRecord } from '../engine/compile/choices.ts';
import type { MemoryOptions } from '../engine/run/arrangement.ts';
import type { Device } from '../gpu/device.ts';
import type { ActivationCoins, ActivationDtype } from '../graph/narrow-activations.ts';
import type { OptimizerDevice, Update } from '../graph/operators/optimizer.ts';
import { initialState, SCALER } from '../kernels/step-control.ts';
import type { MomentDtype, TrainingDtype } from '../memory/layout/kinds.ts';
import { computedIn, momentsIn, withStored } from '../nn/model.ts';
import type { Threads } from '../runtime/host.ts';
import { forwardActivations } from '../train/step/inspect.ts';
import { Trainer } from '../train/step/trainer.ts';
import { at } from '../util/at.ts';
import { assert } from '../util/errors.ts';
import { collect, sourceOf, type TensorSource, type Values } from '../values/tensor-source.ts';
import { coinsOf, movedBack, movedMoments, narrowTolerances, scaleOfGradients, THROWS, thrown } from './narrow.ts';
import type { Outcome, ReferenceCase } from './reference-case.ts';
import { compareWithReference, type Verdict } from './verdict.ts';

export interface ReplayResult extends Verdict {
  /** The kernel choices of the replay. */
  readonly choices: ChoiceRecord;
}

export interface ReplayOptions {
  /** Kernel choices to start from. @default none */
  choices?: ChoiceRecord;
  /** Budgets and tiers of the training. @default all model data stays on the GPU */
  memory?: MemoryOptions;
  /** Where AdamW runs. @default 'gpu' */
  optimizerDevice?: OptimizerDevice;
  /** When chunks are updated. @default 'at-end' */
  update?: Update;
  /** What kernels read of the parameters that train; its own tolerances are derived, from replays in f32. @default 'f32' */
  dtype?: TrainingDtype;
  /** What moments are kept as; likewise. @default 'f32' */
  momentDtype?: MomentDtype;
  /** What activations are kept as for the backward pass; likewise. @default 'f32' */
  activationDtype?: ActivationDtype;
  /** Those of the host. @default none */
  threads?: Threads | undefined;
}

export async function replay(
  device: Device,
  reference: ReferenceCase,
  options: ReplayOptions = {},
): Promise<ReplayResult> {
  const { dtype = 'f32', momentDtype = 'f32', activationDtype = 'f32', ...others } = options;
  const { outcome, choices } = await outcomeOf(device, reference, options);
  if ([dtype, momentDtype, activationDtype].every((width) => width === 'f32'))
    return { ...compareWithReference(reference, outcome), choices };
  // The bits of a case in f32 are the same in any memory.
  const wide = { ...others, choices, memory: {} };
  const centre = await outcomeOf(device, reference, wide);
  const throws: Outcome[] = [];
  for (let i = 0; i < THROWS; i++) {
    const moved = thrown(reference, dtype, i);
    const found = await outcomeOf(device, moved, wide, {
      moments: momentDtype === 'f32' ? undefined : i,
      activations: coinsOf(activationDtype, i),
    });
    throws.push({ ...found.outcome, final: movedBack(found.outcome.final, moved, reference) });
  }
  const tolerance = narrowTolerances(reference, dtype, centre.outcome, throws);
  return { ...compareWithReference({ ...reference, tolerance }, outcome, 1), choices: centre.choices };
}

/** Coins of a throw, where something is moved by them in a replay. */
interface Throw {
  /** The number of the throw that moves moments behind each step. */
  readonly moments: number | undefined;
  readonly activations: ActivationCoins | undefined;
}

/** What comes of a case, and the kernel choices. */
async function outcomeOf(
  device: Device,
  reference: ReferenceCase,
  options: ReplayOptions,
  thrown?: Throw,
): Promise<{ readonly outcome: Outcome; readonly choices: ChoiceRecord }> {
  const { batch, seq, accumulate, schedule, optimizer, batches } = reference;
  const {
    choices = {},
    memory = {},
    optimizerDevice = 'gpu',
    update = 'at-end',
    threads,
    dtype = 'f32',
    momentDtype = 'f32',
    activationDtype = 'f32',
  } = options;
  const { moments, activations: activationCoins } = thrown ?? {};
  const model = momentsIn(computedIn(reference.model, dtype), momentDtype);
  const trains = new Set(model.parameters.filter(({ trainable = true }) => trainable).map(({ name }) => name));
  const packed = batches[0]?.[0]?.['documents'] !== undefined;
  const how = { optimizerDevice, update, threads, choices, memory, activationDtype, activationCoins };
  const settings = { batch, seq, packed, accumulate, schedule, optimizer, ...how };
  const trainer = await Trainer.create(device, model, settings);
  try {
    await trainer.setWeights(sourceOf(reference.weights));
    if (dtype === 'f16')
      trainer.restore({ step: 0, control: [...initialState(SCALER.size, scaleOfGradients(reference))] });
    const inspect = (weights: Values) => {
      const first = batches[0]?.[0];
      assert(first, 'a case has a step');
      const read = withStored(model, (name) => (trains.has(name) ? dtype : 'f32'));
      return forwardActivations(device, read, weights, first, trainer.choices);
    };
    const activations = await inspect(reference.weights);
    const lr: number[] = [];
    const loss: number[] = [];
    const gradNorm: number[] = [];
    const gradients = new Map<number, Values>();
    for (const [step, micros] of batches.entries()) {
      const keep = async (found: TensorSource) => void gradients.set(step, await collect(found));
      const metrics = await trainer.start(micros, { inspect: reference.gradients.has(step) ? keep : undefined });
      lr.push(metrics.lr);
      loss.push(metrics.loss);
      gradNorm.push(metrics.gradNorm);
      for (const kind of moments === undefined ? [] : (['moment1', 'moment2'] as const)) {
        const moved = movedMoments(await collect(trainer.values(kind)), moments ?? 0, step, kind);
        await trainer.setValues(kind, sourceOf(moved));
      }
    }
    const finalLoss = await trainer.evaluate(joinedMicroBatches(at(batches, 0)));
    const weights = await collect(trainer.values('parameter'));
    if (reference.activations.has('final_logits')) {
      activations.set('final_logits', (await inspect(weights)).get('logits') as Float32Array<ArrayBuffer>);
    }
    const final = new Map([...weights].filter(([name]) => trains.has(name)));
    return {
      outcome: { lr, loss, gradNorm, finalLoss, gradients, final, activations },
      choices: trainer.choices.record(),
    };
  } finally {
    await trainer.destroy();
  }
}

/** The micro-batches of a step as one batch. */
export function joinedMicroBatches(micros: readonly Batch[]): Batch {
  const [first] = micros;
  assert(first, 'a step has a micro-batch');
  const { batch, seq, ...arrays } = first;
  const all = Object.entries(arrays).flatMap(([name, values]): [string, BatchArray][] => {
    if (typeof values === 'number') return [];
    const type = values instanceof Int32Array ? 'i32' : 'f32';
    const whole = new (type === 'i32' ? Int32Array : Float32Array)(values.length * micros.length);
    micros.forEach((micro, i) => {
      whole.set(arrayOf(micro, name, type), i * values.length);
    });
    return [[name, whole]];
  });
  return { ...Object.fromEntries(all), batch: batch * micros.length, seq };
}
