// The choice among the ways to treat a workload's activations within a budget: for each block whether they are kept, made
// again or moved, and how large chunks are beside them. Here are the orders that micro-batches may go in, the ways that need
// the least memory, and sparing ones; the search among those of one order is way-search.ts's affair.
//
// Pure. No way changes a result, and the rates only say which of those that fit is taken.

import { UNIFORM_STRIDE } from '../../gpu/dispatch.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import { liveBytes } from '../../graph/liveness.ts';
import { assert } from '../../util/errors.ts';
import { type EstimatedWay, Estimates } from './estimates.ts';
import type { Passes } from './pass.ts';
import {
  FINALISTS,
  type FindWay,
  type Fitted,
  MANY_DISPATCHES,
  type Price,
  type Priced,
  staged,
  WaySearch,
} from './way-search.ts';
import type { Workload } from './workload.ts';

/** Sparing ways that are tried, where others fit as many as have the operations of the finalists, but one. */
const MOST_SPARING = 3;
/** What another order must save of a step: what it moves of activations is many small transfers, each of which takes its time. */
const WORTH_ANOTHER_ORDER = 0.05;

/** Bytes of activations, by which ways differ so little that uniforms may decide which of them needs the least. */
const ALIKE = 64 * UNIFORM_STRIDE;

/** The workload in each order that its micro-batches may go in, least memory first. */
export const inOrders = <P extends Passes>(workload: Workload<P>): Workload<P>[] => {
  const { order } = workload;
  return order ? order.menu.map((other) => (other === order.order ? workload : order.with(other))) : [workload];
};

/** The workload with each mode of the menu in all blocks, least memory first; in the order that needs the least. */
export function uniformWays<P extends Passes>(workload: Workload<P>): Workload<P>[] {
  const [least = workload] = inOrders(workload);
  const { activations } = least;
  if (!activations) return [least];
  const { menu, modes } = activations;
  const all = menu.map((mode) => activations.with(modes.map(() => mode)));
  const bytes = new Map(all.map((tried) => [tried, aliveIn(tried)]));
  return all.sort((a, b) => (bytes.get(a) ?? 0) - (bytes.get(b) ?? 0));
}

/** The workload in its sparing ways, least memory first; in the order that needs the least memory. */
export const sparingWays = <P extends Passes>(workload: Workload<P>): Iterable<Workload<P>> =>
  (inOrders(workload)[0] ?? workload).activations?.sparing?.() ?? [];

/**
 * What fits the least memory among uniform ways, by what `measure` says of those that work: of the ones that hold about as little at
 * once as the first of these.
 */
export function leastWay<P extends Passes, F extends { readonly bytes: number }>(
  workload: Workload<P>,
  measure: (way: Workload<P>) => F | undefined,
): F | undefined {
  let least: F | undefined;
  let most = Number.POSITIVE_INFINITY;
  for (const way of uniformWays(workload)) {
    if (aliveIn(way) > most) break;
    const found = measure(way);
    if (!found) continue;
    if (!least) most = aliveIn(way) + ALIKE;
    if (!least || found.bytes < least.bytes) least = found;
  }
  return least;
}

/** Bytes of activations that are there at once, at least. */
const aliveIn = ({ programs, lasting = 0 }: Workload): number =>
  lasting + programs.reduce((most, program) => Math.max(most, liveBytes(program)), 0);

/** The first of the most promising fits whose step takes fewer seconds than these; undefined where none is found. */
export function firstWithin<P extends Passes, F extends Fitted<P>>(
  workload: Workload<P>,
  find: FindWay<P, F>,
  seconds: number,
): F | undefined {
  for (const [i, inOrder] of inOrders(workload).entries()) {
    const { activations } = inOrder;
    if (!activations) return find.fit(inOrder);
    // As `cheapest` has it: another order is taken for so much less alone.
    const lessThan = i === 0 ? seconds : (1 - WORTH_ANOTHER_ORDER) * seconds;
    const found = new WaySearch(inOrder, activations, { ...find, lessThan }).run(i === 0);
    if (found) return found.found;
  }
  return undefined;
}

/** The fit that costs the least time among the promising ones. */
export function cheapest<P extends Passes, F extends Fitted<P>>(workload: Workload<P>, find: FindWay<P, F>): F {
  let best: Priced<F> | undefined;
  const orderSeconds: { [O in AccumulateOrder]?: number } = {};
  for (const inOrder of inOrders(workload)) {
    // Where chunks stay, there is nothing that another order would not move.
    if (best?.traffic === 0) break;
    const { activations, order } = inOrder;
    if (!activations) {
      const found = find.fit(inOrder) ?? find.least();
      assert(found, 'a budget was accepted that does not fit');
      return found;
    }
    const found = new WaySearch(inOrder, activations, find).run(best === undefined);
    if (!found) continue;
    const { seconds } = found;
    if (order) orderSeconds[order.order] = seconds;
    if (!best || seconds < (1 - WORTH_ANOTHER_ORDER) * best.seconds) best = found;
    if (found.isResident) break;
  }
  best = staged(find, spared(workload, find, best));
  const found = best?.found ?? find.least();
  assert(found, 'a budget was accepted that does not fit');
  return best?.isResident ? found : { ...found, orderSeconds };
}

/** A sparing way, where it costs less time than the best of the others; those are tried that are estimated to cost no more. */
function spared<P extends Passes, F extends Fitted<P>>(
  workload: Workload<P>,
  find: FindWay<P, F>,
  others: Priced<F> | undefined,
): Priced<F> | undefined {
  // Where chunks stay, there is nothing to move less of.
  if (others?.traffic === 0) return others;
  const [inOrder = workload] = inOrders(workload);
  const { activations } = inOrder;
  if (!activations?.sparing) return others;
  const estimates = new Estimates(inOrder, activations, find.wholeMap(), find);
  if (others && estimates.leastSparing > others.seconds) return others;
  const ways: EstimatedWay<P>[] = [];
  // From the one that does the least; those behind it do more, in half its memory at best.
  for (const sparing of [...activations.sparing()].toReversed()) {
    ways.push(estimates.ofAll(sparing));
    if (others && estimates.inHalf(sparing) > others.seconds) break;
  }
  let best = others;
  let operations = 0;
  let tried = 0;
  for (const { workload: sparing, seconds, dispatches } of ways.toSorted((a, b) => a.seconds - b.seconds)) {
    if (tried === MOST_SPARING || (best && seconds > best.seconds)) break;
    operations += dispatches;
    if (others && tried > 0 && operations > FINALISTS.operations) break;
    const found = find.fit(sparing);
    if (!found) continue;
    tried++;
    const priceOf = (other: F, most?: number) => find.price(other, activations, most);
    const consider = (found: F): Price => {
      const price = priceOf(found, best?.seconds);
      if (!best || price.seconds < best.seconds) best = { ...price, priceOf, found };
      return price;
    };
    const { launchSeconds } = consider(found);
    if (best && launchSeconds < MANY_DISPATCHES * best.seconds) continue;
    for (const map of find.mapsInFewerPieces(found.map)) {
      const other = find.fit(sparing, { map });
      if (other) consider(other);
    }
  }
  return best;
}
