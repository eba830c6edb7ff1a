// The report's section on memory: what each tier held, what moved over each link beside the least that any schedule
// moves, what was waited for, a step's time over the budget, and the chunk map, with the same in a table for screen readers. Pure text from
// plain data, through html.ts; page/step-map.ts draws.

import {
  type ActivationState,
  activationBytesOf,
  activationCode,
  type ChunkHistory,
  decode,
  encodeState,
  expand,
  type RunLengths,
  rowLists,
  rowsOf,
  slotsInUse,
  TIERS,
  type Tier,
} from '../engine/observe/chunk-codes.ts';
import { STATES } from '../memory/layout/states.ts';
import type { MemoryRecord, TierFigures } from '../train/run/memory-record.ts';
import { at } from '../util/at.ts';
import { formatBytes } from '../util/bytes.ts';
import { counted } from '../util/counted.ts';
import { advice } from './advice.ts';
import { activationShares, slotsText, WORDS } from './chunk-words.ts';
import { dataOf, type Html, html } from './html.ts';
import MEMORY_COLORS from './memory-colors.css?raw';
import MEMORY_SCRIPT from './page/memory.ts?script';
import type { MapData } from './page/step-map.ts';
import type { Color } from './paint/colors.ts';
import { sweepPicture, sweepStyle } from './sweep.ts';

export function memorySection(record: MemoryRecord): Html {
  const map = record.map ? chunkMap(record.map, record.gpu.budget) : '';
  return html`<section class="memory"><h2>Memory</h2>
${figures(record)}
${advised(record)}
<div class="ledgers">${bytesTable(record)}${waitsTable(record)}</div>
${overBudgets(record)}
${map}</section>`;
}

function advised(record: MemoryRecord): Html | '' {
  const lines = advice(record);
  return lines.length > 0 ? html`<ul class="advice">${lines.map((line) => html`<li>${line}</li>`)}</ul>` : '';
}

/** What the map's script reads; nothing where there is no map. */
export function memoryData({ map, gpu }: MemoryRecord): Html | '' {
  if (!map) return '';
  const data: MapData = { history: map, budget: gpu.budget ?? null };
  return dataOf('memory', data);
}

/** Brings the map to life. */
export { MEMORY_SCRIPT };

// ---- Figures -------------------------------------------------------------------------------------------

function figures({ gpu, host, disk, bytesPerStep, bound, recoveryBytesPerStep }: MemoryRecord): Html {
  const tier = ({ budget, peak }: TierFigures) =>
    peak === 0 && budget === undefined ? 'not used' : budget === undefined ? 'no limit' : `of ${formatBytes(budget)}`;
  const predicted = gpu.predictedPeak === gpu.peak ? 'as predicted' : `${formatBytes(gpu.predictedPeak)} predicted`;
  const rows: [string, string, string][] = [
    ['GPU, peak', formatBytes(gpu.peak), gpu.budget === undefined ? predicted : `${tier(gpu)}, ${predicted}`],
    ['Host memory, peak', formatBytes(host.peak), tier(host)],
    ['Disk, peak', formatBytes(disk.peak), tier(disk)],
  ];
  if (bytesPerStep) {
    const moved = bytesPerStep.h2d + bytesPerStep.d2h;
    const over = bound ? `${times(moved, bound.lp)} the least possible` : 'host and GPU, both ways';
    const alone = bound && recoveryBytesPerStep > 0 ? `, ${bound.ratio.toFixed(2)} × but for recovery` : '';
    rows.push(['Moved in a step', formatBytes(moved), over + alone]);
  }
  const cells = rows.map(([term, value, note]) => html`<div><dt>${term}</dt><dd>${value}</dd><dd>${note}</dd></div>`);
  return html`<dl class="summary">${cells}</dl>`;
}

const times = (value: number, of: number): string =>
  of === 0 ? (value === 0 ? '1.00 ×' : '∞ ×') : `${(value / of).toFixed(2)} ×`;

// ---- Ledgers -------------------------------------------------------------------------------------------

