// `Speeds`: the expected speeds of runs on this device, for estimates. A run is expected to be as fast as one of the
// same shape was here, or else by the time of two small real steps, run once: what a dispatch costs and what arithmetic
// does, held against runs that were. Both are kept beside the runs' records.
//
// Times are those between steps of which several are under way, as in a run: a browser that tells late that the GPU is
// done is not taken for a slow device, nor is one that something else needed for a moment.

import { createStore, get, set } from 'idb-keyval';
import { RandomWindows } from '../data/batches.ts';
import { loadChoices } from '../engine/compile/choices.ts';
import { flopsOf } from '../engine/compile/pass-figures.ts';
import { parseConfig } from '../formats/config.ts';
import type { Device } from '../gpu/device.ts';
import { backwardPassesOf } from '../graph/operators/optimizer.ts';
import { makeModel } from '../nn/index.ts';
import { initialWeights } from '../nn/initialise.ts';
import type { Host } from '../runtime/host.ts';
import { dtypeOf, momentDtypeIn, type RunSettings } from '../train/run/run-settings.ts';
import { STEP_READS } from '../train/step/stepper.ts';
import { Trainer } from '../train/step/trainer.ts';
import { accept, namesTo, number, object, optional, text } from '../util/json.ts';
import { median } from '../util/median.ts';
import { realNumber } from '../util/range.ts';
import type { Estimate } from './estimate-types.ts';
import type { MemorySettings } from './protocol.ts';

/** What of a step its time depends on. */
export interface StepSize {
  readonly dispatches: number;
  readonly flops: number;
}

/** Seconds. */
interface Timed extends StepSize {
  readonly seconds: number;
}

/** A run's; `way`: how it computes, which says more of its time than its size (`wayOf`). Records of earlier versions have none. */
interface TimedRun extends Timed {
  readonly way?: string;
}

/** A budget that a run does not fit into whole, and how many times as long a step is expected to take within it. */
export interface Confined {
  readonly memory: MemorySettings;
  /** Absent where it is not known. */
  readonly slowdown?: number | undefined;
}

/** What a dispatch takes by itself, and a floating-point operation. */
interface Costs {
  readonly dispatch: number;
  readonly flop: number;
}

/** What is known of an adapter. */
interface Known {
  readonly costs?: Costs;
  /** By the shape of the run, the latest last. */
  readonly runs: Readonly<Record<string, TimedRun>>;
}

const POSITIVE = number(realNumber(Number.MIN_VALUE, Number.MAX_VALUE));
const COST = number(realNumber(0, Number.MAX_VALUE));
/** What is kept and no such record counts as not there. */
const KNOWN = object({
  costs: optional(object({ dispatch: COST, flop: POSITIVE })),
  runs: namesTo(object({ dispatches: POSITIVE, flops: POSITIVE, seconds: POSITIVE, way: optional(text) })),
});

/** One whose time is mostly that of dispatches, and one that computes. */
const PROBES = [
  { n_layer: 1, n_embd: 32, n_head: 2, seq: 32, batch: 2 },
  { n_layer: 1, n_embd: 128, n_head: 4, seq: 128, batch: 4 },
] as const;
/** Steps before these compile. */
const WARM_STEPS = 2;
const LEAST_STEPS = 3 * STEP_READS;
const LEAST_MS = 500;
const MOST_RUNS = 20;

export class Speeds {
  readonly #host: Host;
  /** By the adapter's name. */
  readonly #store = createStore('holdfast-speeds', 'runs');
  #probe: Promise<Costs | undefined> | undefined;
  #wanted = false;

  constructor(host: Host) {
    this.#host = host;
  }

