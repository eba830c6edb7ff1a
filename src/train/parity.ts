// Parity: replays a case of the numeric reference on a device and measures, in multiples of the case's own
// tolerances, how far losses, gradients, activations and final weights are from float64.
//
// The rules are those of the reference's check_run.py; where they differ, these are stricter: a gradient
// whose reference is zero must be exactly zero, and NaN fails everywhere.

import type { Batch } from '../data/batches.ts';
import type { ChoiceRecord } from '../engine/choices.ts';
import type { MemoryOptions } from '../engine/session.ts';
import type { Device } from '../gpu/device.ts';
import type { Host } from '../runtime/host.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import { collect, sourceOf, type TensorSource, type Values } from '../util/tensor-source.ts';
import { forwardActivations } from './inspect.ts';
import { loadCase, type ReferenceCase } from './reference-case.ts';
import { Trainer } from './trainer.ts';

/**
 * A metric passes up to this many tolerances. A tolerance is 4 times the worst error that float32 arithmetic
 * with correctly rounded operations and 1-ulp functions was measured to make (torch, numpy). WGSL promises
 * less. To first order an error in the result is linear in the errors of the operations, so where each of
 * them errs at most r times as much, the result does. In ulps, WGSL's bound against the reference's:
 *
 *   + - *         1 against 0.5 (WGSL may round either way)                        2
 *   division      2.5 against 0.5                                                  5
 *   inverseSqrt   2 against 0.5 + 0.5 (sqrt, then division)                        2
 *   exp(x)        3 + 2|x| + |x| against 1 + 0.5|x| (the last term: x is rounded)  3 to 6
 *   AdamW's m/c1 / (sqrt(v/c2) + eps): 2.5 + 1.25 + 4.5 + 1 + 2.5 against
 *                 0.5 + 0.25 + 0.5 + 0.5 + 0.5                                     5.2
 *   log           3 against 1; near log(1) 2^-21 absolute, below every tolerance   3
 *
 * The worst is 6. Adapters do far better: the tests, on software adapters, allow 1.
 */
export const ALLOWED_MULTIPLE = 6;

/** The relative error of the learning rate that is allowed: it is computed in float64. */
const LR_TOLERANCE = 1e-6;

export interface Metric {
  readonly value: number;
  readonly tolerance: number;
  /** value / tolerance; Infinity where the value is not a number. */
  readonly multiple: number;
  /** Where the worst value is: a step or a tensor. */
  readonly where: string;
}

export interface CaseResult {
  readonly name: string;
  readonly metrics: ReadonlyMap<string, Metric>;
  /** The largest multiple. */
  readonly worst: number;
  /** worst <= ALLOWED_MULTIPLE. */
  readonly pass: boolean;
  /** Tolerances in ref.json that nothing was held against: their file is absent, or they are unknown. */
  readonly unchecked: readonly string[];
  /** The kernel choices of the run. */
  readonly choices: ChoiceRecord;
}

export interface ReplayOptions {
  /** Kernel choices to start from. @default none */
  choices?: ChoiceRecord;
  /** Budgets and tiers of the training. @default all model data stays on the GPU */
  memory?: MemoryOptions;
}

/** What a replay computed, in the shape of the reference. */
export interface Outcome {
  readonly lr: readonly number[];
  readonly loss: readonly number[];
  readonly gradNorm: readonly number[];
  readonly finalLoss: number;
  readonly gradients: ReadonlyMap<number, Values>;
  readonly final: Values;
  readonly activations: Values;
}

/** Replays the case in `folder`. Errors: HoldfastError for a case that cannot be read or replayed. */
export async function replayCase(
  host: Host,
  device: Device,
  folder: string,
  options: ReplayOptions = {},
): Promise<CaseResult> {
  return replay(device, await loadCase(host, folder), options);
}

