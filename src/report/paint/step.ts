// A step over its moments, painted: its phases, and what GPU memory held. For the report's map, which zooms, and for the
// page's timeline, which does not: both give an axis. Knows no element and no pointer.

import type { ChunkHistory } from '../../engine/observe/chunk-codes.ts';
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

/** GPU memory over a step, in bytes: how high each layer reaches, with those below it. */
export interface MemoryLayers {
  /** Inputs and uniforms. */
  readonly otherBytes: number;
  /** And activations. */
  readonly fixed: number;
  /** And chunks in slots. */
  chunks(moment: number): number;
  /** And staging. */
  staging(moment: number): number;
  /** And slots and staging that are not in use. */
  readonly reserved: number;
}

/** What the layers of a history are. `used`, `staged`: its chunks in slots, and in staging, by moment. */
export function memoryLayers(
  { chunkBytes, activationBytes, otherBytes, slots, staging }: ChunkHistory,
  used: ArrayLike<number>,
  staged: ArrayLike<number>,
): MemoryLayers {
  const fixed = activationBytes + otherBytes;
  const chunks = (m: number) => fixed + (used[m] ?? 0) * chunkBytes;
  return {
    otherBytes,
    fixed,
    chunks,
    staging: (m) => chunks(m) + (staged[m] ?? 0) * chunkBytes,
    reserved: fixed + (slots + staging) * chunkBytes,
  };
}

/** The layers as areas, one upon the other. `y`: the height of so many bytes. */
export function paintMemory(
  context: CanvasRenderingContext2D,
  { otherBytes, fixed, chunks, staging, reserved }: MemoryLayers,
  axis: MomentAxis,
  y: (bytes: number) => number,
  colors: Colors,
): void {
  const x = (m: number) => axis.x(m);
  const first = Math.floor(axis.from);
  const last = Math.ceil(axis.to);
  const layer = (color: Color, low: (m: number) => number, high: (m: number) => number) => {
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
  };
  const flat = (bytes: number) => () => bytes;
  layer('other', flat(0), flat(otherBytes));
  layer('activations', flat(otherBytes), flat(fixed));
  layer('gpu', flat(fixed), chunks);
  layer('staging', chunks, staging);
  layer('unused', staging, flat(reserved));
}
