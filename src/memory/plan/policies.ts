// Eviction policies: orders in which chunks leave when another needs a slot, as pure functions over a trace and its
// slots. Each is run, step after step, until it repeats itself. These react at the moment of need; planner.ts looks at
// the whole step.
//
// PatrickStar's and Gemini's orders and ZeRO-Offload's split are reimplemented from their published sources
// and papers. Only the choice of the victim is theirs: clean copies are dropped and dead ones released for
// every policy alike, where those systems copy a chunk down whenever it leaves.

import { at } from '../../util/at.ts';
import { type Kind, READ_KINDS } from '../layout/kinds.ts';
import { findGaps, type Gaps } from './gaps.ts';
import { chunkCount, type Trace } from './trace.ts';

/** Which gaps are kept, over one step or, when a policy only repeats after several, over that many. */
export interface Decision {
  readonly steps: number;
  /** Of the trace repeated `steps` times. */
  readonly gaps: Gaps;
  /** 1 for a gap during which the chunk stays on the GPU. */
  readonly keep: Uint8Array;
}

/** A chunk that may leave, as an order sees it. Times are moments since the first step. */
export interface EvictionCandidate {
  readonly chunk: number;
  readonly kind: Kind;
  readonly now: number;
  readonly arrived: number;
  readonly lastUse: number;
  /** The next access, in this step or the next. */
  readonly nextUse: number;
  /** The first moment of the next step. */
  readonly stepEnd: number;
  readonly dirty: boolean;
}

/** The first of two candidates to leave: negative for a. Must be total: equal only for the same chunk. */
export type Order = (a: EvictionCandidate, b: EvictionCandidate) => number;

/** Longest unused first. */
export const lru: Order = (a, b) => a.lastUse - b.lastUse || a.chunk - b.chunk;

/** Longest here first. */
export const fifo: Order = (a, b) => a.arrived - b.arrived || a.chunk - b.chunk;

/** Belady: furthest next use first, wrapping into the next step; of two alike the clean one, which costs less. */
export const opt: Order = (a, b) => b.nextUse - a.nextUse || Number(a.dirty) - Number(b.dirty) || a.chunk - b.chunk;

/** PatrickStar's order, reimplemented: furthest next use first, wrapping; then by chunk number. */
export const patrickStar: Order = (a, b) => b.nextUse - a.nextUse || a.chunk - b.chunk;

/** Gemini's order, reimplemented: furthest next use first, where all uses in the next step are equally far. */
export const gemini: Order = (a, b) => {
  const next = ({ nextUse, stepEnd }: EvictionCandidate) => Math.min(nextUse, stepEnd);
  return next(b) - next(a) || a.chunk - b.chunk;
};

/**
 * ZeRO-Offload's static split, reimplemented: parameters live on the GPU, as many as fit; gradients and
 * moments pass through. (There the optimizer runs on the CPU; here the moments pass through the GPU.)
 */
export function staticSplit(trace: Trace, slots: readonly number[]): Order {
  const parameters = trace.lists.find(({ kind }) => READ_KINDS.some((read) => read === kind)) ?? {
    first: 0,
    chunks: 0,
  };
  let stay = slots.reduce((least, count) => Math.min(least, count), parameters.chunks);
  const belongs = (chunk: number) => chunk >= parameters.first && chunk < parameters.first + stay;
  const fits = () =>
    trace.moments.every(
      ({ accesses }, m) => stay + accesses.filter(({ chunk }) => !belongs(chunk)).length <= at(slots, m),
    );
  while (stay > 0 && !fits()) stay--;
  return (a, b) => Number(belongs(a.chunk)) - Number(belongs(b.chunk)) || lru(a, b);
}

export const ORDERS = {
  LRU: () => lru,
  FIFO: () => fifo,
  OPT: () => opt,
  'PatrickStar order': () => patrickStar,
  'Gemini order': () => gemini,
  'ZeRO-Offload split': staticSplit,
} as const satisfies Record<string, (trace: Trace, slots: readonly number[]) => Order>;

/** A state that has not come back after so many steps is made to: the GPU is emptied at the step's end. */
const MOST_STEPS = 12;

/** Runs an order until it repeats itself. Errors: HoldfastError when an operator's chunks alone do not fit. */
export function follow(trace: Trace, slots: readonly number[], order: Order): Decision {
  const gaps = findGaps(trace, slots); // refuses what cannot fit
  const run = new Run(trace, slots, order);
  const seen = new Map<string, number>();
  for (let step = 0; step < MOST_STEPS; step++) {
    const state = run.state();
    const before = seen.get(state);
    run.step(); // what was used last in the step before may leave in this one
    // An order that goes by more than the state, as by the time since the first step, may do another thing in the same one.
    if (before !== undefined && at(run.leaving, before) === at(run.leaving, step))
      return decide(trace, slots, gaps, run.dropped.slice(before, step), step - before);
    seen.set(state, step);
  }
  run.empty();
  run.step();
  run.empty();
  return decide(trace, slots, gaps, run.dropped.slice(MOST_STEPS), 1);
}

