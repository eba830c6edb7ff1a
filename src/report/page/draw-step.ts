// Drawing of one step: a row for every chunk and every activation, coloured by tier and state from moment to moment,
// and below, on the same axis, the GPU's memory. Draws what it is given, as it lies in a Geometry; answers nothing.

import { type ChunkHistory, decode, rowLists, rowsOf } from '../../engine/observe/chunk-codes.ts';
import { formatBytes } from '../../util/bytes.ts';
import { WORDS } from '../chunk-words.ts';
import { openCanvas } from '../paint/canvas.ts';
import type { Colors } from '../paint/colors.ts';
import { type MemoryLayers, paintMemory, paintPhases } from '../paint/step.ts';
import { Fills } from './fills.ts';
import { type Geometry, HEAD } from './geometry.ts';

const AREA_HEIGHT = 150;
const AXIS_HEIGHT = 26;

/** All rows, with the names of kinds and phases. */
export function drawRows(canvas: HTMLCanvasElement, history: ChunkHistory, at: Geometry, colors: Colors): void {
  const { rowHeight, tops, height, left, right } = at;
  const context = openCanvas(canvas, right, height);
  const fills = new Fills(colors, rowHeight >= 4);
  paintPhases(context, history, at, colors, { height, names: HEAD / 2 - 2, opens: true });
  context.textAlign = 'left';
  for (const { kind, first, chunks } of rowLists(history)) {
    context.fillStyle = colors.ink;
    const middle = (tops[first] ?? 0) + (chunks * rowHeight) / 2;
    const name = WORDS[kind] ?? kind;
    if (chunks * rowHeight >= 30) {
      context.fillText(name, 0, middle - 7);
      context.fillStyle = colors.muted;
      const things = `${chunks} ${kind === 'activation' ? 'tensor' : 'chunk'}${chunks === 1 ? '' : 's'}`;
      context.fillText(things, 0, middle + 9);
    } else context.fillText(name, 0, middle);
  }
  clipped(context, at, height, () => {
    // What is in use comes last, and at least a pixel wide: of many moments on one pixel it is the one to see.
    for (const using of [false, true]) {
      rowsOf(history).forEach((runs, chunk) => {
        let m = 0;
        for (let i = 0; i < runs.length; i += 2) {
          const [code, length] = [runs[i] ?? 0, runs[i + 1] ?? 0];
          const from = at.x(m);
          m += length;
          if ((decode(code).state === 'COMPUTE') !== using || at.x(m) < left || from > right) continue;
          const fill = fills.of(context, code);
          if (!fill) continue;
          context.fillStyle = fill;
          context.fillRect(from, tops[chunk] ?? 0, Math.max(using ? 1 : 0, at.x(m) - from), rowHeight);
        }
      });
    }
    if (rowHeight < 6) return;
    context.globalAlpha = 0.35;
    context.fillStyle = colors.paper;
    for (const top of tops) context.fillRect(left, top + rowHeight - 1, right - left, 1);
  });
}

/** The GPU's memory, with bytes at its left, the budget where there is one, and the moments below. */
export function drawMemory(
  canvas: HTMLCanvasElement,
  history: ChunkHistory,
  layers: MemoryLayers,
  budget: number | null,
  at: Geometry,
  colors: Colors,
): void {
  const { left, right } = at;
  const context = openCanvas(canvas, right, AREA_HEIGHT + AXIS_HEIGHT);
  const top = Math.max(layers.reserved, budget ?? 0) * 1.14;
  const y = (bytes: number) => AREA_HEIGHT - (bytes / top) * (AREA_HEIGHT - 4);
  context.textAlign = 'right';
  const unit = roundBytes(top);
  for (let bytes = 0; bytes <= top; bytes += unit) {
    context.fillStyle = colors.rule;
    context.fillRect(left, Math.round(y(bytes)) - 0.5, right - left, 1);
    context.fillStyle = colors.muted;
    const text = bytes === 0 ? '0' : formatBytes(bytes).replace(/\.0+ /, ' ');
    context.fillText(text, left - 10, Math.max(7, y(bytes)));
  }
  clipped(context, at, AREA_HEIGHT, () => paintMemory(context, layers, at, y, colors));
  paintPhases(context, history, at, colors, { height: AREA_HEIGHT, opens: true });
  context.textAlign = 'right';
  if (budget !== null) {
    context.fillStyle = colors.ink;
    context.fillRect(left, Math.round(y(budget)) - 1, right - left, 1.5);
    context.fillText(`budget ${formatBytes(budget)}`, right - 2, y(budget) - 9);
  }
  context.fillStyle = colors.muted;
  context.fillText('moment', left - 10, AREA_HEIGHT + 14);
  context.textAlign = 'center';
  const every = roundMoments(at.to - at.from);
  for (let m = Math.ceil(at.from / every) * every; m < at.to; m += every) {
    const half = context.measureText(String(m)).width / 2;
    if (at.x(m) + half <= right) context.fillText(String(m), at.x(m), AREA_HEIGHT + 14);
  }
}

/** A swatch of the legend. */
export function drawSwatch(canvas: HTMLCanvasElement, code: number, colors: Colors): void {
  const ratio = window.devicePixelRatio;
  canvas.width = 22 * ratio;
  canvas.height = 12 * ratio;
  const context = canvas.getContext('2d') as CanvasRenderingContext2D;
  const fill = new Fills(colors, true).of(context, code);
  if (!fill) return;
  context.fillStyle = fill;
  context.fillRect(0, 0, canvas.width, canvas.height);
}

function clipped(context: CanvasRenderingContext2D, { left, right }: Geometry, height: number, draw: () => void): void {
  context.save();
  context.beginPath();
  context.rect(left, 0, right - left, height);
  context.clip();
  draw();
  context.restore();
}

/** Bytes between two lines: a round number, and five lines at most. */
function roundBytes(top: number): number {
  const power = 10 ** Math.ceil(Math.log10(top));
  return power / ([50, 20, 10, 5].find((parts) => (top / power) * parts <= 5) ?? 5);
}

/** Moments between two numbers below the axis. */
function roundMoments(span: number): number {
  const power = 10 ** Math.max(0, Math.floor(Math.log10(span / 6)));
  return power * (span / power > 14 ? 5 : span / power > 7 ? 2 : 1);
}
