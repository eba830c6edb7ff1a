// The picture of a sweep: seconds of a step over the budget of GPU memory, a line a machine, as SVG that needs nothing
// else, light and dark: a file of its own, or a part of a report. Pure text from plain data, through html.ts. Both axes are
// logarithmic: machines differ by thousands.

import { formatBytes } from '../util/bytes.ts';
import { type Html, html } from './html.ts';

/** A machine, or a run. */
export interface SweepLine {
  readonly label: string;
  /** Ascending budgets, in bytes, and seconds of a step within them. */
  readonly points: readonly { readonly budget: number; readonly seconds: number }[];
  /** Seconds of a step with everything on the GPU, all activations kept. */
  readonly resident: number;
  /** The budget that a ring marks: the memory that a machine has for training, or what a run had. */
  readonly has: number;
  /** Seconds that a step was measured to take within that. @default it was not */
  readonly measured?: number | undefined;
}

/** What a picture begins with, by which a file is known to be one. */
export const SWEEP_BEGINS = '<svg xmlns="http://www.w3.org/2000/svg" class="sweep" ';

const WIDTH = 880;
const HEIGHT = 480;
const FRAME = { left: 76, right: 856, top: 84, bottom: 404 };
const LEGEND_ROW = 18;
/** Half of its width. */
const CROSS = 5;
/** Light and dark, one a line. */
const COLORS = [
  ['#23617f', '#7cb8d6'],
  ['#c05a1c', '#e8975a'],
  ['#4f7a28', '#9cc46f'],
  ['#8a3d7c', '#d08cc4'],
  ['#7a6a1c', '#d0bf6a'],
  ['#5a5f66', '#a9b0b6'],
] as const;

/** An axis: where a value lies on it, and the values that are marked. */
interface Axis {
  at(value: number): number;
  readonly marks: readonly number[];
}

/** The picture as a file of its own. `ring`: what the ring on a line is. */
export function renderSweep(title: string, lines: readonly SweepLine[], ring: string): string {
  const { opening, inside } = picture(title, lines, ring);
  return `${opening}\n<style>${sweepStyle(lines.length)}</style>\n${inside}\n</svg>\n`;
}

/** The picture as a part of a page that has `sweepStyle`. */
export function sweepPicture(title: string, lines: readonly SweepLine[], ring: string): Html {
  const { opening, inside } = picture(title, lines, ring);
  return html`${opening}${inside}</svg>`;
}

function picture(title: string, lines: readonly SweepLine[], ring: string): Record<'opening' | 'inside', Html> {
  const budgets = lines.flatMap(({ points }) => points.map(({ budget }) => budget));
  const times = lines.flatMap(({ points, resident, measured }) => [
    resident,
    ...points.map(({ seconds }) => seconds),
    ...(measured === undefined ? [] : [measured]),
  ]);
  const x = axis(Math.min(...budgets), Math.max(...budgets), FRAME.left, FRAME.right);
  const y = axis(Math.min(...times), Math.max(...times), FRAME.bottom, FRAME.top);
  const height = HEIGHT + Math.ceil(lines.length / 2) * LEGEND_ROW;
  const notes = [
    'dashed: everything on the GPU',
    ...(lines.some(isBetween) ? [`a ring: ${ring}`] : []),
    ...(lines.some((line) => crossOf(line) !== undefined) ? ['a cross: as measured'] : []),
  ];
  return {
    opening: html`<svg xmlns="http://www.w3.org/2000/svg" class="sweep" viewBox="0 0 ${WIDTH} ${height}" width="${WIDTH}" height="${height}" role="img" aria-label="${title}">`,
    inside: html`<rect class="paper" width="${WIDTH}" height="${height}"/>
<text class="title" x="24" y="34">${title}</text>
<text class="muted" x="24" y="56">Seconds of a training step over the budget of GPU memory</text>
${y.marks.map((value) => mark(value, y, 'y'))}
${x.marks.map((value) => mark(value, x, 'x'))}
${lines.map((line, i) => drawLine(line, i, x, y))}
<text class="muted" x="${(FRAME.left + FRAME.right) / 2}" y="${FRAME.bottom + 44}" text-anchor="middle">${notes.join('; ')}</text>
${lines.map(({ label }, i) => legend(label, i))}`,
  };
}

