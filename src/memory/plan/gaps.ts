// A trace and its slots as the decisions that they leave open. A gap lies between two accesses of a chunk
// whose value lives on: kept on the GPU, it costs a slot at every moment between; dropped, a load. An epoch
// is the time between two changes of a value: if any gap in it is dropped, the value is written back, once.
//
// An access on the host leaves no choice: before it the chunk leaves the GPU, behind it the chunk is brought again.
//
// Every policy is a choice of gaps to keep; so is every plan, and the bound. Moments at which no choice can
// matter more than at their neighbour are left out (`rows` are the others).

import { at } from '../../util/at.ts';
import { HoldfastError } from '../../util/errors.ts';
import { type AccessTier, type ChunkAccess, chunkCount, peakDemand, type Trace } from './trace.ts';

export interface Gap {
  /** Its place in the list, and in what says which gaps are kept. */
  readonly index: number;
  readonly chunk: number;
  /** The moments of its two accesses; a gap into the next step ends behind the last moment. */
  readonly from: number;
  readonly to: number;
  /** Rows that it covers: `rowCount` rows from `firstRow` on, around the end of the step. 0: it costs nothing to keep. */
  readonly firstRow: number;
  readonly rowCount: number;
}

export interface Gaps {
  readonly trace: Trace;
  readonly slots: readonly number[];
  readonly list: readonly Gap[];
  /** The gaps that carry a value that was changed; one that was not is the same everywhere below. */
  readonly epochs: readonly (readonly Gap[])[];
  /** Kept gaps that each row has room for: slots without those of the moment's own chunks. */
  readonly room: Int32Array;
  readonly forced: Forced;
}

/** What accesses on the host make of a step, whatever is kept. */
export interface Forced {
  /** Behind the access at `moment` the chunk leaves the GPU. */
  readonly leaves: readonly { readonly chunk: number; readonly moment: number }[];
  /** For the access at `moment` it is loaded. */
  readonly arrivals: readonly { readonly chunk: number; readonly moment: number }[];
  /** Values among those that leave that were changed on the GPU: each is stored. */
  readonly stores: number;
}

/** Errors: HoldfastError when an operator's chunks alone do not fit. */
export function findGaps(trace: Trace, slots: readonly number[]): Gaps {
  const count = trace.moments.length;
  const { points, room } = findRows(trace, slots);
  const uses: Use[][] = Array.from({ length: chunkCount(trace) }, () => []);
  for (const point of points) {
    for (const { chunk, mode, tier } of [...point.accesses, ...point.onHost]) {
      at(uses, chunk).push({ point, writes: mode !== 'read', frees: point.frees.includes(chunk), tier });
    }
  }

  const list: Gap[] = [];
  const epochs: Gap[][] = [];
  const leaves: Forced['leaves'][number][] = [];
  const arrivals: Forced['arrivals'][number][] = [];
  const stored = new Set<Gap[]>();
  const begin = (): Gap[] => {
    const epoch: Gap[] = [];
    epochs.push(epoch);
    return epoch;
  };
  for (const [chunk, all] of uses.entries()) {
    const firstWrite = all.findIndex(({ writes }) => writes);
    // From the first write on, once around, so that the last epoch meets itself.
    const [first, ...others] = [...all.slice(Math.max(0, firstWrite)), ...all.slice(0, Math.max(0, firstWrite))];
    if (!first) continue;
    let now = first;
    let epoch: Gap[] | undefined;
    for (const next of [...others, first]) {
      // What changed on the host is the same everywhere below.
      if (now.writes) epoch = now.tier === 'gpu' ? begin() : undefined;
      const [from, to] = [now.point, next.point];
      if (!now.frees && (now.tier === 'host' || next.tier === 'host')) {
        if (now.tier === 'gpu') {
          leaves.push({ chunk, moment: from.moment });
          if (epoch) stored.add(epoch);
          epoch = undefined;
        }
        if (next.tier === 'gpu') arrivals.push({ chunk, moment: to.moment });
      } else if (!now.frees) {
        const wraps = to.moment <= from.moment;
        const gap: Gap = {
          index: list.length,
          chunk,
          from: from.moment,
          to: to.moment + (wraps ? count : 0),
          firstRow: from.rowsThrough % Math.max(1, room.length),
          rowCount: to.rowsBefore + (wraps ? room.length : 0) - from.rowsThrough,
        };
        list.push(gap);
        epoch?.push(gap);
      }
      now = next;
    }
  }
  const forced = { leaves, arrivals, stores: stored.size };
  return { trace, slots, list, epochs: epochs.filter((epoch) => !stored.has(epoch)), room, forced };
}

/** An access, at its moment. */
interface Use {
  readonly point: Point;
  readonly writes: boolean;
  readonly frees: boolean;
  readonly tier: AccessTier;
}

/** A moment with its slots. */
interface Point {
  readonly moment: number;
  readonly accesses: readonly ChunkAccess[];
  readonly onHost: readonly ChunkAccess[];
  readonly frees: readonly number[];
  readonly chunks: ReadonlySet<number>;
  readonly slots: number;
  /** Rows before it, and with its own if it is one. */
  rowsBefore: number;
  rowsThrough: number;
}

/**
 * The moments, and the room of those that are rows. A moment is none when its chunks are among those of the row beside
 * it, which has no more slots: whatever fits there fits here.
 */
function findRows(trace: Trace, slots: readonly number[]): { points: readonly Point[]; room: Int32Array } {
  const points = trace.moments.map(({ accesses, onHost = [], frees, label }, moment): Point => {
    const own = at(slots, moment);
    if (accesses.length > own) {
      throw new HoldfastError(
        `${label} needs ${accesses.length} chunks of ${trace.chunkBytes} bytes on the GPU at once and the budget leaves ` +
          `room for ${Math.max(0, own)}: ${peakDemand(trace)} bytes are enough, or use smaller chunks`,
      );
    }
    const chunks = new Set(accesses.map(({ chunk }) => chunk));
    return { moment, accesses, onHost, frees, chunks, slots: own, rowsBefore: 0, rowsThrough: 0 };
  });
  const covers = (a: Point, b: Point) => a.slots <= b.slots && [...b.chunks].every((chunk) => a.chunks.has(chunk));
  const rows: Point[] = [];
  for (const point of points) {
    let last = rows.at(-1);
    if (last && covers(last, point)) continue;
    while (last && covers(point, last)) {
      rows.pop();
      last = rows.at(-1);
    }
    rows.push(point);
  }
  const isRow = new Set(rows);
  let before = 0;
  for (const point of points) {
    point.rowsBefore = before;
    if (isRow.has(point)) before++;
    point.rowsThrough = before;
  }
  return { points, room: Int32Array.from(rows, ({ slots, accesses }) => slots - accesses.length) };
}
