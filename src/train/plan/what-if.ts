// Steps of a run under other settings, worked out by the planner that planned the run: bytes that a step moves and what
// it computes; and where the time of its own goes, on the clock that it was planned by. Pure; nothing is advised that does not fit.

import { needBelow } from '../../engine/compile/candidate.ts';
import { fitMemory } from '../../engine/compile/fit.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { isDispatch } from '../../engine/compile/operations.ts';
import { activationTraffic, flopsOf } from '../../engine/compile/pass-figures.ts';
import { type Policy, schedule } from '../../engine/compile/schedule.ts';
import { type AdapterLimits, heldByUpdate, type Workload } from '../../engine/compile/workload.ts';
import { type MemoryOptions, optionsOf } from '../../engine/run/arrangement.ts';
import { machineOf, computeSeconds as secondsOf } from '../../engine/simulate/machine.ts';
import { simulate } from '../../engine/simulate/simulate.ts';
import { BLOCK_MODES } from '../../graph/activations.ts';
import { bytesBelow } from '../../memory/tiers/shares.ts';
import { flagBytes, parseBytes } from '../../util/bytes.ts';
import { unlessRefused } from '../../util/errors.ts';
import type { TrainingPasses } from '../step/training-workload.ts';

/** What a step would be with another setting. */
export interface Alternative {
  /** As it is given on the command line. */
  readonly flag: string;
  /** Bytes over the link, both ways: chunks and activations, copies for recovery left out. */
  readonly moved: number;
  /** Arithmetic, as a share of that of a step as it is; below 0, less. */
  readonly moreArithmetic: number;
}

/** Shares of a step's time, as it is planned by the rates of the adapter. */
export interface PlannedTime {
  /** Arithmetic, and of all of the step's the part that makes activations again. */
  readonly computing: number;
  readonly again: number;
  /** The share in which arithmetic stands still for values between the GPU and host memory. */
  readonly waiting: number;
}

/** What other settings would save a run within its budget. */
export interface WhatIf {
  readonly time: PlannedTime;
  /** As `moved` of an alternative: of a step as it is planned. */
  readonly moved: number;
  /** Settings with which less moves, those with which the least does first. */
  readonly alternatives: readonly Alternative[];
  /** Bytes of host memory with which nothing lies on disk. */
  readonly hostEnough: number;
}

/** Chunks of staging, where everything else is on the GPU. */
const UNDER_WAY = 4;
/** Planning a longer step several times takes seconds. */
export const MOST_MOMENTS = 4000;
/** Less than this share of what moves is not worth another setting. */
const WORTH_SAYING = 0.05;

/** Undefined for a step that takes long to plan. */
export function whatIf(
  fit: Fit<TrainingPasses>,
  limits: AdapterLimits,
  memory: Pick<MemoryOptions, 'gpu' | 'host' | 'disk' | 'recovery' | 'policy'>,
): WhatIf | undefined {
  const { workload, passes, map } = fit;
  const { gpu, policy = 'planned' } = memory;
  if (typeof gpu !== 'number' || passes.step.operations.length > MOST_MOMENTS) return undefined;
  const options = optionsOf(memory, heldByUpdate(workload));
  const moved = movedIn(fit, policy);
  const time = timeOf(fit, limits, policy);
  const flops = flopsOf(passes.step);
  const alternatives: Alternative[] = [];
  const consider = (flag: string, found: Fit<TrainingPasses> | undefined) => {
    if (!found) return;
    const then = movedIn(found, policy);
    if (then > (1 - WORTH_SAYING) * moved) return;
    alternatives.push({ flag, moved: then, moreArithmetic: flopsOf(found.passes.step) / flops - 1 });
  };
  const { activations } = workload;
  for (const mode of activations ? BLOCK_MODES : []) {
    if (!activations || activations.modes.every((now) => now === mode)) continue;
    // This one and no other.
    const modes = activations.modes.map(() => mode);
    const { order } = workload;
    const only = {
      ...activations.with(modes),
      activations: { ...activations, modes, menu: [mode], sparing: undefined },
      ...(order && { order: { ...order, menu: [order.order] } }),
    };
    consider(
      `--activations ${mode}`,
      unlessRefused(() => fitMemory(only, limits, gpu, options)),
    );
  }
  const whole = everythingOf(workload, limits);
  // In the smaller of the two, what is under way has no room of its own.
  const larger = [0, UNDER_WAY].map((chunks) => {
    const size = flagBytes(whole.peak + chunks * whole.stagingBytes);
    const found = unlessRefused(() => fitMemory(workload, limits, parseBytes(size), options));
    return { flag: `--gpu-memory ${size}`, found, moved: found ? movedIn(found, policy) : Number.POSITIVE_INFINITY };
  });
  const [enough] = larger.toSorted((a, b) => a.moved - b.moved);
  if (enough) consider(enough.flag, enough.found);
  return {
    time,
    moved,
    alternatives: alternatives.toSorted((a, b) => a.moved - b.moved),
    hostEnough: bytesBelow(needBelow(fit)) + map.largestPut * map.chunkBytes,
  };
}

/** Everything on the GPU, with as many activations kept as may be. */
export function everythingOf(workload: Workload<TrainingPasses>, limits: AdapterLimits): Fit<TrainingPasses> {
  const { activations } = workload;
  const [most] = activations?.menu ?? [];
  const kept = activations && most ? activations.with(activations.modes.map(() => most)) : workload;
  return fitMemory(kept, limits, undefined);
}

function timeOf(fit: Fit<TrainingPasses>, limits: AdapterLimits, policy: Policy): PlannedTime {
  const { step } = fit.passes;
  const plan = schedule(step.trace, fit.slots, policy, step.extra);
  const machine = machineOf(limits);
  const { seconds, computeSeconds, waits } = simulate(fit, step, plan, machine);
  const again = step.operations.filter((operation) => isDispatch(operation) && operation.again);
  // What waits for AdamW on the host waits for no link.
  const waiting = (seconds - computeSeconds - waits.host) / seconds;
  return { computing: computeSeconds / seconds, again: secondsOf(machine, again) / seconds, waiting };
}

/** Bytes that a step is planned to move over the link, both ways. */
function movedIn({ passes: { step }, slots }: Fit<TrainingPasses>, policy: Policy): number {
  const { h2d, d2h } = schedule(step.trace, slots, policy, step.extra).moved;
  const { down, up } = activationTraffic(step);
  return h2d + d2h + down + up;
}
