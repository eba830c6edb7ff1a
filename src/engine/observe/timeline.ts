// Recorded steps as a trace that chrome://tracing and ui.perfetto.dev open: what the CPU encoded when, what it waited
// for, what was on its way over each link, and how full the GPU's slots and staging were. Pure.
//
// All times are of the CPU. The executor runs ahead of the GPU: an operator's slice is the time its encoding took,
// with the loads and waits before it, not the time it ran. Invariant: slices of one track never overlap.

import { chunkName } from '../../memory/plan/trace.ts';
import { at } from '../../util/at.ts';
import { slotsInUse } from './chunk-codes.ts';
import { chunkRuns } from './chunk-history.ts';
import type { RankStep } from './rank-step.ts';
import { CAUSES, type Cause, endOf, type LinkName, type Recording, type Transfer, transferSizes } from './recording.ts';

/** An event of the Trace Event Format: X is a slice, C a counter, M a name, i a mark. Times in microseconds. */
export interface TraceEvent {
  readonly ph: 'X' | 'C' | 'M' | 'i';
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur?: number;
  readonly s?: 't';
  readonly args?: Readonly<Record<string, unknown>>;
}

export interface ChromeTrace {
  readonly traceEvents: readonly TraceEvent[];
  readonly displayTimeUnit: 'ms';
  readonly otherData: { readonly clock: string };
}

const PID = 1;
const LINKS: Readonly<Record<LinkName, string>> = {
  h2d: 'host to GPU',
  d2h: 'GPU to host',
  diskRead: 'disk read',
  diskWrite: 'disk write',
};
const WAITS: Readonly<Record<Cause, string>> = {
  down: 'wait for values on their way down',
  up: 'wait for the GPU to take what was sent',
  below: 'wait for host memory and disk',
  network: 'wait for other ranks',
};

const CLOCK =
  'CPU time of the executor, which runs ahead of the GPU: a slice is the encoding of an operator, not its run';

/** Consecutive runs of one recorder; and beside the last of them the same step of other ranks. Errors: one was cut short. */
export function chromeTrace(recordings: readonly Recording[], others: readonly RankStep[] = []): ChromeTrace {
  const tracks = new Tracks(PID, others.length > 0 ? 'Holdfast, rank 0' : 'Holdfast');
  const steps = tracks.add('steps');
  const phases = tracks.add('phases');
  const operators = tracks.add('operators, as the CPU encodes them');
  const waits: Readonly<Record<Cause, number>> = {
    down: tracks.add(WAITS.down),
    up: tracks.add(WAITS.up),
    below: tracks.add(WAITS.below),
    network: others.length > 0 ? tracks.add(WAITS.network) : tracks.none,
  };

  recordings.forEach((recording, i) => {
    const { pass, began, entered, encoded, submits } = recording;
    const { moments } = pass.trace;
    const end = Math.max(endOf(recording), submits.at(-1) ?? 0);
    tracks.slice(steps, `${pass.name} ${i + 1}`, began, end, { moments: moments.length });
    pass.phases.forEach(({ name, first }, p) => {
      const next = pass.phases[p + 1];
      tracks.slice(phases, name, at(entered, first), next ? at(entered, next.first) : end);
    });
    moments.forEach(({ label, accesses }, m) => {
      const chunks = accesses.map(({ chunk, mode }) => `${chunkName(pass.trace, chunk)} (${mode})`);
      tracks.slice(operators, label, at(entered, m), entered[m + 1] ?? end, { moment: m, chunks });
    });
    for (const time of submits) tracks.mark(operators, 'submit', time);
    for (const { cause, moment, from, to } of recording.waits) {
      tracks.slice(waits[cause], moments[moment]?.label ?? '', from, to, { moment });
    }
    const used = slotsInUse(chunkRuns(recording));
    used.forEach((slots, m) => {
      const staging = at(recording.staged, m);
      if (m > 0 && slots === used[m - 1] && staging === recording.staged[m - 1]) return;
      tracks.count('GPU memory in use, chunks', at(encoded, m), { slots, staging });
    });
  });
  for (const link of Object.keys(LINKS) as LinkName[]) moveOver(tracks, link, recordings);
  const beside = others.map((step) => rankTracks(step, recordings.at(-1)?.began ?? 0));
  return {
    traceEvents: [tracks, ...beside].flatMap((each) => each.events()),
    displayTimeUnit: 'ms',
    otherData: { clock: CLOCK },
  };
}

