// `WaySearch`: the search for the way to treat activations that takes the least time, among those of one order of micro-batches.
// The most promising by estimate (estimates.ts) are fitted, planned and priced in seconds, the best of them in chunks of fewer
// pieces, too; then what is next to the best, and to those that are about as good, in modes, in chunks, in the head's rows.
//
// What cannot be better is not priced to the end: see `most` of `FindWay.price`.

import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { at } from '../../util/at.ts';
import type { StagingSize } from './candidate.ts';
import {
  type Estimated,
  Estimates,
  type EstimateWithin,
  leastSecondsOf,
  type Mixture,
  modesOf,
  workOf,
} from './estimates.ts';
import type { Passes } from './pass.ts';
import type { ActivationChoice, Workload } from './workload.ts';

/** Pairs of modes whose best mixture is fitted and planned in full, and operations of their passes in all: of a large model, a plan takes tens of milliseconds. */
export const FINALISTS = { least: 2, most: 12, operations: 1800 } as const;
const MOST_TRIED = 16;
/** What is tried next to the best of them: of small passes, which are planned at once, many times as much as of large ones. */
const REFINED = 1 / 18;
const MOST_REFINED = 96;
/** What takes so many times as long as the best may lead to what is better than that; of large passes a plan of it takes too long. */
const NEAR = { small: 1.45, large: 1 } as const;
/** So many of these are tried in other chunks. */
const MOST_LEADERS = 6;
/** Numbers of blocks that are tried in each mode. */
const MOST_COUNTS = 6;
/** What takes so many times what all arithmetic takes if nothing is made again or moved: little is left to be won, and it is taken. */
const ENOUGH = 1.005;
/** What is estimated to take so many times as long as the first is not worth a plan. */
const HOPELESS = 1.6;
/**
 * The share of a step that dispatches must take for chunks to be chosen by them: for each mode in all blocks to be tried, whatever it
 * is estimated to take.
 */
export const MANY_DISPATCHES = 0.1;
/** The share of a step that the dispatches of small chunks must take for larger ones to be tried. */
const WORTH_LARGER_CHUNKS = 0.01;
/** The share of a step that chunks in fewer pieces must save of its work for them to be tried, where dispatches are less of it. */
const WORTH_FEWER_PIECES = 0.01;
/** The share of a step that must be waited for in it for more staging to be tried. */
const WORTH_STAGING = 0.01;
/** Chunks so many times as small as the best's are far below it. */
const FAR_BELOW = 4;
/** How often its staging is changed. */
const MOST_STAGED = 4;

/** What one of the ways comes to. */
export interface Fitted<P extends Passes> {
  readonly workload: Workload<P>;
  readonly passes: P;
  readonly map: ChunkMap;
  readonly residents: number;
  readonly slots: number;
  readonly staging: StagingSize;
  /** What a step was reckoned to take in each order of micro-batches that was tried. */
  readonly orderSeconds?: Readonly<Partial<Record<AccumulateOrder, number>>>;
}

/** What a fit is to be like. */
export interface FitWanted {
  /** Bytes; chunks have more, or fewer, than these. */
  readonly moreThan?: number;
  readonly lessThan?: number;
  /** Its chunks are those of this map. @default such as suit the budget */
  readonly map?: ChunkMap;
  /** Staging, if there is room for it. @default as slots are */
  readonly staging?: StagingSize | undefined;
}

/** How ways are fitted and priced. */
export interface FindWay<P extends Passes, F extends Fitted<P>> extends EstimateWithin {
  /** Chunks where everything is on the GPU. */
  wholeMap(): ChunkMap;
  /** Fits one of the ways; undefined where it does not fit. */
  fit(workload: Workload<P>, wanted?: FitWanted): F | undefined;
  /** Chunks in which fewer tensors are cut, those with the fewest pieces first; none where chunks are not to be chosen. */
  mapsInFewerPieces(than: ChunkMap): readonly ChunkMap[];
  /** What fits if nothing else does. */
  least(): F | undefined;
  /** With other staging, if there is room for it. */
  withStaging(found: F, staging: StagingSize): F | undefined;
  /** Of the pass that activations are chosen for. `most`: what takes as many seconds is not looked at to the end. @default no limit */
  price(found: F, choice: ActivationChoice<P>, most?: number): Price;
  /** Seconds: the first of the most promising ways that takes less is taken, and others are not looked for. @default the best is */
  readonly lessThan?: number | undefined;
}

