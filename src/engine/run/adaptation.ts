// `Adaptation`: what a session plans by once its steps have shown what they take: rates as warm-up measured them, and a slower link
// where steps then take longer than planned. It says when another plan is worth its making; the session makes it (session.ts).

import type { Fit } from '../compile/fitted.ts';
import { isConfined, stepOf } from '../compile/pass-figures.ts';
import type { Rates } from '../compile/rates.ts';
import type { AdapterLimits } from '../compile/workload.ts';
import { priceOf } from '../simulate/price.ts';
import type { MemoryOptions } from './arrangement.ts';
import { HELD_AGAINST, ratesFrom, ratesOfLate, type TimedGroup } from './learned-rates.ts';

/** Another plan moves everything once: it is made for at least so much of a step. */
const WORTH_PLANNING = 0.05;
/** Plans that follow on the first one. */
const MOST_PLANS = 2;

/** Seconds of a step by the rates that were learned: as it was planned before, and by the plan that was made then. */
export interface PlannedAgain {
  readonly before: number;
  readonly after: number;
}

export class Adaptation {
  /** The last one that was made. */
  planned: PlannedAgain | undefined;
  /** What steps have shown last. */
  #rates: Rates | undefined;
  /** What the last steps were planned as. */
  #fit: Fit | undefined;
  #plans = 0;
  #isHeld = false;
  #last: number | undefined;
  #taken: number[] = [];

  /** Undefined where nothing could be planned in another way, or is not to be; and above a disk, which what is late may wait for. */
  static of(fit: Fit, { adapts = false, disk }: MemoryOptions, isAlone: boolean): Adaptation | undefined {
    return adapts && isAlone && !disk && isConfined(fit) ? new Adaptation() : undefined;
  }

  /** The rates that the groups of warm-up show, of what was planned by `rates`. */
  warmedUp(groups: readonly TimedGroup[], rates: Rates): Rates {
    this.#rates = ratesFrom(groups, rates);
    return this.#rates;
  }

  /**
   * A step has ended at that time, in milliseconds; `goesOn`: the next one was under way by then. The rates that the last steps show;
   * undefined where nothing came late.
   */
  stepEnded(now: number, goesOn: boolean, fit: Fit, limits: AdapterLimits): Rates | undefined {
    if (this.#isHeld || !this.#rates) return undefined;
    if (this.#fit !== fit) this.#restart();
    this.#fit = fit;
    if (this.#last !== undefined) this.#taken.push((now - this.#last) / 1000);
    // Until a step that is still to be started ends, what is asked for between them is waited for, too.
    this.#last = goesOn ? now : undefined;
    if (this.#taken.length < HELD_AGAINST) return undefined;
    this.#isHeld = true;
    const late = ratesOfLate(this.#taken, this.#rates, (rates) => secondsBy(fit, { ...limits, rates }));
    this.#rates = late ?? this.#rates;
    return late;
  }

  /** What a fit would change of a step, by the rates of `limits`; undefined where that is not worth its making. */
  gainOf(found: Fit, before: Fit, limits: AdapterLimits): PlannedAgain | undefined {
    const gain = { before: secondsBy(before, limits), after: secondsBy(found, limits) };
    const isWorth = this.#plans < MOST_PLANS && gain.after <= (1 - WORTH_PLANNING) * gain.before;
    return isWorth ? gain : undefined;
  }

  /** The plan is another one from now on. */
  made(gain: PlannedAgain): void {
    this.#plans++;
    this.planned = gain;
    this.#isHeld = false;
  }

  /** What ended before was by another plan. */
  #restart(): void {
    this.#last = undefined;
    this.#taken = [];
  }
}

function secondsBy(fit: Fit, limits: AdapterLimits): number {
  const step = stepOf(fit.passes);
  return step ? priceOf(fit, step, limits).seconds : 0;
}
