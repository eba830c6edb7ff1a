// `holdfast plan` within one budget: what it needs, what a step moves, and how near that is to the least of any schedule.

import type { Highs } from 'highs';
import { needBelow } from '../../engine/compile/candidate.ts';
import { fitMemory } from '../../engine/compile/fit.ts';
import type { Fit } from '../../engine/compile/fitted.ts';
import { type FitOptions, leastMemory, smallestBudget } from '../../engine/compile/least.ts';
import { stepPass } from '../../engine/compile/pass.ts';
import { flopsOf, offloadedBytes, recomputedFlops } from '../../engine/compile/pass-figures.ts';
import { schedule, slotsAt } from '../../engine/compile/schedule.ts';
import { type AdapterLimits, heldByUpdate, type Workload } from '../../engine/compile/workload.ts';
import { optionsOf } from '../../engine/run/arrangement.ts';
import { divideBelow } from '../../engine/simulate/shares-below.ts';
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
import { linearBound } from '../../memory/plan/bound.ts';
import { ratioTo } from '../../memory/plan/compare.ts';
import { findGaps } from '../../memory/plan/gaps.ts';
import { checkPlan } from '../../memory/plan/plan.ts';
import { chunkCount } from '../../memory/plan/trace.ts';
import { makeModel } from '../../nn/index.ts';
import { type Model, optimizedOn, parameterCount, trainedCount } from '../../nn/model.ts';
import { aliveWords } from '../../report/activation-words.ts';
import type { Host } from '../../runtime/host.ts';
import { traceGeneration } from '../../train/inference/generation-workload.ts';
import { generates, type RunSettings } from '../../train/run/run-settings.ts';
import { chooseSplit } from '../../train/step/optimizer-split.ts';
import { traceStep } from '../../train/step/step-programs.ts';
import { trainingWorkload } from '../../train/step/training-workload.ts';
import { formatBytes } from '../../util/bytes.ts';
import { HoldfastError } from '../../util/errors.ts';
import { describeOrder } from '../accumulate-order.ts';
import { tiersFromFlags } from '../memory-flags.ts';
import { describeSplit } from '../optimizer-split.ts';
import { type BudgetFlags, type PlannedRun, passesIn, plannedModel, plannedShape, sharesRows } from './flags.ts';
import { LISTINGS } from './listings.ts';
import { describeRates, type PlanBasis, plannedLimits, ratesFacts } from './rates.ts';
import { expectedStep, stepTimeLine } from './step-time.ts';
import { describeUpdate, updateFacts } from './update.ts';