interface Bar {
  readonly name: string;
  readonly value: number;
  readonly shown: string;
  readonly style?: 'sum' | 'bound' | 'part';
  readonly color?: Color;
}

function bars(caption: string, rows: readonly Bar[], note: string): Html {
  const most = Math.max(...rows.map(({ value }) => value), Number.MIN_VALUE);
  const cells = rows.map(({ name, value, shown, style = '', color }) => {
    const width = ((100 * value) / most).toFixed(2);
    // A width that is an attribute of its own: the page's policy lets no element bring styles along.
    const bar = html`<svg class="${color ? `paint-${color}` : ''}" width="${width}%" aria-hidden="true"></svg>`;
    return html`<tr class="${style}"><th scope="row">${name}</th><td>${shown}</td><td>${bar}</td></tr>`;
  });
  const foot = note ? html`<tfoot><tr><td colspan="3">${note}</td></tr></tfoot>` : '';
  return html`<table class="bars"><caption>${caption}</caption><tbody>${cells}</tbody>${foot}</table>`;
}

function bytesTable({ bytesPerStep, offloadedPerStep, fetchedPerStep, bound, ...rest }: MemoryRecord): Html {
  const { recoveryBytesPerStep, disk, total } = rest;
  // Where no step was recorded there is the whole run to show.
  const bytes = bytesPerStep ?? total;
  const row = (name: string, value: number, rest: Partial<Bar> = {}): Bar => {
    return { name, value, shown: formatBytes(value), ...rest };
  };
  const link = bytes.h2d + bytes.d2h;
  const rows = [row('host to GPU', bytes.h2d, { color: 'gpu' }), row('GPU to host', bytes.d2h, { color: 'host' })];
  const notes: string[] = [];
  if (bytesPerStep && bound) {
    rows.push(row('both ways', link, { style: 'sum' }), row('least of any schedule', bound.lp, { style: 'bound' }));
    if (bound.milp !== undefined && bound.milp !== bound.lp) {
      rows.push(row('least in whole chunks', bound.milp, { style: 'bound' }));
    }
    notes.push(
      recoveryBytesPerStep > 0
        ? `The schedule itself moves ${bound.ratio.toFixed(2)} × the least; beyond it, every step’s state is copied down, so that a lost GPU costs one step at most.`
        : `The schedule moves ${bound.ratio.toFixed(2)} × the least.`,
    );
  }
  if (bytesPerStep && offloadedPerStep > 0)
    rows.push(row('activations, down and up', offloadedPerStep + fetchedPerStep));
  if (disk.peak > 0) {
    rows.push(row('read from disk', bytes.diskRead, { color: 'disk' }));
    rows.push(row('written to disk', bytes.diskWrite, { color: 'disk' }));
  }
  if (bytesPerStep) {
    const { h2d, d2h, diskRead, diskWrite } = total;
    const onDisk = disk.peak > 0 ? `, ${formatBytes(diskRead)} from disk, ${formatBytes(diskWrite)} to disk` : '';
    notes.push(
      `The whole run: ${formatBytes(h2d)} up, ${formatBytes(d2h)} down${onDisk}, first step and saving included.`,
    );
  }
  return bars(bytesPerStep ? 'Bytes moved in a step' : 'Bytes moved in the run', rows, notes.join(' '));
}

function waitsTable({ waits, disk }: MemoryRecord): Html {
  const row = (name: string, value: number, rest: Partial<Bar> = {}): Bar => {
    return { name, value, shown: duration(value), ...rest };
  };
  const rows = [
    row('values on their way down', waits.down, { color: 'host' }),
    row('the GPU to take what came up', waits.up, { color: 'gpu' }),
    row('host memory and disk', waits.below, { color: 'disk' }),
  ];
  if (waits.network > 0) rows.push(row('other ranks', waits.network));
  if (disk.peak > 0) {
    rows.push(row('reads from disk', waits.diskRead, { style: 'part' }));
    rows.push(row('room, and writes to disk', waits.diskWrite, { style: 'part' }));
  }
  const behind = 'The first two include the work of the GPU ahead of them.';
  const within = 'Time of reads and writes is that of the tiers, most of it while the GPU works.';
  return bars('The run waited for', rows, disk.peak > 0 ? `${behind} ${within}` : behind);
}

