// A run as one HTML page that needs nothing else: figures, curves, generated text, light and dark.
//
// Pure text from plain data; no clock, no file. The curves are drawn by uPlot, inlined. Invariant: what comes from the
// run reaches the page through html.ts alone, which escapes it, and the page loads nothing and runs nothing else.

import uPlotScript from 'uplot/dist/uPlot.iife.min.js?raw';
import uPlotStyle from 'uplot/dist/uPlot.min.css?raw';
import type { MemoryRecord } from '../train/run/memory-record.ts';
import type { RankRecord } from '../train/run/rank-record.ts';
import type { RunHistory } from '../train/run/saved-state.ts';
import { dataOf, type Html, html, pageOf } from './html.ts';
import { mendLanguage } from './language.ts';
import { MEMORY_SCRIPT, MEMORY_STYLE, memoryData, memorySection } from './memory-section.ts';
import { shortNumber } from './numbers.ts';
import type { CurveData } from './page/curves.ts';
import CURVES_SCRIPT from './page/curves.ts?script';
import { type Color, PAINT_STYLE } from './paint/colors.ts';
import { RANKS_STYLE, ranksSection } from './ranks-section.ts';
import { type Column, sixDigits, smooth } from './smooth.ts';

/** What a report shows. */
export interface ReportContent extends RunHistory {
  readonly title: string;
  readonly settings: Readonly<Record<string, string | number>>;
  readonly summary: Readonly<Record<string, string | number>>;
  /** What the accuracy of validations is of: problems that are solved, or labels. @default 'labels' */
  readonly told?: 'problems' | 'labels';
  /** Absent: nothing of it is known, and the page has no section on it. */
  readonly memory?: MemoryRecord;
  /** Absent: one rank ran it. */
  readonly ranks?: RankRecord;
}

interface Series {
  label: string;
  color: Color;
  width: number;
  points: boolean;
  values: Column;
}

interface Chart {
  title: string;
  height: number;
  /** The vertical axis begins at 0. */
  fromZero: boolean;
  series: Series[];
}

/** The page, as text. */
export async function renderReport(run: ReportContent): Promise<string> {
  const x = [...new Set([...run.steps, ...run.validations].map(({ step }) => step))].sort((a, b) => a - b);
  const charts = x.length > 0 ? chartsOf(run, x) : [];
  const { memory, ranks } = run;
  const data: CurveData = {
    x,
    charts: charts.map(({ series, ...chart }) => ({ ...chart, series: series.map(drawn) })),
  };
  return pageOf({
    title: run.title,
    styles: [uPlotStyle, STYLE, PAINT_STYLE, ...(memory ? [MEMORY_STYLE] : []), ...(ranks ? [RANKS_STYLE] : [])],
    scripts: [`(${mendLanguage})();`, uPlotScript, CURVES_SCRIPT, ...(memory?.map ? [MEMORY_SCRIPT] : [])],
    body: html`<header>
<p class="kicker">Holdfast training run</p>
<h1>${run.title}</h1>
</header>
${definitions('summary', run.summary)}
${curves(charts, x)}
${ranks ? ranksSection(ranks) : ''}
${memory ? memorySection(memory) : ''}
${samples(run)}
${Object.keys(run.settings).length > 0 ? html`<h2>Settings</h2>${definitions('settings', run.settings)}` : ''}
${dataOf('data', data)}
${memory ? memoryData(memory) : ''}`,
  });
}

const ACCURACY = {
  problems: ['Solved', 'of unseen problems'],
  labels: ['Accuracy', 'of labels that are held back'],
} as const;

/** As the script has it: a CSS variable of the page. */
const drawn = ({ color, ...rest }: Series) => ({ ...rest, color: `--${color}` });

function chartsOf({ steps, validations, told = 'labels' }: ReportContent, x: number[]): Chart[] {
  const align = (points: { step: number; value: number }[]): Column => {
    const at = new Map(points.map(({ step, value }) => [step, value]));
    return x.map((step) => sixDigits(at.get(step)));
  };
  const column = (field: 'loss' | 'lr' | 'gradNorm' | 'tokensPerSecond') =>
    align(steps.map((record) => ({ step: record.step, value: record[field] })));
  const line = (label: string, color: Color, values: Column, width = 1.5): Series => {
    return { label, color, width, points: steps.length < 3, values };
  };
  const loss = column('loss');
  const lossSeries = [line('each step', 'faint', loss, 1), line('smoothed', 'first', smooth(loss), 2)];
  if (validations.length > 0) {
    const values = align(validations.map(({ step, loss: value }) => ({ step, value })));
    lossSeries.push({ label: 'validation', color: 'second', width: 1.5, points: true, values });
  }
  const small = (title: string, label: string, values: Column): Chart => {
    return { title, height: 160, fromZero: true, series: [line(label, 'first', values)] };
  };
  const solved = validations.flatMap(({ step, accuracy }) =>
    accuracy === undefined ? [] : [{ step, value: accuracy }],
  );
  const [title, label] = ACCURACY[told];
  const accuracy = line(label, 'second', align(solved));
  return [
    { title: 'Loss', height: 320, fromZero: false, series: lossSeries },
    small('Speed', 'tokens/s', column('tokensPerSecond')),
    small('Learning rate', '', column('lr')),
    small('Gradient norm', '', column('gradNorm')),
    ...(solved.length > 0 ? [{ title, height: 160, fromZero: true, series: [{ ...accuracy, points: true }] }] : []),
  ];
}

