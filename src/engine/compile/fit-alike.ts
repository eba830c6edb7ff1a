// A fit in the way of another one: a workload that differs from another in where chunks are updated, say, is treated as the search
// found it best for that one, in its order, modes, chunks of about its size, and staging that suits. It takes a part of a search's
// time, and the seconds of its step are about what a search would come to.

import type { Priced } from './find-way.ts';
import { findWithin } from './fit.ts';
import type { Fit } from './fitted.ts';
import type { FitOptions } from './least.ts';
import type { Passes } from './pass.ts';
import { isOpen, isWorthKeeping, type Recovery } from './recovery.ts';
import { staged } from './staging-search.ts';
import type { AdapterLimits, Workload } from './workload.ts';

/** Chunks are so many times as large at most, and as small. */
const NEAR = 1.3;

/** Within `budget` bytes of GPU memory, with what a step takes; undefined where that way does not fit. */
export function fitAlike<P extends Passes>(
  workload: Workload<P>,
  other: Fit<P>,
  limits: AdapterLimits,
  budget: number,
  options: FitOptions,
): Priced<Fit<P>> | undefined {
  const way = inTheWayOf(workload, other.workload);
  const { recovery = 'auto' } = options;
  const by = (recovery: Recovery) => fitBy(way, other, limits, budget, { ...options, recovery });
  if (!isOpen(way, recovery)) return by(recovery);
  const [keeping, without] = [by('step'), by('checkpoint')];
  return keeping && without && !isWorthKeeping(keeping, without) ? without : keeping;
}

function fitBy<P extends Passes>(
  way: Workload<P>,
  other: Fit<P>,
  limits: AdapterLimits,
  budget: number,
  options: FitOptions,
): Priced<Fit<P>> | undefined {
  const { activations } = way;
  if (!activations) return undefined;
  const find = findWithin(way, limits, budget, options);
  const { chunkBytes } = other.map;
  const near = { moreThan: chunkBytes / NEAR, lessThan: chunkBytes * NEAR };
  const found = find.fit(way, near) ?? find.fit(way);
  if (!found) return undefined;
  const priceOf = (fit: Fit<P>, most?: number) => find.price(fit, activations, most);
  return staged(find, { ...priceOf(found), priceOf, found });
}

/** The workload in the order and with the modes of another one's. */
function inTheWayOf<P extends Passes>(workload: Workload<P>, other: Workload<P>): Workload<P> {
  const { order } = workload;
  const ordered = order && other.order && order.order !== other.order.order ? order.with(other.order.order) : workload;
  if (!ordered.activations || !other.activations) return ordered;
  const plain = ordered.activations.with(other.activations.modes);
  const hasUsualHead = other.activations.withOtherHead !== undefined;
  return (hasUsualHead ? undefined : plain.activations?.withOtherHead?.()) ?? plain;
}