/** "640 ms", "12.4 s", "3.2 min". */
function duration(milliseconds: number): string {
  if (milliseconds < 999.5) return `${Number(milliseconds.toPrecision(3))} ms`;
  const seconds = milliseconds / 1000;
  return seconds < 120 ? `${Number(seconds.toPrecision(3))} s` : `${(seconds / 60).toFixed(1)} min`;
}

// ---- Other budgets -------------------------------------------------------------------------------------

function overBudgets({ sweep, gpu, disk }: MemoryRecord): Html | '' {
  if (!sweep || gpu.budget === undefined) return '';
  const line = { ...sweep, label: 'as planned', has: gpu.budget };
  const without = disk.peak > 0 ? ', with no wait for the disk' : '';
  return html`<figure class="wide budgets">${sweepPicture('A step within other budgets', [line], 'the budget of this run')}
<figcaption>The curve is the planner’s, by the rates that this run was planned by${without}.</figcaption></figure>`;
}

// ---- The map -------------------------------------------------------------------------------------------

function chunkMap(history: ChunkHistory, budget: number | undefined): Html {
  const { chunks, operators, chunkBytes, otherBytes, staging, activations } = history;
  const used = slotsInUse(chunks);
  const { length: tensors } = activations.tensors;
  const rows = `${counted(chunks.length, 'chunk')}${tensors > 0 ? ` and ${counted(tensors, 'activation')}` : ''}`;
  const alternative =
    `Map of ${rows} over the ${operators.length} moments of one step: in which tier each is and what it is doing. ` +
    'Arrow keys move, plus and minus zoom; the table below has the shares.';
  const swatch = (code: number, name: string, title = '') =>
    html`<span title="${title}"><canvas class="swatch" data-code="${code}" aria-hidden="true"></canvas>${name}</span>`;
  const tiers = presentTiers(history).map((tier) => swatch(encodeState(tier, 'HOLD'), WORDS[tier] ?? tier));
  const states = STATES.filter((state) => state !== 'FREE').map((state) =>
    swatch(encodeState('gpu', state), WORDS[state] ?? state, state),
  );
  const fates = presentStates(history).map((state) => swatch(activationCode(state, false), WORDS[state] ?? state));
  const held = activationBytesOf(history);
  // A step may have more moments than a call takes arguments.
  const most = (values: readonly number[]) => values.reduce((a, b) => Math.max(a, b), 0);
  const area = (color: Color, name: string, bytes?: number) => {
    const size = bytes === undefined ? '' : html` <output>${formatBytes(bytes)}</output>`;
    return html`<span><i class="box paint-${color}"></i>${name}${size}</span>`;
  };
  const memory = [
    area('gpu', 'chunks, at most', most(used) * chunkBytes),
    area('staging', 'staging, at most', most(expand(history.staged)) * chunkBytes),
    area('activations', 'activations kept, at most', most(held.kept)),
    ...(most(held.again) > 0 ? [area('again', 'made again, at most', most(held.again))] : []),
    area('working', 'their gradients, and scratch, at most', most(held.working)),
    area('other', 'inputs and uniforms', otherBytes),
    area('unused', 'set aside, not in use'),
  ];
  return html`<figure class="chunk-map">
<figcaption><b>One step, chunk by chunk</b><span>${operators.length} moments, ${counted(chunks.length, 'chunk')} of ${formatBytes(chunkBytes)}${
    tensors > 0 ? `; ${becameOf(history)}` : ''
  }</span></figcaption>
<p class="legend"><b>Where</b>${tiers}</p>
<p class="legend"><b>State</b>${states}${swatch(encodeState('none', 'FREE'), 'free', 'FREE')}</p>
${fates.length > 0 ? html`<p class="legend"><b>Activations</b>${fates}</p>` : ''}
<div class="frame" tabindex="0" role="application" aria-roledescription="chunk map" aria-label="${alternative}">
<canvas class="tiers"></canvas>
<p class="legend below"><b>GPU memory</b>${memory}</p>
<canvas class="areas"></canvas>
<div class="cross" hidden></div><div class="marked" hidden></div><div class="selected" hidden></div>
<div class="tip" role="status" hidden></div>
</div>
<p class="hint">A step’s operators from left to right.${
    budget === undefined ? '' : ` The budget leaves ${slotsText(history)} and ${counted(staging, 'chunk')} of staging.`
  } Point at a row to read it, drag to zoom, double-click to see all; or use the arrow keys, + and −.</p>
${sharesTable(history)}
</figure>`;
}

