// Advice on a step that is predicted on a machine: what would make it faster, tried out where that takes no time, each in a line with
// what a step would then take.

import { type Machine, usableMemory } from '../../engine/simulate/machine.ts';
import { type Prediction, Predictor } from '../../train/plan/prediction.ts';
import type { Scenario } from '../../train/plan/prediction-part.ts';
import { flagBytes, formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { duration, percent } from './words.ts';

/** Waits that are worth words, as a share of a step, and a change that is worth advice. */
export const WORTH_SAYING = 0.02;
const WORTH_DOING = 0.95;
/** Launches that are worth advice, as a share of a step. */
const MANY_LAUNCHES = 0.3;

/** Bytes; without a budget for the GPU everything is there. */
export interface Budgets {
  readonly gpu: number | undefined;
  readonly host: number;
}

/** A step, and what it was predicted with. */
export interface PredictedStep {
  readonly found: Prediction;
  readonly predictor: Predictor;
  readonly scenario: Scenario;
  /** Of all ranks. */
  readonly machine: Machine;
  readonly budgets: Budgets;
  /** Bytes: see `Predictor.comfortable`. */
  readonly comfortable: number | undefined;
  /** Whether another prediction takes so little time that changes are tried out. */
  readonly tries: boolean;
}

export const optimizesOnHost = ({ optimizerDevice }: Pick<Scenario, 'optimizerDevice'>): boolean =>
  optimizerDevice === 'cpu';

export const adviceOn = (step: PredictedStep): string[] => [
  ...onDisk(step),
  ...onMoves(step),
  ...onUpdates(step),
  ...onLaunches(step),
  ...onNetwork(step),
  ...onStages(step),
  ...onLink(step),
];

/** The shares of a step in which the disk is waited for, and the link. */
function waitedFor({ found: { waits, seconds } }: PredictedStep): { readonly disk: number; readonly link: number } {
  return { disk: (waits.diskRead + waits.diskWrite) / seconds, link: (waits.up + waits.down) / seconds };
}

/** A line on a change that makes a step so much faster, and none on another one, or on what does not fit. */
function tried({ found, tries }: PredictedStep, why: string, what: string, then: () => Prediction): string[] {
  if (!tries) return [];
  const seconds = secondsOr(then);
  return seconds < WORTH_DOING * found.seconds ? [`${why}: ${what} ${duration(seconds)}`] : [];
}

/** What does not fit helps nothing. */
function secondsOr(then: () => Prediction): number {
  try {
    return then().seconds;
  } catch (error) {
    if (error instanceof HoldfastError) return Number.POSITIVE_INFINITY;
    throw error;
  }
}

/** The step of another scenario within the same memory: without a GPU budget, within the whole GPU where not everything fits. */
function inScenario({ machine, predictor, budgets: { gpu, host } }: PredictedStep, scenario: Scenario): Prediction {
  const other = new Predictor(scenario, machine);
  const has = usableMemory(predictor.machine).gpu;
  return other.at(gpu ?? (other.resident.bytes <= has ? undefined : has), host);
}

function onDisk(step: PredictedStep): string[] {
  const { found, predictor, budgets } = step;
  const { disk } = waitedFor(step);
  if (disk < WORTH_SAYING || found.onDisk === 0) return [];
  const more = `${formatBytes(found.onDisk)} more of host memory`;
  const has = usableMemory(predictor.machine).host;
  const what = found.below <= has ? `--host-memory ${flagBytes(found.below)}, ${more},` : more;
  return tried(step, `waiting for disk ${percent(disk)}`, `${what} would make it`, () =>
    predictor.at(budgets.gpu, Number.POSITIVE_INFINITY),
  );
}

/** On what moves between the tiers. */
function onMoves(step: PredictedStep): string[] {
  const { found, predictor, scenario, budgets } = step;
  const { recovery, activations } = scenario;
  const { disk, link } = waitedFor(step);
  if (disk + link < WORTH_SAYING) return [];
  const waiting = `waiting for ${disk > link ? 'disk' : 'the link'} ${percent(Math.max(disk, link))}`;
  const makesAgain = found.modes.every((mode) => mode === 'recompute');
  const isKept = recovery !== 'checkpoint' && found.bytes.recovery > 0 && !optimizesOnHost(scenario);
  return [
    ...(activations === 'auto' && !makesAgain
      ? tried(step, waiting, '--activations recompute would make it', () =>
          predictor.at(budgets.gpu, budgets.host, { activations: 'recompute' }),
        )
      : []),
    ...(isKept
      ? tried(step, 'each step is kept below the GPU as well', '--recovery checkpoint would make it', () =>
          predictor.at(budgets.gpu, budgets.host, { recovery: 'checkpoint' }),
        )
      : []),
  ];
}

/** On where the optimizer runs. */
function onUpdates(step: PredictedStep): string[] {
  const { found, scenario, machine } = step;
  const { link } = waitedFor(step);
  const onHost = optimizesOnHost(scenario);
  const updating = found.waits.host / found.seconds;
  if (onHost ? updating < WORTH_SAYING : !machine.hostMemory || link < WORTH_SAYING) return [];
  const optimizerDevice = onHost ? 'gpu' : 'cpu';
  const why = onHost ? `waiting for AdamW on the host ${percent(updating)}` : `waiting for the link ${percent(link)}`;
  return tried(step, why, `--optimizer-device ${optimizerDevice} would make it`, () =>
    inScenario(step, { ...scenario, optimizerDevice }),
  );
}

function onLaunches(step: PredictedStep): string[] {
  const { found, predictor, budgets } = step;
  const { gpu, host } = budgets;
  const launching = found.launchSeconds / found.seconds;
  if (launching < MANY_LAUNCHES) return [];
  const why = `launches of dispatches ${percent(launching)}`;
  const has = usableMemory(predictor.machine).gpu;
  const twice = gpu === undefined ? 0 : Math.min(2 * gpu, predictor.resident.bytes, has);
  const what = `--gpu-memory ${flagBytes(twice)}, with room for larger chunks and slices, would make it`;
  return [
    ...(gpu !== undefined && twice > gpu ? tried(step, why, what, () => predictor.at(twice, host)) : []),
    `${why}: a larger batch has as many for more tokens`,
  ];
}

function onNetwork(step: PredictedStep): string[] {
  const { found, scenario } = step;
  const { ranks } = scenario;
  const network = found.waits.network / found.seconds;
  if (network < WORTH_SAYING) return [];
  const why = `waiting for the network ${percent(network)}`;
  return [
    `${why}: more micro-batches a step (--accumulate) wait less for each token`,
    ...(ranks?.stage === 3
      ? tried(step, why, '--zero 2 would make it', () =>
          inScenario(step, { ...scenario, ranks: { ...ranks, stage: 2 } }),
        )
      : []),
  ];
}

function onStages({ found, scenario: { ranks, accumulate } }: PredictedStep): string[] {
  const { pipeline = 1 } = ranks ?? {};
  const bubble = found.waits.bubble / found.seconds;
  if (bubble < WORTH_SAYING) return [];
  const least = percent((pipeline - 1) / (accumulate + pipeline - 1));
  return [
    `waiting for other stages ${percent(bubble)}, of ${pipeline} with ${accumulate} micro-batches at least ${least}: give more (--accumulate)`,
  ];
}

function onLink(step: PredictedStep): string[] {
  const { predictor, budgets, comfortable } = step;
  const { link } = waitedFor(step);
  if (link < WORTH_SAYING) return [];
  const { gpu } = budgets;
  const has = usableMemory(predictor.machine).gpu;
  const isThere = comfortable !== undefined && gpu !== undefined && comfortable > gpu && comfortable <= has;
  const more = isThere ? `--gpu-memory ${flagBytes(comfortable)} would end it; ` : '';
  return [`waiting for the link ${percent(link)}: ${more}a larger batch waits less for each token`];
}