  /** Of a run of these settings whose steps took so long; `memory`: the budget that it did not fit into whole, if there was one. */
  async keep({ adapter }: Device, settings: RunSettings, timed: Timed, memory?: MemorySettings): Promise<void> {
    const { runs, ...rest } = await this.#known(adapter.name);
    await set(adapter.name, { ...rest, runs: withRun(runs, settings, timed, memory) } satisfies Known, this.#store);
  }

  /** Undefined where nothing is known, and `quiet` says that nothing may be measured now. */
  async of(
    device: Device,
    settings: RunSettings,
    size: StepSize,
    quiet: boolean,
    confined?: Confined,
  ): Promise<NonNullable<Estimate['tokensPerSecond']> | undefined> {
    const tokens = settings.batch * settings.seq * settings.accumulate;
    const { runs, costs = await this.#measured(device, quiet) } = await this.#known(device.adapter.name);
    const found = stepTime(settings, size, runs, costs, confined);
    return found && { value: tokens / found.seconds, from: found.from };
  }

  /** Resolves when nothing is being measured; what is under way is left early. */
  async idle(): Promise<void> {
    this.#wanted = false;
    await this.#probe;
  }

  async #known(adapter: string): Promise<Known> {
    // Earlier versions kept a number.
    return accept(KNOWN, await get(adapter, this.#store)) ?? { runs: {} };
  }

  /** A device that fails tells whatever needs it; the next one is timed again. */
  #measured(device: Device, quiet: boolean): Promise<Costs | undefined> | undefined {
    if (!quiet) {
      this.#wanted = true;
      this.#probe ??= this.#measure(device)
        .catch(() => undefined)
        .then((costs) => {
          if (!costs) this.#probe = undefined;
          return costs;
        });
    }
    return this.#probe;
  }

  async #measure(device: Device): Promise<Costs | undefined> {
    const timed: Timed[] = [];
    for (const probe of PROBES) {
      const found = this.#wanted && (await timeSteps(this.#host, device, probe, () => this.#wanted));
      if (!found) return undefined;
      timed.push(found);
    }
    const costs = costsOf(timed as [Timed, Timed]);
    await set(device.adapter.name, { ...(await this.#known(device.adapter.name)), costs } satisfies Known, this.#store);
    return costs;
  }
}

/** Runs of one shape take the same time, however long they are and whatever they learn from; within a budget those in the same one. */
const shapeOf = (settings: RunSettings, memory?: MemorySettings): string => {
  const { config, lora, batch, seq, accumulate } = settings;
  return JSON.stringify([config, ...(lora ? [lora] : []), batch, seq, accumulate, wayOf(settings, memory)]);
};

/**
 * What a run's arithmetic is done in and where, when it updates, and within what: another way, another time for the same
 * operations.
 */
function wayOf(settings: RunSettings, memory?: MemorySettings): string {
  const { activationDtype = 'f32', optimizerDevice = 'gpu', update = 'at-end', records } = settings;
  const passes = backwardPassesOf(update, settings);
  const isPacked = records?.pack === 'yes';
  return JSON.stringify([
    ...[dtypeOf(settings), momentDtypeIn(settings), activationDtype],
    ...[optimizerDevice, update, passes, isPacked],
    ...(memory ? [memory.gpu, memory.host, memory.disk, memory.recovery ?? 'step', memory.policy ?? 'planned'] : []),
  ]);
}

/** `runs` with one more, of these settings, whose steps took so long; the oldest of many are forgotten. */
export function withRun(
  runs: Known['runs'],
  settings: RunSettings,
  timed: Timed,
  memory?: MemorySettings,
): Known['runs'] {
  const shape = shapeOf(settings, memory);
  const { [shape]: _, ...others } = runs;
  const latest = { ...timed, way: wayOf(settings, memory) };
  return Object.fromEntries([...Object.entries(others), [shape, latest] as const].slice(-MOST_RUNS));
}

/**
 * Seconds of a step of these settings: as long as a run of the same shape took, or else as is expected by those of the same way,
 * so many times as long within a budget. Undefined where nothing is known.
 */
export function stepTime(
  settings: RunSettings,
  size: StepSize,
  runs: Known['runs'],
  costs: Costs | undefined,
  confined?: Confined,
): { seconds: number; from: 'run' | 'probe' } | undefined {
  const same = runs[shapeOf(settings, confined?.memory)];
  if (same) return { seconds: same.seconds, from: 'run' };
  const slowdown = confined ? confined.slowdown : 1;
  if (slowdown === undefined) return undefined;
  const alike = Object.values(runs).filter(({ way }) => way === wayOf(settings));
  const seconds = runs[shapeOf(settings)]?.seconds ?? expectedSeconds(size, alike, costs);
  return seconds === undefined ? undefined : { seconds: slowdown * seconds, from: 'probe' };
}

/** The costs that explain both times; neither is negative. */
export function costsOf([small, large]: readonly [Timed, Timed]): Costs {
  const flop =
    (large.seconds * small.dispatches - small.seconds * large.dispatches) /
    (large.flops * small.dispatches - small.flops * large.dispatches);
  const dispatch = (small.seconds - flop * small.flops) / small.dispatches;
  if (flop > 0 && dispatch >= 0) return { dispatch, flop };
  return flop > 0
    ? { dispatch: 0, flop: large.seconds / large.flops }
    : { dispatch: 0, flop: small.seconds / small.flops };
}

/** By the costs, set right by the run that is nearest in arithmetic; by that alone where there are none. */
export function expectedSeconds(size: StepSize, runs: readonly Timed[], costs: Costs | undefined): number | undefined {
  const byCosts = ({ dispatches, flops }: StepSize) =>
    costs ? costs.dispatch * dispatches + costs.flop * flops : flops;
  const distance = ({ flops }: Timed) => Math.abs(Math.log(flops / size.flops));
  const nearest = runs.toSorted((a, b) => distance(a) - distance(b))[0];
  if (nearest) return (byCosts(size) * nearest.seconds) / byCosts(nearest);
  return costs && byCosts(size);
}

/**
 * What a step takes, by the times at which steps were known to have ended: several may be told at once, as many as are
 * under way. The median, since a moment at which the machine did something else says nothing of the next.
 */
export function stepMs(ends: readonly number[]): number {
  const periods = ends.slice(STEP_READS).map((end, i) => (end - (ends[i] ?? end)) / STEP_READS);
  return median(periods);
}

/** Undefined when it is not wanted any more. */
async function timeSteps(
  host: Host,
  device: Device,
  { seq, batch, ...shape }: (typeof PROBES)[number],
  wanted: () => boolean,
): Promise<Timed | undefined> {
  const model = makeModel(
    parseConfig({ model_type: 'gpt2', vocab_size: 256, n_positions: seq, ...shape }, 'the probe'),
  );
  const schedule = { decay: 'constant', peak: 1e-3, min: 1e-3, warmup: 0, steps: 1e6 } as const;
  const trainer = await Trainer.create(device, model, {
    batch,
    seq,
    schedule,
    choices: await loadChoices(host, device),
  });
  const underWay: Promise<unknown>[] = [];
  try {
    await trainer.setWeights(initialWeights(model, 1));
    const batches = new RandomWindows(
      Int32Array.from({ length: 4096 }, (_, i) => (i * 31) % 256),
      batch,
      seq,
      1,
    );
    const ends: number[] = [];
    for (let done = 0; wanted(); done++) {
      while (underWay.length < STEP_READS) underWay.push(trainer.start([batches.next()]));
      await underWay.shift();
      if (done < WARM_STEPS) continue;
      const now = performance.now();
      ends.push(now);
      const [begun = now] = ends;
      if (ends.length <= LEAST_STEPS || now - begun < LEAST_MS) continue;
      const pass = trainer.session.fit.passes.step;
      return { dispatches: pass.operations.length, flops: flopsOf(pass), seconds: stepMs(ends) / 1000 };
    }
    return undefined;
  } finally {
    await Promise.allSettled(underWay);
    await trainer.destroy();
  }
}
