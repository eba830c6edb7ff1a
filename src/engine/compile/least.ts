// The least memory that a workload trains in: what each of its ways to treat activations needs in chunks of each size, and which
// of them needs the least. A refusal names it (fit.ts).
//
// Pure. Chunk sizes come from one fixed list, whatever the budget, so that the least is a fact.

import { bytesBelow, leastHostBytes, type NeedBelow, type RoomBelow } from '../../memory/tiers/shares.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { arenaBytes, candidate, type FitCandidate, leastChunks, leastPeak, needBelow, placeAll } from './candidate.ts';
import { chunkSizes, leastBytesOf, mapOf } from './chunk-sizes.ts';
import type { Passes } from './pass.ts';
import { isDurable, type Recovery } from './recovery.ts';
import { lastingBytes } from './tally.ts';
import { leastWay, sparingWays, uniformWays } from './ways.ts';
import type { AdapterLimits, Workload } from './workload.ts';

/** What a fit goes by beside the budget. */
export interface FitOptions {
  /** @default 'auto' */
  readonly recovery?: Recovery | undefined;
  /** For chunks and activations below the GPU. @default no limit */
  readonly below?: RoomBelow | undefined;
  /** Bytes; chunks that the tiers below the GPU can hold are no larger. @default no limit */
  readonly mostChunk?: number;
}

/** Whether there is room below the GPU for all chunks and the activations that lie there; without the latter, others say. */
export const fitsBelow = (found: FitCandidate, below: RoomBelow | undefined): boolean =>
  found.stashes.length === 0 || below === undefined || below.holds(needBelow(found));

/** How chunks of one size are measured; undefined where they need not be looked at. */
type MeasureChunks<P extends Passes> = (bytes: number) => FitCandidate<P> | undefined;

/**
 * Candidates in chunks of so many bytes that have room below the GPU, one measured after the other. Where chunks of no size at
 * all have room, all of them: what lies there then says what it needs.
 */
export function* withRoomBelow<P extends Passes>(
  workload: Workload<P>,
  limits: AdapterLimits,
  sizes: readonly number[],
  measure: MeasureChunks<P>,
  { durable, below }: { readonly durable: boolean; readonly below: RoomBelow | undefined },
): Generator<FitCandidate<P>> {
  const hasRoom = (found: FitCandidate) => below?.holdsChunks(needBelow(found)) ?? true;
  let someHave = false;
  const others: FitCandidate<P>[] = [];
  for (const bytes of sizes) {
    const found = measure(bytes);
    if (!found) continue;
    if (hasRoom(found)) {
      someHave = true;
      yield found;
    } else others.push(found);
  }
  if (someHave || others.length === 0) return;
  const placements = placeAll(workload, limits);
  const someSize = chunkSizes(workload, limits).some((bytes) =>
    hasRoom(candidate(workload, placements, bytes, durable)),
  );
  if (!someSize) yield* others;
}

/** The smallest budget that `fitMemory` accepts, in bytes. */
export const smallestBudget = (workload: Workload, limits: AdapterLimits, options: FitOptions = {}): number =>
  leastMemory(workload, limits, options).bytes;

/** The smallest budget that `fitMemory` accepts, and the part of it that activations take; both in bytes. */
export const leastMemory = (
  workload: Workload,
  limits: AdapterLimits,
  options: FitOptions = {},
): Pick<Least<Passes>, 'bytes' | 'activations'> => leastWithin(workload, limitsWith(limits, options), options);

export const limitsWith = (limits: AdapterLimits, { mostChunk }: FitOptions): AdapterLimits =>
  mostChunk === undefined ? limits : { ...limits, mostChunk };

export interface Least<P extends Passes> {
  readonly bytes: number;
  readonly activations: number;
  readonly workload: Workload<P>;
}

/** What is said of a budget that no way fits below the GPU: bytes in all, and the least of host memory above a disk. */
interface TooLittleBelow {
  readonly needed: number;
  readonly aboveDisk: number;
}

const leastFits = new WeakMap<Workload, Map<string, Least<Passes> | TooLittleBelow>>();

/** What was found of all ways: it is asked for a budget at a time. */
const leastOfAll = new WeakMap<Workload, Map<string, Least<Passes>>>();

const keyOf = (limits: AdapterLimits, { recovery = 'auto', below }: FitOptions): string =>
  `${limits.binding} ${limits.buffer} ${limits.leastChunk} ${limits.mostChunk} ${recovery !== 'checkpoint'} ${below?.key}`;

/** What all ways were found to need at least, if that was asked for. */
export const knownLeast = <P extends Passes>(
  workload: Workload<P>,
  limits: AdapterLimits,
  options: FitOptions,
): Least<P> | undefined => leastOfAll.get(workload)?.get(keyOf(limits, options)) as Least<P> | undefined;

