// Slots and staging of a fit: what a budget leaves for chunks beside everything else is dealt to the slots that there always are,
// to extra ones among the activations, and to staging each way.

import type { Tensor } from '../../graph/program.ts';
import type { ChunkMap } from '../../memory/layout/chunk-map.ts';
import { type CopyTimes, heldAt } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { assert } from '../../util/errors.ts';
import { machineOf, secondsOfEach } from '../simulate/machine.ts';
import { type FitCandidate, leastStaging, passesOf, type StagingSize } from './candidate.ts';
import { type FreeRanges, findExtraSlots, freeRanges } from './extra-slots.ts';
import type { Fit } from './fitted.ts';
import type { Pass, Passes } from './pass.ts';
import type { Rates } from './rates.ts';
import { slotsAt } from './schedule.ts';
import { movesOf } from './transfer-moments.ts';
import type { Workload } from './workload.ts';

const MOST_STAGING = 8;
/** Bytes of staging each way that hide what it takes until a buffer is there: what a link moves in some milliseconds. */
const ENOUGH_STAGING = 32e6;
/** One chunk of staging each way for so many slots. */
const SLOTS_PER_STAGING = 5;

/** What is known of a workload on a map. */
interface Known<P extends Passes> {
  readonly passes: P;
  free?: FreeRanges;
  /** By their staging, or none where that was left to the slots. */
  readonly fits: Map<string, Fit<P>>;
}

/** The fits of candidates within a budget, each worked out once: a search comes back to them, and tries others of their staging. */
export class SizedFits<P extends Passes> {
  readonly budget: number;
  readonly #rates: Rates;
  readonly #known = new WeakMap<Workload, WeakMap<ChunkMap, Known<P>>>();

  constructor(budget: number, rates: Rates) {
    this.budget = budget;
    this.#rates = rates;
  }

  /** `staging`: of what moves; undefined where there is no room for it. @default by the slots */
  of(found: FitCandidate<P>): Fit<P>;
  of(found: FitCandidate<P>, staging: StagingSize | undefined): Fit<P> | undefined;
  of(found: FitCandidate<P>, wanted?: StagingSize): Fit<P> | undefined {
    const staging = wanted && { ...wanted, down: inWholes(wanted.down, leastStaging(found)) };
    if (staging && !this.#hasRoom(found, staging)) return undefined;
    const known = this.#of(found);
    const fit = known.fits.get(keyOf(staging)) ?? this.#sized(found, known, staging);
    known.fits.set(keyOf(staging), fit);
    known.fits.set(keyOf(fit.staging), fit);
    return fit;
  }

  #of(found: FitCandidate<P>): Known<P> {
    const { workload, map } = found;
    const ofWorkload = this.#known.get(workload) ?? new WeakMap<ChunkMap, Known<P>>();
    this.#known.set(workload, ofWorkload);
    const known = ofWorkload.get(map) ?? { passes: passesOf(found), fits: new Map() };
    ofWorkload.set(map, known);
    return known;
  }

  /** Chunks for which there is room, in slots and in staging. */
  #roomFor({ other, map }: FitCandidate<P>): number {
    return Math.floor((this.budget - other) / map.chunkBytes);
  }

  /** Whether there is room for such staging, and it is enough. */
  #hasRoom(found: FitCandidate<P>, { down, up }: StagingSize): boolean {
    const least = leastStaging(found);
    return down >= least.down && up >= least.up && down + up <= this.#roomFor(found) - found.atOnce;
  }

  #sized(found: FitCandidate<P>, known: Known<P>, wanted: StagingSize | undefined): Fit<P> {
    const { map, atOnce, residents } = found;
    const { passes } = known;
    const rates = this.#rates;
    const least = leastStaging(found);
    const room = this.#roomFor(found);
    const spare = room - least.down - least.up - atOnce;
    assert(spare >= 0, 'a budget was accepted that does not fit');
    const alone = Math.min(residents, room - least.down - least.up);
    if (alone === residents) return withSlots(found, passes, residents, least, { rates });
    known.free ??= freeRanges(passes, found.placements, outputsOf(found.workload), map.chunkBytes);
    const { free } = known;
    if (holdsAll(free, alone)) return withSlots(found, passes, alone, least, { rates, free });
    const enough = Math.min(MOST_STAGING, Math.ceil(ENOUGH_STAGING / map.chunkBytes));
    const more = Math.min(enough, Math.floor(spare / SLOTS_PER_STAGING));
    const staging = wanted ?? { down: inWholes(more, least), up: Math.max(least.up, more, spare > 0 ? 2 : 1) };
    return withSlots(found, passes, room - staging.down - staging.up, staging, { rates, free });
  }
}

