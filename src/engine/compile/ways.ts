// The choice among the ways to treat a workload's activations within a budget: for each block whether they are kept, made
// again or moved, and whether they are placed tightly. The blocks of a model are alike, so a few facts about each mode say
// roughly what any mixture needs and costs; the most promising are then fitted and planned in full, and priced in seconds.
//
// Pure. No way changes a result, and the rates only say which of those that fit is taken.

import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import { liveBytes } from '../../graph/liveness.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { assert } from '../../util/errors.ts';
import { isDispatch } from './lower.ts';
import { flopsOf, offloadedBytes, type Pass, type Passes } from './pass.ts';
import { schedule } from './schedule.ts';
import type { ActivationChoice, Rates, Workload } from './workload.ts';

/** What is fitted and planned in full: a plan takes tens of milliseconds. */
const FINALISTS = 4;
const MOST_TRIED = 12;
/** Numbers of blocks that are tried in each mode. */
const MOST_COUNTS = 6;
/** What another order must save of a step: what it moves of activations is many small transfers, each of which takes its time. */
const WORTH_ANOTHER_ORDER = 0.05;
/** What a tight placement costs, as a share of the arithmetic: what is read is declared as writable there. */
const TIGHT = 0.02;
/** What another one needs beside what is alive at once, where activations are kept and where they are not, about. */
const LOOSE = { kept: 1.06, other: 1.25 } as const;
/** Bytes that chunks move in a step for each byte of them that has no room, about, and beside that in each round of micro-batches. */
const MOVED = { once: 1.26, eachRound: 0.84 } as const;

/** What one of the ways comes to. */
interface Fitted<P extends Passes> {
  readonly passes: P;
  readonly map: ChunkMap;
  readonly residents: number;
  readonly slots: number;
  /** What a step was reckoned to take in each order of micro-batches that was tried. */
  readonly orderSeconds?: Readonly<Partial<Record<AccumulateOrder, number>>>;
}

/** Fits one of the ways; undefined where it does not fit. */
export type FitWay<P extends Passes, F extends Fitted<P>> = (workload: Workload<P>, tight: boolean) => F | undefined;

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

const aliveIn = ({ programs }: Workload): number =>
  programs.reduce((most, program) => Math.max(most, liveBytes(program)), 0);

/** The fit that costs the least time among the promising ones; `least` is what fits if none of them does. */
export function cheapest<P extends Passes, F extends Fitted<P>>(
  workload: Workload<P>,
  budget: number,
  rates: Rates,
  mapOf: () => ChunkMap,
  fitted: FitWay<P, F>,
  least: () => F | undefined,
): F {
  let best: (Priced<F> & { readonly order: AccumulateOrder | undefined }) | undefined;
  const orderSeconds: { [O in AccumulateOrder]?: number } = {};
  for (const inOrder of inOrders(workload)) {
    // Where chunks stay, there is nothing that another order would not move.
    if (best?.traffic === 0) break;
    const { activations, order } = inOrder;
    if (!activations) {
      const found = fitted(inOrder, false) ?? fitted(inOrder, true) ?? least();
      assert(found, 'a budget was accepted that does not fit');
      return found;
    }
    const consider = (modes: readonly ActivationMode[], tight: boolean): F | undefined => {
      const found = fitted(activations.with(modes), tight);
      if (!found) return undefined;
      const priced = priceOf(activations, found, tight, rates);
      const { seconds } = priced;
      const isOther = best !== undefined && best.order !== order?.order;
      if (!best || seconds < (isOther ? 1 - WORTH_ANOTHER_ORDER : 1) * best.seconds)
        best = { ...priced, order: order?.order };
      if (order) orderSeconds[order.order] = Math.min(seconds, orderSeconds[order.order] ?? seconds);
      return found;
    };
    const [kept] = activations.menu;
    assert(kept, 'a menu has modes');
    const isFirst = best === undefined;
    const everything = activations.modes.map(() => kept);
    const all = isFirst ? consider(everything, false) : undefined;
    if (all && all.slots === all.residents) return all;
    let finalists = 0;
    for (const { modes, tight } of promising(activations, mapOf(), budget, rates).slice(0, MOST_TRIED)) {
      if (consider(modes, tight) && ++finalists === FINALISTS) break;
    }
  }
  const found = best?.found ?? least();
  assert(found, 'a budget was accepted that does not fit');
  return { ...found, orderSeconds };
}

interface Priced<F> {
  readonly found: F;
  readonly seconds: number;
  /** Bytes of chunks that a step moves. */
  readonly traffic: number;
}

/** With the time of the pass that activations are chosen for, as it was fitted. */
function priceOf<P extends Passes, F extends Fitted<P>>(
  { mainOf }: ActivationChoice<P>,
  found: F,
  tight: boolean,
  rates: Rates,
): Priced<F> {
  const pass = mainOf(found.passes);
  const work = workOf(pass);
  const traffic = chunkTraffic(pass, found);
  const moved = work.moved + traffic;
  return { found, seconds: secondsOf({ ...work, moved }, tight ? TIGHT * work.flops : 0, rates), traffic };
}