/** What a step takes. */
export interface Price {
  /** Infinite where it is no less than was asked for. */
  readonly seconds: number;
  /** Of it, what dispatches take whatever they compute. */
  readonly launchSeconds: number;
  /** Of it, what is neither computed nor copied where these take turns, and what is not computed where they do not. */
  readonly waited: number;
  /** Bytes of chunks that its plan moves. */
  readonly traffic: number;
}

export interface Priced<F> extends Price {
  readonly found: F;
  /** Of another fit of the same way. */
  readonly priceOf: (found: F, most?: number) => Price;
  /** Everything is kept on the GPU, all the time. */
  readonly isResident?: boolean;
}

/** With less staging more chunks stay, with more less is waited for, where something is. */
const stagingsNextTo = ({ down, up }: StagingSize, { waited, seconds }: Price): StagingSize[] => [
  ...(waited < WORTH_STAGING * seconds
    ? []
    : [
        { down: 2 * down, up: 2 * up },
        { down, up: up + 1 },
      ]),
  { down: Math.ceil(down / 2), up: Math.ceil(up / 2) },
];

/** A fit with other staging, where that costs less time. */
export function staged<P extends Passes, F extends Fitted<P>>(
  find: FindWay<P, F>,
  best: Priced<F> | undefined,
): Priced<F> | undefined {
  if (!best || best.isResident || best.traffic === 0) return best;
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

/** One of the ways. */
interface Way {
  readonly modes: readonly ActivationMode[];
  /** Whether the head is cut otherwise than modes say. @default false */
  readonly hasOtherHead?: boolean;
  /** That it is one of, where it is. */
  readonly mixture?: Mixture | undefined;
}

interface Considered<F> extends Priced<F>, Way {}

/** Among the ways of one order. */
export class WaySearch<P extends Passes, F extends Fitted<P>> {
  readonly #workload: Workload<P>;
  readonly #choice: ActivationChoice<P>;
  readonly #find: FindWay<P, F>;
  readonly #blocks: number;
  /** Bytes of the chunks of those that were tried; undefined where one did not fit. */
  readonly #tried = new Map<string, number | undefined>();
  /** Of those, what takes about as long as the best did then. */
  readonly #contenders: Considered<F>[] = [];
  /** Whether a step may take less in chunks of fewer pieces. */
  #paysFewerPieces = false;
  /** Seconds that are enough. */
  #enough = 0;
  /** Whether a plan takes so little time that all that is worth one has it. */
  #isSmall = false;
  #best: Considered<F> | undefined;

  constructor(workload: Workload<P>, choice: ActivationChoice<P>, find: FindWay<P, F>) {
    this.#workload = workload;
    this.#choice = choice;
    this.#find = find;
    this.#blocks = choice.modes.length;
  }

  /** `isFirst`: no other order was looked at. */
  run(isFirst: boolean): Priced<F> | undefined {
    const { modes, menu } = this.#choice;
    const kept = at(menu, 0);
    const all = isFirst ? this.#consider({ modes: modes.map(() => kept) }) : undefined;
    if (all !== undefined && this.#best && isResident(this.#best.found) && !this.#isFasterInFewerPieces(this.#best)) {
      return { ...this.#best, isResident: true };
    }
    const estimates = new Estimates(this.#workload, this.#choice, this.#find.wholeMap(), this.#find);
    this.#enough = ENOUGH * Math.min(...estimates.uniform().map((mixture) => estimates.of(mixture).least));
    const { least, operations } = FINALISTS;
    const most = Math.max(least, Math.round(operations / estimates.dispatches));
    this.#isSmall = most >= FINALISTS.most;
    const isFirstWanted = this.#find.lessThan !== undefined;
    if (this.#best?.traffic !== 0)
      this.#finalists(estimates, isFirstWanted ? (this.#isSmall ? least : 1) : Math.min(FINALISTS.most, most));
    if (isFirstWanted) return this.#best;
    this.#leaveRoom(estimates);
    this.#inFewerPieces();
    this.#refine(estimates, Math.min(MOST_REFINED, Math.round(REFINED * most ** 3)));
    const best = this.#best;
    return best && { ...best, isResident: isResident(best.found) && best.modes.every((mode) => mode === kept) };
  }

  /** Whether the work of a step would take less in chunks of fewer pieces. */
  #isFasterInFewerPieces({ found, seconds }: Considered<F>): boolean {
    const { rates } = this.#find;
    const least = (passes: P) => leastSecondsOf(workOf(this.#choice.mainOf(passes), rates), 0, rates);
    // Each chunk's update is a dispatch, too.
    const cuts = ({ pieceCount, count }: ChunkMap) => pieceCount + count;
    const [map] = this.#find.mapsInFewerPieces(found.map).toSorted((a, b) => cuts(a) - cuts(b));
    return map !== undefined && least(found.passes) - least(found.workload.passes(map)) > WORTH_FEWER_PIECES * seconds;
  }

  /** The best mixture of each pair of modes, the most promising first. */
  #finalists(estimates: Estimates<P>, most: number): void {
    const spaced = Math.min(this.#blocks, MOST_COUNTS);
    const counts = Array.from({ length: spaced }, (_, i) => Math.round(((i + 1) * this.#blocks) / spaced));
    const ranked = inOrder(estimates.mixtures([...new Set(counts)]).map((mixture) => estimates.of(mixture)));
    const pairs = new Set<string>();
    let tried = 0;
    for (const { mixture, seconds, least } of ranked) {
      if (
        this.#isEnough ||
        pairs.size === most ||
        tried === MOST_TRIED ||
        seconds > HOPELESS * (ranked[0]?.seconds ?? 0)
      )
        return;
      const pair = `${mixture.early.mode} ${mixture.late.mode}`;
      if (pairs.has(pair) || least >= this.#mostSeconds) continue;
      tried++;
      if (this.#consider(this.#wayOf(mixture)) !== undefined) pairs.add(pair);
    }
  }

  /** One mode in all blocks, where dispatches take much of the step: what leaves room to larger chunks, which no estimate goes by. */
  #leaveRoom(estimates: Estimates<P>): void {
    const best = this.#best;
    if (!best || best.launchSeconds < MANY_DISPATCHES * best.seconds) return;
    for (const mixture of estimates.uniform()) {
      if (estimates.of(mixture).least >= this.#mostSeconds) continue;
      const way = this.#wayOf(mixture);
      let moreThan = this.#consider(way);
      while (moreThan !== undefined) moreThan = this.#consider(way, { moreThan });
      this.#find.mapsInFewerPieces(best.found.map).some((map) => this.#consider(way, { map }) !== undefined);
    }
  }

  /** The best so far, and others that are about as good, each of other modes, in chunks of fewer pieces. */
  #inFewerPieces(): void {
    const best = this.#best;
    this.#paysFewerPieces = best !== undefined && (launchesMatter(best) || this.#isFasterInFewerPieces(best));
    if (!best || !this.#paysFewerPieces) return;
    const leaders = new Map<string, Considered<F>>();
    for (const one of this.#contenders.toSorted((a, b) => a.seconds - b.seconds)) {
      if (leaders.size === MOST_LEADERS || one.seconds > this.#near * best.seconds) break;
      const modes = one.modes.join();
      if (!leaders.has(modes)) leaders.set(modes, one);
    }
    for (const one of leaders.values()) {
      for (const map of this.#find.mapsInFewerPieces(one.found.map)) this.#consider(one, { map });
    }
  }

  /** What differs in one thing from the best: from a better one as soon as it is found, from the next best where none is. */
  #refine(estimates: Estimates<P>, most: number): void {
    const neighbours = new Map<Considered<F>, Iterator<[Way, FitWanted], void>>();
    const ended = new Set<Considered<F>>();
    const nextBest = () =>
      this.#contenders.reduce<Considered<F> | undefined>(
        (least, one) => (ended.has(one) || (least && least.seconds <= one.seconds) ? least : one),
        undefined,
      );
    for (let tries = most; tries > 0; ) {
      const one = nextBest();
      if (!one || one.seconds > this.#near * this.#mostSeconds || this.#isEnough) return;
      const others = neighbours.get(one) ?? this.#nextTo(one, estimates);
      neighbours.set(one, others);
      const { value } = others.next();
      if (!value) ended.add(one);
      else if (!this.#tried.has(keyOf(...value)) && this.#consider(...value) !== undefined) tries--;
    }
  }

  /** What differs from one of the ways in one thing, or in its chunks too, the most promising first. */
  *#nextTo(best: Considered<F>, estimates: Estimates<P>): Generator<[Way, FitWanted], void> {
    const { found, mixture, traffic } = best;
    const { chunkBytes } = found.map;
    const moves = traffic > 0;
    const launches = launchesMatter(best);
    const staging = moves ? found.staging : undefined;
    if (moves || launches) yield [best, { moreThan: chunkBytes, staging }];
    if (this.#paysFewerPieces) for (const map of this.#find.mapsInFewerPieces(found.map)) yield [best, { map }];
    if (moves) yield [best, { lessThan: chunkBytes, staging }];
    yield [{ ...best, hasOtherHead: !best.hasOtherHead }, { staging }];
    if (moves) {
      for (const staging of stagingsNextTo(found.staging, best)) yield [best, { map: found.map, staging }];
    }
    if (!mixture) return;
    // In chunks that are much smaller, of which a large model has thousands, a plan takes seconds.
    const notFarBelow = !this.#isSmall && !this.#workload.inBackward && { moreThan: chunkBytes / FAR_BELOW };
    const near = estimates.nextTo(mixture, Math.max(1, Math.round(this.#blocks / MOST_COUNTS / 2)));
    const most = HOPELESS * estimates.of(mixture).seconds;
    const ranked = inOrder(near.map((other) => estimates.of(other))).filter(({ seconds }) => seconds <= most);
    for (const { mixture, least } of ranked) {
      if (least >= this.#mostSeconds) continue;
      const way = this.#wayOf(mixture);
      yield [way, { staging, ...notFarBelow }];
      if (!launches) continue;
      yield [way, { map: found.map, staging }];
      yield [way, { moreThan: chunkBytes, staging }];
    }
  }

  /** Whether there is hardly a better one, or none is looked for; chunks of fewer pieces may have fewer dispatches. */
  get #isEnough(): boolean {
    if (this.#best === undefined || this.#find.lessThan !== undefined) return this.#best !== undefined;
    return this.#best.seconds <= this.#enough && !launchesMatter(this.#best);
  }

  get #near(): number {
    return this.#isSmall ? NEAR.small : NEAR.large;
  }

  get #mostSeconds(): number {
    return this.#best?.seconds ?? this.#find.lessThan ?? Number.POSITIVE_INFINITY;
  }

  #wayOf = (mixture: Mixture): Way => ({ modes: modesOf(mixture, this.#blocks), mixture });

  /** Bytes of its chunks; undefined where it does not fit. */
  #consider(way: Way, wanted?: FitWanted): number | undefined {
    const key = keyOf(way, wanted);
    if (this.#tried.has(key)) return this.#tried.get(key);
    const found = this.#priced(way, wanted);
    this.#tried.set(key, found?.map.chunkBytes);
    return found?.map.chunkBytes;
  }

  #priced({ modes, hasOtherHead = false, mixture }: Way, wanted?: FitWanted): F | undefined {
    const plain = this.#choice.with(modes);
    const workload = hasOtherHead ? plain.activations?.withOtherHead?.() : plain;
    const found = workload && this.#find.fit(workload, wanted);
    if (!found) return undefined;
    const priceOf = (other: F, most?: number) => this.#find.price(other, this.#choice, most);
    const [fit, price] = this.#stagedAtOnce(found, priceOf, wanted);
    const considered = { ...price, priceOf, found: fit, modes, hasOtherHead, mixture };
    if (price.seconds < this.#near * this.#mostSeconds) this.#contenders.push(considered);
    if (price.seconds < this.#mostSeconds) this.#best = considered;
    return found;
  }

  /** Of small passes also with a second chunk of staging up, unless staging is given: what moves there is little but waited for. */
  #stagedAtOnce(found: F, priceOf: Priced<F>['priceOf'], wanted: FitWanted = {}): [F, Price] {
    const most = this.#near * this.#mostSeconds;
    const price = priceOf(found, most);
    const { down, up } = found.staging;
    if (!this.#isSmall || up > 1 || wanted.staging || isResident(found) || price.traffic === 0) return [found, price];
    const other = this.#find.withStaging(found, { down, up: up + 1 });
    const otherPrice = other && priceOf(other, Math.min(most, price.seconds));
    return other && otherPrice && otherPrice.seconds < price.seconds ? [other, otherPrice] : [found, price];
  }
}

const isResident = ({ slots, residents }: Pick<Fitted<Passes>, 'slots' | 'residents'>): boolean => slots === residents;

/** Whether so much of a step is dispatches that fewer of them are worth a plan. */
const launchesMatter = ({ launchSeconds, seconds }: Price): boolean =>
  launchSeconds >= 2 * WORTH_LARGER_CHUNKS * seconds;

const keyOf = ({ modes, hasOtherHead = false }: Way, { moreThan, lessThan, map, staging }: FitWanted = {}) =>
  [modes, hasOtherHead, moreThan, lessThan, map?.chunkBytes, map?.count, staging?.down, staging?.up].join(' ');

/** The most promising first. */
const inOrder = (some: readonly Estimated[]): Estimated[] =>
  some
    .filter(({ seconds }) => Number.isFinite(seconds))
    .sort((a, b) => (a.seconds === b.seconds ? a.bytes - b.bytes : a.seconds - b.seconds));