export async function replay(
  device: Device,
  reference: ReferenceCase,
  options: ReplayOptions = {},
): Promise<CaseResult> {
  const { model, batch, seq, accumulate, schedule, optimizer, batches } = reference;
  const { choices = {}, memory = {} } = options;
  const settings = { batch, seq, accumulate, schedule, optimizer, choices, memory };
  const trainer = await Trainer.create(device, model, settings);
  try {
    await trainer.setWeights(sourceOf(reference.weights));
    const inspect = (weights: Values) => {
      const first = batches[0]?.[0];
      assert(first, 'a case has a step');
      return forwardActivations(device, model, weights, first, trainer.choices);
    };
    const activations = await inspect(reference.weights);
    const [lr, loss, gradNorm]: number[][] = [[], [], []];
    const gradients = new Map<number, Values>();
    for (const [step, micros] of batches.entries()) {
      const keep = async (found: TensorSource) => void gradients.set(step, await collect(found));
      const metrics = await trainer.start(micros, { inspect: reference.gradients.has(step) ? keep : undefined });
      lr.push(metrics.lr);
      loss.push(metrics.loss);
      gradNorm.push(metrics.gradNorm);
    }
    const finalLoss = await trainer.evaluate(joined(batches[0] as Batch[]));
    const weights = await collect(trainer.values('parameter'));
    if (reference.activations.has('final_logits')) {
      activations.set('final_logits', (await inspect(weights)).get('logits') as Float32Array<ArrayBuffer>);
    }
    const final = new Map([...weights].filter(([name]) => trainer.session.map.trains(name)));
    const outcome = { lr, loss, gradNorm, finalLoss, gradients, final, activations };
    return { ...judge(reference, outcome), choices: trainer.choices.record() };
  } finally {
    await trainer.destroy();
  }
}

/** The micro-batches of a step as one batch. */
function joined(micros: readonly Batch[]): Batch {
  const { seq } = micros[0] as Batch;
  const ids = Int32Array.from(micros.flatMap((micro) => [...micro.ids]));
  const targets = Int32Array.from(micros.flatMap((micro) => [...micro.targets]));
  return { ids, targets, batch: ids.length / seq, seq };
}

/** Compares an outcome with the reference: pure arithmetic. */
export function judge(reference: ReferenceCase, outcome: Outcome): Omit<CaseResult, 'choices'> {
  const { tolerance, activations } = reference;
  const metrics = new Map<string, Metric>();
  const used = new Set<string>();
  /** `limit` names the tolerance where it is not the metric's own. */
  const report = (name: string, worst: Found, limit = name) => {
    used.add(limit);
    const allowed = tolerance.get(limit);
    if (allowed === undefined)
      throw new HoldfastError(`${reference.name}: ref.json has no tolerance ${limit}; copy the case again`);
    metrics.set(name, metric(worst, allowed));
  };
  const reportIfLimited = (name: string, worst: Found) => {
    if (tolerance.has(name)) report(name, worst);
  };

  metrics.set(
    'lr',
    metric(worstOf(outcome.lr.map((lr, s) => [relative(lr, reference.lr[s]), `step ${s}`])), LR_TOLERANCE),
  );
  const losses: Found[] = outcome.loss.map((loss, s) => [Math.abs(loss - reference.loss[s]), `step ${s}`]);
  const finalLoss: Found = [Math.abs(outcome.finalLoss - reference.finalLoss), 'after the last step'];
  report('loss_step0', worstOf(losses.slice(0, 1)));
  report('loss', worstOf(losses));
  report('final_loss_batch0', worstOf([finalLoss]), 'loss');
  report(
    'grad_norm_rel',
    worstOf(outcome.gradNorm.map((norm, s) => [relative(norm, reference.gradNorm[s]), `step ${s}`])),
  );

  for (const [step, wanted] of reference.gradients) {
    const name = step === 0 ? 'grads' : `grads_step${step}`;
    const { differences, keyBias } = compare(outcome.gradients.get(step), wanted);
    const rel = worstOf(differences.map(({ name, error, size }) => [ratio(norm(error), norm(size), Infinity), name]));
    const abs = worstOf(differences.map(({ name, error }) => [largest(error), name]));
    if (step > 0) {
      reportIfLimited(`${name}_rel_fro`, rel);
      reportIfLimited(`${name}_max_abs`, abs);
      continue;
    }
    report('grads_rel_fro', rel);
    report('grads_max_abs', abs);
    reportIfLimited('kbias_grad_max_abs', keyBias);
  }

  const { differences, keyBias } = compare(outcome.final, reference.final, reference.weights);
  report(
    'final_update_rel_fro',
    worstOf(differences.map(({ name, error, size }) => [ratio(norm(error), norm(size), 1), name])),
  );
  report('final_max_abs', worstOf(differences.map(({ name, error }) => [largest(error), name])));
  reportIfLimited('kbias_final_drift', keyBias);

  // Final logits have a tolerance of their own: the training before them adds its errors.
  const shared = new Map([...activations].filter(([name]) => name !== 'final_logits'));
  const abs = ({ name, error }: Difference): Found => [largest(error), name];
  report('activations_max_abs', worstOf(compare(outcome.activations, shared).differences.map(abs)));
  const finalLogits = activations.get('final_logits');
  if (finalLogits) {
    const limits = ['activations_max_abs', 'final_logits_max_abs'];
    const limit = limits.reduce((a, b) => ((tolerance.get(b) ?? 0) > (tolerance.get(a) ?? 0) ? b : a));
    used.add('final_logits_max_abs');
    const wanted = new Map([['final_logits', finalLogits]]);
    report('final_logits_max_abs', worstOf(compare(outcome.activations, wanted).differences.map(abs)), limit);
  }

  const worst = Math.max(...[...metrics.values()].map(({ multiple }) => multiple));
  const unchecked = [...tolerance.keys()].filter((name) => !used.has(name));
  return { name: reference.name, metrics, worst, pass: worst <= ALLOWED_MULTIPLE, unchecked };
}

