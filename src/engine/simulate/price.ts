// The price of a fit: seconds that a step of it takes by its plan, on the simulated clock of a machine that has the rates that
// fits go by, and of host memory and a disk below it as large as there are. Only ways of the same workload are held against each
// other with it; no step is predicted by it.

import type { RoomBelow } from '../../memory/tiers/shares.ts';
import { unlessRefused } from '../../util/errors.ts';
import { leastSecondsOf, secondsOf, workOf } from '../compile/estimates.ts';
import type { Price } from '../compile/find-way.ts';
import type { Fit } from '../compile/fitted.ts';
import type { Pass } from '../compile/pass.ts';
import { type PassSchedule, schedule } from '../compile/schedule.ts';
import type { AdapterLimits } from '../compile/workload.ts';
import { machineOf } from './machine.ts';
import { sharesBelow } from './shares-below.ts';
import { finished, STEPS } from './simulate.ts';
import { Simulation } from './simulation.ts';

/** What a price is asked for with. */
interface PriceWithin {
  /** What takes as many seconds is infinite. @default no limit */
  readonly most?: number | undefined;
  /** @default host memory without end */
  readonly below?: RoomBelow | undefined;
}

/** Of a fit, what a step of one of its passes takes. */
export function priceOf(
  fit: Fit,
  pass: Pass,
  limits: AdapterLimits,
  { most = Number.POSITIVE_INFINITY, below }: PriceWithin = {},
): Price {
  const { rates } = limits;
  const work = workOf(pass, rates);
  const launchSeconds = work.dispatches * rates.launchSeconds;
  if (leastSecondsOf(work, 0, rates) >= most) return tooMuch({ launchSeconds });
  const plan = schedule(pass.trace, fit.slots, 'planned', pass.extra);
  const traffic = plan.moved.h2d + plan.moved.d2h;
  const least = leastSecondsOf(work, traffic, rates);
  if (least >= most) return tooMuch({ launchSeconds });
  // What other ranks do has no clock here.
  const isAlone = pass.operations.every(({ op }) => op !== 'collective');
  const seconds = isAlone
    ? simulatedSeconds(fit, pass, plan, limits, { most, below })
    : secondsOf(work, traffic, rates);
  if (seconds >= most) return tooMuch({ launchSeconds });
  return { seconds, launchSeconds, waited: seconds - least, traffic, isFollowed: isAlone };
}

/** What one slot more would save of a step that takes so much, by what its plan would move less. */
export function slotSeconds(fit: Fit, pass: Pass, { rates }: AdapterLimits, { seconds, traffic }: Price): number {
  const { moved } = schedule(pass.trace, fit.slots + 1, 'planned', pass.extra);
  const still = secondsOf(workOf(pass, rates), 0, rates);
  return (Math.max(0, seconds - still) * (traffic - moved.h2d - moved.d2h)) / traffic;
}

/** Beside what it brings of what is on the GPU from then on, a step before all repeats itself takes at most so many times what others do, about. */
const BEFORE = 1.05;

/** Infinite where it is not less than `most`, of which the first of the steps that are followed may be enough. */
function simulatedSeconds(
  fit: Fit,
  pass: Pass,
  schedule: PassSchedule,
  limits: AdapterLimits,
  { most, below }: PriceWithin & { readonly most: number },
): number {
  const { host, disk = 0 } = below?.all ?? {};
  const machine = machineOf(limits, disk > 0 ? disk : undefined);
  // What has no room there is refused elsewhere.
  const hasRoom = host !== undefined && unlessRefused(() => sharesBelow(fit, machine, host)) !== undefined;
  const hostBytes = hasRoom ? host : Number.POSITIVE_INFINITY;
  const { steps, start } = schedule.plan;
  const { upBytesPerSecond, answerSeconds = 0, copySeconds = 0 } = machine.link;
  const arriving = start.length * (fit.map.chunkBytes / upBytesPerSecond + copySeconds + answerSeconds);
  const one = new Simulation({ fit, pass, schedule, hostBytes }, machine);
  for (let i = 0; i < STEPS * steps; i++) {
    const until = one.end + BEFORE * most + (i < steps ? arriving : 0);
    finished(one.runStep(until));
    if (one.end >= until) return Number.POSITIVE_INFINITY;
  }
  const { end } = one;
  for (let i = 0; i < steps; i++) finished(one.runStep(end + steps * most));
  return (one.end - end) / steps;
}

/** Prices that were asked for before, of fits that a search comes back to. */
export class KnownPrices {
  readonly #known = new WeakMap<Fit, { readonly price: Price; readonly most: number }>();

  /** `reckon`: the price, where what takes as many seconds is infinite. `most`: as `priceOf`. */
  of(fit: Fit, reckon: (most: number) => Price, most = Number.POSITIVE_INFINITY): Price {
    const known = this.#known.get(fit);
    if (known && (known.price.seconds < Number.POSITIVE_INFINITY || most <= known.most)) {
      return known.price.seconds < most ? known.price : tooMuch(known.price);
    }
    const price = reckon(most);
    this.#known.set(fit, { price, most });
    return price;
  }
}

const tooMuch = ({ launchSeconds }: Pick<Price, 'launchSeconds'>): Price => ({
  ...{ seconds: Number.POSITIVE_INFINITY, waited: Number.POSITIVE_INFINITY, traffic: Number.POSITIVE_INFINITY },
  launchSeconds,
  isFollowed: false,
});
