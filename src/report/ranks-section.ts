// The ranks of a run, side by side, as a section of its report: what each held, sent and got beside the least that there is, and
// where the time of its last step went. Text and tables alone: no script.

import type { Cause } from '../engine/observe/recording.ts';
import type { RankRecord, RankShare } from '../train/run/rank-record.ts';
import { formatBytes } from '../util/bytes.ts';
import { type Html, html } from './html.ts';
import { rankLines } from './rank-words.ts';

/** In the order in which a bar shows them. */
const CAUSES: readonly (readonly [Cause | 'work', string])[] = [
  ['work', 'at work'],
  ['network', 'other ranks'],
  ['down', 'values on their way down'],
  ['up', 'the GPU to take what came up'],
  ['below', 'host memory and disk'],
];

export function ranksSection(record: RankRecord): Html {
  const { each } = record;
  return html`<section class="ranks"><h2>Ranks</h2>
${rankLines(record).map((line) => html`<p>${line}</p>`)}
<table><thead><tr><th>rank</th><th>GPU memory</th><th>as predicted</th><th>host memory</th><th>disk</th><th>sent a step</th><th>got a step</th><th>x the least</th><th>last step</th><th>waiting for other ranks</th></tr></thead>
<tbody>${each.map(row)}</tbody></table>
${each.some(({ step }) => step) ? bars(each) : ''}</section>`;
}

function row({ rank, gpu, hostPeak, diskPeak, planned, bound, step }: RankShare): Html {
  const time = step ? `${Number(step.milliseconds.toPrecision(3))} ms` : '';
  const waited = step ? `${Number(step.waits.network.toPrecision(3))} ms` : '';
  const ratio = ((planned.sent + planned.received) / (2 * bound)).toFixed(3);
  const cells = [gpu.peak, gpu.predictedPeak, hostPeak, diskPeak, planned.sent, planned.received].map(formatBytes);
  return html`<tr><th>${rank}</th>${[...cells, ratio, time, waited].map((text) => html`<td>${text}</td>`)}</tr>`;
}

/** One a rank, as long as its step beside the longest. */
function bars(each: readonly RankShare[]): Html {
  const longest = Math.max(...each.map(({ step }) => step?.milliseconds ?? 0), Number.MIN_VALUE);
  const lines = each.flatMap(({ rank, step }) => {
    if (!step) return [];
    const waited = Object.values(step.waits).reduce((a, b) => a + b, 0);
    const spent = { ...step.waits, work: Math.max(0, step.milliseconds - waited) };
    const cells = CAUSES.map(([cause, words]) => {
      const share = (100 * spent[cause]) / longest;
      const title = `${words}: ${Number(spent[cause].toPrecision(3))} ms`;
      return share < 0.05 ? '' : html`<td class="wait-${cause}" width="${share.toFixed(2)}%" title="${title}"></td>`;
    });
    const rest = Math.max(0, 100 * (1 - step.milliseconds / longest)).toFixed(2);
    return [
      html`<tr><th>rank ${rank}</th><td><table class="step"><tr>${cells}<td width="${rest}%"></td></tr></table></td></tr>`,
    ];
  });
  const legend = CAUSES.map(([cause, words]) => html`<span><i class="wait-${cause}"></i>${words}</span>`);
  return html`<table class="steps"><tbody>${lines}</tbody></table><p class="legend">${legend}</p>`;
}

export const RANKS_STYLE = `
.ranks p { margin: 0.3rem 0; }
.ranks table { border-collapse: collapse; margin-top: 0.9rem; width: 100%; font-size: 0.85rem; }
.ranks th { font-weight: 500; text-align: right; color: var(--muted); padding: 0.25rem 0.5rem; }
.ranks td { text-align: right; padding: 0.25rem 0.5rem; border-top: 1px solid var(--rule); }
.ranks .steps th { width: 4rem; white-space: nowrap; }
.ranks .steps td { border: 0; padding: 0.1rem 0; }
.ranks .step { margin: 0; table-layout: fixed; height: 1rem; }
.ranks .legend { display: flex; flex-wrap: wrap; gap: 0 1.1rem; color: var(--muted); font-size: 0.85rem; }
.ranks .legend i { display: inline-block; width: 0.85rem; height: 0.6rem; margin-right: 0.45rem; }
.ranks .wait-work { background: var(--first); } .ranks .wait-network { background: var(--second); }
.ranks .wait-down { background: var(--faint); } .ranks .wait-up { background: var(--rule); }
.ranks .wait-below { background: var(--muted); }
`;
