// The fit of a workload into a budget, worked out before anything is allocated: the layout of the chunks, the bytes of
// everything that is not chunks, and what is left for slots and staging. Exact: the executor allocates just this, so
// the predicted peak is the counted one. Pure: `holdfast plan` uses it with no GPU.
//
// Chunk sizes come from one fixed list, whatever the budget: a budget is accepted if one of them fits, so the
// smallest budget that works is a fact that a refusal can name.

import type { Tensor } from '../../graph/program.ts';
import { type ChunkMap, trainedKindsOf } from '../../memory/layout/chunk-map.ts';
import { indicesTogether } from '../../memory/layout/kinds.ts';
import { chunkRange } from '../../memory/layout/layout.ts';
import { heldAt } from '../../memory/plan/trace.ts';
import type { RoomBelow } from '../../memory/tiers/shares.ts';
import { at } from '../../util/at.ts';
import { formatBytes } from '../../util/bytes.ts';
import { assert, HoldfastError } from '../../util/errors.ts';
import { priceOf } from '../simulate/price.ts';
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
import { type FoundSlots, type FreeRanges, findExtraSlots, freeRanges } from './extra-slots.ts';
import type { Fit } from './fitted.ts';
import { type FitOptions, fitsBelow, isDurable, leastWithin, limitsWith } from './least.ts';
import type { Pass, Passes } from './pass.ts';
import { slotsAt } from './schedule.ts';
import { movesOf } from './transfer-moments.ts';
import type { FindWay, FitWanted } from './way-search.ts';
import { cheapest, firstWithin, leastWay, sparingWays } from './ways.ts';
import { type ActivationChoice, type AdapterLimits, updatesOnHost, type Workload } from './workload.ts';

const MOST_STAGING = 8;
/** Bytes of staging each way that hide what it takes until a buffer is there: what a link moves in some milliseconds. */
const ENOUGH_STAGING = 32e6;
/** One chunk of staging each way for so many slots. */
const SLOTS_PER_STAGING = 5;

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
  const least = leastWithin(workload, limitsWith(adapter, options), options, budget);
  if (budget < least.bytes) {
    throw new HoldfastError(
      `${formatBytes(budget)} of GPU memory are too little: ${least.bytes} bytes (${formatBytes(least.bytes)}) is the smallest ` +
        `budget that works, ${formatBytes(least.activations)} of it for activations; give that much, or use a smaller batch or context`,
    );
  }
  return cheapest(
    workload,
    findWithin(workload, adapter, budget, options, () => least.workload),
  );
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
  return firstWithin(workload, findWithin(workload, adapter, budget, options), seconds);
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
  const durable = isDurable(workload, options.recovery ?? 'step');
  // Where gradients are used up as soon as they are complete, larger chunks of them would be held at once.
  const fits = (tried: Workload<P>, wanted: FitWanted = {}) => {
    const { map, moreThan, staging } = wanted;
    if (map) {
      const found = candidateOn(tried, limits, map, durable);
      // Their padding has room below, too, or they are not taken.
      const hasRoom = options.below?.holds(needBelow(found)) ?? true;
      return hasRoom ? fitIn(budget, found, options.below, staging) : undefined;
    }
    if (moreThan !== undefined && tried.inBackward) return undefined;
    return fitOne(tried, limits, budget, durable, { wanted, below: options.below });
  };
  return {
    ...within<P>(limits, budget, durable),
    wholeMap: () => wholeMapOf(workload, limits),
    persistentBytes: () => candidateOn(workload, limits, wholeMapOf(workload, limits), durable).nonModel.persistent,
    fit: fits,
    mapsInFewerPieces: (than) =>
      workload.inBackward || workload.isShared ? [] : mapsInFewerPieces(workload, limits, than),
    least: () => least && fits(least()),
  };
}

const within = <P extends Passes>(limits: AdapterLimits, budget: number, durable: boolean) => ({
  budget,
  durable,
  rates: limits.rates,
  price: (found: Fit<P>, { mainOf }: ActivationChoice<P>, most?: number) =>
    priceOf(found, mainOf(found.passes), limits, most),
  withStaging: ({ workload, map, placements }: Fit<P>, staging: StagingSize) =>
    sizedWith(measured(workload, map, placements, durable), budget, staging),
});

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
  return withSlots(found, passesOf(found), found.residents, leastStaging(found), { pieceBytes });
}

