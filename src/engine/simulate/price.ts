// The price of a fit: seconds that a step of it takes by its plan, on the simulated clock of a machine that has the rates that
// fits go by. Only ways of the same workload are held against each other with it; no step is predicted by it.

import { secondsOf, TIGHT, workOf } from '../compile/estimates.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Pass } from '../compile/pass.ts';
import { schedule } from '../compile/schedule.ts';
import type { Price } from '../compile/ways.ts';
import type { AdapterLimits } from '../compile/workload.ts';
import { machineOf } from './machine.ts';
import { simulate } from './simulate.ts';

/** `tight`: activations are placed tightly. */
export function priceOf(fit: Fit, pass: Pass, tight: boolean, limits: AdapterLimits): Price {
  const { rates } = limits;
  const plan = schedule(pass.trace, fit.slots, 'planned', pass.extra);
  const traffic = plan.moved.h2d + plan.moved.d2h;
  const work = workOf(pass);
  const launchSeconds = work.dispatches * rates.launchSeconds;
  const more = tight ? TIGHT * work.flops : 0;
  // What other ranks do has no clock here.
  const isAlone = pass.operations.every(({ op }) => op !== 'collective');
  const seconds = isAlone
    ? simulate(fit, pass, plan, machineOf(limits), Number.POSITIVE_INFINITY, undefined, 1).seconds + more / rates.flops
    : secondsOf({ ...work, flops: work.flops + more }, traffic, rates);
  return { seconds, launchSeconds, traffic };
}
