// Verdicts: how far what was computed is from what was expected, in multiples of tolerances. Pure arithmetic.
//
// The rules are those of the reference's check_run.py; where they differ, these are stricter: a gradient
// whose reference is zero must be exactly zero, and NaN fails everywhere.

import { at } from '../util/at.ts';
import { assert, HoldfastError } from '../util/errors.ts';
import type { Values } from '../values/tensor-source.ts';
import type { Outcome, ReferenceCase, ReferenceCurves } from './reference-case.ts';

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

export interface Verdict {
  readonly name: string;
  readonly metrics: ReadonlyMap<string, Metric>;
  /** The largest multiple. */
  readonly worst: number;
  /** Whether the worst is as small as it must be. */
  readonly pass: boolean;
  /** What nothing was held against, though there is a tolerance for it: its file is absent, or its kind unknown. */
  readonly unchecked: readonly string[];
}

/** Compares an outcome with the reference: pure arithmetic. `allowed`: the multiple up to which it passes. */
export function compareWithReference(
  reference: ReferenceCase,
  outcome: Outcome,
  allowed: number = ALLOWED_MULTIPLE,
): Verdict {
  const { tolerance, activations } = reference;
  const metrics = new Map<string, Metric>();
  const used = new Set<string>();
  /** `limit` names the tolerance where it is not the metric's own. */
  const report = (name: string, worst: Found, limit = name) => {
    used.add(limit);
    const allowed = tolerance.get(limit);
    if (allowed === undefined)
      throw new HoldfastError(`${reference.name}: ref.json has no tolerance ${limit}; copy the case again`);
    metrics.set(name, metricOf(worst, allowed));
  };
  const reportIfLimited = (name: string, worst: Found) => {
    if (tolerance.has(name)) report(name, worst);
  };

  metrics.set(
    'lr',
    metricOf(worstOf(outcome.lr.map((lr, s) => [relative(lr, at(reference.lr, s)), `step ${s}`])), LR_TOLERANCE),
  );
  const losses: Found[] = outcome.loss.map((loss, s) => [Math.abs(loss - at(reference.loss, s)), `step ${s}`]);
  const finalLoss: Found = [Math.abs(outcome.finalLoss - reference.finalLoss), 'after the last step'];
  report('loss_step0', worstOf(losses.slice(0, 1)));
  report('loss', worstOf(losses));
  report('final_loss_batch0', worstOf([finalLoss]), 'loss');
  report(
    'grad_norm_rel',
    worstOf(outcome.gradNorm.map((norm, s) => [relative(norm, at(reference.gradNorm, s)), `step ${s}`])),
  );

  for (const [step, wanted] of reference.gradients) {
    const name = step === 0 ? 'grads' : `grads_step${step}`;
    const { differences, keyBias } = compare(outcome.gradients.get(step), wanted, 'gradients');
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

  const { differences, keyBias } = compare(outcome.final, reference.final, 'weights', reference.weights);
  report(
    'final_update_rel_fro',
    worstOf(differences.map(({ name, error, size }) => [ratio(norm(error), norm(size), 1), name])),
  );
  report('final_max_abs', worstOf(differences.map(({ name, error }) => [largest(error), name])));
  reportIfLimited('kbias_final_drift', keyBias);

  // Final logits have a tolerance of their own: the training before them adds its errors.
  const shared = new Map([...activations].filter(([name]) => name !== 'final_logits'));
  const abs = ({ name, error }: Difference): Found => [largest(error), name];
  report('activations_max_abs', worstOf(compare(outcome.activations, shared, 'activations').differences.map(abs)));
  const finalLogits = activations.get('final_logits');
  if (finalLogits) {
    const limits = ['activations_max_abs', 'final_logits_max_abs'];
    const limit = limits.reduce((a, b) => ((tolerance.get(b) ?? 0) > (tolerance.get(a) ?? 0) ? b : a));
    used.add('final_logits_max_abs');
    const wanted = new Map([['final_logits', finalLogits]]);
    report(
      'final_logits_max_abs',
      worstOf(compare(outcome.activations, wanted, 'activations').differences.map(abs)),
      limit,
    );
  }

  const unchecked = [...tolerance.keys()].filter((name) => !used.has(name));
  return verdict(reference.name, metrics, unchecked, allowed);
}

function verdict(
  name: string,
  metrics: ReadonlyMap<string, Metric>,
  unchecked: readonly string[],
  allowed: number = ALLOWED_MULTIPLE,
): Verdict {
  const worst = Math.max(...[...metrics.values()].map(({ multiple }) => multiple));
  return { name, metrics, worst, pass: worst <= allowed, unchecked };
}

// ---- Runs ----------------------------------------------------------------------------------------------------

/** A run, as it was recorded or as it was trained again. */
export interface RunTrace extends ReferenceCurves {
  /** After the last of these steps; undefined where they are not known. */
  readonly weights: Values | undefined;
}

/** Below these no tolerance goes: the reference's own floors. */
const LEAST = 2e-6;
const LEAST_OF_UPDATE = 5e-5;
/** A tolerance is as many times the error that was measured: as in the reference. */
const MARGIN = 4;

/** Whether every figure and every weight that both have is the same, NaN for NaN. */
export function sameTrace(a: RunTrace, b: RunTrace): boolean {
  const equal = (x: ArrayLike<number>, y: ArrayLike<number> | undefined) =>
    x.length === y?.length && Array.prototype.every.call(x, (value, i) => Object.is(value, y[i]));
  if (![equal(a.lr, b.lr), equal(a.loss, b.loss), equal(a.gradNorm, b.gradNorm)].every(Boolean)) return false;
  return !a.weights || !b.weights || [...a.weights].every(([name, values]) => equal(values, b.weights?.get(name)));
}

/**
 * Compares a run that was trained again with what was recorded of it. No float64 reference is there to say what
 * rounding may do to it, so `perturbed` does: the same run from start weights that differ in the last bit. What that run is
 * off by, up to each step, is what rounding alone makes of this run; a tolerance is 4 times that, or the least.
 * `perturbed` may be `found` itself, where nothing is off.
 */
export function compareRuns(
  name: string,
  start: Values,
  recorded: RunTrace,
  found: RunTrace,
  perturbed: RunTrace,
): Verdict {
  const metrics = new Map<string, Metric>();
  type Error = (value: number, wanted: number) => number;
  const absolute: Error = (value, wanted) => Math.abs(value - wanted);
  const alongside = (metric: string, which: 'loss' | 'gradNorm', error: Error, steps: number) => {
    let tolerance = LEAST;
    let worst: Metric | undefined;
    for (let step = 0; step < steps; step++) {
      const valueIn = (run: RunTrace) => at(run[which], step);
      const [is, was, other] = [valueIn(found), valueIn(recorded), valueIn(perturbed)];
      // A loss that is not a number is one that was skipped, there and here.
      if (Number.isNaN(is) && Number.isNaN(was)) continue;
      const off = error(other, is);
      if (off > 0) tolerance = Math.max(tolerance, MARGIN * off);
      const next = metricOf([error(is, was), `step ${step}`], tolerance);
      if (!worst || next.multiple > worst.multiple) worst = next;
    }
    if (worst) metrics.set(metric, worst);
  };
  const lr = worstOf(found.lr.map((lr, s) => [relative(lr, at(recorded.lr, s)), `step ${s}`]));
  metrics.set('lr', metricOf(lr, LR_TOLERANCE));
  alongside('loss_step0', 'loss', absolute, 1);
  alongside('loss', 'loss', absolute, found.loss.length);
  alongside('grad_norm_rel', 'gradNorm', relative, found.gradNorm.length);
  if (!recorded.weights || !found.weights || !perturbed.weights)
    return verdict(name, metrics, ['final_update_rel_fro', 'final_max_abs']);

  const ours = compare(found.weights, recorded.weights, 'weights', start).differences;
  const rounding = compare(perturbed.weights, found.weights, 'weights', start).differences;
  const final = (metric: string, error: (difference: Difference) => number, least: number) => {
    const worst = (of: readonly Difference[]) => worstOf(of.map((difference) => [error(difference), difference.name]));
    metrics.set(metric, metricOf(worst(ours), Math.max(least, MARGIN * worst(rounding)[0])));
  };
  final('final_update_rel_fro', ({ error, size }) => ratio(norm(error), norm(size), 1), LEAST_OF_UPDATE);
  final('final_max_abs', ({ error }) => largest(error), LEAST);
  return verdict(name, metrics, []);
}

// ---- Metrics -------------------------------------------------------------------------------------------------

/** A value and where it was found. */
type Found = readonly [value: number, where: string];

function metricOf([value, where]: Found, tolerance: number): Metric {
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

type Compared = 'gradients' | 'weights' | 'activations';

interface KeyBias {
  readonly tensors: RegExp;
  /** The first of them in a tensor of so many elements, and the first behind them. */
  part(size: number): [begin: number, end: number];
  /** Where they count apart. */
  readonly apart: readonly Compared[];
}

const KEY_BIASES: readonly KeyBias[] = [
  { tensors: /attn\.c_attn\.bias$/, part: (size) => [size / 3, (2 * size) / 3], apart: ['gradients', 'weights'] },
  { tensors: /attention\.(?:self|attention)\.key\.bias$/, part: (size) => [0, size], apart: ['gradients', 'weights'] },
  // Added before the rotation, which leaves only the slow frequencies alike: the gradient counts as any other.
  { tensors: /self_attn\.k_proj\.bias$/, part: (size) => [0, size], apart: ['weights'] },
];

/**
 * The differences of every wanted tensor, without biases of keys: a constant added to all keys changes no softmax, so
 * its gradient is rounding noise, which AdamW turns into drift. `keyBias` is the largest error in there.
 */
function compare(
  got: Values | undefined,
  wanted: Values,
  what: Compared,
  base?: Values,
): { differences: Difference[]; keyBias: Found } {
  const differences: Difference[] = [];
  const keys: Found[] = [];
  for (const [name, reference] of wanted) {
    const values = got?.get(name);
    assert(values && values.length === reference.length, `the replay gave no ${name} of ${reference.length} elements`);
    const start = base?.get(name);
    const error = Float64Array.from(reference, (value, i) => at(values, i) - value);
    const size = Float64Array.from(reference, (value, i) => value - (start?.[i] ?? 0));
    const keyBias = KEY_BIASES.find(({ tensors, apart }) => tensors.test(name) && apart.includes(what));
    const [begin, end] = keyBias?.part(error.length) ?? [0, 0];
    if (keyBias) keys.push([largest(error.subarray(begin, end)), name]);
    const others = (all: Float64Array) => all.filter((_, i) => i < begin || i >= end);
    differences.push({ name, error: others(error), size: others(size) });
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