/** Bytes of chunks that a step moves. */
function chunkTraffic(
  { trace, extra }: Pass,
  { slots, residents }: Pick<Fitted<Passes>, 'slots' | 'residents'>,
): number {
  if (slots >= residents) return 0;
  const { h2d, d2h } = schedule(trace, slots, 'planned', extra).moved;
  return h2d + d2h;
}

/** What takes time. */
interface Work {
  readonly flops: number;
  readonly dispatches: number;
  /** Bytes over the link. */
  readonly moved: number;
}

/** Of a pass, save what chunks move. */
const workOf = (pass: Pass): Work => ({
  flops: flopsOf(pass),
  dispatches: pass.operations.filter(isDispatch).length,
  moved: 2 * offloadedBytes(pass),
});

/** Of all micro-batches of the pass that activations are chosen for: from the second one on each adds the same. */
function workOfAll<P extends Passes>(
  { mainOf, rounds }: ActivationChoice<P>,
  workload: Workload<P>,
  map: ChunkMap,
): Work {
  const ofFirst = (most: number) => workOf(mainOf(workload.passes(map, most)));
  const one = ofFirst(1);
  if (rounds === 1) return one;
  const two = ofFirst(2);
  const all = (of: keyof Work) => one[of] + (rounds - 1) * (two[of] - one[of]);
  return { flops: all('flops'), dispatches: all('dispatches'), moved: all('moved') };
}

/** The time of it with so much more arithmetic, one after the other: what overlaps is the same for all ways, about. */
const secondsOf = ({ flops, dispatches, moved }: Work, moreFlops: number, rates: Rates): number =>
  (flops + moreFlops) / rates.flops + dispatches * rates.launchSeconds + moved / rates.linkBytes;

/** What a mode does to each block, its work beside what there is without it, and to the whole. */
interface Facts extends Work {
  readonly mode: ActivationMode;
  /** Bytes of a block's activations that stay for the backward pass. */
  readonly kept: number;
  /** Bytes that are alive at once beside those. */
  readonly workingSet: number;
}

interface Way {
  readonly modes: readonly ActivationMode[];
  readonly tight: boolean;
}

/** Mixtures of two modes, the most promising first: the earlier blocks have the one, the later the other. */
function promising<P extends Passes>(choice: ActivationChoice<P>, map: ChunkMap, budget: number, rates: Rates): Way[] {
  const { modes, rounds } = choice;
  const blocks = modes.length;
  const { facts, modelBytes, flops } = factsOf(choice, map);
  const counts = new Set(
    Array.from({ length: Math.min(blocks, MOST_COUNTS) }, (_, i, all = Math.min(blocks, MOST_COUNTS)) =>
      Math.round(((i + 1) * blocks) / all),
    ),
  );
  const ways = facts.flatMap((early) =>
    facts.flatMap((late) => {
      if (late.kept < early.kept) return [];
      const some = early === late ? [blocks] : [...counts].filter((count) => count < blocks);
      return some.flatMap((count) => [true, false].map((tight) => ({ early, late, count, tight })));
    }),
  );
  const ranked = ways.map(({ early, late, count, tight }) => {
    const rest = blocks - count;
    const live = count * early.kept + rest * late.kept + Math.max(early.workingSet, rest > 0 ? late.workingSet : 0);
    const isKept = late.flops === 0 && late.moved === 0 && count < blocks;
    const bytes = live * (tight ? 1 : isKept ? LOOSE.kept : LOOSE.other);
    const room = Math.min(modelBytes, budget - bytes);
    const mixed = (of: keyof Work) => count * early[of] + rest * late[of];
    const work = {
      flops: mixed('flops'),
      dispatches: mixed('dispatches'),
      moved: mixed('moved') + (MOVED.once + rounds * MOVED.eachRound) * (modelBytes - room),
    };
    const seconds = room > 0 ? secondsOf(work, tight ? TIGHT * flops : 0, rates) : Number.POSITIVE_INFINITY;
    const each = modes.map((_, i) => (i < count ? early.mode : late.mode));
    return { modes: each, tight, seconds, bytes };
  });
  return ranked.sort((a, b) => (a.seconds === b.seconds ? a.bytes - b.bytes : a.seconds - b.seconds));
}

const known = new WeakMap<object, { facts: Facts[]; modelBytes: number; flops: number }>();

/** Of each mode of the menu, measured on the programs that have it in all blocks. */
function factsOf<P extends Passes>(choice: ActivationChoice<P>, map: ChunkMap) {
  const before = known.get(choice.menu);
  if (before) return before;
  const { modes, menu } = choice;
  const measured = menu.map((mode) => {
    const workload = choice.with(modes.map(() => mode));
    const work = workOfAll(choice, workload, map);
    const kept = choice.keptBytes(mode) / modes.length;
    const workingSet = aliveIn(workload) - modes.length * kept;
    return { mode, kept, workingSet, work };
  });
  const base = measured[0];
  assert(base, 'a menu has modes');
  const facts = measured.map(({ mode, kept, workingSet, work }) => {
    // Beside what there is without it, a block.
    const more = (of: keyof Work) => (work[of] - base.work[of]) / modes.length;
    return { mode, kept, workingSet, flops: more('flops'), dispatches: more('dispatches'), moved: more('moved') };
  });
  const found = { facts, modelBytes: map.count * map.chunkBytes, flops: base.work.flops };
  known.set(choice.menu, found);
  return found;
}
