// Lines of `holdfast plan` on a run within one budget: what it needs, what a step moves, and how near that is to the least of any
// schedule.

import { isOpen } from '../../engine/compile/recovery.ts';
import type { PolicyName } from '../../engine/compile/schedule.ts';
import { ACTIVATION_MODES, type ActivationMode } from '../../graph/activations.ts';
import { type ChunkMap, updatedOn } from '../../memory/layout/chunk-map.ts';
import { checkPlan } from '../../memory/plan/plan.ts';
import { parameterCount, trainedCount } from '../../nn/model.ts';
import { aliveWords, movedWords } from '../../report/activation-words.ts';
import { DATA_KINDS, type PlannedLinks, type RunPlan } from '../../train/run/run-plan.ts';
import { generates } from '../../train/run/run-settings.ts';
import { formatBytes } from '../../util/bytes.ts';
import { counted } from '../../util/counted.ts';
import { describeOrder } from '../accumulate-order.ts';
import { describeSplit } from '../optimizer-split.ts';
import { plannedShape } from './flags.ts';
import { LISTINGS } from './listings.ts';
import { type PlannedBudget, ratioOf, recomputedShare } from './planned-budget.ts';
import { describeRates } from './rates.ts';
import { stepTimeLine } from './step-time.ts';
import { describeUpdate } from './update.ts';
import { count, LOSES_STEPS } from './words.ts';

/** What a run needs, what a step of it moves and takes, and the parts that the flags want listed. */
export const budgetLines = (planned: PlannedBudget): string[] => [
  ...memoryLines(planned),
  ...tierLines(planned.plan.tiers),
  ...stepLines(planned),
  ...listingLines(planned),
];

/** What lies on the GPU, and budgets that would do. */
function memoryLines({ run: { settings }, planned, budget, found, room, update, ...rest }: PlannedBudget): string[] {
  const { model, split, options, whole, smallest } = planned;
  const { map, nonModel, slots, staging, peak, workload } = found;
  const { trainable, frozen, chunkBytes } = map;
  const { bytesPerParameter, padding, held, tiled } = rest;
  const { comfortable } = rest.plan;
  const isOnHost = updatedOn('cpu', model.parameters).length > 0;
  const isMixed = isOnHost && map.hostIndex > 0;
  return [
    `${plannedShape(settings.config)}: ${parameterCount(model).toLocaleString('en')} parameters`,
    `  ${shown(found.residents * chunkBytes)}  model data: ${frozen.chunks > 0 ? `${trainedCount(model).toLocaleString('en')} parameters that train, their` : 'parameters,'} ${describeKinds(map)}`,
    ...(split === undefined ? [] : [`            ${describeSplit(model, split)}`]),
    `  ${`${bytesPerParameter.all} bytes`.padStart(8)}  ${isOnHost ? '' : 'of it '}a parameter that trains, ${bytesPerParameter.kept} of them from step to step${isOnHost ? `; what the optimizer alone uses, ${bytesPerParameter.ofOptimizer} of them, is below the GPU and never on it${isMixed ? ', where the host updates it' : ''}` : ''}`,
    ...(frozen.chunks > 0
      ? [
          `  ${shown(frozen.chunks * chunkBytes)}  of it frozen${settings.lora?.baseDtype ? `, in ${settings.lora.baseDtype}` : ''}: ${counted(frozen.chunks, 'chunk')} only read`,
        ]
      : []),
    `            ${counted(trainable.chunks, 'chunk')} of ${formatBytes(chunkBytes)} a kind, ${counted(tiled, 'tensor')} tiled by rows, ${((100 * padding) / held).toFixed(3)} % padding`,
    `  ${shown(nonModel.arenas)}  activations, batch ${settings.batch} x ${settings.seq} (${aliveWords(nonModel)}): ${describeModes(workload.activations?.modes ?? [])}`,
    ...(update ? [describeUpdate(update)] : []),
    `  ${shown(nonModel.persistent)}  inputs, scalars, masks, uniforms${generates(settings) ? ', and keys and values for samples (--sample-tokens)' : ''}`,
    `  ${shown(smallest)}  is the smallest budget that works`,
    comfortable === undefined
      ? `            no budget is comfortable, within 5 % of a step without one, which takes ${formatBytes(whole.peak)}${options.recovery === 'checkpoint' ? '' : ': each step is kept below it as well (--recovery checkpoint: it is not)'}`
      : `  ${shown(comfortable)}  is a comfortable one: within 5 % of a step without a budget, which takes ${formatBytes(whole.peak)}`,
    `  ${shown(peak)}  is the peak within a budget of ${formatBytes(budget)}: ${counted(slots, 'slot')} for ${counted(map.count, 'chunk')}${besides(room, slots)}, ${staging.down} of staging down, ${staging.up} up`,
  ];
}

/** What a step moves, computes and takes, and what it took to plan it. */
function stepLines({ run: { flags, settings }, basis, found, schedule, room, plan, ...rest }: PlannedBudget): string[] {
  const { expected, fullStep, dispatches, milliseconds } = rest;
  const { recovery = 'auto' } = rest.planned.options;
  const { flops } = plan;
  const { order } = found.workload;
  const { trace } = schedule;
  const cost = checkPlan(trace, schedule.plan, room);
  return [
    `a step of ${counted(settings.accumulate, 'micro-batch')}`,
    ...(order ? [`            ${describeOrder(order.order, found.orderSeconds)}`] : []),
    ...linkLines(plan.links, flags.policy),
    ...(found.durable || !isOpen(found.workload, recovery) ? [] : [`            ${LOSES_STEPS}`]),
    `  ${`${(flops.step / 1e9).toPrecision(4)} GFLOP`.padStart(8)}${recomputedWords(flops)}${fullStep === undefined ? '' : `, ${(flops.step / fullStep).toFixed(3)} x those of a step that trains all of it`}`,
    `  ${count(dispatches.step).padStart(8)}  dispatches, ${count(dispatches.unlimited)} without a budget`,
    ...(basis.adapter && expected ? [stepTimeLine(expected, settings, basis.adapter)] : []),
    `planned in ${milliseconds.toFixed(0)} ms: ${trace.moments.length} moments, ${counted(cost.loads, 'load')}, ${counted(cost.stores, 'store')}, ${describeRates(basis)}`,
  ];
}