const presentTiers = (history: ChunkHistory): Tier[] => {
  const found = new Set([...codesOf(rowsOf(history))].map((code) => decode(code).tier));
  return TIERS.filter((tier) => tier !== 'none' && found.has(tier));
};

/** What activations are on the GPU, or not at all: what lies below has the colours of its tier. */
const presentStates = ({ activations }: ChunkHistory): ActivationState[] => {
  const found = new Set([...codesOf(activations.codes)].map((code) => decode(code).activation));
  return (['kept', 'given up', 'again'] as const).filter((state) => found.has(state));
};

const codesOf = (rows: readonly RunLengths[]): Set<number> =>
  new Set(rows.flatMap((runs) => runs.filter((_, i) => i % 2 === 0)));

/** "of 26 activations 18 are kept, 8 made again". */
function becameOf(history: ChunkHistory): string {
  const words = { kept: 'kept', moved: 'moved down and back', again: 'given up and made again' };
  const shares = Object.entries(activationShares(history)).flatMap(([share, { count, bytes }]) =>
    count > 0 ? [`${count} ${words[share as keyof typeof words]} (${formatBytes(bytes)})`] : [],
  );
  return `of ${history.activations.tensors.length} activations ${shares.join(', ')}`;
}

/** The map in numbers: how much of the step the chunks of each kind, and the activations, spent where. */
function sharesTable(history: ChunkHistory): Html {
  const tiers: Tier[] = [...presentTiers(history), 'none'];
  const percent = (part: number, whole: number) => {
    const value = (100 * part) / whole;
    return part === 0 ? '–' : value < 0.1 ? '< 0.1 %' : `${value.toFixed(1)} %`;
  };
  const all = rowsOf(history);
  const rows = rowLists(history).map(({ kind, first, chunks }) => {
    const spent = new Map<Tier, number>();
    let using = 0;
    for (const runs of all.slice(first, first + chunks)) {
      for (let i = 0; i < runs.length; i += 2) {
        const { tier, state } = decode(at(runs, i));
        const length = at(runs, i + 1);
        spent.set(tier, (spent.get(tier) ?? 0) + length);
        if (state === 'COMPUTE') using += length;
      }
    }
    const whole = chunks * history.operators.length;
    const cells = tiers.map((tier) => html`<td>${percent(spent.get(tier) ?? 0, whole)}</td>`);
    return html`<tr><th scope="row">${WORDS[kind] ?? kind}</th><td>${chunks}</td>${cells}<td>${percent(using, whole)}</td></tr>`;
  });
  const heads = ['', 'rows', ...tiers.map((tier) => WORDS[tier] ?? tier), 'in use'];
  return html`<details><summary>The same as a table: shares of the step’s moments</summary>
<div class="wide"><table class="shares"><thead><tr>${heads.map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
<tbody>${rows}</tbody></table></div></details>`;
}

