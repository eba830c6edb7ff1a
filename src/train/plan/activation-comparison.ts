// Policies for activations side by side: what training would need, move, compute again and take under each, within the same
// budgets, on the same machine. All is alike but what becomes of activations: placement, chunks and their plan, and the
// executor on a simulated clock are this project's under every policy, which is more than their papers have.
//
// Pure; needs no GPU. Policies are worked out one at a time, as they are asked for. A policy that fills the room that it is given has its best of several rooms at each budget.

import type { Highs } from 'highs';
import { fitMemory } from '../../engine/compile/fit.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { smallestBudget } from '../../engine/compile/least.ts';
import { fetchedBytes, flopsOf, offloadedBytes, recomputedFlops } from '../../engine/compile/pass-figures.ts';
import { linkBytesOf } from '../../engine/compile/rates.ts';
import type { Recovery } from '../../engine/compile/recovery.ts';
import { schedule } from '../../engine/compile/schedule.ts';
import type { AdapterLimits, Workload } from '../../engine/compile/workload.ts';
import { computeSeconds, type Machine, machineLimits, secondsOn } from '../../engine/simulate/machine.ts';
import { simulate } from '../../engine/simulate/simulate.ts';
import { liveBytes } from '../../graph/liveness.ts';
import { ACTIVATION_POLICIES, type ActivationPolicy } from '../../graph/policies/index.ts';
import type { Program } from '../../graph/program.ts';
import { type RoomBelow, roomOf } from '../../memory/tiers/shares.ts';
import type { Model } from '../../nn/model.ts';
import { at } from '../../util/at.ts';
import { unlessRefused } from '../../util/errors.ts';
import { type StepPrograms, traceStep } from '../step/step-programs.ts';
import { type TrainingPasses, trainingWorkload } from '../step/training-workload.ts';
import { jointBound } from './joint-bound.ts';

/** What would be trained. */
export interface ComparedTraining {
  readonly model: Model;
  readonly batch: number;
  readonly context: number;
  readonly accumulate: number;
  readonly recovery: Recovery;
  /** Whether sequences hold several documents. @default false */
  readonly packed?: boolean;
}

/** A step under a policy within a budget. */
export interface PolicyStep {
  readonly seconds: number;
  /** Bytes over the link, both ways, and how many of them are activations. */
  readonly moved: number;
  readonly activationsMoved: number;
  /** Operations that make activations again, and as a share of all others. */
  readonly recomputed: number;
  readonly recomputedShare: number;
}

/** A policy within all budgets. */
export interface PolicyFigures {
  readonly name: string;
  readonly paper: string;
  readonly approximated: string;
  /** The smallest budget that works, in bytes. */
  readonly smallest: number;
  /** By budget; undefined where it does not fit. */
  readonly steps: readonly (PolicyStep | undefined)[];
}

export interface ActivationComparison {
  readonly budgets: readonly number[];
  /** Everything on the GPU: its bytes, and seconds of a step in which nothing is waited for. */
  readonly resident: { readonly bytes: number; readonly seconds: number };
  /** This project's own first; each is worked out when it is asked for, which takes a part of a second or more. */
  readonly policies: Iterable<PolicyFigures>;
  /** By budget: seconds that a step takes at least, by a linear program (joint-bound.ts); of several micro-batches there is none. */
  bounds(highs: Highs): (number | undefined)[];
}

/** This project's own way, by its name among the others. */
export const OWN = 'Holdfast';

/** Budgets where none is given, as shares of what everything takes. */
const SHARES = [0.15, 0.35, 0.7];
/** Rooms that are tried, as shares of what is alive at once where all is kept. */
const ROOMS = [0.8, 0.4, 0.18, 0.07];

/** One workload, the smallest budget that it fits into, and seconds of its arithmetic but for the update, at least. */
interface Way {
  readonly workload: Workload<TrainingPasses>;
  readonly smallest: number;
  readonly computeSeconds: number;
}

/**
 * `hostBytes`: of host memory for what is not on the GPU. `budget`: the one to compare within. `limits`: of the adapter.
 * Errors: HoldfastError for a model that no fit is found for.
 */
