// The choice among the ways to treat a workload's activations within a budget: for each block whether they are kept, made
// again or moved, whether they are placed tightly, and how large chunks are beside them. The most promising by estimate
// (estimates.ts) are fitted and planned in full and priced in seconds; then what is next to the best of them.
//
// Pure. No way changes a result, and the rates only say which of those that fit is taken.

import { UNIFORM_STRIDE } from '../../gpu/dispatch.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import { liveBytes } from '../../graph/liveness.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { assert } from '../../util/errors.ts';
import {
  type Estimated,
  type EstimatedWay,
  Estimates,
  type EstimateWithin,
  type Mixture,
  modesOf,
} from './estimates.ts';
import type { Passes } from './pass.ts';
import type { ActivationChoice, Workload } from './workload.ts';

/** Pairs of modes whose best mixture is fitted and planned in full, and operations of their passes in all: of a large model, a plan takes tens of milliseconds. */
const FINALISTS = { least: 2, most: 12, operations: 1800 } as const;
const MOST_TRIED = 16;
/** What is tried next to the best of them: half as many, and no more than this. */
const MOST_REFINED = 4;
/** How often its staging is doubled. */
const MOST_STAGED = 2;
/** Numbers of blocks that are tried in each mode. */
const MOST_COUNTS = 6;
/** What is estimated to take so many times as long as the first is not worth a plan. */
const HOPELESS = 1.6;
/** Sparing ways that are tried, where others fit as many as have the operations of the finalists, but one. */
const MOST_SPARING = 3;
/** What another order must save of a step: what it moves of activations is many small transfers, each of which takes its time. */
const WORTH_ANOTHER_ORDER = 0.05;
/** The share of a step that dispatches must take for each mode in all blocks to be tried, whatever it is estimated to take. */
const MANY_DISPATCHES = 0.12;
/** The share of a step that the dispatches of small chunks must take for larger ones to be tried. */
const WORTH_LARGER_CHUNKS = 0.01;

/** Bytes of activations, by which ways differ so little that uniforms may decide which of them needs the least. */
const ALIKE = 64 * UNIFORM_STRIDE;

/** What one of the ways comes to. */
interface Fitted<P extends Passes> {
  readonly passes: P;
  readonly map: ChunkMap;
  readonly residents: number;
  readonly slots: number;
  /** What a step was reckoned to take in each order of micro-batches that was tried. */
  readonly orderSeconds?: Readonly<Partial<Record<AccumulateOrder, number>>>;
}

/** How ways are fitted and priced. */
export interface FindWay<P extends Passes, F extends Fitted<P>> extends EstimateWithin {
  /** Chunks where everything is on the GPU. */
  wholeMap(): ChunkMap;
  /** Fits one of the ways, in chunks of more than so many bytes, or in these; undefined where it does not fit. */
  fit(workload: Workload<P>, tight: boolean, within?: number | ChunkMap): F | undefined;
  /** Chunks in which fewer tensors are cut, ascending; none where chunks are not to be chosen. */
  mapsInFewerPieces(): readonly ChunkMap[];
  /** What fits if nothing else does. */
  least(): F | undefined;
  /** With so many times as much staging, if there is room for it. */
  withMoreStaging(found: F, times: number): F | undefined;
  /** Of the pass that activations are chosen for. */
  price(found: F, choice: ActivationChoice<P>, tight: boolean): Price;
}

/** What a step takes. */
export interface Price {
  readonly seconds: number;
  /** Of it, what dispatches take whatever they compute. */
  readonly launchSeconds: number;
  /** Bytes of chunks that its plan moves. */
  readonly traffic: number;
}

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
export const sparingWays = <P extends Passes>(workload: Workload<P>): readonly Workload<P>[] =>
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

