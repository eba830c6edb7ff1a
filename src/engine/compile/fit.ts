// The fit of a workload into a budget, worked out before anything is allocated: the layout of the chunks, the bytes of
// everything that is not chunks, and what is left for slots and staging. Exact: the executor allocates just this, so
// the predicted peak is the counted one. Pure: `holdfast plan` uses it with no GPU.
//
// Chunk sizes come from one fixed list, whatever the budget: a budget is accepted if one of them fits, so the
// smallest budget that works is a fact that a refusal can name.

import { type ChunkMap, trainedKindsOf } from '../../memory/layout/chunk-map.ts';
import { indicesTogether } from '../../memory/layout/kinds.ts';
import { chunkRange } from '../../memory/layout/layout.ts';
import type { RoomBelow } from '../../memory/tiers/shares.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { KnownPrices, priceOf, slotSeconds } from '../simulate/price.ts';
import {
  arenaBytes,
  candidate,
  type FitCandidate,
  leastPeak,
  leastStaging,
  measured,
  needBelow,
  passesOf,
  placeAll,
  type StagingSize,
} from './candidate.ts';
import {
  chunkSizes,
  LARGEST_CHUNK,
  largestChunk,
  leanMap,
  mapOf,
  mapsInFewerPieces,
  residentMap,
  wholeMap,
} from './chunk-sizes.ts';
import type { FindWay, FitWanted, Price } from './find-way.ts';
import type { Fit } from './fitted.ts';
import { type FitOptions, fitsBelow, knownLeast, lackBelow, leastWithin, limitsWith, withRoomBelow } from './least.ts';
import { fitOpen, trainingPass } from './open-recovery.ts';
import type { Passes } from './pass.ts';
import { isDurable, isOpen, type Recovery } from './recovery.ts';
import { SizedFits, withSlots } from './sized.ts';
import { cheapest, estimatedSeconds, firstWithin, leastWay, sparingWays } from './ways.ts';
import { type ActivationChoice, type AdapterLimits, updatesOnHost, type Workload } from './workload.ts';

/**
 * The best fit into `budget` bytes of GPU memory; without one, everything at once. Errors: HoldfastError that names the
 * smallest budget that works.
 */
export function fitMemory<P extends Passes>(
  workload: Workload<P>,
  adapter: AdapterLimits,
  budget: number | undefined,
  options: FitOptions = {},
): Fit<P> {
  if (budget === undefined) return wholeFit(workload, adapter);
  const limits = limitsWith(adapter, options);
  const fallback = () => leastWithin(workload, limits, options, budget);
  const known = knownLeast(workload, limits, options);
  const least = known ?? fallback();
  if (budget < least.bytes) {
    const lack = lackBelow(workload, limits, options, budget);
    if (lack) throw lack;
    throw new HoldfastError(
      `${formatBytes(budget)} of GPU memory are too little: ${least.bytes} bytes (${formatBytes(least.bytes)}) is the smallest ` +
        `budget that works, ${formatBytes(least.activations)} of it for activations; give that much, or use a smaller batch or context`,
    );
  }
  // The same, whatever is known.
  const leastOne = () => fallback().workload;
  return fitBy(workload, limits, options, (recovery) =>
    findWithin(workload, adapter, budget, { ...options, recovery }, leastOne),
  );
}

/** The best fit by the recovery that is asked for, or by the one that is best. `findWith`: how ways are fitted with one. */
function fitBy<P extends Passes>(
  workload: Workload<P>,
  limits: AdapterLimits,
  options: FitOptions,
  findWith: (recovery: Recovery) => FindWay<P, Fit<P>>,
): Fit<P> {
  const { recovery = 'auto' } = options;
  if (!isOpen(workload, recovery)) return cheapest(workload, findWith(recovery));
  const finds = { step: findWith('step'), checkpoint: findWith('checkpoint') };
  return fitOpen(wholeFit(workload, limits), limits.rates, {
    fitted: (one, from) => cheapest(workload, finds[one], from),
    isWithin: (seconds, one, from) => firstWithin(workload, finds[one], seconds, from) !== undefined,
    estimated: (one) => estimatedSeconds(workload, finds[one]),
    secondsOf: (fit, one) => {
      const { activations } = fit.workload;
      const price = activations ? finds[one].price(fit, activations) : priceOf(fit, trainingPass(fit), limits, options);
      return price.seconds;
    },
  });
}