export function compareActivations(
  compared: ComparedTraining,
  machine: Machine,
  hostBytes: number,
  budget?: number,
  limits: AdapterLimits = machineLimits(machine),
): ActivationComparison {
  const { model, batch, context, accumulate, recovery, packed } = compared;
  const traced = traceStep(model, batch, context, { packed });
  const workloadOf = (programs: StepPrograms, activations: 'auto' | 'keep') =>
    trainingWorkload(model, programs, accumulate, undefined, { activations, accumulateOrder: 'batch' });
  const secondsOf = ({ instructions }: Program) =>
    instructions.reduce((sum, instruction) => sum + secondsOn(machine, instruction), 0);
  const wayOf = ({ first, next }: Pick<StepPrograms, 'first' | 'next'>, activations: 'auto' | 'keep'): Way => {
    const workload = workloadOf({ ...traced, first, next }, activations);
    return {
      workload,
      smallest: smallestBudget(workload, limits, { recovery }),
      computeSeconds: secondsOf(first) + (accumulate - 1) * secondsOf(next),
    };
  };
  // As it is while it is not searched: blocks keep all, and the head takes all rows at once.
  const keeping = workloadOf(traced, 'auto');
  const whole = fitMemory(keeping, limits, undefined);
  const budgets = budget === undefined ? SHARES.map((share) => Math.floor(share * whole.peak)) : [budget];
  const all = liveBytes(traced.first);
  const below = roomOf({ host: hostBytes, disk: machine.disk?.bytes ?? 0 });
  const within = { limits, machine, below };
  // As this project's own plan has it: what is compared is the choice of activations alone.
  const recoveries: Recovery[] = budgets.map(() => recovery);
  const stepsOf = (ways: readonly Way[]) =>
    budgets.map((bytes, i) => best(ways, bytes, { ...within, recovery: at(recoveries, i) }));
  const ownSteps = ({ workload }: Way) =>
    budgets.map((bytes, i) => {
      const fit = unlessRefused(() => fitMemory(workload, limits, bytes, { recovery, below }));
      if (!fit) return undefined;
      recoveries[i] = fit.durable ? 'step' : 'checkpoint';
      return unlessRefused(() => stepOf(fit, within));
    });

  const figuresOf = ({ name, paper, approximated, fillsRoom, apply }: ActivationPolicy): PolicyFigures => {
    const rooms = fillsRoom ? ROOMS : [1];
    const ways = rooms.flatMap((share) => {
      const under = (program: Program) =>
        apply(program, {
          room: Math.floor(share * all),
          secondsOf: (instruction) => secondsOn(machine, instruction),
          linkBytes: linkBytesOf(limits.rates),
        });
      const first = under(traced.first);
      const next = accumulate > 1 ? under(traced.next) : traced.next;
      return first && next ? [wayOf({ first, next }, 'keep')] : [];
    });
    const smallest = Math.min(...ways.map((way) => way.smallest));
    return { name, paper, approximated, smallest, steps: stepsOf(ways) };
  };
  function* policies(): Generator<PolicyFigures> {
    const own = wayOf(traced, 'auto');
    yield { name: OWN, paper: '', approximated: '', smallest: own.smallest, steps: ownSteps(own) };
    for (const policy of ACTIVATION_POLICIES) yield figuresOf(policy);
  }
  return {
    budgets,
    resident: { bytes: whole.peak, seconds: computeSeconds(machine, whole.passes.step.operations) },
    policies: policies(),
    bounds(highs) {
      if (accumulate > 1) return budgets.map(() => undefined);
      return budgets.map((bytes) => jointBound(highs, keeping, limits, machine, bytes));
    },
  };
}

interface Within {
  readonly limits: AdapterLimits;
  readonly machine: Machine;
  readonly below: RoomBelow;
  readonly recovery: Recovery;
}

/** The fastest step of those that fit. */
function best(ways: readonly Way[], budget: number, within: Within): PolicyStep | undefined {
  let found: PolicyStep | undefined;
  for (const { workload, smallest, computeSeconds } of ways) {
    // No step is faster than its arithmetic.
    if (smallest > budget || (found && computeSeconds >= found.seconds)) continue;
    const step = unlessRefused(() => stepOf(fitMemory(workload, within.limits, budget, within), within));
    if (step && (!found || step.seconds < found.seconds)) found = step;
  }
  return found;
}

/** Errors: HoldfastError where there is no room below the GPU. */
function stepOf(fit: Fit<TrainingPasses>, { machine, below }: Pick<Within, 'machine' | 'below'>): PolicyStep {
  const { step } = fit.passes;
  const plan = schedule(step.trace, fit.slots, 'planned', step.extra);
  const { seconds, bytes } = simulate(fit, step, plan, machine, { hostBytes: below.all.host });
  const again = recomputedFlops(step);
  return {
    seconds,
    moved: bytes.up + bytes.down,
    activationsMoved: offloadedBytes(step) + fetchedBytes(step),
    recomputed: again.flops,
    recomputedShare: again.flops / (flopsOf(step) - again.flops),
  };
}
