// The price of a fit: seconds that a step of it takes by its plan, on the simulated clock of a machine that has the rates that
// fits go by. Only ways of the same workload are held against each other with it; no step is predicted by it.

import { leastSecondsOf, secondsOf, workOf } from '../compile/estimates.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Pass } from '../compile/pass.ts';
import { schedule } from '../compile/schedule.ts';
import type { Price } from '../compile/way-search.ts';
import type { AdapterLimits } from '../compile/workload.ts';
import { machineOf } from './machine.ts';
import { simulate } from './simulate.ts';

/** `most`: what takes as many seconds is infinite. @default no limit */
export function priceOf(fit: Fit, pass: Pass, limits: AdapterLimits, most = Number.POSITIVE_INFINITY): Price {
  const { rates } = limits;
  const work = workOf(pass, rates);
  const launchSeconds = work.dispatches * rates.launchSeconds;
  const never = Number.POSITIVE_INFINITY;
  const tooMuch: Price = { seconds: never, launchSeconds, waited: never, traffic: never };
  if (leastSecondsOf(work, 0, rates) >= most) return tooMuch;
  const plan = schedule(pass.trace, fit.slots, 'planned', pass.extra);
  const traffic = plan.moved.h2d + plan.moved.d2h;
  const least = leastSecondsOf(work, traffic, rates);
  if (least >= most) return tooMuch;
  // What other ranks do has no clock here.
  const isAlone = pass.operations.every(({ op }) => op !== 'collective');
  const seconds = isAlone
    ? simulate(fit, pass, plan, machineOf(limits), Number.POSITIVE_INFINITY, undefined, 1, most).seconds
    : secondsOf(work, traffic, rates);
  return seconds < most ? { seconds, launchSeconds, waited: seconds - least, traffic } : tooMuch;
}