/**
 * A fit into `budget` bytes of GPU memory whose step takes fewer seconds than these by the rates: the first that is found, so that this
 * takes a part of the time of `fitMemory`, whose fit takes no more. Undefined where none is found among the most promising.
 */
export function fitInTime<P extends Passes>(
  workload: Workload<P>,
  adapter: AdapterLimits,
  budget: number,
  seconds: number,
  options: FitOptions = {},
): Fit<P> | undefined {
  const { recovery = 'auto' } = options;
  for (const one of isOpen(workload, recovery) ? (['step', 'checkpoint'] as const) : [recovery]) {
    const find = findWithin(workload, adapter, budget, { ...options, recovery: one });
    const found = firstWithin(workload, find, seconds);
    if (found) return found;
  }
  return undefined;
}

/** What the fits of one search have in common. */
interface Within<P extends Passes> {
  readonly limits: AdapterLimits;
  /** The budget, and what was fitted into it so far. */
  readonly sized: SizedFits<P>;
  readonly durable: boolean;
  readonly below: RoomBelow | undefined;
}

/** How ways are fitted into a budget and priced. `least`: what fits if nothing else does. */
export function findWithin<P extends Passes>(
  workload: Workload<P>,
  adapter: AdapterLimits,
  budget: number,
  options: FitOptions,
  least?: () => Workload<P>,
): FindWay<P, Fit<P>> {
  const limits = limitsWith(adapter, options);
  const durable = isDurable(workload, options.recovery ?? 'auto');
  const within = { limits, sized: new SizedFits<P>(budget, limits.rates), durable, below: options.below };
  const fits = (tried: Workload<P>, wanted: FitWanted = {}) => {
    const { map, moreThan, staging } = wanted;
    if (map) {
      const found = candidateOn(tried, map, within);
      // Their padding has room below, too, or they are not taken.
      const hasRoom = options.below?.holdsChunks(needBelow(found)) ?? true;
      return hasRoom ? fitIn(within, found, staging) : undefined;
    }
    // Where gradients are used up as soon as they are complete, larger chunks of them would be held at once.
    if (moreThan !== undefined && tried.inBackward) return undefined;
    return fitOne(tried, within, wanted);
  };
  return {
    ...pricesWithin(within),
    wholeMap: () => wholeMapOf(workload, limits),
    persistentBytes: () => candidateOn(workload, wholeMapOf(workload, limits), within).nonModel.persistent,
    fit: fits,
    mapsInFewerPieces: (than) =>
      workload.inBackward || workload.isShared ? [] : mapsInFewerPieces(workload, limits, than),
    least: () => least && fits(least()),
  };
}

function pricesWithin<P extends Passes>({ limits, sized, durable, below }: Within<P>) {
  const prices = new KnownPrices();
  return {
    ...{ budget: sized.budget, durable, rates: limits.rates, below },
    price: (found: Fit<P>, { mainOf }: ActivationChoice<P>, most?: number) =>
      prices.of(found, (limit) => priceOf(found, mainOf(found.passes), limits, { most: limit, below }), most),
    slotSeconds: (found: Fit<P>, { mainOf }: ActivationChoice<P>, price: Price) =>
      slotSeconds(found, mainOf(found.passes), limits, price),
    withStaging: ({ workload, map, placements }: Fit<P>, staging: StagingSize) =>
      sized.of(measured(workload, map, placements, durable), staging),
  };
}

