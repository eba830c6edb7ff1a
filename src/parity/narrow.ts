// Tolerances of a reference case in sixteen bits, of parameters, of activations or of moments, and what they are derived from: how
// far the results of float32 move when every parameter moves by the unit roundoff of the width, or every activation that is kept
// where it is made, or every moment behind every step by half of what it may be rounded by, up or down at random.
//
// A result is, to first order, off by the sum over all roundings of c_i d_i, with |d_i| <= u: c is how much it depends on each.
// For independent d_i of mean 0 that stays within LAMBDA u |c| but for a share 2 exp(-LAMBDA^2 / 2) of cases (Hoeffding; Higham
// and Mary, "A New Approach to Probabilistic Rounding Error Analysis", SIAM J. Sci. Comput. 41, 2019, theorem 2.4). u |c| is the
// root mean square of the sum where each d_i is u or -u by the throw of a coin, and few throws are enough to know it within a
// small factor (Kenney and Laub, "Small-Sample Statistical Condition Estimates for General Matrix Functions", SIAM J. Sci.
// Comput. 15, 1994). So nothing here depends on what the width under test computes: the throws are replayed in float32.
//
// Invariant: a tolerance is that of float32, and the width's share; it is never less than the former.

import type { ActivationCoins, ActivationDtype } from '../graph/narrow-activations.ts';
import { FIRST_SCALE, LEAST_SCALE } from '../kernels/step-control.ts';
import type { Kind, TrainingDtype } from '../memory/layout/kinds.ts';
import { at } from '../util/at.ts';
import { assert } from '../util/errors.ts';
import { Random } from '../util/random.ts';
import { LARGEST } from '../values/floats.ts';
import type { Values } from '../values/tensor-source.ts';
import type { Outcome, ReferenceCase } from './reference-case.ts';
import { ALLOWED_MULTIPLE, compareWithReference } from './verdict.ts';

/** The largest relative error of rounding to nearest: bfloat16 has 8 significant bits, binary16 11. That of f32 is in a case's tolerances. */
export const UNIT_ROUNDOFF: Readonly<Record<TrainingDtype, number>> = { f32: 0, bf16: 2 ** -8, f16: 2 ** -11 };

/** The largest error of a value that is too small for all of these bits. */
const LEAST_ROUNDOFF: Readonly<Record<TrainingDtype, number>> = { f32: 0, bf16: 2 ** -134, f16: 2 ** -25 };

/**
 * Half of the interval that a moment is in once it is rounded by chance, to the next bfloat16 above or below, at most: coins of so
 * much have the largest deviation that it may have.
 */
const MOMENT_ROUNDOFF = 2 ** -8;

/** Throws of the coins: of four, the largest is below a tenth of u |c| in one of 25,000 cases, where a result is one number. */
export const THROWS = 4;

/**
 * As many times u |c| as a result may be off: by Hoeffding's bound one of 3000 is off by more. Rounding to nearest has less
 * than half the root mean square of the coins, 0.425 u where fractions are spread as logarithms are: where throws find a fourth
 * of u |c|, the tolerance is 2.3 standard deviations yet.
 */
const LAMBDA = 4;

/**
 * What gradients of a case are multiplied by before they are rounded, where the width needs it: by less than overflows, or the
 * first steps would be skipped, as they may be in training.
 */
export const scaleOfGradients = ({ gradNorm }: ReferenceCase): number =>
  Math.max(LEAST_SCALE, Math.min(FIRST_SCALE, 2 ** Math.floor(Math.log2(LARGEST.F16 / (2 * Math.max(...gradNorm))))));

/** The error of a gradient too small for all bits of the width. */
const leastGradient = (reference: ReferenceCase, dtype: TrainingDtype): number =>
  LEAST_ROUNDOFF[dtype] / (dtype === 'f16' ? scaleOfGradients(reference) : 1);

/** A case whose parameters are each moved by u, up or down, and whose updates are longer, or shorter. */
export function thrown(reference: ReferenceCase, dtype: TrainingDtype, throwOf: number): ReferenceCase {
  const [u, least] = [UNIT_ROUNDOFF[dtype], LEAST_ROUNDOFF[dtype]];
  const trains = new Set(
    reference.model.parameters.filter(({ trainable = true }) => trainable).map(({ name }) => name),
  );
  const weights: Values = new Map(reference.weights);
  for (const [name, values] of reference.weights) {
    if (!trains.has(name)) continue;
    const coins = new Random(throwOf, `coins ${name}`);
    weights.set(
      name,
      values.map((value) => {
        const off = value === 0 ? 0 : Math.max(u * Math.abs(value), least);
        return value + (coins.below(2) === 1 ? off : -off);
      }),
    );
  }
  const { schedule } = reference;
  // A bound already, which is not to count LAMBDA times.
  const longer = 1 + ((throwOf % 2 === 0 ? 1 : -1) * updateRoundoff(reference, dtype)) / LAMBDA;
  return {
    ...reference,
    weights,
    schedule: { ...schedule, peak: schedule.peak * longer, min: schedule.min * longer },
  };
}