/** The fit that costs the least time among the promising ones. */
export function cheapest<P extends Passes, F extends Fitted<P>>(workload: Workload<P>, find: FindWay<P, F>): F {
  let best: Priced<F> | undefined;
  const orderSeconds: { [O in AccumulateOrder]?: number } = {};
  for (const inOrder of inOrders(workload)) {
    // Where chunks stay, there is nothing that another order would not move.
    if (best?.traffic === 0) break;
    const { activations, order } = inOrder;
    if (!activations) {
      const found = find.fit(inOrder, false) ?? find.fit(inOrder, true) ?? find.least();
      assert(found, 'a budget was accepted that does not fit');
      return found;
    }
    const found = new Search(inOrder, activations, find).run(best === undefined);
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
  for (const sparing of activations.sparing().toReversed()) {
    ways.push(...estimates.ofAll(sparing));
    if (others && estimates.inHalf(sparing) > others.seconds) break;
  }
  let best = others;
  let operations = 0;
  let tried = 0;
  for (const { workload: sparing, tight, seconds, dispatches } of ways.toSorted((a, b) => a.seconds - b.seconds)) {
    if (tried === MOST_SPARING || (best && seconds > best.seconds)) break;
    operations += dispatches;
    if (others && tried > 0 && operations > FINALISTS.operations) break;
    const found = find.fit(sparing, tight);
    if (!found) continue;
    tried++;
    const priceOf = (other: F) => find.price(other, activations, tight);
    const price = priceOf(found);
    if (!best || price.seconds < best.seconds) best = { ...price, priceOf, found };
  }
  return best;
}

/** A fit with more staging, where that costs less time: less is waited for, and more chunks are moved. */
function staged<P extends Passes, F extends Fitted<P>>(
  find: FindWay<P, F>,
  best: Priced<F> | undefined,
): Priced<F> | undefined {
  if (!best || best.isResident) return best;
  let found = best;
  for (let tries = 0; tries < MOST_STAGED; tries++) {
    const other = find.withMoreStaging(found.found, 2);
    const price = other && best.priceOf(other);
    if (!price || price.seconds >= found.seconds) return found;
    found = { ...found, ...price, found: other };
  }
  return found;
}

interface Priced<F> extends Price {
  readonly found: F;
  /** Of another fit of the same way. */
  readonly priceOf: (found: F) => Price;
  /** Everything is kept on the GPU, all the time. */
  readonly isResident?: boolean;
}

/** One of the ways. */
interface Way {
  readonly modes: readonly ActivationMode[];
  readonly tight: boolean;
  /** Whether the head takes all rows at once although modes say otherwise. @default false */
  readonly hasWholeHead?: boolean;
}

interface Considered<F> extends Priced<F>, Way {}

/** Among the ways of one order. */
class Search<P extends Passes, F extends Fitted<P>> {
  readonly #workload: Workload<P>;
  readonly #choice: ActivationChoice<P>;
  readonly #find: FindWay<P, F>;
  readonly #blocks: number;
  readonly #tried = new Set<string>();
  #best: Considered<F> | undefined;
  /** That the best one is, where it is one. */
  #mixture: Mixture | undefined;

  constructor(workload: Workload<P>, choice: ActivationChoice<P>, find: FindWay<P, F>) {
    this.#workload = workload;
    this.#choice = choice;
    this.#find = find;
    this.#blocks = choice.modes.length;
  }

  /** `isFirst`: no other order was looked at. */
  run(isFirst: boolean): Priced<F> | undefined {
    const { modes, menu } = this.#choice;
    const [kept] = menu;
    assert(kept, 'a menu has modes');
    const everything = modes.map(() => kept);
    const all = isFirst ? this.#consider(everything, false) : undefined;
    if (all && all.slots === all.residents && this.#best) return { ...this.#best, isResident: true };
    if (this.#best?.traffic !== 0) {
      const estimates = new Estimates(this.#workload, this.#choice, this.#find.wholeMap(), this.#find);
      const { least, operations } = FINALISTS;
      const most = Math.max(least, Math.min(FINALISTS.most, Math.round(operations / estimates.dispatches)));
      this.#finalists(estimates, most);
      this.#refine(estimates, Math.min(MOST_REFINED, Math.ceil(most / 2)));
    }
    this.#leaveRoom();
    this.#joinHead();
    this.#enlarge();
    return this.#best;
  }

  /** The best mixture of each pair of modes, the most promising first. */
  #finalists(estimates: Estimates<P>, most: number): void {
    const spaced = Math.min(this.#blocks, MOST_COUNTS);
    const counts = Array.from({ length: spaced }, (_, i) => Math.round(((i + 1) * this.#blocks) / spaced));
    const ranked = inOrder(estimates.mixtures([...new Set(counts)]).map((mixture) => estimates.of(mixture)));
    const pairs = new Set<string>();
    let tried = 0;
    for (const { mixture, seconds } of ranked) {
      if (pairs.size === most || tried === MOST_TRIED || seconds > HOPELESS * (ranked[0]?.seconds ?? 0)) return;
      const pair = `${mixture.early.mode} ${mixture.late.mode}`;
      if (pairs.has(pair)) continue;
      tried++;
      if (this.#considerMixture(mixture)) pairs.add(pair);
    }
  }

  /** What differs in little from the best, as long as that is better. */
  #refine(estimates: Estimates<P>, most: number): void {
    const step = Math.max(1, Math.round(this.#blocks / MOST_COUNTS / 2));
    for (let tries = most; tries > 0; tries--) {
      const mixture = this.#mixture;
      if (!mixture) return;
      const { early, late, count, tight } = mixture;
      const counts = early === late ? [] : [count - step, count + step].filter((n) => n > 0 && n < this.#blocks);
      const near = [...counts.map((count) => ({ ...mixture, count })), { ...mixture, tight: !tight }];
      const [next] = inOrder(near.filter((other) => !this.#wasTried(other)).map((other) => estimates.of(other)));
      if (!next) return;
      this.#considerMixture(next.mixture);
    }
  }

  /** One mode in all blocks, where dispatches take much of the step: what leaves room to larger chunks, which no estimate goes by. */
  #leaveRoom(): void {
    const best = this.#best;
    if (!best || best.traffic === 0 || best.launchSeconds < MANY_DISPATCHES * best.seconds) return;
    const { menu, modes } = this.#choice;
    for (const mode of menu) {
      const all = modes.map(() => mode);
      for (const tight of this.#choice.keptBytes(mode) > 0 ? [false] : [false, true]) {
        let found = this.#consider(all, tight);
        while (found) found = this.#consider(all, tight, found.map.chunkBytes);
        for (const map of this.#find.mapsInFewerPieces()) this.#consider(all, tight, map);
      }
    }
  }

  /** A head that takes all rows at once, where that fits: its weights are read and their gradient is written once, not for each slice. */
  #joinHead(): void {
    const best = this.#best;
    const workload = best && this.#choice.with(best.modes).activations?.withWholeHead?.();
    if (workload) this.#price(workload, { ...best, hasWholeHead: true });
  }

  /** Larger chunks, or such as cut fewer tensors, where the dispatches that others take are some of the step. */
  #enlarge(): void {
    for (;;) {
      const best = this.#best;
      if (!best || best.launchSeconds < 2 * WORTH_LARGER_CHUNKS * best.seconds) return;
      const way = this.#wayOf(best);
      this.#price(way, best, best.found.map.chunkBytes);
      for (const map of this.#find.mapsInFewerPieces()) this.#price(way, best, map);
      if (this.#best === best) return;
    }
  }

  #wasTried = (mixture: Mixture): boolean => this.#tried.has(keyOf(modesOf(mixture, this.#blocks), mixture.tight));

  #considerMixture(mixture: Mixture): F | undefined {
    if (this.#wasTried(mixture)) return undefined;
    const before = this.#best;
    const found = this.#consider(modesOf(mixture, this.#blocks), mixture.tight);
    if (this.#best !== before) this.#mixture = mixture;
    return found;
  }

  #consider(modes: readonly ActivationMode[], tight: boolean, within?: number | ChunkMap): F | undefined {
    this.#tried.add(keyOf(modes, tight));
    return this.#price(this.#choice.with(modes), { modes, tight }, within);
  }

  #wayOf({ modes, hasWholeHead }: Way): Workload<P> {
    const workload = this.#choice.with(modes);
    return (hasWholeHead && workload.activations?.withWholeHead?.()) || workload;
  }

  #price(
    workload: Workload<P>,
    { modes, tight, hasWholeHead = false }: Way,
    within?: number | ChunkMap,
  ): F | undefined {
    const found = this.#find.fit(workload, tight, within);
    if (!found) return undefined;
    const priceOf = (other: F) => this.#find.price(other, this.#choice, tight);
    const price = priceOf(found);
    if (!this.#best || price.seconds < this.#best.seconds) {
      this.#best = { ...price, priceOf, found, modes, tight, hasWholeHead };
    }
    return found;
  }
}

const keyOf = (modes: readonly ActivationMode[], tight: boolean) => `${modes.join()} ${tight}`;

/** The most promising first. */
const inOrder = (some: readonly Estimated[]): Estimated[] =>
  some
    .filter(({ seconds }) => Number.isFinite(seconds))
    .sort((a, b) => (a.seconds === b.seconds ? a.bytes - b.bytes : a.seconds - b.seconds));