interface FitOne {
  readonly wanted: FitWanted;
  readonly below: RoomBelow | undefined;
}

/** The best fit of one workload; undefined where it does not fit. */
function fitOne<P extends Passes>(
  workload: Workload<P>,
  limits: AdapterLimits,
  budget: number,
  durable: boolean,
  { wanted: { moreThan = 0, lessThan = Number.POSITIVE_INFINITY, staging }, below }: FitOne,
): Fit<P> | undefined {
  const placements = placeAll(workload, limits);
  if (arenaBytes(placements) > budget) return undefined;
  const sizes = chunkSizes(workload, limits);
  const isWithin = (bytes: number) => {
    const { chunkBytes } = mapOf(workload, bytes);
    return chunkBytes > moreThan && chunkBytes < lessThan;
  };
  const candidates = moreThan > 0 || Number.isFinite(lessThan) ? sizes.filter(isWithin) : sizes;
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
  for (const bytes of order) {
    // One chunk in a slot and one of staging each way, of at least half that size: it may be too much by itself.
    if (arenaBytes(placements) + 3 * (bytes / 2) > budget) continue;
    const found = fitIn(budget, withChunks(bytes), below, staging);
    if (found) return found;
  }
  return undefined;
}

/** A candidate as it fits into a budget; undefined where it does not, or not with that staging. */
const fitIn = <P extends Passes>(
  budget: number,
  found: FitCandidate<P>,
  below: RoomBelow | undefined,
  staging: StagingSize | undefined,
): Fit<P> | undefined =>
  leastPeak(found) <= budget && fitsBelow(found, below) ? sizedWith(found, budget, staging) : undefined;

const candidateOn = <P extends Passes>(
  workload: Workload<P>,
  limits: AdapterLimits,
  map: ChunkMap,
  durable: boolean,
): FitCandidate<P> => measured(workload, map, placeAll(workload, limits), durable);

/** A fit on the chunks of `found`, with another workload of its passes. */
const sameChunks = <P extends Passes>(
  { map, durable }: Fit<P>,
  workload: Workload<P>,
  limits: AdapterLimits,
): FitCandidate<P> => candidateOn(workload, limits, map, durable);

/** The smallest budget into which these chunks fit, in bytes: staging and everything else included. */
export const leastBudget = (found: Fit, limits: AdapterLimits, options: FitOptions = {}): number =>
  leastRefit(found, limits, options).bytes;

interface LeastRefit<P extends Passes> {
  readonly bytes: number;
  readonly candidate: FitCandidate<P>;
}

/** For a budget: what needs the least memory, or no more than it. @default the least of everything */
function leastRefit<P extends Passes>(
  found: Fit<P>,
  limits: AdapterLimits,
  { below }: FitOptions,
  budget = 0,
): LeastRefit<P> {
  const same = measured(found.workload, found.map, found.placements, found.durable);
  const inMode = (workload: Workload<P>): LeastRefit<P> | undefined => {
    const candidate = sameChunks(found, workload, limits);
    const bytes = leastPeak(candidate);
    return fitsBelow(candidate, below) && bytes <= leastPeak(same) ? { bytes, candidate } : undefined;
  };
  const least = leastWay(found.workload, inMode) ?? { bytes: leastPeak(same), candidate: same };
  if (budget > 0 && budget >= least.bytes) return least;
  const [sparing] = sparingWays(found.workload);
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
  const fits = (
    workload: Workload<P>,
    { moreThan = 0, lessThan = Number.POSITIVE_INFINITY, staging }: FitWanted = {},
  ) => {
    if (moreThan >= found.map.chunkBytes || lessThan <= found.map.chunkBytes) return undefined;
    return fitIn(budget, sameChunks(found, workload, limits), options.below, staging);
  };
  return cheapest(found.workload, {
    ...within<P>(limits, budget, found.durable),
    wholeMap: () => found.map,
    persistentBytes: () => found.nonModel.persistent,
    fit: fits,
    mapsInFewerPieces: () => [],
    least: () => sized(least.candidate, budget),
  });
}

/** Chunks for which a budget has room, in slots and in staging. */
const roomFor = ({ other, map }: FitCandidate, budget: number): number => Math.floor((budget - other) / map.chunkBytes);

