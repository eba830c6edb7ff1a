// Times of training steps on an adapter, kept of the runs that took them, and what they say of the steps of other runs: a
// step takes as long as one of the same shape did there, or else by the time of two small real steps (what a dispatch costs,
// and what arithmetic does), held against runs that were. Kept in the host's cache folder, for the command line and for pages.
//
// Times are those between steps of which several are under way, as in a run: a browser that tells late that the GPU is
// done is not taken for a slow device, nor is one that something else needed for a moment.

import { adapterKey, readCache, writeCache } from '../../engine/compile/adapter-cache.ts';
import { type LinkRates, linkRatesSchema, type Rates } from '../../engine/compile/rates.ts';
import type { Recovery } from '../../engine/compile/recovery.ts';
import type { PolicyName } from '../../engine/compile/schedule.ts';
import type { Device } from '../../gpu/device.ts';
import type { ActivationMode } from '../../graph/activations.ts';
import type { AccumulateOrder } from '../../graph/layer-major.ts';
import type { ActivationDtype } from '../../graph/narrow-activations.ts';
import type { BackwardPasses, OptimizerDeviceChoice, Update } from '../../graph/operators/optimizer.ts';
import type { MadeElement } from '../../kernels/stored.ts';
import type { MomentDtype, TrainingDtype } from '../../memory/layout/kinds.ts';
import { type Model, parameterCount, trainedCount } from '../../nn/model.ts';
import type { Host } from '../../runtime/host.ts';
import { namesTo, number, object, optional, text } from '../../util/json.ts';
import { realNumber } from '../../util/range.ts';

/** What of a step its time depends on. */
export interface StepSize {
  readonly dispatches: number;
  readonly flops: number;
}

/** A step that was timed. */
export interface TimedStep extends StepSize {
  readonly seconds: number;
}

/** A step of a run, as it is kept. */
export interface KeptStep extends TimedStep {
  /** How it computes, which says more of its time than its size. */
  readonly way: string;
  /** Within a budget: what such a step would take without one, reckoned from what it took. */
  readonly whole?: TimedStep & { readonly way: string };
}

/** What a run's arithmetic is done on, in and where, and when it updates. */
export interface StepWay {
  readonly model: Model;
  readonly batch: number;
  readonly seq: number;
  readonly accumulate: number;
  readonly dtype: TrainingDtype;
  readonly momentDtype: MomentDtype;
  readonly activationDtype: ActivationDtype;
  readonly baseDtype: MadeElement;
  readonly optimizerDevice: OptimizerDeviceChoice;
  readonly update: Update;
  /** Where the update is in them. */
  readonly passes: BackwardPasses | undefined;
  readonly packed: boolean;
}

/** Within what it is done, of a run that does not fit into its budget whole. */
export interface StepMemory {
  readonly gpu?: number | 'auto';
  readonly host?: number;
  readonly disk?: unknown;
  readonly recovery?: Recovery;
  readonly policy?: PolicyName;
  readonly activations?: ActivationMode | 'auto';
  readonly accumulateOrder?: AccumulateOrder | 'auto';
  readonly prefetch?: boolean;
}

/** A budget that a run does not fit into whole. */
export interface Confined {
  readonly memory: StepMemory;
  /** Seconds of a step within it that takes `resident` without it, by these costs where they were measured; undefined where that is not known. */
  readonly seconds: (resident: number, costs: StepCosts | undefined) => number | undefined;
}

/** What a dispatch takes by itself, and a floating-point operation, in seconds; what the link does. */
export interface StepCosts {
  readonly dispatch: number;
  readonly flop: number;
  readonly link?: LinkRates;
}

/** What is known of an adapter. */
export interface KnownSteps {
  readonly costs?: StepCosts;
  /** By the shape of the run, the latest last. */
  readonly runs: Readonly<Record<string, KeptStep>>;
}

/** The time that a step is expected to take. */
export interface ExpectedStep {
  /** Of a step, all micro-batches of it. */
  readonly seconds: number;
  /** Whether they are those of a run of the same shape in the same memory, or reckoned from others. */
  readonly from: 'run' | 'probe';
}

/** In another way the same operations take another time. */
function wayKey(way: StepWay, memory?: StepMemory): string {
  const { dtype, momentDtype, activationDtype, baseDtype, optimizerDevice, update, passes, packed } = way;
  return JSON.stringify([
    ...[dtype, momentDtype, activationDtype, baseDtype, optimizerDevice, update, passes, packed],
    // No gradients are kept to finish a step from.
    ...(memory ? memoryKey(update === 'in-backward' ? { ...memory, recovery: 'checkpoint' } : memory) : []),
  ]);
}

const memoryKey = ({
  gpu,
  host,
  disk,
  recovery = 'auto',
  policy = 'planned',
  activations = 'auto',
  accumulateOrder = 'auto',
  prefetch = true,
}: StepMemory): unknown[] => [
  ...[gpu, host, disk !== undefined, recovery, policy, activations],
  ...[accumulateOrder, prefetch],
];

/** Runs of one shape take the same time, however long they are and whatever they learn from; within a budget those in the same one. */
function shapeKey(way: StepWay, memory?: StepMemory): string {
  const { model, batch, seq, accumulate } = way;
  const counts = [parameterCount(model), trainedCount(model)];
  return JSON.stringify([model.shape, counts, batch, seq, accumulate, wayKey(way, memory)]);
}

const MOST_RUNS = 20;

