// The choice of the recovery where a budget leaves it open: each step's state is kept below the GPU unless a step takes too long for
// that. It asks for as few fits as it can, each of which takes a search of its own.

import { elementBytesOfKinds, lastingKinds } from '../../memory/layout/kinds.ts';
import { assert } from '../../util/errors.ts';
import { leastSecondsOf, workOf } from './estimates.ts';
import type { Fit } from './fitted.ts';
import type { Pass, Passes } from './pass.ts';
import { stepOf } from './pass-figures.ts';
import type { Rates } from './rates.ts';
import { isWorthKeeping, type Recovery, WORTH_KEEPING } from './recovery.ts';

/** What a step takes by estimate if its state is kept, times what it takes if it is not: where it is no more, that is fitted first. */
const PROMISING = 1.1;

/** Either of those that `auto` chooses from. */
type OneRecovery = Exclude<Recovery, 'auto'>;

/** Seconds of a step. */
type Timed = Parameters<typeof isWorthKeeping>[0];

/** Fits into one budget, by their recovery. */
export interface RecoveryFits<P extends Passes> {
  /** `from`: a fit with the other recovery, from which this one is searched for. */
  fitted(recovery: OneRecovery, from?: Fit<P>): Fit<P>;
  /** Whether a step of `fitted` takes fewer seconds than these: in a part of its time where most likely it does not. */
  isWithin(seconds: number, recovery: OneRecovery, from: Fit<P>): boolean;
  /** Seconds of the most promising way, about; undefined where nothing but sparing ways fits, or none are to be chosen from. */
  estimated(recovery: OneRecovery): number | undefined;
  /** Seconds of a step of a fit with that recovery. */
  secondsOf(fit: Fit<P>, recovery: OneRecovery): number;
}

/** With each step's state below, unless a step takes too long for that. `whole`: the fit without a budget. */
export function fitOpen<P extends Passes>(whole: Fit<P>, rates: Rates, fits: RecoveryFits<P>): Fit<P> {
  const still = { seconds: leastSecondsOf(workOf(trainingPass(whole), rates), 0, rates) };
  const { dtype, momentDtype, trainable } = whole.map;
  const kept = trainable.held * elementBytesOfKinds(lastingKinds(dtype, momentDtype));
  const takesTurns = rates.copies !== 'duplex';
  // Copies that are beside arithmetic may take nothing.
  const least = { seconds: still.seconds + (takesTurns ? kept / rates.downBytes : 0) };
  if (takesTurns && isWorthKeeping(least, still)) return fits.fitted('step');
  const [keeping, without] = [fits.estimated('step'), fits.estimated('checkpoint')];
  const takesLong = keeping !== undefined && without !== undefined && keeping > PROMISING * without;
  return takesLong ? withoutFirst(least, fits) : keepingFirst(still, fits);
}

function keepingFirst<P extends Passes>(still: Timed, { fitted, secondsOf }: RecoveryFits<P>): Fit<P> {
  const keeping = fitted('step');
  const own = { seconds: secondsOf(keeping, 'step') };
  if (isWorthKeeping(own, still)) return keeping;
  const without = fitted('checkpoint', keeping);
  return isWorthKeeping(own, { seconds: secondsOf(without, 'checkpoint') }) ? keeping : without;
}

/** `least`: what a step takes at least if its state is kept. */
function withoutFirst<P extends Passes>(least: Timed, { fitted, isWithin, secondsOf }: RecoveryFits<P>): Fit<P> {
  const without = fitted('checkpoint');
  const own = { seconds: secondsOf(without, 'checkpoint') };
  const mayBeWorthIt = isWorthKeeping(least, own) && isWithin(WORTH_KEEPING * own.seconds, 'step', without);
  return mayBeWorthIt ? fitted('step', without) : without;
}

/** The pass of a training step. */
export function trainingPass({ passes }: Fit): Pass {
  const step = stepOf(passes);
  assert(step, 'what trains has a step');
  return step;
}