function drawLine(line: SweepLine, index: number, x: Axis, y: Axis): Html {
  const { points, resident, has } = line;
  const path = points.map(
    ({ budget, seconds }, i) => `${i === 0 ? 'M' : 'L'}${round(x.at(budget))} ${round(y.at(seconds))}`,
  );
  const dots = points.map(
    ({ budget, seconds }) =>
      html`<circle r="2.5" cx="${round(x.at(budget))}" cy="${round(y.at(seconds))}"><title>${formatBytes(budget)}: ${time(seconds)}</title></circle>`,
  );
  const ring = isBetween(line)
    ? html`<circle class="ring" r="6" cx="${round(x.at(has))}" cy="${round(y.at(between(points, has)))}"/>`
    : '';
  const measured = crossOf(line);
  const cross = measured === undefined ? '' : crossAt(round(x.at(has)), round(y.at(measured)), time(measured));
  const level = round(y.at(resident));
  return html`<g class="${lineClass(index)}">
<path class="resident" d="M${FRAME.left} ${level}H${FRAME.right}"/>
<path d="${path.join('')}"/>${dots}${ring}${cross}
</g>
`;
}

/** Seconds as measured, where that budget is among those that are drawn. */
const crossOf = (line: SweepLine): number | undefined => (isBetween(line) ? line.measured : undefined);

const crossAt = (x: number, y: number, seconds: string): Html =>
  html`<path class="cross" d="M${x - CROSS} ${y - CROSS}l${2 * CROSS} ${2 * CROSS}m0 ${-2 * CROSS}l${-2 * CROSS} ${2 * CROSS}"><title>measured: ${seconds}</title></path>`;

/** Colours in turn; each further turn of them has dashes of its own. */
function lineClass(index: number): string {
  const turn = Math.floor(index / COLORS.length);
  return `line${index % COLORS.length}${turn === 0 ? '' : ` turn${turn}`}`;
}

/** Whether the memory that a machine has is among the budgets that are drawn. */
function isBetween({ points, has }: Pick<SweepLine, 'points' | 'has'>): boolean {
  const [first, last] = [points[0], points.at(-1)];
  return first !== undefined && last !== undefined && has >= first.budget && has <= last.budget;
}

/** The seconds at a budget between two points. */
function between(points: SweepLine['points'], budget: number): number {
  const after = Math.max(
    1,
    points.findIndex((point) => point.budget >= budget),
  );
  const [a, b] = [points[after - 1], points[after]];
  if (!a || !b) return a?.seconds ?? b?.seconds ?? 0;
  const share = Math.log(budget / a.budget) / Math.log(b.budget / a.budget);
  return Math.exp(Math.log(a.seconds) + share * Math.log(b.seconds / a.seconds));
}

function legend(label: string, index: number): Html {
  const left = 24 + (index % 2) * (WIDTH / 2);
  const top = HEIGHT - 8 + Math.floor(index / 2) * LEGEND_ROW;
  return html`<g class="${lineClass(index)}"><path d="M${left} ${top - 4}h22"/></g><text x="${left + 30}" y="${top}">${label}</text>
`;
}

function mark(value: number, { at }: Axis, of: 'x' | 'y'): Html {
  const where = round(at(value));
  if (of === 'y') {
    return html`<path class="rule" d="M${FRAME.left} ${where}H${FRAME.right}"/><text class="muted" x="${FRAME.left - 8}" y="${where + 4}" text-anchor="end">${time(value)}</text>
`;
  }
  return html`<path class="rule" d="M${where} ${FRAME.bottom}v5"/><text class="muted" x="${where}" y="${FRAME.bottom + 20}" text-anchor="middle">${bytes(value)}</text>
`;
}