/** From `moment of the last access -> chunks dropped after it` for each step to gaps of the repeated trace. */
function decide(
  trace: Trace,
  slots: readonly number[],
  gaps: Gaps,
  dropped: ReadonlySet<number>[],
  steps: number,
): Decision {
  const moments = trace.moments.length;
  const chunks = chunkCount(trace);
  const all = steps === 1 ? gaps : findGaps({ ...trace, moments: repeat(trace.moments, steps) }, repeat(slots, steps));
  const keep = Uint8Array.from(all.list, ({ chunk, from }) =>
    at(dropped, Math.floor(from / moments)).has((from % moments) * chunks + chunk) ? 0 : 1,
  );
  return { steps, gaps: all, keep };
}

const repeat = <T>(list: readonly T[], times: number): T[] => Array.from({ length: times }, () => list).flat();

/** A run of the trace under an order, step after step: which chunks are in slots, and which were dropped. */
class Run {
  /** For each step run: `moment of the last access * chunks + chunk` of each chunk dropped with a live value. */
  readonly dropped: Set<number>[] = [];
  /** For each step run: the chunks that left in it, and when. */
  readonly leaving: string[] = [];
  readonly #trace: Trace;
  readonly #slots: readonly number[];
  readonly #order: Order;
  readonly #chunks: number;
  /** By chunk; the moments at which each is accessed, ascending. */
  readonly #facts: readonly { readonly kind: Kind; readonly uses: number[] }[];
  readonly #residents = new Map<number, { arrived: number; lastUse: number; dirty: boolean }>();
  #step = 0;

  constructor(trace: Trace, slots: readonly number[], order: Order) {
    this.#trace = trace;
    this.#slots = slots;
    this.#order = order;
    this.#chunks = chunkCount(trace);
    this.#facts = trace.lists.flatMap(({ kind, chunks }) => Array.from({ length: chunks }, () => ({ kind, uses: [] })));
    trace.moments.forEach(({ accesses }, m) => {
      for (const { chunk } of accesses) at(this.#facts, chunk).uses.push(m);
    });
  }

  /** All that decides what happens next: ages count in order, not in moments. */
  state(): string {
    const arrivals = [...this.#residents].sort(([a, x], [b, y]) => x.arrived - y.arrived || a - b);
    const start = this.#step * this.#trace.moments.length;
    return arrivals.map(([chunk, { lastUse, dirty }]) => `${chunk}:${start - lastUse}:${dirty}`).join(' ');
  }

  step(): void {
    const { moments } = this.#trace;
    const start = this.#step * moments.length;
    this.dropped.push(new Set());
    this.leaving.push('');
    this.#step++;
    moments.forEach(({ accesses, onHost = [], frees }, m) => {
      const now = start + m;
      const pinned = new Set(accesses.map(({ chunk }) => chunk));
      const arriving = accesses.filter(({ chunk }) => !this.#residents.has(chunk)).length;
      this.#makeRoom(at(this.#slots, m) - arriving, pinned, now);
      for (const { chunk, mode } of accesses) {
        const known = this.#residents.get(chunk);
        const dirty = mode !== 'read' || (known?.dirty ?? false);
        this.#residents.set(chunk, { arrived: known?.arrived ?? now, lastUse: now, dirty });
      }
      // Before its value is used below it leaves.
      for (const { chunk } of onHost) this.#residents.delete(chunk);
      for (const chunk of frees) this.#residents.delete(chunk);
    });
  }

  empty(): void {
    for (const [chunk] of this.#residents) this.#drop(chunk);
  }

  #makeRoom(most: number, pinned: ReadonlySet<number>, now: number): void {
    const excess = this.#residents.size - most;
    if (excess <= 0) return;
    const moments = this.#trace.moments.length;
    const movable: EvictionCandidate[] = [];
    for (const [chunk, resident] of this.#residents) {
      if (pinned.has(chunk)) continue;
      const { kind, uses } = at(this.#facts, chunk);
      const m = now % moments;
      const next = uses.find((use) => use > m) ?? at(uses, 0) + moments;
      movable.push({ chunk, kind, now, ...resident, nextUse: now - m + next, stepEnd: now - m + moments });
    }
    for (const { chunk } of movable.sort(this.#order).slice(0, excess)) {
      this.#drop(chunk);
      this.leaving[this.#step - 1] += ` ${now % moments}:${chunk}`;
    }
  }

  #drop(chunk: number): void {
    const moments = this.#trace.moments.length;
    const { lastUse } = this.#residents.get(chunk) as { lastUse: number };
    const step = Math.floor(lastUse / moments);
    this.dropped[step]?.add((lastUse % moments) * this.#chunks + chunk);
    this.#residents.delete(chunk);
  }
}
