// The script of a report's curves: draws them by uPlot, which the report has before it, and moves the readings with the cursor.
// Built into the report by `?script`; the figures' markup is report.ts's.

import type UPlot from 'uplot';
import { compactNumber, shortNumber } from '../numbers.ts';
import type { Column } from '../smooth.ts';

declare const uPlot: typeof UPlot;

interface Series {
  readonly label: string;
  /** A CSS variable of the page. */
  readonly color: string;
  readonly width: number;
  readonly points: boolean;
  readonly values: Column;
}

interface Chart {
  readonly title: string;
  readonly height: number;
  /** The vertical axis begins at 0. */
  readonly fromZero: boolean;
  readonly series: readonly Series[];
}

/** What the page holds for this. */
export interface CurveData {
  readonly x: readonly number[];
  readonly charts: readonly Chart[];
}

const { x, charts }: CurveData = JSON.parse(document.getElementById('data')?.textContent ?? '{"x":[],"charts":[]}');
// Colours are read when drawing, so that a change of scheme only needs a redraw.
const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const axis = (own: UPlot.Axis): UPlot.Axis => ({
  stroke: () => color('--muted'),
  font: '12px system-ui, sans-serif',
  values: (_, splits) => splits.map(compactNumber),
  ...own,
});
const WHOLE_STEPS = Array.from({ length: 30 }, (_, i) => ([1, 2, 5][i % 3] ?? 1) * 10 ** Math.floor(i / 3));

/** The last of the values up to one. */
function lastOf(values: Column, at: number): number | null {
  for (let i = at; i >= 0; i--) {
    const value = values[i] ?? null;
    if (value !== null) return value;
  }
  return null;
}

/** Moves them to the values under the cursor, or where there is none to the last before it. */
function readings(index: number, figure: Element, { series }: Chart): (plot: UPlot) => void {
  const outputs = figure.querySelectorAll('output');
  const step = index === 0 ? figure.querySelector('.step output') : null;
  return ({ cursor }) => {
    const at = cursor.idx ?? x.length - 1;
    if (step) step.textContent = String(x[at]);
    for (const [i, { values }] of series.entries()) {
      const value = lastOf(values, at);
      const output = outputs[i];
      if (output) output.textContent = value === null ? '' : shortNumber(value);
    }
  };
}

function draw(chart: Chart, index: number): UPlot[] {
  const figure = document.getElementById(`chart${index}`);
  const target = figure?.querySelector('div');
  if (!figure || !target) return [];
  const { height, fromZero, series } = chart;
  const fromNothing: UPlot.Scale = { range: (_plot: UPlot, _least: number, most: number) => [0, most * 1.08 || 1] };
  const options: UPlot.Options = {
    ...{ width: target.clientWidth, height, padding: [8, 8, 0, 0], legend: { show: false } },
    cursor: { y: false, sync: { key: 'run' }, points: { size: 7 } },
    scales: { x: { time: false }, y: fromZero ? fromNothing : {} },
    axes: [
      axis({ size: 28, gap: 6, space: 40, incrs: WHOLE_STEPS, grid: { show: false }, ticks: { show: false } }),
      axis({ size: 48, gap: 8, grid: { stroke: () => color('--rule'), width: 1 }, ticks: { show: false } }),
    ],
    series: [
      {},
      ...series.map(({ color: name, width, points }) => ({
        stroke: () => color(name),
        ...{ width, spanGaps: true, points: { show: points, size: 6, fill: () => color(name) } },
      })),
    ],
    hooks: { setCursor: [readings(index, figure, chart)] },
  };
  const plot = new uPlot(options, [x, ...series.map(({ values }) => values)] as UPlot.AlignedData, target);
  new ResizeObserver(() => plot.setSize({ width: target.clientWidth, height })).observe(target);
  return [plot];
}

const plots = charts.flatMap(draw);
for (const query of ['(prefers-color-scheme: dark)', 'print']) {
  matchMedia(query).addEventListener('change', () => {
    for (const plot of plots) plot.redraw();
  });
}
