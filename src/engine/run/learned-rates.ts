// Rates of a device as the steps of a run show them: what of the rates that its plan goes by is not so. Warm-up times groups of
// operations to their end on the GPU, with the bytes that went over the link meanwhile: least squares tell the time of
// arithmetic from that of the link. Steps that then take longer than planned had something come late: the link is slower by as
// much. Pure; times come from session.ts.

import { median } from '../../util/median.ts';
import { isOnHost, type Operation } from '../compile/operations.ts';
import type { Rates } from '../compile/rates.ts';
import { computeSeconds, machineOf } from '../simulate/machine.ts';

/** Operations that were run together, and waited for. */
export interface TimedGroup {
  readonly operations: readonly Operation[];
  readonly seconds: number;
  /** Over the link meanwhile. */
  readonly upBytes: number;
  readonly downBytes: number;
  /** Copies that they went in. */
  readonly transfers: number;
}

/** A rate is taken to be at most so many times off. */
const MOST = 64;
const within = (times: number): number => Math.min(MOST, Math.max(1 / MOST, times));

/** Rates with which arithmetic, and what goes over the link, takes so many times as long. */
export const slowedBy = (rates: Rates, { arithmetic, link }: Times): Rates => ({
  ...rates,
  flops: rates.flops / arithmetic,
  launchSeconds: rates.launchSeconds * arithmetic,
  ...(rates.memoryBytes !== undefined && { memoryBytes: rates.memoryBytes / arithmetic }),
  upBytes: rates.upBytes / link,
  downBytes: rates.downBytes / link,
  ...(rates.copySeconds !== undefined && { copySeconds: rates.copySeconds * link }),
});

/** As multiples of what the rates say. */
interface Times {
  readonly arithmetic: number;
  readonly link: number;
}

/**
 * The rates that explain what groups took: t = a c + l m in least squares, of c seconds of arithmetic and m of the link by
 * `rates`; neither factor is negative. Groups with work of the host, or of other ranks, tell nothing.
 */
export function ratesFrom(groups: readonly TimedGroup[], rates: Rates): Rates {
  const machine = machineOf({ rates });
  const { upBytes, downBytes, answerSeconds = 0, copySeconds = 0 } = rates;
  const rows = groups
    .filter(({ operations }) => operations.every((one) => !isOnHost(one) && one.op !== 'collective'))
    .map((group) => ({
      t: Math.max(0, group.seconds - answerSeconds),
      c: computeSeconds(machine, group.operations),
      m: group.upBytes / upBytes + group.downBytes / downBytes + group.transfers * copySeconds,
    }));
  const sum = (of: (row: (typeof rows)[number]) => number) => rows.reduce((total, row) => total + of(row), 0);
  const [cc, cm, mm] = [sum(({ c }) => c * c), sum(({ c, m }) => c * m), sum(({ m }) => m * m)];
  const [ct, mt] = [sum(({ c, t }) => c * t), sum(({ m, t }) => m * t)];
  if (cc === 0 || ct === 0) return rates;
  const determinant = cc * mm - cm * cm;
  const isTold = mm > 0 && determinant > 1e-6 * cc * mm;
  // Where both always come together, they are slower alike.
  if (!isTold) {
    const times = within(sum(({ t }) => t) / sum(({ c, m }) => c + m));
    return slowedBy(rates, { arithmetic: times, link: times });
  }
  const arithmetic = (ct * mm - mt * cm) / determinant;
  const link = (mt * cc - ct * cm) / determinant;
  if (arithmetic <= 0) return slowedBy(rates, { arithmetic: 1 / MOST, link: within(mt / mm) });
  if (link <= 0) return slowedBy(rates, { arithmetic: within(ct / cc), link: 1 / MOST });
  return slowedBy(rates, { arithmetic: within(arithmetic), link: within(link) });
}

/** Steps that are held against their plan. */
export const HELD_AGAINST = 8;
/** A step that takes longer than planned by this part had something come late. */
const LATE = 0.15;
const DOUBLINGS = 6;

/**
 * The rates by which steps take what these took (seconds, HELD_AGAINST of them), of which `secondsBy` says what one takes by
 * rates: their link is slower than `rates` say. Undefined where nothing came late.
 */
export function ratesOfLate(
  taken: readonly number[],
  rates: Rates,
  secondsBy: (rates: Rates) => number,
): Rates | undefined {
  const measured = median(taken);
  if (measured <= (1 + LATE) * secondsBy(rates)) return undefined;
  let [low, high] = [0, DOUBLINGS];
  // Six halvings: within a ninth of the factor.
  for (let i = 0; i < DOUBLINGS; i++) {
    const middle = (low + high) / 2;
    if (secondsBy(slowedBy(rates, { arithmetic: 1, link: 2 ** middle })) < measured) low = middle;
    else high = middle;
  }
  return slowedBy(rates, { arithmetic: 1, link: 2 ** high });
}