/** Workloads that differ in their activations alone have the same. */
const leanMaps = new WeakMap<object, Map<string, ChunkMap>>();

function wholeMapOf(workload: Workload, limits: AdapterLimits): ChunkMap {
  const { inBackward, order } = workload;
  if (!inBackward) return wholeMap(workload, limits);
  const known = leanMaps.get(inBackward) ?? new Map<string, ChunkMap>();
  leanMaps.set(inBackward, known);
  const key = `${limits.binding} ${limits.buffer} ${limits.leastChunk} ${limits.mostChunk} ${order?.order}`;
  const heldIn = (map: ChunkMap) => measured(workload, map, placeAll(workload, limits), false).held;
  const found = known.get(key) ?? leanMap(workload, limits, heldIn);
  known.set(key, found);
  return found;
}

/** Everything at once. */
function wholeFit<P extends Passes>(workload: Workload<P>, limits: AdapterLimits): Fit<P> {
  // What ranks or the host update moves all the same, and gradients that are used up on the way are held a chunk at a time.
  const staysWhole = !workload.inBackward && !workload.isShared && !updatesOnHost(workload);
  const map = staysWhole ? residentMap(workload, limits) : wholeMapOf(workload, limits);
  const found = measured(workload, map, placeAll(workload, limits), isDurable(workload, 'checkpoint'));
  const pieceBytes = staysWhole ? Math.min(map.chunkBytes, LARGEST_CHUNK) : map.chunkBytes;
  return withSlots(found, passesOf(found), found.residents, leastStaging(found), { rates: limits.rates, pieceBytes });
}

/** The best fit of one workload; undefined where it does not fit. */
function fitOne<P extends Passes>(
  workload: Workload<P>,
  within: Within<P>,
  { moreThan = 0, lessThan = Number.POSITIVE_INFINITY, staging }: FitWanted,
): Fit<P> | undefined {
  const { limits, sized, durable } = within;
  const { budget } = sized;
  const placements = placeAll(workload, limits);
  if (arenaBytes(placements) > budget) return undefined;
  const sizes = chunkSizes(workload, limits);
  const isWanted = (bytes: number) => {
    const { chunkBytes } = mapOf(workload, bytes);
    return chunkBytes > moreThan && chunkBytes < lessThan;
  };
  const candidates = moreThan > 0 || Number.isFinite(lessThan) ? sizes.filter(isWanted) : sizes;
  const withChunks = (bytes: number) => candidate(workload, placements, bytes, durable);
  const held = workload.parameters.length === 0 ? 0 : budget - withChunks(largestChunk(workload, limits)).other;
  // What goes together, where narrow kinds hold several chunks' worth, is as many times as much.
  const together = workload.training ? indicesTogether(trainedKindsOf(workload.parameters)) : 1;
  const { maxBytes: wanted } = chunkRange(workload.parameters, Math.max(0, held / together), limits.binding);
  // In chunks that are larger than where everything stays, more gradients are held at once.
  const lean = workload.inBackward && wholeMapOf(workload, limits).chunkBytes;
  const isLarge = (bytes: number) => Number(lean ? mapOf(workload, bytes).chunkBytes > lean : false);
  const off = (bytes: number) => Math.abs(Math.log(bytes / wanted));
  // Those nearest to what suits the budget first.
  const order = candidates.toSorted((a, b) => isLarge(a) - isLarge(b) || off(a) - off(b));
  const measure = (bytes: number) =>
    // One chunk in a slot and one of staging each way, of at least half that size: it may be too much by itself.
    arenaBytes(placements) + 3 * (bytes / 2) > budget ? undefined : withChunks(bytes);
  for (const one of withRoomBelow(workload, limits, order, measure, within)) {
    const found = fitIn(within, one, staging);
    if (found) return found;
  }
  return undefined;
}