const FATES: Readonly<Record<ActivationMode, string>> = {
  keep: 'all kept for the backward pass',
  light: 'outputs of norms and gated activations made again',
  stream: 'made again from a residual stream that stays',
  recompute: 'made again from each block’s input',
  sqrt: 'made again from the inputs of every √n-th block',
  spill: 'made again from a residual stream that is moved below the GPU',
  offload: 'moved below the GPU',
  'offload-all': 'all of them moved below the GPU',
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

/** Bytes of each tier that a run takes at most. Errors: HoldfastError where there is too little room, with what would do. */
function placesBelow(found: Fit, { hostMemory, disk, diskLimit }: BudgetFlags): Record<'host' | 'disk', number> {
  const enough = Number.POSITIVE_INFINITY;
  const limit = diskLimit ?? enough;
  const { hostSlots, beside, homes } = divideBelow(found, disk === undefined ? undefined : limit, hostMemory ?? enough);
  const { held, largestPut, chunkBytes } = needBelow(found);
  // What is in host memory may have a copy on disk as well, and what is written lies beside what it replaces.
  const chunksOnDisk = hostSlots < held ? held + largestPut : 0;
  return {
    host: (hostSlots + beside) * chunkBytes + homes.onHost + homes.readers * homes.readerBytes,
    disk: Math.min(limit, chunksOnDisk * chunkBytes + homes.onDisk),
  };
}

/** Works it out, and prints it. */
export function planOne(host: Host, highs: Highs, run: PlannedRun, basis: PlanBasis): void {
  const { write } = host.terminal;
  const { adapter, known } = basis;
  const { flags, settings } = run;
  const { config, batch, seq: context, accumulate, activationDtype, optimizerDevice: device = 'gpu' } = settings;
  const limits = plannedLimits(basis);
  const backwardPasses = passesIn(settings);
  const recovery = backwardPasses === undefined ? (flags.recovery ?? 'step') : 'checkpoint';
  const tiers = { ...tiersFromFlags(host, flags), recovery };
  const optionsFor = (workload: Workload) => optionsOf(tiers, heldByUpdate(workload));
  const workloadWith = (model: Model, changes: Partial<Pick<RunSettings, 'batch' | 'seq'>> = {}) => {
    const { batch, seq, accumulate } = { ...settings, ...changes };
    const generation = generates(settings) ? traceGeneration(model, seq) : undefined;
    const packed = sharesRows(settings);
    const programs = traceStep(model, batch, seq, { packed, activationDtype, passes: backwardPasses });
    return trainingWorkload(model, programs, accumulate, generation, flags);
  };
  const plain = plannedModel(run);
  const parameters = parameterCount(plain);
  const split =
    device === 'auto'
      ? chooseSplit({
          model: plain,
          workloadOf: workloadWith,
          memory: { ...tiers, ...(flags.gpuMemory !== undefined && { gpu: flags.gpuMemory }) },
          limits,
        })
      : undefined;
  const model = optimizedOn(plain, device, split);
  const workloadOf = (changes?: Parameters<typeof workloadWith>[1]) => workloadWith(model, changes);
  const workload = workloadOf();
  const { bytes: smallest, activations: placed } = leastMemory(workload, limits, optionsFor(workload));
  const resident = fitMemory(workload, limits, undefined);
  const budget =
    flags.gpuMemory ?? Math.max(smallest, resident.peak - (resident.residents * resident.map.chunkBytes) / 2);
  if (budget < smallest) {
    const smallestOf = (other: Workload, changes: FitOptions = {}) =>
      formatBytes(smallestBudget(other, limits, { ...optionsFor(other), ...changes }));
    const half = (changes: Parameters<typeof workloadOf>[0]) => smallestOf(workloadOf(changes));
    const knobs = [
      ...(batch > 1 ? [`--batch ${batch >> 1} needs ${half({ batch: batch >> 1 })}`] : []),
      ...(context > 1 && model.shape.vocabulary > 0
        ? [`--context ${context >> 1} needs ${half({ seq: context >> 1 })}`]
        : []),
      ...(recovery === 'step'
        ? [`--recovery checkpoint needs ${smallestOf(workload, { recovery: 'checkpoint' })}`]
        : []),
    ];
    throw new HoldfastError(
      `--gpu-memory ${formatBytes(budget)} is too little: ${smallest} bytes (${formatBytes(smallest)}) is the smallest ` +
        `budget that works, ${formatBytes(placed)} of it for activations${knobs.length > 0 ? `; ${knobs.join(', ')}` : ''}`,
    );
  }

  const start = performance.now();
  const found = fitMemory(workload, limits, budget, optionsFor(workload));
  const { map, passes, nonModel, slots, staging, peak } = found;
  const { trace, extra } = passes.step;
  const { plan, moved } = schedule(trace, slots, flags.policy, extra);
  const milliseconds = performance.now() - start;
  const room = slotsAt(trace, slots, extra);
  const expected = adapter && expectedStep(run, { resident, found, budget, limits }, known);
  const cost = checkPlan(trace, plan, room);
  const linear = linearBound(highs, findGaps(trace, room)).chunks;
  const ratio = ratioTo(linear, cost);
  const { trainable, frozen } = map;
  const [padding, held] = [trainable.padding + frozen.padding, trainable.held + frozen.held];
  const tiled = trainable.tiled + frozen.tiled;
  const { chunks } = trainable;
  const flops = flopsOf(passes.step);
  const full = frozen.chunks > 0 ? fullStepFlops(makeModel(config), settings, limits) : undefined;
  const again = recomputedFlops(passes.step);
  const { order, activations } = found.workload;
  const modes = activations?.modes ?? [];
  const offloaded = offloadedBytes(passes.step);
  const stashed = found.stashes.reduce((a, b) => a + b, 0);
  const below = placesBelow(found, flags);
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
        flops: { step: flops, ...(full !== undefined && { fullStep: full }) },
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
        budget,
        predictedPeak: peak,
        slots,
        mostSlots: room.reduce((a, b) => Math.max(a, b), slots),
        staging,
        moments: trace.moments.length,
        accumulateOrder: order?.order ?? 'batch',
        activations: {
          modes,
          recomputedFlops: again.flops,
          share: again.share,
          offloadedBytes: offloaded,
          bytesBelow: stashed,
        },
        bytesPerStep: moved,
        policy: flags.policy,
        below,
        bound: { lp: linear * trace.chunkBytes, ratio },
        step: expected ?? null,
        rates: ratesFacts(basis),
        planMilliseconds: milliseconds,
      })}\n`,
    );
    return;
  }
  const shown = (bytes: number) => formatBytes(bytes).padStart(8);
  write(
    [
      `${plannedShape(config)}: ${parameters.toLocaleString('en')} parameters`,
      `  ${shown(found.residents * map.chunkBytes)}  model data: ${frozen.chunks > 0 ? `${trainedCount(model).toLocaleString('en')} parameters that train, their` : 'parameters,'} ${describeKinds(map)}`,
      ...(split === undefined ? [] : [`            ${describeSplit(model, split)}`]),
      `  ${`${trainedBytes} bytes`.padStart(8)}  ${onHost.length > 0 ? '' : 'of it '}a parameter that trains, ${kept} of them from step to step${onHost.length > 0 ? `; what the optimizer alone uses, ${belowBytes} of them, is below the GPU and never on it${isMixed ? ', where the host updates it' : ''}` : ''}`,
      ...(frozen.chunks > 0
        ? [
            `  ${shown(frozen.chunks * trace.chunkBytes)}  of it frozen${settings.lora?.baseDtype ? `, in ${settings.lora.baseDtype}` : ''}: ${frozen.chunks} chunks that are only read`,
          ]
        : []),
      `            ${chunks} chunks of ${formatBytes(trace.chunkBytes)} a kind, ${tiled} tensors tiled by rows, ${((100 * padding) / held).toFixed(3)} % padding`,
      `  ${shown(nonModel.arenas)}  activations, batch ${batch} x ${context} (${aliveWords(nonModel)}): ${describeModes(modes)}${again.flops > 0 ? `, ${(100 * again.share).toFixed(1)} % more arithmetic` : ''}`,
      ...(update ? [describeUpdate(update)] : []),
      `  ${shown(nonModel.persistent)}  inputs, scalars, masks, uniforms${generates(settings) ? ', and keys and values for samples (--sample-tokens)' : ''}`,
      `  ${shown(smallest)}  is the smallest budget that works`,
      `  ${shown(budget)}  budget, ${formatBytes(peak)} of it used: ${slots} slots for ${chunkCount(trace)} chunks${besides(room, slots)}, ${staging.down} of staging down, ${staging.up} up`,
      ...(flags.hostMemory === undefined && flags.disk === undefined
        ? []
        : [
            `  ${shown(below.host)}  of host memory${flags.disk === undefined ? '' : `, and ${formatBytes(below.disk)} of disk,`} for what is below the GPU, at most`,
          ]),
      `a step of ${accumulate} micro-batch${accumulate === 1 ? '' : 'es'} moves`,
      ...(order ? [`            ${describeOrder(order.order, found.orderSeconds)}`] : []),
      ...(offloaded > 0
        ? [
            `  ${shown(offloaded)}  of activations down, and up again; ${formatBytes(stashed)} of them are below at once`,
          ]
        : []),
      `  ${shown(cost.h2dBytes)}  of chunks up, ${formatBytes(cost.d2hBytes)} down${flags.policy === 'planned' ? '' : `, by ${flags.policy}`}: ${ratio.toFixed(3)} x the least of any schedule (linear bound ${formatBytes(linear * trace.chunkBytes)})`,
      `  ${(flops / 1e9).toPrecision(4)} GFLOP a step${full === undefined ? '' : `, ${(flops / full).toFixed(3)} x those of a step that trains all of it`}`,
      ...(adapter && expected ? [stepTimeLine(expected, settings, adapter)] : []),
      `planned in ${milliseconds.toFixed(0)} ms: ${trace.moments.length} moments, ${cost.loads} loads, ${cost.stores} stores, ${describeRates(basis)}`,
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
