// `holdfast plan` within one budget: what it needs, what a step moves, and how near that is to the least of any schedule, in lines or as
// one JSON object.

import type { Highs } from 'highs';
import { offloadedBytes } from '../../engine/compile/pass-figures.ts';
import { parameterCount, trainedCount } from '../../nn/model.ts';
import type { Host } from '../../runtime/host.ts';
import { budgetLines } from './budget-lines.ts';
import type { PlannedRun } from './flags.ts';
import { type PlannedBudget, planBudget, ratioOf, recomputedShare } from './planned-budget.ts';
import { type PlanBasis, ratesFacts } from './rates.ts';

/** Works it out, and prints it. */
export function planOne({ terminal }: Host, highs: Highs, run: PlannedRun, basis: PlanBasis): void {
  const planned = planBudget(highs, run, basis);
  terminal.write(run.flags.json ? `${JSON.stringify(budgetFacts(planned))}\n` : `${budgetLines(planned).join('\n')}\n`);
}

function budgetFacts({ run: { flags }, basis, planned, budget, found, schedule, room, plan, ...rest }: PlannedBudget) {
  const { model, split, whole, smallest } = planned;
  const { map, passes, nonModel, slots, staging, peak, stashes, workload, residents } = found;
  const { comfortable, tiers, links, flops } = plan;
  const { update, fullStep, bytesPerParameter, padding, held, tiled, expected, dispatches, milliseconds } = rest;
  const { moments, lists } = schedule.trace;
  return {
    parameters: parameterCount(model),
    trained: trainedCount(model),
    ...(split !== undefined && { optimizerSplit: split }),
    ...(update && { update }),
    flops: { ...flops, ...(fullStep !== undefined && { fullStep }) },
    modelDataBytes: residents * map.chunkBytes,
    bytesPerParameter: { all: bytesPerParameter.all, kept: bytesPerParameter.kept },
    chunks: {
      bytes: map.chunkBytes,
      perKind: map.trainable.chunks,
      lists: Object.fromEntries(lists.map(({ kind, chunks }) => [kind, chunks])),
      frozen: map.frozen.chunks,
      tiledTensors: tiled,
      waste: padding / held,
    },
    nonModelBytes: { ...nonModel, total: nonModel.arenas + nonModel.persistent },
    smallestBudget: smallest,
    comfortableBudget: comfortable ?? null,
    unlimited: whole.peak,
    budget,
    predictedPeak: peak,
    slots,
    mostSlots: room.reduce((a, b) => Math.max(a, b), slots),
    staging,
    moments: moments.length,
    dispatches,
    accumulateOrder: workload.order?.order ?? 'batch',
    activations: {
      modes: workload.activations?.modes ?? [],
      recomputedFlops: flops.recomputed,
      share: recomputedShare(flops),
      offloadedBytes: offloadedBytes(passes.step),
      bytesBelow: stashes.reduce((a, b) => a + b, 0),
    },
    bytesPerStep: schedule.moved,
    policy: flags.policy,
    below: { host: tiers.host.all, disk: tiers.disk.all },
    tiers,
    links,
    bound: { lp: links.gpu.bound, ratio: ratioOf(links.gpu.chunks, links.gpu.bound) },
    step: expected ?? null,
    rates: ratesFacts(basis),
    planMilliseconds: milliseconds,
  };
}