/** A candidate as it fits into a budget; undefined where it does not, or not with that staging. */
const fitIn = <P extends Passes>(
  { sized, below }: Within<P>,
  found: FitCandidate<P>,
  staging: StagingSize | undefined,
): Fit<P> | undefined =>
  leastPeak(found) <= sized.budget && fitsBelow(found, below) ? sized.of(found, staging) : undefined;

const candidateOn = <P extends Passes>(
  workload: Workload<P>,
  map: ChunkMap,
  { limits, durable }: Pick<Within<P>, 'limits' | 'durable'>,
): FitCandidate<P> => measured(workload, map, placeAll(workload, limits), durable);

/** The smallest budget into which these chunks fit, in bytes: staging and everything else included. */
export const leastBudget = (found: Fit, limits: AdapterLimits, options: FitOptions = {}): number =>
  leastRefit(found, limits, options).bytes;

interface LeastRefit<P extends Passes> {
  readonly bytes: number;
  readonly candidate: FitCandidate<P>;
}

/** For a budget: what needs the least memory, or no more than it. @default the least of everything */
function leastRefit<P extends Passes>(
  { workload, map, placements }: Fit<P>,
  limits: AdapterLimits,
  { below, recovery = 'auto' }: FitOptions,
  budget = 0,
): LeastRefit<P> {
  const durable = isDurable(workload, recovery);
  const same = measured(workload, map, placements, durable);
  const inMode = (tried: Workload<P>): LeastRefit<P> | undefined => {
    const candidate = candidateOn(tried, map, { limits, durable });
    const bytes = leastPeak(candidate);
    return fitsBelow(candidate, below) && bytes <= leastPeak(same) ? { bytes, candidate } : undefined;
  };
  const least = leastWay(workload, inMode) ?? { bytes: leastPeak(same), candidate: same };
  if (budget > 0 && budget >= least.bytes) return least;
  const [sparing] = sparingWays(workload);
  const other = sparing && inMode(sparing);
  return other && other.bytes < least.bytes ? other : least;
}

/** A fit on the chunks of `found` under another budget. Errors: HoldfastError that names the smallest that these chunks need. */
export function refitMemory<P extends Passes>(
  found: Fit<P>,
  limits: AdapterLimits,
  budget: number,
  options: FitOptions = {},
): Fit<P> {
  const least = leastRefit(found, limits, options, budget);
  if (budget < least.bytes) {
    throw new HoldfastError(
      `${formatBytes(budget)} of GPU memory are too little: with chunks of ${formatBytes(found.map.chunkBytes)} this run ` +
        `needs ${least.bytes} bytes (${formatBytes(least.bytes)}); give that much, or start the run with the smaller budget`,
    );
  }
  const { workload } = found;
  return fitBy(workload, limits, options, (recovery) => findOnMap(found, limits, budget, { ...options, recovery }));
}

/** How ways are fitted on the chunks of `found`. */
function findOnMap<P extends Passes>(
  found: Fit<P>,
  limits: AdapterLimits,
  budget: number,
  options: FitOptions & { readonly recovery: Recovery },
): FindWay<P, Fit<P>> {
  const { workload, map } = found;
  const durable = isDurable(workload, options.recovery);
  const within = { limits, sized: new SizedFits<P>(budget, limits.rates), durable, below: options.below };
  const fits = (tried: Workload<P>, { moreThan = 0, lessThan = Number.POSITIVE_INFINITY, staging }: FitWanted = {}) => {
    if (moreThan >= map.chunkBytes || lessThan <= map.chunkBytes) return undefined;
    return fitIn(within, candidateOn(tried, map, within), staging);
  };
  return {
    ...pricesWithin(within),
    wholeMap: () => map,
    persistentBytes: () => found.nonModel.persistent,
    fit: fits,
    mapsInFewerPieces: () => [],
    least: () => within.sized.of(leastRefit(found, limits, options, budget).candidate),
  };
}