/** A step of another rank, which has its own clock: it is drawn as if it had begun when rank 0's did. */
function rankTracks({ rank, milliseconds, phases, longest }: RankStep, began: number): Tracks {
  const tracks = new Tracks(PID + rank, `Holdfast, rank ${rank}`);
  const steps = tracks.add('steps');
  tracks.slice(steps, 'step', began, began + milliseconds);
  const shown = tracks.add('phases');
  for (const { name, from, to } of phases) tracks.slice(shown, name, began + from, began + to);
  for (const cause of CAUSES) {
    const own = longest.filter((wait) => wait.cause === cause);
    if (own.length === 0) continue;
    const track = tracks.add(WAITS[cause]);
    for (const { label, from, to } of own) tracks.slice(track, label, began + from, began + to);
  }
  return tracks;
}

/** Transfers overlap: each goes to the first lane that is free. */
function moveOver(tracks: Tracks, link: LinkName, recordings: readonly Recording[]): void {
  const lanes: { track: number; until: number }[] = [];
  const changes: { at: number; bytes: number }[] = [];
  const last = recordings.at(-1);
  const over = Math.max(last?.encoded.at(-1) ?? 0, last?.submits.at(-1) ?? 0);
  const sizesOf = new Map(recordings.map(({ pass }) => [pass, transferSizes(pass)] as const));
  const all = recordings.flatMap(({ pass, transfers }) =>
    transfers.filter((transfer) => transfer.link === link).map((transfer) => ({ pass, transfer })),
  );
  for (const { pass, transfer } of all.toSorted((a, b) => a.transfer.from - b.transfer.from)) {
    const { from, chunks, moment } = transfer;
    const to = endOfTransfer(transfer, over);
    let lane = lanes.find(({ until }) => until <= from);
    if (!lane) {
      lane = { track: tracks.add(`${LINKS[link]}${lanes.length > 0 ? `, ${lanes.length + 1}` : ''}`), until: 0 };
      lanes.push(lane);
    }
    lane.until = to;
    const bytes = chunks.reduce((sum, chunk) => sum + (sizesOf.get(pass)?.(chunk) ?? 0), 0);
    const name = chunks.map((chunk) => chunkName(pass.trace, chunk)).join(', ');
    const arrived = transfer.to === undefined ? { arrived: false } : {};
    tracks.slice(lane.track, name, from, to, { bytes, moment, ...arrived });
    changes.push({ at: from, bytes }, { at: to, bytes: -bytes });
  }
  let inFlight = 0;
  changes.sort((a, b) => a.at - b.at || b.bytes - a.bytes);
  changes.forEach(({ at, bytes }, i) => {
    inFlight += bytes;
    if (changes[i + 1]?.at !== at) tracks.count(`bytes in flight, ${LINKS[link]}`, at, { bytes: inFlight });
  });
}

/** A transfer whose end was not recorded is drawn to the end. */
const endOfTransfer = ({ from, to }: Transfer, over: number): number => to ?? Math.max(from, over);

const micros = (milliseconds: number): number => Math.round(milliseconds * 1e4) / 10;

/** The events of one process of the trace, and the tracks on which they are shown. */
class Tracks {
  /** Of what is shown nowhere. */
  readonly none = 0;
  readonly #pid: number;
  readonly #names: TraceEvent[] = [];
  readonly #events: TraceEvent[] = [];

  constructor(pid: number, name: string) {
    this.#pid = pid;
    this.#names.push({ ph: 'M', name: 'process_name', pid, tid: 0, ts: 0, args: { name } });
    const sort = { ph: 'M', name: 'process_sort_index', pid, tid: 0, ts: 0, args: { sort_index: pid } } as const;
    if (pid > PID) this.#names.push(sort);
  }

  /** Tracks are shown in the order in which they are added. */
  add(name: string): number {
    const tid = (this.#names.at(-1) as TraceEvent).tid + 1;
    const sort = { ph: 'M', name: 'thread_sort_index', pid: this.#pid, tid, ts: 0, args: { sort_index: tid } } as const;
    this.#names.push({ ph: 'M', name: 'thread_name', pid: this.#pid, tid, ts: 0, args: { name } }, sort);
    return tid;
  }

  slice(tid: number, name: string, from: number, to: number, args?: TraceEvent['args']): void {
    const ts = micros(from);
    const dur = Math.round((micros(to) - ts) * 10) / 10;
    this.#events.push({ ph: 'X', name, pid: this.#pid, tid, ts, dur, ...(args && { args }) });
  }

  mark(tid: number, name: string, at: number): void {
    this.#events.push({ ph: 'i', name, pid: this.#pid, tid, ts: micros(at), s: 't' });
  }

  count(name: string, at: number, values: Readonly<Record<string, number>>): void {
    this.#events.push({ ph: 'C', name, pid: this.#pid, tid: 0, ts: micros(at), args: values });
  }

  /** Names first, then all by time. */
  events(): TraceEvent[] {
    return [...this.#names, ...this.#events.toSorted((a, b) => a.ts - b.ts)];
  }
}