/** Whether there is room for such staging, and it is enough. */
function hasRoom(found: FitCandidate, budget: number, { down, up }: StagingSize): boolean {
  const least = leastStaging(found);
  return down >= least.down && up >= least.up && down + up <= roomFor(found, budget) - found.atOnce;
}

/** With that staging; undefined where there is no room for it. */
const sizedWith = <P extends Passes>(
  found: FitCandidate<P>,
  budget: number,
  staging: StagingSize | undefined,
): Fit<P> | undefined => (staging && !hasRoom(found, budget, staging) ? undefined : sized(found, budget, staging));

/** Deals the room that a budget leaves for chunks to slots and staging. `wanted`: of what moves. @default by the slots */
function sized<P extends Passes>(found: FitCandidate<P>, budget: number, wanted?: StagingSize): Fit<P> {
  const { map, atOnce, residents } = found;
  const least = leastStaging(found);
  const passes = passesOf(found);
  const room = roomFor(found, budget);
  const spare = room - least.down - least.up - atOnce;
  assert(spare >= 0, 'a budget was accepted that does not fit');
  const alone = Math.min(residents, room - least.down - least.up);
  if (alone === residents) return withSlots(found, passes, residents, least);
  const free = freeRangesOf(found, passes);
  if (holdsAll(free, alone)) return withSlots(found, passes, alone, least, { free });
  const enough = Math.min(MOST_STAGING, Math.ceil(ENOUGH_STAGING / map.chunkBytes));
  const more = Math.min(enough, Math.floor(spare / SLOTS_PER_STAGING));
  const staging = wanted ?? { down: Math.max(least.down, more), up: Math.max(least.up, more) };
  return withSlots(found, passes, room - staging.down - staging.up, staging, { free });
}

/** Whether a step has room for all chunks, with so many slots and those among the activations: nothing moves then. */
const holdsAll = ({ main, open }: FreeRanges, slots: number): boolean =>
  main.update !== undefined && heldAt(main.trace).every((held, m) => held <= slots + at(open, m));

interface Dealt {
  readonly free?: FreeRanges;
  /** @default a chunk's */
  readonly pieceBytes?: number;
}

function withSlots<P extends Passes>(
  found: FitCandidate<P>,
  passes: P,
  slots: number,
  staging: StagingSize,
  { free, pieceBytes = found.map.chunkBytes }: Dealt = {},
): Fit<P> {
  const { workload, map, placements, nonModel, stashes, durable, other, residents, held } = found;
  const peak = other + slots * map.chunkBytes + (staging.down + staging.up) * pieceBytes;
  const { ranges, of } = free ? findExtraSlots(free, residents - slots) : NO_EXTRA_SLOTS;
  const outputs = outputsOf(workload);
  const withBytes = Object.entries(passes).map(([name, pass]): [string, Pass] => {
    const extra = of.get(pass);
    const room = slotsAt(pass.trace, slots, extra);
    const beside = extra && { ranges, slots: extra, chunkBytes: map.chunkBytes };
    const moves = movesOf(pass, { placements, outputs, extra: beside });
    const moments = pass.trace.moments.map(({ fetches, ...moment }, m) => {
      const coming = moves ? at(moves, m).up.flatMap(({ pieces }) => pieces.map(({ id }) => id)) : fetches;
      return {
        ...moment,
        ...(coming && coming.length > 0 && { fetches: coming }),
        // What activations leave at a moment is not theirs.
        nonModelBytes: peak - at(room, m) * map.chunkBytes,
      };
    });
    return [name, { ...pass, trace: { ...pass.trace, moments }, ...(extra && { extra }), ...(moves && { moves }) }];
  });
  return {
    workload,
    map,
    passes: Object.fromEntries(withBytes) as P,
    placements,
    nonModel,
    stashes,
    durable,
    residents,
    held,
    slots,
    extra: ranges,
    staging,
    stagingBytes: pieceBytes,
    peak,
  };
}

const NO_EXTRA_SLOTS: FoundSlots = { ranges: [], of: new Map() };

function freeRangesOf({ workload, placements, map }: FitCandidate, passes: Passes): FreeRanges {
  return freeRanges(passes, placements, outputsOf(workload), map.chunkBytes);
}

const outputsOf = ({ programs }: Workload): ReadonlySet<Tensor> =>
  new Set(programs.flatMap((program) => program.outputs));
