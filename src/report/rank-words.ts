// Words on where the time and the bytes of a run on several ranks went, for a user to act on. For the command line's
// summary and for the report.

import type { RankRecord } from '../train/run/rank-record.ts';
import { formatBytes } from '../util/bytes.ts';

/** A wait that is worth words, as a share of a step. */
const WORTH_SAYING = 0.02;

/** What a run says of its ranks when it is over. */
export function rankLines(record: RankRecord): string[] {
  const { size, tensorParallel, pipelineParallel, zero, planned, each } = record;
  const { sent, received } = planned;
  const bound = each[0]?.bound ?? 0;
  const ratio = (sent + received) / (2 * bound);
  const data = size / (tensorParallel * pipelineParallel);
  const axes = [
    `${data} data`,
    ...(tensorParallel > 1 ? [`${tensorParallel} tensor`] : []),
    ...(pipelineParallel > 1 ? [`${pipelineParallel} pipeline`] : []),
  ];
  const grid = axes.length > 1 ? ` (${axes.join(' x ')})` : '';
  const shared = data > 1 ? `, ZeRO ${zero}` : '';
  return [
    `${size} ranks${grid}${shared}: a step sent ${formatBytes(sent)} and got ${formatBytes(received)}, ${ratio.toFixed(3)} x the least`,
    ...waitingLines(record),
  ];
}

/** What is waited for by what is exchanged, on the rank that waits most and on the one that waits least. */
export function waitingLines({ each, zero }: Pick<RankRecord, 'each' | 'zero'>): string[] {
  const steps = each.flatMap(({ step }) => (step && step.milliseconds > 0 ? [step] : []));
  const shares = steps.map(({ waits, milliseconds }) => waits.network / milliseconds);
  const [least, most] = [Math.min(...shares), Math.max(...shares)];
  if (steps.length === 0 || most < WORTH_SAYING) return [];
  const total = steps.reduce((sum, { milliseconds }) => sum + milliseconds, 0);
  const byCause = new Map<string, number>();
  for (const { exchanges } of steps) {
    for (const [what, spent] of Object.entries(exchanges)) {
      const cause = wordsFor(what);
      byCause.set(cause, (byCause.get(cause) ?? 0) + spent);
    }
  }
  const causes = [...byCause]
    .sort(([, a], [, b]) => b - a)
    .filter(([, spent]) => spent / total >= WORTH_SAYING)
    .map(([cause, spent]) => `${cause} ${percent(spent / total)}`);
  const range = percent(least) === percent(most) ? percent(most) : `${percent(least)} to ${percent(most)}`;
  const advice =
    zero === 3
      ? '--zero 2 gathers parameters once a step, in more memory; more micro-batches a step (--accumulate) wait less for each token'
      : 'more micro-batches a step (--accumulate) wait less for each token';
  return [
    `waiting for other ranks ${range} of the last step${causes.length > 0 ? ` (${causes.join(', ')})` : ''}: ${advice}`,
  ];
}

const wordsFor = (what: string): string => {
  if (what.startsWith('reduce-scatter gradient')) return 'sums of gradients';
  if (/ gradient(B?F16)?$/.test(what)) return 'gradients back from their sums';
  if (what.startsWith('send') || what.startsWith('receive')) return 'what stages hand on';
  if (what.startsWith('all-reduce tied')) return 'sums of a table that the first and the last stage have';
  if (/^(reduce-scatter|all-gather) rows/.test(what)) return 'rows between layers that ranks share';
  if (what.startsWith('all-reduce')) return 'sums of layers that ranks share';
  if (/ parameter(B?F16)?$/.test(what)) return 'parameters from their owners';
  return 'losses and norms';
};

const percent = (share: number): string => `${Math.round(100 * share)} %`;
