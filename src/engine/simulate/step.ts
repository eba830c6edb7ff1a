// A step on the simulated clock as figures: seconds, what was waited for, bytes; averaged over those that were followed.

import type { Work } from './clock.ts';

/** A step, on average over those that were followed. */
export interface SimulatedStep {
  readonly seconds: number;
  /** Seconds of arithmetic; the rest of `seconds` is `waits`. */
  readonly computeSeconds: number;
  /** Seconds in which arithmetic stood still, by what was under way meanwhile. */
  readonly waits: Readonly<Record<Waited, number>>;
  /** Bytes that moved, by where; over the network, those that this rank sends. */
  readonly bytes: Readonly<Record<Exclude<Waited, 'host' | 'bubble'> | 'recovery', number>>;
}

export type Waited = Exclude<Work, 'compute'>;

/** Since the beginning: seconds to the end of the last arithmetic, seconds of arithmetic, and bytes. */
export type Totals = Readonly<Record<'end' | 'compute' | keyof SimulatedStep['bytes'], number>>;

/** The mean of `counted` steps between two totals, in which `waits` seconds were waited for. */
export function averageStep(
  before: Totals,
  after: Totals,
  waits: Readonly<Record<Waited, number>>,
  counted: number,
): SimulatedStep {
  const each = (part: keyof Totals) => (after[part] - before[part]) / counted;
  return {
    seconds: each('end'),
    computeSeconds: each('compute'),
    waits: {
      up: waits.up / counted,
      down: waits.down / counted,
      host: waits.host / counted,
      network: waits.network / counted,
      bubble: waits.bubble / counted,
      diskRead: waits.diskRead / counted,
      diskWrite: waits.diskWrite / counted,
    },
    bytes: {
      up: each('up'),
      down: each('down'),
      network: each('network'),
      recovery: each('recovery'),
      diskRead: each('diskRead'),
      diskWrite: each('diskWrite'),
    },
  };
}
