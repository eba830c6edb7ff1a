// The choice among the ways to treat a workload's activations within a budget: for each block whether they are kept, made
// again or moved, and how large chunks are beside them. Here are the orders that micro-batches may go in, the ways that need
// the least memory, and sparing ones; the search among those of one order is way-search.ts's affair.
//
// Pure. No way changes a result, and the rates only say which of those that fit is taken.

import { UNIFORM_STRIDE } from '../../gpu/dispatch.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import { liveBytes } from '../../graph/liveness.ts';
import { assert } from '../../util/errors.ts';
import { Estimates } from './estimates.ts';
import type { FindWay, Fitted, Priced } from './find-way.ts';
import type { Passes } from './pass.ts';
import { WaySearch } from './way-search.ts';
import type { Workload } from './workload.ts';

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
export function* sparingWays<P extends Passes>(workload: Workload<P>): Generator<Workload<P>, void> {
  for (const inDegrees of (inOrders(workload)[0] ?? workload).activations?.sparing ?? []) yield* inDegrees();
}

/**
 * What fits the least memory among uniform ways, by what `measure` says of those that work: of the ones that hold about as little at
 * once as the first of these. `most`: those that hold more bytes are not measured. @default no limit
 */
export function leastWay<P extends Passes, F extends { readonly bytes: number }>(
  workload: Workload<P>,
  measure: (way: Workload<P>) => F | undefined,
  most = Number.POSITIVE_INFINITY,
): F | undefined {
  let least: F | undefined;
  for (const way of uniformWays(workload)) {
    if (aliveIn(way) > most) break;
    const found = measure(way);
    if (!found) continue;
    if (!least) most = Math.min(most, aliveIn(way) + ALIKE);
    if (!least || found.bytes < least.bytes) least = found;
  }
  return least;
}

/** Bytes of activations that are there at once, at least. */
const aliveIn = ({ programs, lasting = 0 }: Workload): number =>
  lasting + programs.reduce((most, program) => Math.max(most, liveBytes(program)), 0);

/** Seconds of the most promising way, about; undefined where nothing but sparing ways fits, or none are to be chosen from. */
export function estimatedSeconds<P extends Passes, F extends Fitted<P>>(
  workload: Workload<P>,
  find: FindWay<P, F>,
): number | undefined {
  const [inOrder = workload] = inOrders(workload);
  const { activations } = inOrder;
  return activations && new Estimates(inOrder, activations, find.wholeMap(), find).inOrder()[0]?.seconds;
}

/** The first of the most promising fits whose step takes fewer seconds than these; undefined where none is found. `from`: as `cheapest`. */
export function firstWithin<P extends Passes, F extends Fitted<P>>(
  workload: Workload<P>,
  find: FindWay<P, F>,
  seconds: number,
  from?: F,
): F | undefined {
  for (const [i, inOrder] of inOrders(workload).entries()) {
    const { activations } = inOrder;
    if (!activations) return find.fit(inOrder);
    // As `cheapest` has it: another order is taken for so much less alone.
    const most = i === 0 ? seconds : (1 - WORTH_ANOTHER_ORDER) * seconds;
    const { value } = new WaySearch(inOrder, activations, find, { most, from }).better(i === 0).next();
    if (value) return value.found;
  }
  return undefined;
}

/** The fit that costs the least time among the promising ones. `from`: one that was found otherwise, of which the same and its like are among them. */
export function cheapest<P extends Passes, F extends Fitted<P>>(
  workload: Workload<P>,
  find: FindWay<P, F>,
  from?: F,
): F {
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
    const found = [...new WaySearch(inOrder, activations, find, { from }).better(best === undefined)].at(-1);
    if (!found) continue;
    const { seconds } = found;
    if (order) orderSeconds[order.order] = seconds;
    if (!best || seconds < (1 - WORTH_ANOTHER_ORDER) * best.seconds) best = found;
    if (found.isResident) break;
  }
  const found = best?.found ?? find.least();
  assert(found, 'a budget was accepted that does not fit');
  return best?.isResident ? found : { ...found, orderSeconds };
}
