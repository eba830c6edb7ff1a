// Extra slots: ranges of the memory in which activations lie, each as large as a chunk, that hold chunks at the moments at
// which no activation lies there. Gradients and moments are used when activations are few, so that what those leave at a
// moment serves as slots. Pure: sees ranges and moments, no tensor and no buffer.
//
// Invariant: at a moment of one of a slot's windows nothing else lies in any of its bytes.

import { at } from '../../util/at.ts';

/** A range of an arena, as large as a chunk. Bytes. */
export interface SlotRange {
  readonly arena: number;
  readonly offset: number;
}

/** Bytes of an arena that hold something else from one moment to another, both included. */
export interface Occupied extends SlotRange {
  readonly bytes: number;
  readonly first: number;
  readonly last: number;
}

/** Moments at which a slot may hold a chunk: those before `to`, from `from` on; past the last moment it goes on in the next step. */
export interface SlotWindow {
  readonly from: number;
  readonly to: number;
}

/** When the extra slots of a fit serve as slots in one of its passes. */
export interface ExtraSlots {
  /** Of each slot, in order; one that is free throughout has a window without an end. */
  readonly windows: readonly (readonly SlotWindow[])[];
  /** How many of them there are at each moment. */
  readonly open: readonly number[];
}

/** The ranges of arenas that could be extra slots. */
export function slotRanges(arenas: readonly number[], chunkBytes: number): SlotRange[] {
  return arenas.flatMap((bytes, arena) =>
    Array.from({ length: Math.floor(bytes / chunkBytes) }, (_, i) => ({ arena, offset: i * chunkBytes })),
  );
}

/** When each of these ranges is free in a pass of so many moments. */
export function windowsIn(
  ranges: readonly SlotRange[],
  chunkBytes: number,
  occupied: readonly Occupied[],
  moments: number,
): SlotWindow[][] {
  const byArena = new Map<number, Occupied[]>();
  for (const one of occupied) {
    const those = byArena.get(one.arena) ?? [];
    those.push(one);
    byArena.set(one.arena, those);
  }
  return ranges.map(({ arena, offset }) => {
    const taken = (byArena.get(arena) ?? []).filter(
      (one) => one.offset < offset + chunkBytes && offset < one.offset + one.bytes,
    );
    return freeBetween(taken, moments);
  });
}

function freeBetween(taken: readonly Occupied[], moments: number): SlotWindow[] {
  const [first, ...rest] = taken.toSorted((a, b) => a.first - b.first);
  if (!first) return [{ from: 0, to: Number.POSITIVE_INFINITY }];
  const windows: SlotWindow[] = [];
  let end = first.last + 1;
  for (const one of rest) {
    if (one.first > end) windows.push({ from: end, to: one.first });
    end = Math.max(end, one.last + 1);
  }
  // The last one goes on into the next step.
  if (end < moments) windows.push({ from: end, to: moments + first.first });
  else if (first.first > 0) windows.push({ from: 0, to: first.first });
  return windows;
}

/** What the windows of a pass come to. */
export function extraSlots(windows: readonly (readonly SlotWindow[])[], moments: number): ExtraSlots {
  const open = new Uint32Array(moments);
  for (const own of windows) addTo(open, own);
  return { windows, open: [...open] };
}

/** One more at the moments of these windows. */
function addTo(open: Uint32Array, windows: readonly SlotWindow[]): void {
  const { length: moments } = open;
  for (const { from, to } of windows) {
    for (let m = from; m < Math.min(to, from + moments); m++) open[m % moments] = at(open, m % moments) + 1;
  }
}

/**
 * Which ranges are worth having, by their windows in the pass that matters: those that are free the longest, until at no
 * moment another could hold a chunk of the `most` that have no slot otherwise. Ascending.
 */
export function worthHaving(windows: readonly (readonly SlotWindow[])[], moments: number, most: number): number[] {
  const lengthOf = (own: readonly SlotWindow[]) =>
    own.reduce((sum, { from, to }) => sum + Math.min(moments, to - from), 0);
  const lengths = windows.map(lengthOf);
  const order = [...windows.keys()].sort((a, b) => at(lengths, b) - at(lengths, a) || a - b);
  const open = new Uint32Array(moments);
  const found: number[] = [];
  for (const slot of order) {
    const own = at(windows, slot);
    if (!own.some((window) => hasLess(open, window, most))) continue;
    addTo(open, own);
    found.push(slot);
    if (open.every((count) => count >= most)) break;
  }
  return found.sort((a, b) => a - b);
}

function hasLess(open: Uint32Array, { from, to }: SlotWindow, most: number): boolean {
  const { length: moments } = open;
  for (let m = from; m < Math.min(to, from + moments); m++) if (at(open, m % moments) < most) return true;
  return false;
}

/** What becomes of extra slots before a moment. At the first one all of them are named: another pass may have been before. */
export interface SlotChanges {
  /** Those that serve from here on, until so many moments after the first one of this run. */
  readonly opens: readonly { readonly slot: number; readonly until: number }[];
  /** Those that do not: what is in them must leave. */
  readonly closes: readonly number[];
}

export const NO_CHANGES: SlotChanges = { opens: [], closes: [] };

/** By moment. */
export function slotChanges({ windows, open: { length: moments } }: ExtraSlots): SlotChanges[] {
  const opens = new Map<number, SlotChanges['opens'][number][]>();
  const closes = new Map<number, number[]>();
  const add = <T>(map: Map<number, T[]>, m: number, what: T) => map.set(m, [...(map.get(m) ?? []), what]);
  windows.forEach((own, slot) => {
    let isOpen = false;
    for (const { from, to } of own) {
      add(opens, from, { slot, until: to });
      const goesOn = to > moments && from > 0;
      // It was open when the step before ended.
      if (goesOn) add(opens, 0, { slot, until: to - moments });
      const end = goesOn ? to - moments : to;
      if (end < moments) add(closes, end, slot);
      isOpen ||= goesOn || from === 0;
    }
    if (!isOpen) add(closes, 0, slot);
  });
  return Array.from({ length: moments }, (_, m) =>
    opens.has(m) || closes.has(m) ? { opens: opens.get(m) ?? [], closes: closes.get(m) ?? [] } : NO_CHANGES,
  );
}