/** For a budget: the way that needs the least memory, or one that needs no more than it. @default of all ways */
export function leastWithin<P extends Passes>(
  workload: Workload<P>,
  limits: AdapterLimits,
  options: FitOptions,
  budget = 0,
): Least<P> {
  const known = budget === 0 ? knownLeast(workload, limits, options) : undefined;
  if (known) return known;
  const uniform = leastUniform(workload, limits, options);
  const first = budget > 0 ? uniform().least : undefined;
  if (first && budget >= first.bytes) return first;
  // It mostly needs so little that no other has to be measured.
  const [sparing] = sparingWays(workload);
  const other = sparing && leastOf(sparing, limits, options);
  const most = other && 'bytes' in other ? other : undefined;
  const { least, refused } = uniform(most?.bytes);
  const found = most && (!least || most.bytes < least.bytes) ? most : least;
  if (found) {
    const all = leastOfAll.get(workload) ?? new Map<string, Least<Passes>>();
    leastOfAll.set(workload, all.set(keyOf(limits, options), found));
    return found;
  }
  throw new HoldfastError(
    `the activations that are to be moved do not fit below the GPU: with all chunks that takes ${lackWords(refused, options.below)},` +
      ' or leave it to the budget what becomes of activations (auto)',
  );
}

const lackWords = ({ needed, aboveDisk }: TooLittleBelow, below: RoomBelow | undefined): string =>
  `${needed} bytes (${formatBytes(needed)}) of host memory, or at least ${aboveDisk} of it above a disk that has room for the rest, ` +
  `and there are ${below?.described}; give that much`;

/** The error of a budget that would do with more room below the GPU; undefined where it is the budget that is too small. */
export function lackBelow<P extends Passes>(
  workload: Workload<P>,
  limits: AdapterLimits,
  { recovery = 'auto', below }: FitOptions,
  budget: number,
): HoldfastError | undefined {
  if (!below) return undefined;
  const [sparing = workload] = sparingWays(workload);
  const ways = [sparing, ...uniformWays(workload)];
  const needs = ways.flatMap((way) => {
    const placements = placeAll(way, limits);
    if (arenaBytes(placements) > budget) return [];
    const durable = isDurable(way, recovery);
    const found = chunkSizes(way, limits).map((size) => candidate(way, placements, size, durable));
    return found.filter((one) => leastPeak(one) <= budget).map((one) => needBelow(one));
  });
  if (needs.length === 0) return undefined;
  const least = (of: (need: NeedBelow) => number) => needs.reduce((most, need) => Math.min(most, of(need)), Infinity);
  const lack = { needed: least(bytesBelow), aboveDisk: least((need) => leastHostBytes(need, true)) };
  return new HoldfastError(
    `${formatBytes(budget)} of GPU memory would do, but what lies below it takes ${lackWords(lack, below)}`,
  );
}

/** The uniform way that needs the least, of those that hold no more than so many bytes, and what is said where none fits below. */
const leastUniform =
  <P extends Passes>(workload: Workload<P>, limits: AdapterLimits, options: FitOptions) =>
  (most?: number): { readonly least: Least<P> | undefined; readonly refused: TooLittleBelow } => {
    let [needed, aboveDisk] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
    const measure = (tried: Workload<P>): Least<P> | undefined => {
      const found = leastOf(tried, limits, options);
      if ('bytes' in found) return found;
      needed = Math.min(needed, found.needed);
      aboveDisk = Math.min(aboveDisk, found.aboveDisk);
      return undefined;
    };
    const least = leastWay(workload, measure, most);
    return { least, refused: { needed, aboveDisk } };
  };

/** What one way needs in all, and what of that is activations, in bytes. */
function leastOf<P extends Passes>(
  tried: Workload<P>,
  limits: AdapterLimits,
  options: FitOptions,
): Least<P> | TooLittleBelow {
  const { recovery = 'auto', below } = options;
  // It does not depend on the budget, and is asked for with each.
  const known = leastFits.get(tried) ?? new Map<string, Least<Passes> | TooLittleBelow>();
  leastFits.set(tried, known);
  const key = keyOf(limits, options);
  const found = (known.get(key) as Least<P> | TooLittleBelow | undefined) ?? findLeast(tried, limits, recovery, below);
  known.set(key, found);
  return found;
}

function findLeast<P extends Passes>(
  tried: Workload<P>,
  limits: AdapterLimits,
  recovery: Recovery,
  below: RoomBelow | undefined,
): Least<P> | TooLittleBelow {
  const durable = isDurable(tried, recovery);
  let [needed, aboveDisk, bytes] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  const placements = placeAll(tried, limits);
  const activations = arenaBytes(placements);
  const chunks = leastChunks(tried, durable);
  // What no chunk size changes. Other ranks' programs are not known.
  const other = activations + (tried.isShared ? 0 : lastingBytes(tried.programs));
  const measure = (size: number) => {
    // Chunks that are too large by themselves, in slots and in staging, need not be looked at.
    if (other + chunks * leastBytesOf(tried, size) >= bytes) return undefined;
    if (other + chunks * mapOf(tried, size).chunkBytes >= bytes) return undefined;
    return candidate(tried, placements, size, durable);
  };
  for (const found of withRoomBelow(tried, limits, chunkSizes(tried, limits), measure, { durable, below })) {
    if (fitsBelow(found, below)) bytes = Math.min(bytes, leastPeak(found));
    const need = needBelow(found);
    needed = Math.min(needed, bytesBelow(need));
    aboveDisk = Math.min(aboveDisk, leastHostBytes(need, true));
  }
  return bytes < Number.POSITIVE_INFINITY ? { bytes, activations, workload: tried } : { needed, aboveDisk };
}