/** Staging on the way down for whole updates, whose chunks go together: for a part of one nothing is begun. */
const inWholes = (down: number, least: StagingSize): number => Math.max(1, Math.round(down / least.down)) * least.down;

const keyOf = (staging: StagingSize | undefined): string => (staging ? `${staging.down} ${staging.up}` : '');

/** Whether a step has room for all chunks, with so many slots and those among the activations: nothing moves then. */
const holdsAll = ({ main, open }: FreeRanges, slots: number): boolean =>
  main.update !== undefined && heldAt(main.trace).every((held, m) => held <= slots + at(open, m));

interface Dealt {
  readonly rates: Rates;
  readonly free?: FreeRanges;
  /** @default a chunk's */
  readonly pieceBytes?: number;
}

/** A candidate with so many slots that there always are, and such staging. */
export function withSlots<P extends Passes>(
  found: FitCandidate<P>,
  passes: P,
  slots: number,
  staging: StagingSize,
  { rates, free, pieceBytes = found.map.chunkBytes }: Dealt,
): Fit<P> {
  const { workload, map, placements, nonModel, stashes, durable, other, residents, held } = found;
  const peak = other + slots * map.chunkBytes + (staging.down + staging.up) * pieceBytes;
  const extraSlots = free && findExtraSlots(free, residents - slots);
  const ranges = extraSlots?.ranges ?? [];
  const outputs = outputsOf(workload);
  const machine = machineOf({ rates });
  const copies = copyTimes(rates, staging, map.chunkBytes);
  const sized = <One extends Pass>(pass: One): One => {
    const extra = extraSlots?.of(pass);
    const room = slotsAt(pass.trace, slots, extra);
    const beside = extra && { ranges, slots: extra, chunkBytes: map.chunkBytes };
    const moves = movesOf(pass, { placements, outputs, extra: beside });
    const seconds = secondsOfEach(machine, pass.operations);
    const moments = pass.trace.moments.map(({ fetches, ...moment }, m) => {
      const coming = moves ? at(moves, m).up.flatMap(({ pieces }) => pieces.map(({ id }) => id)) : fetches;
      return {
        ...moment,
        work: at(seconds, m),
        ...(coming && coming.length > 0 && { fetches: coming }),
        // What activations leave at a moment is not theirs.
        nonModelBytes: peak - at(room, m) * map.chunkBytes,
      };
    });
    return { ...pass, trace: { ...pass.trace, moments, copies }, ...(extra && { extra }), ...(moves && { moves }) };
  };
  return {
    workload,
    map,
    passes: onDemand(passes, sized),
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

/** A buffer of staging takes the next chunk once it is known that the last one has left it. */
function copyTimes(rates: Rates, { down, up }: StagingSize, chunkBytes: number): CopyTimes {
  const { upBytes, downBytes, answerSeconds = 0, copySeconds = 0, copies } = rates;
  const through = (buffers: number, bytesPerSecond: number) => {
    const alone = copySeconds + chunkBytes / bytesPerSecond;
    return Math.max(alone, (alone + answerSeconds) / buffers);
  };
  return { up: through(up, upBytes), down: through(down, downBytes), takesTurns: copies !== 'duplex' };
}

/** Each pass changed once it is asked for: of most fits one alone is looked at, and priced. */
function onDemand<P extends Passes>(passes: P, change: (pass: Pass) => Pass): P {
  const changed: Record<string, Pass> = {};
  for (const [name, pass] of Object.entries(passes)) {
    let known: Pass | undefined;
    Object.defineProperty(changed, name, {
      enumerable: true,
      get: () => {
        known ??= change(pass);
        return known;
      },
    });
  }
  return changed as P;
}

const outputsOf = ({ programs }: Workload): ReadonlySet<Tensor> =>
  new Set(programs.flatMap((program) => program.outputs));