const listingLines = ({ run: { flags }, found, schedule: { plan } }: PlannedBudget): string[] =>
  (flags.print ?? []).flatMap((part) => ['', LISTINGS[part](found, plan)]);

const FATES: Readonly<Record<ActivationMode, string>> = {
  keep: 'all kept for the backward pass',
  light: 'outputs of norms and gated activations made again',
  attention: 'made again from a residual stream and outputs of attention that stay',
  stream: 'made again from a residual stream that stays',
  recompute: 'made again from each block’s input',
  sqrt: 'made again from the inputs of every √n-th block',
  spill: 'made again from a residual stream that is moved below the GPU',
  offload: 'moved below the GPU',
  'offload-all': 'all of them moved below the GPU',
  'slice-recompute': 'made again from each block’s input, some rows at a time',
  slice: 'made again from a residual stream that is moved below the GPU, some rows at a time',
};

/** `3 blocks made again from each block's input, 9 all kept for the backward pass`. */
function describeModes(modes: readonly ActivationMode[]): string {
  const used = ACTIVATION_MODES.filter((mode) => modes.includes(mode));
  const [only = 'keep'] = used;
  if (used.length < 2) return FATES[only];
  return used
    .map((mode) => `of ${modes.filter((other) => other === mode).length} of ${modes.length} blocks ${FATES[mode]}`)
    .join(', ');
}

/** What serves beside the slots that there always are. */
function besides(room: readonly number[], slots: number): string {
  const most = room.reduce((a, b) => Math.max(a, b), slots);
  return most > slots ? ` and up to ${most - slots} more where activations leave room` : '';
}

const TIERS = { gpu: 'GPU', host: 'host', disk: 'disk' } as const satisfies Record<keyof RunPlan['tiers'], string>;
const COLUMN = 12;

/** A line a tier that holds something, a column a kind of data. */
function tierLines(tiers: RunPlan['tiers']): string[] {
  const row = (name: string, cells: readonly string[]) =>
    `  ${name.padEnd(10)}${cells.map((cell) => cell.padStart(COLUMN)).join('')}`;
  const used = (Object.keys(TIERS) as (keyof typeof TIERS)[]).filter((tier) => tiers[tier].all > 0);
  return [
    row('at most', [...DATA_KINDS, 'at once']),
    ...used.map((tier) =>
      row(
        TIERS[tier],
        [...DATA_KINDS, 'all' as const].map((kind) => (tiers[tier][kind] > 0 ? formatBytes(tiers[tier][kind]) : '–')),
      ),
    ),
  ];
}

/** Lines on what a step moves over each link, against what is known to be the least. */
function linkLines({ gpu, disk }: PlannedLinks, policy: PolicyName): string[] {
  const beside = [
    ...(gpu.activations > 0 ? [movedWords({ down: gpu.activations, up: gpu.fetched })] : []),
    ...(gpu.recovery > 0 ? [`${formatBytes(gpu.recovery)} down against the loss of a device`] : []),
  ];
  const by = policy === 'planned' ? '' : `, by ${policy}`;
  return [
    `  ${shown(gpu.up)}  moved up to the GPU, ${formatBytes(gpu.down)} down${by}${beside.length > 0 ? `; ${beside.join(', ')}` : ''}`,
    `            chunks ${formatBytes(gpu.chunks)}: ${ratioOf(gpu.chunks, gpu.bound).toFixed(3)} x the least of any schedule (linear bound ${formatBytes(gpu.bound)})`,
    ...(disk
      ? [
          `  ${shown(disk.read)}  read from disk, ${formatBytes(disk.written)} written to it${disk.bound === undefined ? '' : `; at least ${formatBytes(disk.bound)} of chunks both ways (linear bound)`}`,
        ]
      : []),
  ];
}

/** `, of which 0.22 recompute activations: 0.1 % more than without that`. */
function recomputedWords(flops: RunPlan['flops']): string {
  const { recomputed } = flops;
  if (recomputed === 0) return ', none of them to recompute activations';
  const more = (100 * recomputedShare(flops)).toPrecision(2);
  return `, ${(recomputed / 1e9).toPrecision(3)} of them to recompute activations: ${more} % more arithmetic`;
}

const shown = (bytes: number): string => formatBytes(bytes).padStart(8);

/** What there is on the GPU beside each parameter that trains. */
function describeKinds({ dtype, momentDtype, hostIndex }: ChunkMap): string {
  if (hostIndex === 0)
    return dtype === 'f32' ? 'gradients in f32' : `in ${dtype}, gradients in ${dtype} once they are complete`;
  if (dtype === 'f32')
    return momentDtype === 'f32'
      ? 'gradients and two moments in f32'
      : `gradients in f32, two moments in ${momentDtype}`;
  if (dtype === 'f16')
    return `in f32 and in f16, which kernels read, gradients in f16 once they are complete, two moments in ${momentDtype}`;
  return `in halves of f32 of which kernels read the upper one (bf16), gradients in bf16 once they are complete, two moments in ${momentDtype}`;
}