/** A value and where it was found. */
type Found = readonly [value: number, where: string];

function metric([value, where]: Found, tolerance: number): Metric {
  return { value, tolerance, multiple: Number.isNaN(value) ? Infinity : value / tolerance, where };
}

/** The largest; NaN is larger than all. */
function worstOf(found: readonly Found[]): Found {
  return found.reduce((worst, next) => (Number.isNaN(worst[0]) || worst[0] >= next[0] ? worst : next), [0, '']);
}

const relative = (value: number, wanted: number): number => ratio(Math.abs(value - wanted), Math.abs(wanted), Infinity);

/** error / size; for a size of zero, `scale` times the error (Infinity: it must be exactly zero). */
function ratio(error: number, size: number, scale: number): number {
  if (size > 0) return error / size;
  return error === 0 ? 0 : error * scale;
}

interface Difference {
  readonly name: string;
  /** got - wanted */
  readonly error: Float64Array;
  /** wanted - base */
  readonly size: Float64Array;
}

/**
 * The differences of every wanted tensor, without the key third of each c_attn.bias: a constant added to all
 * keys changes no softmax, so its gradient is rounding noise, which AdamW turns into drift. `keyBias` is the
 * largest error in there.
 */
function compare(
  got: Values | undefined,
  wanted: Values,
  base?: Values,
): { differences: Difference[]; keyBias: Found } {
  const differences: Difference[] = [];
  const keys: Found[] = [];
  for (const [name, reference] of wanted) {
    const values = got?.get(name);
    assert(values && values.length === reference.length, `the replay gave no ${name} of ${reference.length} elements`);
    const start = base?.get(name);
    let error = Float64Array.from(reference, (value, i) => values[i] - value);
    let size = Float64Array.from(reference, (value, i) => value - (start?.[i] ?? 0));
    if (name.endsWith('attn.c_attn.bias')) {
      const third = error.length / 3;
      keys.push([largest(error.subarray(third, 2 * third)), name]);
      [error, size] = [error, size].map((all) => all.filter((_, i) => i < third || i >= 2 * third)) as [
        typeof error,
        typeof size,
      ];
    }
    differences.push({ name, error, size });
  }
  return { differences, keyBias: worstOf(keys) };
}

function norm(values: Float64Array): number {
  return Math.sqrt(values.reduce((sum, value) => sum + value * value, 0));
}

/** The largest absolute value; NaN if there is one. */
function largest(values: Float64Array): number {
  return values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
}
