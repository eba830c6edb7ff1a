// A step over its moments, painted: its phases, and what GPU memory held. For the report's map, which zooms, and for the
// page's timeline, which does not: both give an axis. Knows no element and no pointer.

import { activationBytesOf, type ChunkHistory, expand } from '../../engine/observe/chunk-codes.ts';
import type { Color, Colors } from './colors.ts';

/** Moments from left to right; what lies outside of `left` and `right` is not painted. */
export interface MomentAxis {
  /** Where the first moment in view begins. */
  readonly left: number;
  /** Where the last one ends. */
  readonly right: number;
  /** The first moment in view; a part of one counts. */
  readonly from: number;
  /** Where the last one in view ends. */
  readonly to: number;
  /** Where a moment begins. */
  x(moment: number): number;
}

/** How phases are painted. */
export interface PhaseLook {
  /** Of the lines between them. */
  readonly height: number;
  /** The middle of their names; absent: no names. */
  readonly names?: number;
  /** The first begins at a line, too. */
  readonly opens: boolean;
}

/** Lines where phases begin, and their names where there is room. */
export function paintPhases(
  context: CanvasRenderingContext2D,
  { phases, operators }: ChunkHistory,
  axis: MomentAxis,
  colors: Colors,
  { height, names, opens }: PhaseLook,
): void {
  let written = axis.left;
  phases.forEach(({ name, first }, i) => {
    const begin = axis.x(first);
    const from = Math.max(axis.left, begin);
    const to = Math.min(axis.right, axis.x(phases[i + 1]?.first ?? operators.length));
    if (to <= axis.left || from >= axis.right) return;
    const line = opens || i > 0;
    const inset = line ? 6 : 0;
    if (names !== undefined) {
      context.fillStyle = colors.muted;
      const { width } = context.measureText(name);
      const before = `${name} →`;
      if (to - from > width + 10) {
        context.textAlign = 'left';
        context.fillText(name, from + inset, names);
        written = from + inset + width;
      } else if (i === phases.length - 1 && from - context.measureText(before).width > written + 12) {
        // The last phase is short: its name stands before it.
        context.textAlign = 'right';
        context.fillText(before, from - 5, names);
      }
    }
    context.fillStyle = colors.rule;
    if (line && begin >= axis.left) context.fillRect(Math.round(from) - 0.5, 0, 1, height);
  });
}

/** GPU memory over a step, in bytes: areas one upon the other, from the lowest on. */
export interface MemoryLayers {
  /** In their order. */
  readonly areas: readonly MemoryArea[];
  /** All that is in use at a moment. */
  inUse(moment: number): number;
  /** All that there is: slots, staging and memory placed for activations, in use or not. */
  readonly reserved: number;
}

/** What one kind of use takes of the memory, over the moments: from one height to another. */
export interface MemoryArea {
  /** What it is painted in. */
  readonly color: Color;
  /** Where it begins. */
  low(moment: number): number;
  /** Where it ends. */
  high(moment: number): number;
}

/**
 * What the areas of a history are: inputs and uniforms; activations as kept or brought back, made again, and in the hands of
 * the operators; what is left of the memory placed for them; chunks in slots, staging, and what of both is not in use.
 * `used`, `staged`: its chunks in slots, and in staging, by moment.
 */
export function memoryLayers(history: ChunkHistory, used: ArrayLike<number>, staged: ArrayLike<number>): MemoryLayers {
  const { chunkBytes, activationBytes, otherBytes, slots, stagingBytes, among } = history;
  const { kept, again, working } = activationBytesOf(history);
  const fixed = otherBytes + activationBytes;
  const reserved = fixed + (slots - (among?.slots ?? 0)) * chunkBytes + stagingBytes;
  const inside = among ? expand(among.used) : [];
  const keptTo = (m: number) => otherBytes + (kept[m] ?? 0);
  const againTo = (m: number) => keptTo(m) + (again[m] ?? 0);
  const workingTo = (m: number) => againTo(m) + (working[m] ?? 0);
  // Those among the activations lie in what these leave of theirs.
  const chunksFrom = (m: number) => fixed - (inside[m] ?? 0) * chunkBytes;
  const chunksTo = (m: number) => chunksFrom(m) + (used[m] ?? 0) * chunkBytes;
  const stagedTo = (m: number) => chunksTo(m) + (staged[m] ?? 0) * chunkBytes;
  const flat = (bytes: number) => () => bytes;
  const area = (color: Color, low: (m: number) => number, high: (m: number) => number) => ({ color, low, high });
  return {
    areas: [
      area('other', flat(0), flat(otherBytes)),
      area('activations', flat(otherBytes), keptTo),
      area('again', keptTo, againTo),
      area('working', againTo, workingTo),
      area('unused', workingTo, chunksFrom),
      area('gpu', chunksFrom, chunksTo),
      area('staging', chunksTo, stagedTo),
      area('unused', stagedTo, flat(reserved)),
    ],
    inUse: (m) => workingTo(m) + stagedTo(m) - chunksFrom(m),
    reserved,
  };
}

/** The areas, painted. `y`: the height of so many bytes. */
export function paintMemory(
  context: CanvasRenderingContext2D,
  { areas }: MemoryLayers,
  axis: MomentAxis,
  y: (bytes: number) => number,
  colors: Colors,
): void {
  const x = (m: number) => axis.x(m);
  const first = Math.floor(axis.from);
  const last = Math.ceil(axis.to);
  for (const { color, low, high } of areas) {
    context.fillStyle = colors[color];
    context.beginPath();
    for (let m = first; m < last; m++) {
      context.lineTo(x(m), y(high(m)));
      context.lineTo(x(m + 1), y(high(m)));
    }
    for (let m = last - 1; m >= first; m--) {
      context.lineTo(x(m + 1), y(low(m)));
      context.lineTo(x(m), y(low(m)));
    }
    context.fill();
  }
}