/** Where a run did not fit into its budget whole. */
export interface KeptMemory {
  readonly memory: StepMemory;
  /** What a step of it would take without one, where that can be reckoned. */
  readonly whole?: TimedStep | undefined;
}

/** `runs` with one more whose steps took so long; the oldest of many are forgotten. */
export function withRun(
  runs: KnownSteps['runs'],
  way: StepWay,
  timed: TimedStep,
  { memory, whole }: Partial<KeptMemory> = {},
): KnownSteps['runs'] {
  const shape = shapeKey(way, memory);
  const { [shape]: _, ...others } = runs;
  const latest = { ...timed, way: wayKey(way, memory), ...(whole && { whole: { ...whole, way: wayKey(way) } }) };
  return Object.fromEntries([...Object.entries(others), [shape, latest] as const].slice(-MOST_RUNS));
}

/**
 * A step of such a run: as long as a run of the same shape took, or else as is expected by those of the same way, and within a budget
 * by what is waited for and made again. `size`: without one; `rates`: that plans go by. Undefined where nothing is known.
 */
export function stepTime(
  way: StepWay,
  size: StepSize,
  { runs, costs }: KnownSteps,
  rates: Rates,
  confined?: Confined,
): ExpectedStep | undefined {
  const same = runs[shapeKey(way, confined?.memory)];
  if (same) return { seconds: same.seconds, from: 'run' };
  const all = Object.values(runs);
  // Those that were timed before those that were reckoned.
  const alike = [...all, ...all.flatMap(({ whole = [] }) => whole)].filter((run) => run.way === wayKey(way));
  const resident = runs[shapeKey(way)]?.seconds ?? expectedSeconds(size, alike, costs, costsBy(rates));
  const seconds = confined && resident !== undefined ? confined.seconds(resident, costs) : resident;
  return seconds === undefined ? undefined : { seconds, from: 'probe' };
}

/** The costs that explain both times; neither is negative. */
export function costsOf([small, large]: readonly [TimedStep, TimedStep]): StepCosts {
  const flop =
    (large.seconds * small.dispatches - small.seconds * large.dispatches) /
    (large.flops * small.dispatches - small.flops * large.dispatches);
  const dispatch = (small.seconds - flop * small.flops) / small.dispatches;
  if (flop > 0 && dispatch >= 0) return { dispatch, flop };
  return flop > 0
    ? { dispatch: 0, flop: large.seconds / large.flops }
    : { dispatch: 0, flop: small.seconds / small.flops };
}

/** What a dispatch and an operation cost by the rates that plans go by. */
export const costsBy = ({ launchSeconds, flops }: Rates): StepCosts => ({ dispatch: launchSeconds, flop: 1 / flops });

/**
 * By the costs, set right by the run that is nearest in arithmetic. Where none were measured such a run tells by `typical` ones how
 * much of its time its dispatches took; without a run nothing is known.
 */
export function expectedSeconds(
  size: StepSize,
  runs: readonly TimedStep[],
  measured: StepCosts | undefined,
  typical: StepCosts,
): number | undefined {
  const { dispatch, flop } = measured ?? typical;
  const byCosts = ({ dispatches, flops }: StepSize) => dispatch * dispatches + flop * flops;
  const distance = ({ flops }: TimedStep) => Math.abs(Math.log(flops / size.flops));
  const nearest = runs.toSorted((a, b) => distance(a) - distance(b))[0];
  if (nearest) return (byCosts(size) * nearest.seconds) / byCosts(nearest);
  return measured && byCosts(size);
}

const FILE = 'step-times.json';
const POSITIVE = number(realNumber(Number.MIN_VALUE, Number.MAX_VALUE));
const COST = number(realNumber(0, Number.MAX_VALUE));
const STEP = { dispatches: POSITIVE, flops: POSITIVE, seconds: POSITIVE, way: text };
/** By the adapter's key. */
const KNOWN = namesTo(
  object({
    costs: optional(object({ dispatch: COST, flop: POSITIVE, link: optional(linkRatesSchema) })),
    runs: namesTo(object({ ...STEP, whole: optional(object(STEP)) })),
  }),
);

/** What is known of an adapter of this runtime; nothing before a run, or a measurement. */
export async function knownSteps(
  host: Host,
  { adapter }: { readonly adapter: { readonly name: string } },
): Promise<KnownSteps> {
  const all = (await readCache(host, FILE, KNOWN)) ?? {};
  const key = adapterKey(host, { adapter });
  return (Object.hasOwn(all, key) ? all[key] : undefined) ?? { runs: {} };
}

/** Keeps what `change` makes of what is known of a device's adapter. */
async function changeKnown(host: Host, device: Device, change: (known: KnownSteps) => KnownSteps): Promise<void> {
  const all = (await readCache(host, FILE, KNOWN)) ?? {};
  const known = change(await knownSteps(host, device));
  await writeCache(host, FILE, { ...all, [adapterKey(host, device)]: known });
}

/** Keeps that steps of such a run took so long. */
export const keepStepTime = (
  host: Host,
  device: Device,
  way: StepWay,
  timed: TimedStep,
  within?: KeptMemory,
): Promise<void> => changeKnown(host, device, (known) => ({ ...known, runs: withRun(known.runs, way, timed, within) }));

export const keepStepCosts = (host: Host, device: Device, costs: StepCosts): Promise<void> =>
  changeKnown(host, device, (known) => ({ ...known, costs }));
