// `WaySearch`: the search for the way to treat activations that takes the least time, among those of one order of micro-batches.
// The most promising by estimate (estimates.ts) is fitted, planned and priced in seconds; from there one thing is changed at a time
// for as long as that takes less time: its staging; its modes, by what they take and what the slots are worth that they leave or need;
// its chunks; the rows of its head.
//
// What cannot be better is not priced to the end: see `most` of `FindWay.price`.

import type { ActivationMode } from '../../graph/activations.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { at } from '../../util/at.ts';
import {
  AT_ONCE,
  type Estimated,
  type EstimatedWay,
  Estimates,
  leastSecondsOf,
  type Mixture,
  modesOf,
  workOf,
} from './estimates.ts';
import type { FindWay, Fitted, FitWanted, Price, Priced } from './find-way.ts';
import type { Passes } from './pass.ts';
import { sameBytes, staged, stagingsNextTo } from './staging-search.ts';
import type { ActivationChoice, Workload } from './workload.ts';

/** Dispatches of a pass of which a plan takes so little time that more is tried. */
const SMALL = 150;
/** What is fitted and priced to begin with, where it is small and where it is not. */
const BEGINNINGS = { small: 6, large: 1 } as const;
/** So many of what promises to be better may not be, one after the other. */
const MOST_WORSE = { small: 5, large: 2 } as const;
/** Sparing ways that are tried, and what they must promise of a step's time. */
const MOST_SPARING = { small: 5, large: 2 } as const;
const WORTH_SPARING = { small: 0, large: 0.02 } as const;
/** So large a share of the pieces that any chunks spare is about as many. */
const ABOUT_AS_FEW = 0.8;
/** What takes so many times as long as the best may lead to what is better than that, and how many such are followed. */
const NEAR = { small: 1.45, large: 1 } as const;
const MOST_LEADERS = { small: 8, large: 0 } as const;
/** What a change must promise of a step's time, and what all of a round must save for another one. */
const WORTH_A_CHANGE = 0.001;
const WORTH_A_ROUND = 0.005;
/** What takes so many times what all arithmetic takes if nothing is made again or moved: little is left to be won, and it is taken. */
const ENOUGH = 1.005;
/** Slots that other modes leave count for so many of those that there are: of more of them each is worth less. */
const MOST_SLOTS = 0.5;
/** The share of a step that dispatches must take for other modes to be tried that leave room to larger chunks. */
const MANY_DISPATCHES = 0.1;
/** The share of a step that dispatches must take for larger chunks, of which there are fewer, to be tried. */
const WORTH_LARGER_CHUNKS = 0.02;
/** The share of a step that chunks in fewer pieces must save of its work for them to be tried, where dispatches are less of it. */
const WORTH_FEWER_PIECES = 0.01;
/** What moves nothing is looked for so often between what moves something and what moves nothing. */
const MOST_SETTLED = 3;
/** One of the ways. */
interface Way<P extends Passes> {
  /** What tells it from the others. */
  readonly name: string;
  workload(): Workload<P> | undefined;
  /** The mixture of modes that it is; absent of a way that is none. */
  readonly mixture?: Mixture;
}

interface Considered<P extends Passes, F> extends Priced<F> {
  readonly way: Way<P>;
}

/** What a search goes by beside what it is for. */
interface SearchGiven<F> {
  /** Seconds; what takes as many is of no use. @default no limit */
  readonly most?: number;
  /** A fit that was found otherwise. @default none */
  readonly from?: F | undefined;
}

/** Among the ways of one order. */
export class WaySearch<P extends Passes, F extends Fitted<P>> {
  readonly #workload: Workload<P>;
  readonly #choice: ActivationChoice<P>;
  readonly #find: FindWay<P, F>;
  readonly #most: number;
  readonly #from: F | undefined;
  readonly #tried = new Set<string>();
  /** What takes about as long as the best did then. */
  readonly #contenders: Considered<P, F>[] = [];
  #size: 'small' | 'large' = 'large';
  #best: Considered<P, F> | undefined;

