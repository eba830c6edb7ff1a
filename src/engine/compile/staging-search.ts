// The search for the staging of a fit: with less of it more chunks stay, with more less is waited for.

import type { StagingSize } from './candidate.ts';
import type { FindWay, Fitted, Price, Priced } from './find-way.ts';
import type { Passes } from './pass.ts';

/** The share of a step that must be waited for in it for one more of staging to be tried, and twice as much. */
const WORTH_STAGING = { more: 0.05, twice: 0.1 } as const;
/** How often its staging is changed. */
const MOST_STAGED = 4;

/** With less staging more chunks stay, with more less is waited for, where something is: of both ways, or of one. */
export const stagingsNextTo = ({ down, up }: StagingSize, { waited, seconds }: Price): StagingSize[] => [
  ...(waited < WORTH_STAGING.twice * seconds ? [] : [{ down: 2 * down, up: 2 * up }]),
  ...(waited < WORTH_STAGING.more * seconds
    ? []
    : [
        { down: Math.ceil(1.5 * down), up },
        { down, up: up + 1 },
      ]),
  { down: Math.ceil(down / 2), up: Math.ceil(up / 2) },
];

/** Staging of about as many bytes in chunks of another size. `times`: of these, what one chunk comes to now. */
export const sameBytes = ({ down, up }: StagingSize, times: number): StagingSize => ({
  down: Math.max(1, Math.round(down * times)),
  up: Math.max(1, Math.round(up * times)),
});

/** A fit with other staging, where that costs less time. */
export function staged<P extends Passes, F extends Fitted<P>>(
  find: FindWay<P, F>,
  best: Priced<F> | undefined,
): Priced<F> | undefined {
  if (!best || best.isResident || best.traffic === 0 || !best.isFollowed) return best;
  let found = best;
  for (let tries = 0; tries < MOST_STAGED; tries++) {
    const before = found;
    for (const staging of stagingsNextTo(found.found.staging, found)) {
      const other = find.withStaging(found.found, staging);
      const price = other && found.priceOf(other, found.seconds);
      if (!price || price.seconds >= found.seconds) continue;
      found = { ...found, ...price, found: other };
      break;
    }
    if (found === before) return found;
  }
  return found;
}
