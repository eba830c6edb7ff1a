// A recorded step of one of several ranks in few words: what rank 0 needs to show it beside its own. Plain data, small enough to
// be sent as text. Times are in milliseconds since the step began, by the clock of the rank.

import type { Phase } from '../../graph/program.ts';
import { at } from '../../util/at.ts';
import { type Cause, endOf, type Recording, waitedIn } from './recording.ts';

export interface RankStep {
  readonly rank: number;
  /** Milliseconds from the beginning of its encoding to the end. */
  readonly milliseconds: number;
  readonly phases: readonly { readonly name: Phase; readonly from: number; readonly to: number }[];
  readonly waits: Readonly<Record<Cause, number>>;
  /** What of `waits.network` was for what is exchanged: `reduce-scatter gradient`, `all-gather parameter`. */
  readonly exchanges: Readonly<Record<string, number>>;
  /** The waits that took longest, in the order of time. */
  readonly longest: readonly RankStepWait[];
}

export interface RankStepWait {
  readonly cause: Cause;
  readonly label: string;
  readonly from: number;
  readonly to: number;
}

/** More waits of a step are too much to be sent and to be drawn. */
const MOST_WAITS = 400;

export function rankStep(rank: number, recording: Recording): RankStep {
  const { pass, began, entered } = recording;
  const end = endOf(recording);
  const since = (time: number) => round(time - began);
  const phases = pass.phases.map(({ name, first }, i) => {
    const next = pass.phases[i + 1];
    return { name, from: since(at(entered, first)), to: since(next ? at(entered, next.first) : end) };
  });
  const all = recording.waits.map(({ cause, moment, from, to }) => {
    const label = pass.trace.moments[moment]?.label ?? '';
    return { cause, label, from: since(from), to: since(to) };
  });
  const exchanges: Record<string, number> = {};
  for (const { cause, label, from, to } of all) {
    if (cause !== 'network') continue;
    const what = label.replace(/ chunk \d+$/, '');
    exchanges[what] = (exchanges[what] ?? 0) + to - from;
  }
  const longest = all
    .toSorted((a, b) => b.to - b.from - (a.to - a.from))
    .slice(0, MOST_WAITS)
    .sort((a, b) => a.from - b.from);
  return { rank, milliseconds: since(end), phases, waits: waitedIn(recording), exchanges, longest };
}

const round = (milliseconds: number): number => Math.round(milliseconds * 1e3) / 1e3;