export const MEMORY_STYLE = `${MEMORY_COLORS}${sweepStyle(1)}
.memory .summary { margin-top: 0.5rem; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }
.advice { margin: 0.9rem 0 0; padding-left: 1.1rem; }
.memory .summary dd + dd { color: var(--muted); font-size: 0.85rem; font-weight: 400; }
.ledgers { display: grid; gap: 1.5rem 3rem; grid-template-columns: repeat(auto-fit, minmax(min(20rem, 100%), 1fr));
  margin: 1.5rem 0 2.5rem; align-items: start; }
table { border-collapse: collapse; }
.bars { width: 100%; font-size: 0.85rem; }
caption { text-align: left; font-size: 1rem; font-weight: 600; padding-bottom: 0.4rem; }
.bars th { width: 1%; padding: 0.17rem 0; color: var(--muted); font-weight: 400; text-align: left; white-space: nowrap; }
.bars td { white-space: nowrap; }
.bars tbody td:nth-child(2) { width: 1%; padding: 0 0.9rem 0 1.2rem; text-align: right; }
.bars svg { display: block; height: 0.7rem; border-radius: 1px; background: var(--paint, var(--muted));
  print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.bars .sum svg { background: var(--ink); opacity: 0.75; }
.bars .bound svg { background: none; border: 1.5px solid var(--ink); }
.bars tbody tr.sum > * { padding-block: 0.5rem 0.17rem; }
.bars .sum th, .bars .bound th { color: var(--ink); }
.bars .part th { padding-left: 1rem; }
.bars .part svg { background: none; border: 1px solid var(--disk); }
.bars tfoot td { padding: 0.5rem 0 0; color: var(--muted); white-space: normal; }
.budgets .sweep { display: block; min-width: 36rem; }
.budgets { margin-bottom: 2.5rem; }
.chunk-map, .budgets { break-inside: avoid; }
.legend + .legend { margin-top: -0.4rem; }
.legend { display: flex; flex-wrap: wrap; gap: 0.2rem 1.1rem; margin: 0 0 0.7rem; color: var(--muted);
  font-size: 0.85rem; align-items: center; }
.legend b { color: var(--ink); font-weight: 600; }
figcaption + .legend b, .legend + .legend b { min-width: calc(88px - 1.1rem); font-weight: 400; }
.legend output { color: var(--ink); }
.legend.below { position: relative; z-index: 1; background: var(--paper); margin: 1.1rem 0 0.2rem 88px; }
.swatch { width: 22px; height: 12px; margin-right: 0.45rem; vertical-align: -1px; border-radius: 1px; }
.swatch[data-code="0"] { box-shadow: inset 0 0 0 1px var(--rule); }
.box { display: inline-block; background: var(--paint); width: 12px; height: 12px; margin-right: 0.45rem; border-radius: 1px;
  vertical-align: -1px; }
.frame { position: relative; cursor: crosshair; touch-action: pan-y pinch-zoom; user-select: none;
  border-radius: 2px; outline-offset: 6px; }
.frame:focus-visible { outline: 2px solid var(--first); }
.frame canvas { display: block; width: 100%; }
.cross, .marked, .selected { position: absolute; pointer-events: none; }
.cross { top: 22px; bottom: 26px; border-left: 1px solid var(--ink); opacity: 0.55; }
.marked { right: 0; border-block: 1px solid var(--ink); opacity: 0.55; }
.selected { top: 22px; bottom: 26px; background: color-mix(in srgb, var(--first) 16%, transparent); }
.tip { position: absolute; z-index: 2; pointer-events: none; max-width: 22rem; padding: 0.5rem 0.7rem;
  border: 1px solid var(--rule); border-radius: 4px; background: var(--paper); font-size: 0.85rem; line-height: 1.4;
  box-shadow: 0 2px 10px rgb(0 0 0 / 14%); }
.tip .name { font-weight: 600; }
.tip .more { color: var(--muted); }
.wide { overflow-x: auto; }
.chunk-map details { margin-top: 1rem; border-block: 1px solid var(--rule); }
.shares { margin-bottom: 0.8rem; font-size: 0.85rem; }
.shares th { font-weight: 400; color: var(--muted); text-align: left; }
.shares td, .shares thead th { padding: 0.15rem 1.6rem 0.15rem 0; text-align: right; white-space: nowrap; }
.shares tbody th { padding-right: 1.6rem; }
@media print {
  .box { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  .chunk-map .hint { display: none; }
}
`;