  constructor(workload: Workload<P>, choice: ActivationChoice<P>, find: FindWay<P, F>, given: SearchGiven<F> = {}) {
    this.#workload = workload;
    this.#choice = choice;
    this.#find = find;
    this.#most = given.most ?? Number.POSITIVE_INFINITY;
    this.#from = given.from;
  }

  /** What fits, each better than the one before. `isFirst`: no other order was looked at. */
  *better(isFirst: boolean): Generator<Priced<F>, void> {
    if (isFirst) yield* this.#consider(this.#wayIn(this.#choice.modes.map(() => at(this.#choice.menu, 0))));
    const best = this.#best;
    if (best && isAllThere(best.found) && !this.#isFasterInFewerPieces(best)) return;
    const estimates = new Estimates(this.#workload, this.#choice, this.#find.wholeMap(), this.#find);
    this.#size = estimates.dispatches < SMALL ? 'small' : 'large';
    // It was considered before there were estimates, by which it is exchanged.
    const [keeping] = estimates.uniform();
    if (best && keeping) this.#best = { ...best, way: this.#wayOf(keeping) };
    if (best?.traffic !== 0) yield* this.#begin(estimates);
    yield* this.#descend(estimates);
    if (this.#from) yield* this.#continue(this.#from, estimates);
    if (this.#best?.traffic === 0) yield* this.#doLess(this.#best, estimates);
    if (this.#best?.traffic === 0) return;
    const before = this.#best;
    if (isFirst) yield* this.#spare(estimates);
    if (this.#best !== before) yield* this.#descend(estimates);
    const around = this.#best;
    for (const leader of this.#leaders()) {
      yield* this.#restage(leader);
      yield* this.#rechunk(this.#bestStaged(leader), estimates);
    }
    if (this.#best !== around) yield* this.#descend(estimates);
  }

  /** What is about as good as the best, each of its own modes or chunks. */
  #leaders(): Considered<P, F>[] {
    const leaders = new Map<string, Considered<P, F>>();
    for (const one of this.#contenders.toSorted((a, b) => a.seconds - b.seconds)) {
      const key = `${one.way.name} ${one.found.map.chunkBytes}`;
      if (!leaders.has(key)) leaders.set(key, one);
    }
    // Around the first everything was tried.
    return [...leaders.values()].slice(1, 1 + MOST_LEADERS[this.#size]);
  }

  /** One in the same way and chunks, with the best staging that was tried. */
  #bestStaged(one: Considered<P, F>): Considered<P, F> {
    const alike = this.#contenders.filter(({ way, found }) => way.name === one.way.name && found.map === one.found.map);
    return alike.reduce((best, other) => (other.seconds < best.seconds ? other : best), one);
  }

  /** What was found otherwise, where it is of this order and better, and from there. */
  *#continue({ workload, map, staging }: F, estimates: Estimates<P>): Generator<Priced<F>, void> {
    const { activations, order } = workload;
    if (!activations || order?.order !== this.#workload.order?.order) return;
    const { name } = this.#wayIn(activations.modes);
    const mixture = estimates.inOrder().find((one) => this.#wayOf(one.mixture).name === name)?.mixture;
    const plain = mixture && this.#wayOf(mixture);
    const known = plain && [plain, withOtherHead(plain)].find((way) => way.workload() === workload);
    const before = this.#best;
    yield* this.#consider(known ?? { name: 'as found', workload: () => workload }, { map, staging });
    if (this.#best !== before) yield* this.#descend(estimates);
  }

  /** The first that fit of the most promising, each of other modes. */
  *#begin(estimates: Estimates<P>, wanted?: FitWanted): Generator<Priced<F>, void> {
    let left: number = BEGINNINGS[this.#size];
    const begun = new Set<string>();
    for (const { mixture, least } of estimates.inOrder()) {
      const pair = `${mixture.early.mode} ${mixture.late.mode}`;
      if (begun.has(pair)) continue;
      begun.add(pair);
      const fits = least >= this.#mostSeconds || (yield* this.#consider(this.#wayOf(mixture), wanted));
      if (fits && --left === 0) return;
    }
  }

  /** One thing after the other is changed until nothing is better. */
  *#descend(estimates: Estimates<P>): Generator<Priced<F>, void> {
    const enough = ENOUGH * Math.min(...estimates.uniform().map((mixture) => estimates.of(mixture).least));
    for (let best = this.#best; best; ) {
      const isCut = launchesMatter(best, WORTH_LARGER_CHUNKS) || this.#isFasterInFewerPieces(best);
      if (best.seconds <= enough && !isCut) return;
      yield* this.#restage(best);
      yield* this.#exchange(estimates);
      yield* this.#rechunk(this.#best ?? best, estimates);
      if (this.#mostSeconds > (1 - WORTH_A_ROUND) * best.seconds) return;
      best = this.#best;
    }
  }

  /** With less staging more chunks stay, with more less is waited for. */
  *#restage(one: Considered<P, F>): Generator<Priced<F>, void> {
    const { way, found, traffic, isFollowed } = one;
    if (traffic === 0 || !isFollowed) return;
    for (const staging of stagingsNextTo(found.staging, one)) {
      const before = this.#best;
      yield* this.#consider(way, { map: found.map, staging });
      if (this.#best && this.#best !== before) return yield* this.#restage(this.#best);
    }
  }

  /**
   * Other modes, for as long as they promise to take less time and do: by what they take, and by the slots that they leave or need. What is
   * not as good as that has others tried that are nearer.
   */
  *#exchange(estimates: Estimates<P>): Generator<Priced<F>, void> {
    let reach = Number.POSITIVE_INFINITY;
    for (let worse = 0; worse < MOST_WORSE[this.#size]; ) {
      const best = this.#best;
      const mixture = best?.way.mixture;
      if (!best || !mixture || best.traffic === 0) return;
      const { found, seconds } = best;
      const { map, staging, slots } = found;
      const own = estimates.of(mixture);
      const slot = this.#find.slotSeconds(found, this.#choice, best);
      const leaves = ({ bytes }: Estimated) => (own.bytes - bytes) / map.chunkBytes;
      const more = (one: Estimated) => {
        const nearby = one.still - own.still - slot * Math.min(leaves(one), MOST_SLOTS * slots);
        // Next to it slots are worth what one is, and in all what they are estimated to be.
        return worse > 0 ? nearby : (nearby + one.seconds - own.seconds) / 2;
      };
      let [next, least]: [Estimated | undefined, number] = [undefined, -WORTH_A_CHANGE * seconds];
      for (const one of estimates.inOrder()) {
        if (Math.abs(leaves(one)) > reach) continue;
        const other = more(one);
        if (other >= least || this.#tried.has(keyOf(this.#wayOf(one.mixture), { map, staging }))) continue;
        [next, least] = [one, other];
      }
      if (!next) return;
      const way = this.#wayOf(next.mixture);
      const fits = yield* this.#consider(way, { map, staging });
      if (!fits) yield* this.#consider(way);
      if (this.#best !== best) continue;
      worse++;
      reach = Math.abs(leaves(next)) / 2;
    }
  }

  /** Other chunks, where that promises to take less time; of small passes all, and another head. */
  *#rechunk(one: Considered<P, F>, estimates: Estimates<P>): Generator<Priced<F>, void> {
    const { found, way, traffic, seconds } = one;
    const { chunkBytes } = found.map;
    const moves = traffic > 0;
    const staging = moves ? found.staging : undefined;
    const isSmall = this.#size === 'small';
    const slot = moves && !isSmall ? this.#find.slotSeconds(found, this.#choice, one) : 0;
    const waits = estimates.secondsWaited(traffic, chunkBytes);
    const most = -WORTH_A_CHANGE * seconds;
    // Of twice the size half as many are waited for, and of those that are there at once each takes twice the room.
    const larger = AT_ONCE * slot - waits / 2;
    if (launchesMatter(one, WORTH_LARGER_CHUNKS) || (moves && (isSmall || larger < most)))
      yield* this.#consider(way, { moreThan: chunkBytes, staging });
    if (launchesMatter(one, MANY_DISPATCHES) || this.#isFasterInFewerPieces(one)) {
      const inFewer = this.#find.mapsInFewerPieces(found.map);
      const maps = isSmall ? inFewer : nearestInSize(inFewer, found.map);
      for (const map of maps) {
        const fits = yield* this.#consider(way, { map, staging });
        if (isSmall && staging)
          yield* this.#consider(way, { map, staging: sameBytes(staging, chunkBytes / map.chunkBytes) });
        if (isSmall || !fits) yield* this.#consider(way, { map });
      }
    }
    const smaller = waits - (AT_ONCE / 2) * slot;
    if (moves && (isSmall || smaller < most)) yield* this.#consider(way, { lessThan: chunkBytes, staging });
    if (isSmall) yield* this.#consider(withOtherHead(way), { staging });
    if (launchesMatter(one, MANY_DISPATCHES)) yield* this.#begin(estimates, { moreThan: chunkBytes });
  }

  /**
   * What does less again than one that moves no chunk: the ways that were about as good, in its chunks, and what was considered first,
   * which keeps everything where no order was looked at before, with the staging and chunks that suit that.
   */
  *#doLess({ way, found }: Considered<P, F>, estimates: Estimates<P>): Generator<Priced<F>, void> {
    const [first, ...others] = this.#contenders;
    if (!first || first.way.name === way.name) return;
    const nearest = others.toSorted((a, b) => a.seconds - b.seconds);
    for (const other of [first, ...nearest]) yield* this.#consider(other.way, { map: found.map });
    const moving = [...nearest, first].find(({ traffic }) => traffic > 0);
    if (moving) yield* this.#settle(moving, estimates);
    yield* this.#rechunk({ ...first, ...staged(this.#find, first) }, estimates);
  }

  /**
   * Between one that moves chunks and the best, which moves none: each byte for which there is no room goes down and up, and modes that
   * leave as many may do with what there is.
   */
  *#settle({ way, traffic }: Considered<P, F>, estimates: Estimates<P>): Generator<Priced<F>, void> {
    if (!way.mixture) return;
    const { bytes } = estimates.of(way.mixture);
    let lack = traffic / 2;
    for (let tries = 0; tries < MOST_SETTLED; tries++) {
      const best = this.#best;
      if (!best?.way.mixture) return;
      const { still } = estimates.of(best.way.mixture);
      const most = (1 - WORTH_A_CHANGE) * still;
      const [next] = estimates
        .inOrder()
        .filter((one) => one.bytes <= bytes - lack && one.still < most)
        .toSorted((a, b) => a.still - b.still || a.bytes - b.bytes);
      if (!next) return;
      const { map, staging } = best.found;
      yield* this.#consider(this.#wayOf(next.mixture), { map, staging });
      if (this.#best !== best && this.#best?.traffic === 0) return;
      lack = Math.max(lack, bytes - next.bytes) * 1.25;
    }
  }

  /** Sparing ways, the most promising first; those are estimated that may take less than the best. */
  *#spare(estimates: Estimates<P>): Generator<Priced<F>, void> {
    const most = (1 - WORTH_SPARING[this.#size]) * this.#mostSeconds;
    if (estimates.leastSparing > most) return;
    const ways: EstimatedWay<P>[] = [];
    for (const inDegrees of this.#choice.sparing ?? []) {
      // From the one that does the least; those behind it do more, in half its memory at best.
      for (const sparing of [...inDegrees()].toReversed()) {
        ways.push(estimates.ofAll(sparing));
        if (estimates.inHalf(sparing) > most) break;
      }
    }
    let left: number = MOST_SPARING[this.#best ? this.#size : 'small'];
    for (const [i, { workload, seconds }] of ways.toSorted((a, b) => a.seconds - b.seconds).entries()) {
      if (left === 0 || seconds > Math.min(most, this.#mostSeconds)) return;
      const before: Considered<P, F> | undefined = this.#best;
      if (!(yield* this.#consider({ name: `sparing ${i}`, workload: () => workload }))) continue;
      left--;
      // Those behind it are held against what it takes with staging that suits it. Of small passes leaders have theirs later.
      if (this.#size === 'large' && this.#best && this.#best !== before) yield* this.#restage(this.#best);
    }
  }

  /** Whether the work of a step would take less in chunks of fewer pieces. */
  #isFasterInFewerPieces({ found, seconds }: Considered<P, F>): boolean {
    const { rates } = this.#find;
    const least = (passes: P) => leastSecondsOf(workOf(this.#choice.mainOf(passes), rates), 0, rates);
    // Each chunk's update is a dispatch, too.
    const cuts = ({ pieceCount, count }: ChunkMap) => pieceCount + count;
    const [map] = this.#find.mapsInFewerPieces(found.map).toSorted((a, b) => cuts(a) - cuts(b));
    return map !== undefined && least(found.passes) - least(found.workload.passes(map)) > WORTH_FEWER_PIECES * seconds;
  }

  get #mostSeconds(): number {
    return this.#best?.seconds ?? this.#most;
  }

  #wayIn = (modes: readonly ActivationMode[]): Way<P> => ({
    name: modes.join(),
    workload: () => this.#choice.with(modes),
  });

  #wayOf = (mixture: Mixture): Way<P> => ({ ...this.#wayIn(modesOf(mixture, this.#choice.modes.length)), mixture });

  /** Whether it fits, and was not tried before. */
  *#consider(way: Way<P>, wanted?: FitWanted): Generator<Priced<F>, boolean> {
    const key = keyOf(way, wanted);
    if (this.#tried.has(key)) return false;
    this.#tried.add(key);
    const workload = way.workload();
    const found = workload && this.#find.fit(workload, wanted);
    if (!found) return false;
    const priceOf = (other: F, most?: number) => this.#find.price(other, this.#choice, most);
    const price = priceOf(found, NEAR[this.#size] * this.#mostSeconds);
    const { modes = [] } = workload.activations ?? {};
    const isResident = isAllThere(found) && modes.every((mode) => mode === this.#choice.menu[0]);
    const considered = { ...price, priceOf, found, way, isResident };
    if (price.seconds < NEAR[this.#size] * this.#mostSeconds) this.#contenders.push(considered);
    if (price.seconds < this.#mostSeconds) {
      this.#best = considered;
      yield considered;
    }
    return true;
  }
}

const isAllThere = ({ slots, residents }: Pick<Fitted<Passes>, 'slots' | 'residents'>): boolean => slots === residents;

const withOtherHead = <P extends Passes>({ name, workload, mixture }: Way<P>): Way<P> => ({
  name: `${name} with another head`,
  workload: () => workload()?.activations?.withOtherHead?.(),
  ...(mixture && { mixture }),
});

/** Of chunks in fewer pieces than `than` that spare about as many as any do: the nearest to it in size, which suit the budget as it does. One, or none. */
function nearestInSize(maps: readonly ChunkMap[], than: ChunkMap): ChunkMap[] {
  const spared = ({ pieceCount }: ChunkMap) => than.pieceCount - pieceCount;
  const most = Math.max(0, ...maps.map(spared));
  const off = ({ chunkBytes }: ChunkMap) => Math.abs(Math.log(chunkBytes / than.chunkBytes));
  const few = maps.filter((map) => spared(map) >= ABOUT_AS_FEW * most);
  return few.toSorted((a, b) => off(a) - off(b)).slice(0, 1);
}

/** Whether so much of a step is dispatches that fewer of them are worth a plan. */
const launchesMatter = ({ launchSeconds, seconds }: Price, share: number): boolean => launchSeconds >= share * seconds;

const keyOf = <P extends Passes>({ name }: Way<P>, { moreThan, lessThan, map, staging }: FitWanted = {}): string =>
  [name, moreThan, lessThan, map?.chunkBytes, map?.count, staging?.down, staging?.up].join(' ');