/** Logarithmic, a little wider than its values, marked at 1, 2 and 5; where these are few, at more, or evenly. */
function axis(least: number, most: number, from: number, to: number): Axis {
  const margin = Math.max(Math.log(most / least) * 0.04, 0.02);
  const low = Math.log(least) - margin;
  const high = Math.log(most) + margin;
  const marksAt = (digits: readonly number[]) => {
    const found: number[] = [];
    for (let power = Math.floor(low / Math.LN10); power <= high / Math.LN10; power++) {
      for (const digit of digits) found.push(digit * 10 ** power);
    }
    return found.filter((value) => Math.log(value) >= low && Math.log(value) <= high);
  };
  return {
    at: (value) => from + ((Math.log(value) - low) / (high - low)) * (to - from),
    marks: DIGITS.map(marksAt).find(({ length }) => length >= 3) ?? evenMarks(Math.exp(low), Math.exp(high)),
  };
}

/** Of what is marked on an axis, the fewest first. */
const DIGITS = [
  [1, 2, 5],
  [1, 1.5, 2, 3, 5, 7],
];

/** Multiples of a round number. */
function evenMarks(least: number, most: number): number[] {
  const part = (most - least) / 6;
  const power = 10 ** Math.floor(Math.log10(part));
  const each = power * ([1, 2, 5].find((digit) => digit * power >= part) ?? 10);
  const first = Math.ceil(least / each);
  return Array.from({ length: Math.floor(most / each) - first + 1 }, (_, i) => (first + i) * each);
}

/** For so many lines; it leaves all else of a page as it is. */
export function sweepStyle(lines: number): string {
  const colors = (of: 0 | 1) =>
    COLORS.slice(0, lines).map(
      (pair, i) => `.sweep .line${i} { stroke: ${pair[of]}; } .sweep .line${i} circle { fill: ${pair[of]}; }`,
    );
  const turns = Array.from({ length: Math.floor((lines - 1) / COLORS.length) }, (_, i) => {
    const dots = '1.5 4 '.repeat(i + 1).trim();
    return `.sweep .turn${i + 1} path:not(.resident) { stroke-dasharray: 12 4 ${dots}; }`;
  });
  return `
.sweep { max-width: 100%; height: auto; }
.sweep text { font: 13px system-ui, sans-serif; fill: #1c2024; font-variant-numeric: tabular-nums; }
.sweep .title { font-size: 17px; font-weight: 600; }
.sweep .muted { font-size: 12px; fill: #6a7178; }
.sweep .paper { fill: #fdfdfb; }
.sweep path { fill: none; stroke-width: 1.5; }
.sweep .rule { stroke: #e6e6e1; stroke-width: 1; }
.sweep .resident { stroke-dasharray: 4 4; stroke-width: 1; opacity: 0.6; }
.sweep circle { stroke: none; }
${colors(0).join('\n')}
${turns.join('\n')}
.sweep .ring.ring { fill: none; stroke: inherit; stroke-width: 1.5; }
.sweep .cross { stroke-width: 2; }
@media screen and (prefers-color-scheme: dark) {
.sweep text { fill: #e4e5e2; } .sweep .muted { fill: #8d959c; } .sweep .paper { fill: #15181a; } .sweep .rule { stroke: #2a2e31; }
${colors(1).join('\n')}
}
`;
}

const round = (value: number): number => Number(value.toFixed(1));

const bytes = (value: number): string =>
  formatBytes(value)
    .replace(/(\.\d*?)0+ /, '$1 ')
    .replace('. ', ' ');

function time(seconds: number): string {
  if (seconds < 0.9995) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  if (seconds < 3600) return `${Number(seconds.toPrecision(3))} s`;
  return `${Number((seconds / 3600).toPrecision(3))} h`;
}
