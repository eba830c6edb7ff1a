// The interface of a search for the way to treat activations (way-search.ts) to what fits ways into memory and prices them: `FindWay`,
// and what it finds.

import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import type { StagingSize } from './candidate.ts';
import type { EstimateWithin } from './estimates.ts';
import type { Passes } from './pass.ts';
import type { ActivationChoice, Workload } from './workload.ts';

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
  /** Seconds of a step that one slot more would save, about. */
  slotSeconds(found: F, choice: ActivationChoice<P>, price: Price): number;
}

/** What a step takes by its plan. */
export interface Price {
  /** Infinite where a step takes no less than was asked for. */
  readonly seconds: number;
  /** The part of `seconds` that dispatches take whatever they compute. */
  readonly launchSeconds: number;
  /** The part of `seconds` in which nothing is computed, nor copied where arithmetic and copies take turns. */
  readonly waited: number;
  /** Bytes of chunks that its plan moves. */
  readonly traffic: number;
  /** Whether the step was followed on the clock, which says what staging is worth: without it more slots always seem to be worth more. */
  readonly isFollowed: boolean;
}

export interface Priced<F> extends Price {
  readonly found: F;
  /** The price of another fit of the same way. */
  readonly priceOf: (found: F, most?: number) => Price;
  /** Everything is kept on the GPU, all the time. */
  readonly isResident?: boolean;
}
