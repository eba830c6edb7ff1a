// `holdfast plan` within one budget: what it needs, what a step moves, and how near that is to the least of any schedule.

import type { Highs } from 'highs';
import { lackBelow } from '../../engine/compile/least.ts';
import { stepPass } from '../../engine/compile/pass.ts';
import { dispatchesOf, flopsOf, offloadedBytes } from '../../engine/compile/pass-figures.ts';
import { type PolicyName, schedule, slotsAt } from '../../engine/compile/schedule.ts';
import type { AdapterLimits } from '../../engine/compile/workload.ts';
import { ACTIVATION_MODES, type ActivationMode } from '../../graph/activations.ts';
import { type ChunkMap, mapChunks, updatedOn } from '../../memory/layout/chunk-map.ts';
import {
  elementBytesOf,
  lastingKinds,
  type MomentDtype,
  optimizerKinds,
  type TrainingDtype,
  trainedElementBytes,
} from '../../memory/layout/kinds.ts';
import { checkPlan } from '../../memory/plan/plan.ts';
import { chunkCount } from '../../memory/plan/trace.ts';
import { makeModel } from '../../nn/index.ts';
import { type Model, parameterCount, trainedCount } from '../../nn/model.ts';
import { aliveWords } from '../../report/activation-words.ts';
import type { Host } from '../../runtime/host.ts';
import type { StepMemory } from '../../train/plan/step-times.ts';
import { expectedStep } from '../../train/run/expected-step.ts';
import {
  DATA_KINDS,
  type PlannedLinks,
  type PlannedWorkload,
  planWithin,
  planWorkload,
  type RunPlan,
} from '../../train/run/run-plan.ts';
import { backwardPassesIn, generates, type RunSettings } from '../../train/run/run-settings.ts';
import { traceStep } from '../../train/step/step-programs.ts';
import { withoutUndefined } from '../../util/arguments.ts';
import { formatBytes } from '../../util/bytes.ts';
import { counted } from '../../util/counted.ts';
import { HoldfastError } from '../../util/errors.ts';
import { describeOrder } from '../accumulate-order.ts';
import { describeSplit } from '../optimizer-split.ts';
import { type PlannedRun, plannedShape } from './flags.ts';
import { LISTINGS } from './listings.ts';
import { describeRates, type PlanBasis, plannedLimits, ratesFacts } from './rates.ts';
import { stepTimeLine } from './step-time.ts';
import { describeUpdate, updateFacts } from './update.ts';
import { count } from './words.ts';

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