function curves(charts: readonly Chart[], x: readonly number[]): Html | '' {
  const last = x.at(-1);
  if (charts.length === 0 || last === undefined) return '';
  const figures = charts.map((chart, index) => figure(chart, index, last));
  return html`<section class="charts">${figures}</section>
<p class="hint">Drag across a curve to zoom, double-click to see all of it.</p>`;
}

/** The readings at rest are the last values; the script moves them with the cursor. */
function figure({ title, series }: Chart, index: number, lastStep: number): Html {
  const readings = series.map(({ label, color, values }) => {
    const last = values.findLast((value) => value !== null) ?? null;
    const swatch = series.length > 1 ? html`<i class="paint-${color}"></i>` : '';
    return html`<span>${swatch}${label} <output>${last === null ? '' : shortNumber(last)}</output></span>`;
  });
  if (index === 0) readings.push(html`<span class="step">step <output>${lastStep}</output></span>`);
  const caption = html`<figcaption><b>${title}</b>${readings}</figcaption>`;
  return html`<figure id="chart${index}">${caption}<div></div></figure>`;
}

function definitions(name: 'summary' | 'settings', values: Record<string, string | number>): Html | '' {
  const rows = Object.entries(values).map(([term, value]) => {
    // Of a setting no rounding of what it was made from, as a tenth of another: 0.0006000000000000001.
    const worded = (number: number) => (name === 'summary' ? shortNumber(number) : Number(number.toPrecision(12)));
    const text = typeof value === 'number' ? worded(value) : value;
    return html`<div><dt>${term}</dt><dd>${text}</dd></div>`;
  });
  return rows.length > 0 ? html`<dl class="${name}">${rows}</dl>` : '';
}

/** The last sample in full, earlier ones folded. */
function samples(run: ReportContent): Html | '' {
  const shown = run.samples.toReversed().map(({ step, text }, index) => {
    const inside = html`<summary>Step ${step}</summary><pre>${text}</pre>`;
    return index === 0 ? html`<details open>${inside}</details>` : html`<details>${inside}</details>`;
  });
  return shown.length > 0 ? html`<h2>Generated text</h2>${shown}` : '';
}

const STYLE = `
:root {
  --paper: #fdfdfb; --ink: #1c2024; --muted: #6a7178; --rule: #e6e6e1;
  --first: #23617f; --faint: #b9cdd8; --second: #c05a1c;
}
@media screen and (prefers-color-scheme: dark) {
  :root {
    --paper: #15181a; --ink: #e4e5e2; --muted: #8d959c; --rule: #2a2e31;
    --first: #7cb8d6; --faint: #33505f; --second: #e8975a;
  }
}
@media print {
  :root { --paper: #ffffff; --muted: #5a6168; --rule: #e0e0dc; }
}
* { box-sizing: border-box; }
body {
  max-width: 66rem; margin: 0 auto; padding: clamp(1.25rem, 4vw, 3.5rem) clamp(1rem, 4vw, 2.5rem);
  background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif;
  font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%;
}
.kicker { margin: 0; color: var(--muted); font-size: 0.85rem; }
h1 { margin: 0.1rem 0 0; font-size: clamp(1.5rem, 4vw, 2.1rem); font-weight: 600; line-height: 1.2;
  letter-spacing: -0.015em; overflow-wrap: anywhere; text-wrap: balance; }
h2 { margin: 2.75rem 0 0.75rem; font-size: 1rem; font-weight: 600; }
dl, dd, figure { margin: 0; }
dt { color: var(--muted); font-size: 0.85rem; }
dd { overflow-wrap: anywhere; }
.summary { display: grid; grid-template-columns: repeat(auto-fill, minmax(8.5rem, 1fr)); gap: 1.1rem 1.5rem;
  margin-top: 1.75rem; padding: 1.1rem 0; border-block: 1px solid var(--rule); }
.summary dd { font-size: 1.25rem; font-weight: 500; line-height: 1.3; }
.settings { columns: 17rem; column-gap: 2.5rem; }
.settings div { display: flex; justify-content: space-between; gap: 1rem; padding: 0.3rem 0;
  border-bottom: 1px solid var(--rule); break-inside: avoid; }
.settings dd { text-align: right; }
.charts { display: grid; gap: 2rem; margin-top: 2rem; }
@media (min-width: 44rem) { .charts { grid-template-columns: repeat(3, 1fr); } }
figure { min-width: 0; }
.charts figure:first-child { grid-column: 1 / -1; }
figcaption { display: flex; flex-wrap: wrap; gap: 0 1.1rem; align-items: baseline; margin-bottom: 0.5rem;
  color: var(--muted); font-size: 0.85rem; }
figcaption b { color: var(--ink); font-size: 1rem; font-weight: 600; }
figcaption output { color: var(--ink); }
figcaption i { display: inline-block; width: 0.85rem; height: 3px; margin-right: 0.45rem; border-radius: 2px;
  background: var(--paint); vertical-align: middle; }
/* Where the system sets all colours, what a colour alone tells keeps its own. */
figcaption i, .legend i, [class^="wait-"] { forced-color-adjust: none; }
figcaption .step { margin-left: auto; }
.u-hz .u-cursor-x { border-right: 1px solid var(--muted); }
.u-select { background: color-mix(in srgb, var(--first) 14%, transparent); }
.hint { margin: 0.75rem 0 0; color: var(--muted); font-size: 0.85rem; }
details { border-top: 1px solid var(--rule); }
summary { padding: 0.5rem 0; color: var(--muted); font-size: 0.85rem; cursor: pointer; }
pre { margin: 0 0 1.25rem; font: 0.85rem/1.6 ui-monospace, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; }
@media (hover: none) { .hint { display: none; } }
`;