/** What moves activations by the unit roundoff of a width; undefined of f32. */
export const coinsOf = (dtype: ActivationDtype, throwOf: number): ActivationCoins | undefined =>
  dtype === 'f32' ? undefined : { share: UNIT_ROUNDOFF[dtype], least: LEAST_ROUNDOFF[dtype], seed: throwOf };

/** Moments as a step leaves them, each moved by what rounding by chance may move it: up or down, step by step. */
export const movedMoments = (moments: Values, throwOf: number, step: number, kind: Kind): Values =>
  new Map(
    [...moments].map(([name, values]) => {
      const coins = new Random(throwOf, `coins ${kind} ${step} ${name}`);
      return [name, values.map((value) => value * (1 + (coins.below(2) === 1 ? MOMENT_ROUNDOFF : -MOMENT_ROUNDOFF)))];
    }),
  );

/** Trained weights of a case that was thrown, less what they were moved by at the start. */
export function movedBack(final: Values, { weights }: ReferenceCase, before: ReferenceCase): Values {
  return new Map(
    [...final].map(([name, values]) => {
      const [start, from] = [weights.get(name), before.weights.get(name)];
      assert(start && from, `${name} has a start`);
      return [name, values.map((value, i) => value - (at(start, i) - at(from, i)))];
    }),
  );
}

/**
 * How far an update of AdamW is off, in learning rates, where each gradient is rounded, and the norm that it is clipped by:
 * (1 + d) g with |d| <= 2u. Cauchy and Schwarz: the mean of |g| by beta1 is at most C times the root of the mean of g^2 by
 * beta2, C^2 the sum of squares of the one's weights over the other's. So the mean is off by 2u C roots, and the root itself
 * by 2u of it. What updates have added to a parameter, C learning rates at most each, is rounded by u as well. Gradients too
 * small for all bits of the width are off by no more than a share of epsilon, the mean and the root.
 */
function updateRoundoff(reference: ReferenceCase, dtype: TrainingDtype): number {
  const { optimizer, batches } = reference;
  const { beta1, beta2, epsilon } = optimizer;
  let sum = 0;
  let most = 0;
  for (const step of batches.keys()) {
    sum += (beta1 ** 2 / beta2) ** step;
    const corrections = (1 - beta2 ** (step + 1)) / (1 - beta1 ** (step + 1)) ** 2;
    most = Math.max(most, (((1 - beta1) ** 2 * corrections) / (1 - beta2)) * sum);
  }
  return 5 * UNIT_ROUNDOFF[dtype] * Math.sqrt(most) + (2 * leastGradient(reference, dtype)) / epsilon;
}

/**
 * The tolerances of a case in a width. `wide`: what came of it in float32; `throws`: of the cases that `thrown` made, likewise,
 * their weights moved back. Of a metric, `ALLOWED_MULTIPLE` tolerances of float32, LAMBDA times what the throws are off by, and
 * what the rounding of the gradients themselves adds to them, to their norm and to the updates.
 */
export function narrowTolerances(
  reference: ReferenceCase,
  dtype: TrainingDtype,
  wide: Outcome,
  throws: readonly Outcome[],
): ReadonlyMap<string, number> {
  const rounding = roundedGradients(reference, dtype);
  const centre: ReferenceCase = { ...reference, ...wide };
  const verdicts = throws.map((outcome) => compareWithReference(centre, outcome));
  return new Map(
    [...reference.tolerance].map(([name, tolerance]) => {
      const off = (metric: string) => verdicts.map(({ metrics }) => metrics.get(metric)?.value ?? 0);
      // A loss in the end has the tolerance of those on the way.
      const found = name === 'loss' ? [...off(name), ...off('final_loss_batch0')] : off(name);
      return [name, ALLOWED_MULTIPLE * tolerance + LAMBDA * Math.max(0, ...found) + (rounding.get(name) ?? 0)];
    }),
  );
}

/** By metric: what comes of rounding each complete gradient to the width, without any error in it before. */
function roundedGradients(reference: ReferenceCase, dtype: TrainingDtype): ReadonlyMap<string, number> {
  const u = UNIT_ROUNDOFF[dtype];
  const least = leastGradient(reference, dtype);
  const { gradients, final, weights, lr } = reference;
  const moved = updateRoundoff(reference, dtype) * lr.reduce((sum, each) => sum + each, 0);
  const found = new Map([
    ['grad_norm_rel', u],
    ['final_max_abs', moved],
    ['kbias_final_drift', moved],
  ]);
  let update = 0;
  for (const [name, values] of final) {
    const start = weights.get(name);
    assert(start, `${name} has a start`);
    const square = values.reduce((sum, value, i) => sum + (value - at(start, i)) ** 2, 0);
    if (square > 0) update = Math.max(update, moved * Math.sqrt(values.length / square));
  }
  found.set('final_update_rel_fro', update);
  for (const [step, tensors] of gradients) {
    const prefix = step === 0 ? 'grads' : `grads_step${step}`;
    let [largest, relative] = [0, u];
    for (const values of tensors.values()) {
      largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), largest);
      const square = values.reduce((sum, value) => sum + value * value, 0);
      if (square > 0) relative = Math.max(relative, u + least * Math.sqrt(values.length / square));
    }
    found.set(`${prefix}_rel_fro`, relative).set(`${prefix}_max_abs`, u * largest + least);
  }
  return found;
}