/** Names the smallest budget that works, and what would need less. */
function tooLittle(
  { settings: { batch, seq } }: PlannedRun,
  { model, options, smallest, leastActivations, smallestWith }: PlannedWorkload,
  budget: number,
): HoldfastError {
  const knobs = [
    ...(batch > 1 ? [`--batch ${batch >> 1} needs ${formatBytes(smallestWith({ batch: batch >> 1 }))}`] : []),
    ...(seq > 1 && model.shape.vocabulary > 0
      ? [`--context ${seq >> 1} needs ${formatBytes(smallestWith({ seq: seq >> 1 }))}`]
      : []),
    ...(options.recovery === 'step'
      ? [`--recovery checkpoint needs ${formatBytes(smallestWith({}, 'checkpoint'))}`]
      : []),
  ];
  return new HoldfastError(
    `--gpu-memory ${formatBytes(budget)} is too little: ${smallest} bytes (${formatBytes(smallest)}) is the smallest ` +
      `budget that works, ${formatBytes(leastActivations)} of it for activations${knobs.length > 0 ? `; ${knobs.join(', ')}` : ''}`,
  );
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
    ...(gpu.activations > 0 ? [`${formatBytes(gpu.activations)} of activations each way`] : []),
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

const recomputedShare = ({ step, recomputed }: RunPlan['flops']): number => recomputed / (step - recomputed);

/** `, of which 0.22 recompute activations: 0.1 % more than without that`. */
function recomputedWords(flops: RunPlan['flops']): string {
  const { recomputed } = flops;
  if (recomputed === 0) return ', none of them to recompute activations';
  const more = (100 * recomputedShare(flops)).toPrecision(2);
  return `, ${(recomputed / 1e9).toPrecision(3)} of them to recompute activations: ${more} % more arithmetic`;
}

/** Nothing is as little as it can be. */
const ratioOf = (moved: number, bound: number): number => (moved === bound ? 1 : moved / bound);

const shown = (bytes: number): string => formatBytes(bytes).padStart(8);

/** Works it out, and prints it. */
export function planOne(host: Host, highs: Highs, run: PlannedRun, basis: PlanBasis): void {
  const { write } = host.terminal;
  const { adapter, known } = basis;
  const { flags, settings } = run;
  const { config, batch, seq: context, accumulate } = settings;
  const limits = plannedLimits(basis);
  const backwardPasses = backwardPassesIn(settings);
  const { diskLimit = Number.POSITIVE_INFINITY, ...asked } = flags;
  const memory = {
    ...{ gpu: asked.gpuMemory, host: asked.hostMemory, disk: asked.disk === undefined ? undefined : diskLimit },
    ...{ recovery: asked.recovery, policy: asked.policy, activations: asked.activations },
    accumulateOrder: asked.accumulateOrder,
  };
  const toPlan = { settings, stored: run.stored, memory, limits };
  const start = performance.now();
  const planned = planWorkload(toPlan);
  const { model, split, options, whole: resident, smallest } = planned;
  const parameters = parameterCount(model);
  const budget =
    flags.gpuMemory ?? Math.max(smallest, resident.peak - (resident.residents * resident.map.chunkBytes) / 2);
  if (budget < smallest) throw lackBelow(planned.workload, limits, options, budget) ?? tooLittle(run, planned, budget);

  const found = planned.fitWithin(budget);
  const { map, passes, nonModel, slots, staging, peak } = found;
  const { trace, extra } = passes.step;
  const { plan, moved } = schedule(trace, slots, flags.policy, extra);
  const milliseconds = performance.now() - start;
  const room = slotsAt(trace, slots, extra);
  const within = withoutUndefined({ ...memory, gpu: budget, disk: asked.disk, prefetch: asked.prefetch }) as StepMemory;
  const expected = adapter && expectedStep({ settings, resident, found, memory: within, limits }, known);
  const cost = checkPlan(trace, plan, room);
  const { trainable, frozen } = map;
  const [padding, held] = [trainable.padding + frozen.padding, trainable.held + frozen.held];
  const tiled = trainable.tiled + frozen.tiled;
  const { chunks } = trainable;
  const full = frozen.chunks > 0 ? fullStepFlops(makeModel(config), settings, limits) : undefined;
  const { order, activations } = found.workload;
  const modes = activations?.modes ?? [];
  const offloaded = offloadedBytes(passes.step);
  const stashed = found.stashes.reduce((a, b) => a + b, 0);
  const { comfortable, tiers, links, flops } = planWithin(highs, toPlan, planned, found);
  const [dispatches = 0, unlimitedDispatches = 0] = [passes, resident.passes].map(
    ({ step }) => dispatchesOf({ step }).length,
  );
  const update = backwardPasses && updateFacts(found, backwardPasses);
  const kept = keptBytes(map.dtype, map.momentDtype);
  const belowBytes = optimizerKinds(map.dtype, map.momentDtype).reduce((sum, kind) => sum + elementBytesOf(kind), 0);
  const onHost = updatedOn('cpu', model.parameters);
  const isMixed = onHost.length > 0 && map.hostIndex > 0;
  const trainedBytes = update ? kept : trainedElementBytes(map.dtype, map.momentDtype);

  if (flags.json) {
    write(
      `${JSON.stringify({
        parameters,
        trained: trainedCount(model),
        ...(split !== undefined && { optimizerSplit: split }),
        ...(update && { update }),
        flops: { ...flops, ...(full !== undefined && { fullStep: full }) },
        modelDataBytes: found.residents * map.chunkBytes,
        bytesPerParameter: { all: trainedBytes, kept },
        chunks: {
          bytes: trace.chunkBytes,
          perKind: chunks,
          lists: Object.fromEntries(trace.lists.map(({ kind, chunks }) => [kind, chunks])),
          frozen: frozen.chunks,
          tiledTensors: tiled,
          waste: padding / held,
        },
        nonModelBytes: { ...nonModel, total: nonModel.arenas + nonModel.persistent },
        smallestBudget: smallest,
        comfortableBudget: comfortable ?? null,
        unlimited: resident.peak,
        budget,
        predictedPeak: peak,
        slots,
        mostSlots: room.reduce((a, b) => Math.max(a, b), slots),
        staging,
        moments: trace.moments.length,
        dispatches: { step: dispatches, unlimited: unlimitedDispatches },
        accumulateOrder: order?.order ?? 'batch',
        activations: {
          modes,
          recomputedFlops: flops.recomputed,
          share: recomputedShare(flops),
          offloadedBytes: offloaded,
          bytesBelow: stashed,
        },
        bytesPerStep: moved,
        policy: flags.policy,
        below: { host: tiers.host.all, disk: tiers.disk.all },
        tiers,
        links,
        bound: { lp: links.gpu.bound, ratio: ratioOf(links.gpu.chunks, links.gpu.bound) },
        step: expected ?? null,
        rates: ratesFacts(basis),
        planMilliseconds: milliseconds,
      })}\n`,
    );
    return;
  }
  write(
    [
      `${plannedShape(config)}: ${parameters.toLocaleString('en')} parameters`,
      `  ${shown(found.residents * map.chunkBytes)}  model data: ${frozen.chunks > 0 ? `${trainedCount(model).toLocaleString('en')} parameters that train, their` : 'parameters,'} ${describeKinds(map)}`,
      ...(split === undefined ? [] : [`            ${describeSplit(model, split)}`]),
      `  ${`${trainedBytes} bytes`.padStart(8)}  ${onHost.length > 0 ? '' : 'of it '}a parameter that trains, ${kept} of them from step to step${onHost.length > 0 ? `; what the optimizer alone uses, ${belowBytes} of them, is below the GPU and never on it${isMixed ? ', where the host updates it' : ''}` : ''}`,
      ...(frozen.chunks > 0
        ? [
            `  ${shown(frozen.chunks * trace.chunkBytes)}  of it frozen${settings.lora?.baseDtype ? `, in ${settings.lora.baseDtype}` : ''}: ${counted(frozen.chunks, 'chunk')} only read`,
          ]
        : []),
      `            ${counted(chunks, 'chunk')} of ${formatBytes(trace.chunkBytes)} a kind, ${counted(tiled, 'tensor')} tiled by rows, ${((100 * padding) / held).toFixed(3)} % padding`,
      `  ${shown(nonModel.arenas)}  activations, batch ${batch} x ${context} (${aliveWords(nonModel)}): ${describeModes(modes)}`,
      ...(update ? [describeUpdate(update)] : []),
      `  ${shown(nonModel.persistent)}  inputs, scalars, masks, uniforms${generates(settings) ? ', and keys and values for samples (--sample-tokens)' : ''}`,
      `  ${shown(smallest)}  is the smallest budget that works`,
      comfortable === undefined
        ? `            no budget is comfortable, within 5 % of a step without one, which takes ${formatBytes(resident.peak)}${options.recovery === 'checkpoint' ? '' : ': each step is kept below it as well (--recovery checkpoint: it is not)'}`
        : `  ${shown(comfortable)}  is a comfortable one: within 5 % of a step without a budget, which takes ${formatBytes(resident.peak)}`,
      `  ${shown(peak)}  is the peak within a budget of ${formatBytes(budget)}: ${counted(slots, 'slot')} for ${counted(chunkCount(trace), 'chunk')}${besides(room, slots)}, ${staging.down} of staging down, ${staging.up} up`,
      ...tierLines(tiers),
      `a step of ${counted(accumulate, 'micro-batch')}`,
      ...(order ? [`            ${describeOrder(order.order, found.orderSeconds)}`] : []),
      ...linkLines(links, flags.policy),
      `  ${`${(flops.step / 1e9).toPrecision(4)} GFLOP`.padStart(8)}${recomputedWords(flops)}${full === undefined ? '' : `, ${(flops.step / full).toFixed(3)} x those of a step that trains all of it`}`,
      `  ${count(dispatches).padStart(8)}  dispatches, ${count(unlimitedDispatches)} without a budget`,
      ...(adapter && expected ? [stepTimeLine(expected, settings, adapter)] : []),
      `planned in ${milliseconds.toFixed(0)} ms: ${trace.moments.length} moments, ${counted(cost.loads, 'load')}, ${counted(cost.stores, 'store')}, ${describeRates(basis)}`,
      ...(flags.print ?? []).flatMap((part) => ['', LISTINGS[part](found, plan)]),
      '',
    ].join('\n'),
  );
}

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

/** Bytes of what lives on from step to step for a parameter that trains. */
const keptBytes = (dtype: TrainingDtype, momentDtype: MomentDtype): number =>
  lastingKinds(dtype, momentDtype).reduce((sum, kind) => sum + elementBytesOf(kind), 0);

/** Operations of a step that trains the whole model, with the activations kept. */
function fullStepFlops(model: Model, { batch, seq, accumulate }: RunSettings, { binding }: AdapterLimits): number {
  const step = traceStep(model, batch, seq);
  const map = mapChunks(model.parameters, true, { minBytes: 0, maxBytes: binding });
  return flopsOf(stepPass(step, map, accumulate));
}
