// `holdfast plan`: what training a model under a GPU budget would move and need, worked out with no GPU.

import { Command, InvalidArgumentError, Option } from 'commander';
import type { Highs } from 'highs';
import { type Fit, fitMemory, smallestBudget } from '../engine/compile/fit.ts';
import { flopsOf, offloadedBytes, recomputedFlops, type StepPasses, stepPass } from '../engine/compile/pass.ts';
import { schedule } from '../engine/compile/schedule.ts';
import { DEFAULT_LIMITS } from '../engine/compile/workload.ts';
import { FAMILY_NAMES, type FamilyName } from '../formats/families/index.ts';
import { DEFAULT_SHAPE } from '../formats/shape.ts';
import { ACTIVATION_MODES, type ActivationMode } from '../graph/activations.ts';
import { printProgram } from '../graph/graph.ts';
import type { AccumulateOrder } from '../graph/layer-major.ts';
import type { StoredElement } from '../kernels/stored.ts';
import { mapChunks } from '../memory/layout/chunk-map.ts';
import { elementBytesOf, lastingKinds, type TrainingDtype, trainedElementBytes } from '../memory/layout/kinds.ts';
import { printLayout } from '../memory/layout/layout.ts';
import { linearBound, loadSolver } from '../memory/plan/bound.ts';
import { ratioTo } from '../memory/plan/compare.ts';
import { findGaps } from '../memory/plan/gaps.ts';
import { checkPlan, type Plan, printPlan } from '../memory/plan/plan.ts';
import { chunkCount, printTrace } from '../memory/plan/trace.ts';
import { makeModel } from '../nn/index.ts';
import { withLora } from '../nn/lora.ts';
import { computedIn, type Model, parameterCount, trainedCount, withStored } from '../nn/model.ts';
import { sizeOf } from '../nn/size.ts';
import type { Host } from '../runtime/host.ts';
import { BASE_DTYPES, baseStorage } from '../train/base-dtype.ts';
import type { Scenario } from '../train/prediction.ts';
import { traceStep } from '../train/step-programs.ts';
import { trainingWorkload } from '../train/trainer.ts';
import { formatBytes, parseBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';
import { realNumber } from '../util/range.ts';
import { describeOrder } from './accumulate-order.ts';
import { configFromFlags } from './model-flags.ts';
import {
  accumulateOrderOption,
  activationsOption,
  checked,
  dtypeOption,
  recoveryOption,
  whole,
  within,
} from './options.ts';
import { compareOnActivations } from './plan-activations.ts';
import { printComparison } from './plan-compare.ts';
import { planOnMachines } from './plan-machine.ts';

interface Flags {
  model: FamilyName;
  layers: number;
  width: number;
  heads: number;
  kvHeads?: number;
  context: number;
  batch: number;
  accumulate: number;
  vocabSize: number;
  gpuMemory?: number;
  loraRank?: number;
  loraTargets?: string;
  baseDtype?: StoredElement;
  dtype: TrainingDtype;
  recovery: 'step' | 'checkpoint';
  activations: ActivationMode | 'auto';
  accumulateOrder: AccumulateOrder | 'auto';
  hardware?: string[];
  hostMemory?: number;
  reached?: number;
  copies?: 'serial' | 'duplex';
  sweep?: string;
  compare?: boolean;
  print?: readonly (keyof typeof LISTINGS)[];
  json?: boolean;
}

/** As they are given: --activations without a mode is for comparing. */
interface Given extends Omit<Flags, 'activations'> {
  activations: Flags['activations'] | true;
}

const FATES: Readonly<Record<ActivationMode, string>> = {
  keep: 'all kept for the backward pass',
  light: 'outputs of norms and gated activations made again',
  recompute: 'made again from each block’s input',
  spill: 'made again from a residual stream that is moved below the GPU',
  offload: 'moved below the GPU',
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

export function planCommand(host: Host): Command {
  return new Command('plan')
    .description('what training within a GPU budget would need and move, with no GPU')
    .addOption(new Option('--model <family>').choices(FAMILY_NAMES).default(DEFAULT_SHAPE.family))
    .option('--layers <n>', 'blocks', whole(1), 12)
    .option('--width <n>', 'embedding width', whole(1), 768)
    .option('--heads <n>', 'attention heads', whole(1), 12)
    .option('--kv-heads <n>', 'key and value heads, not of gpt2 (default: as many as heads)', whole(1))
    .option('--context <n>', 'tokens in a sequence', whole(1), 256)
    .option('--batch <n>', 'sequences in a micro-batch', whole(1), 1)
    .option('--accumulate <n>', 'micro-batches in a step', whole(1), 1)
    .option('--vocab-size <n>', 'tokens in the vocabulary', whole(2), 50257)
    .option(
      '--gpu-memory <bytes>',
      'the budget, as 64MB or 1.5GiB (default: half of what all would need)',
      checked(parseBytes),
    )
    .option('--lora-rank <n>', 'train a low-rank update of this rank, and freeze the rest', whole(1))
    .option('--lora-targets <names>', 'linears that have one: all-linear, or q_proj,v_proj (default: all-linear)')
    .addOption(
      new Option('--base-dtype <type>', 'with --lora-rank: how the frozen model lies in memory (default: f32)').choices(
        BASE_DTYPES,
      ),
    )
    .addOption(dtypeOption())
    .addOption(activationsOption('[what]'))
    .addOption(recoveryOption())
    .addOption(accumulateOrderOption())
    .option('--hardware <names>', 'predict a step on this machine: a file, or one that comes along', names)
    .option('--host-memory <bytes>', 'with --hardware: host memory for what is not on the GPU', checked(parseBytes))
    .option(
      '--reached <share>',
      'with --hardware: what kernels reach of its peak arithmetic',
      within(realNumber(0.001, 1)),
    )
    .addOption(
      new Option('--copies <how>', 'with --hardware: copies and arithmetic take turns, or not').choices([
        'serial',
        'duplex',
      ]),
    )
    .option('--sweep <file>', 'with --hardware, of several machines too: step time over the budget as a picture (SVG)')
    .option('--print <parts>', `list these in full: ${Object.keys(LISTINGS).join(', ')}`, listings)
    .option(
      '--compare',
      'eviction policies against the bound, on models and budgets of all sizes; with --activations, policies for activations',
    )
    .option('--json', 'one JSON object (with --compare, one a line)')
    .action(async ({ activations, ...given }: Given) => {
      const { hardware } = given;
      const flags: Flags = { ...given, activations: activations === true ? 'auto' : activations };
      if (activations === true) {
        if (!flags.compare) throw new HoldfastError('--activations: say what becomes of them, or give --compare, too');
        if (hardware && hardware.length > 1)
          throw new HoldfastError('--hardware: policies are compared on one machine');
        const { batch, context, accumulate, recovery } = flags;
        const model = modelOf(flags, flags.layers);
        await compareOnActivations(host, nameOf(flags), { model, batch, context, accumulate, recovery }, flags);
        return;
      }
      if (hardware) {
        await planOnMachines(host, nameOf(flags), scenarioOf(flags), { ...flags, hardware });
        return;
      }
      const alone = (['hostMemory', 'reached', 'copies', 'sweep'] as const).find((flag) => flags[flag] !== undefined);
      if (alone)
        throw new HoldfastError(`--${alone === 'hostMemory' ? 'host-memory' : alone}: give --hardware, a machine`);
      if (flags.compare && flags.dtype !== 'f32')
        throw new HoldfastError(
          '--dtype: policies are compared on models in f32; leave it out, or leave out --compare',
        );
      const highs = await loadSolver();
      if (flags.compare) printComparison(host, highs, flags.json ?? false);
      else planOne(host, highs, flags);
    });
}

/** A fit and its plan, part by part, a line an item. */
const LISTINGS = {
  program: ({ workload }: Fit) => workload.programs.map((p) => `${p.name}\n${printProgram(p)}`).join('\n\n'),
  layout: ({ map }: Fit) =>
    [...new Set(map.lists.filter(({ chunks }) => chunks > 0).map(({ kind }) => map.layoutOf(kind)))]
      .map(printLayout)
      .join('\n\n'),
  trace: ({ passes }: Fit<StepPasses>) => printTrace(passes.step.trace),
  plan: ({ passes }: Fit<StepPasses>, plan: Plan) => printPlan(passes.step.trace, plan),
};

function listings(text: string): (keyof typeof LISTINGS)[] {
  return names(text).map((name) => {
    const part = Object.keys(LISTINGS).find((part) => part === name) as keyof typeof LISTINGS | undefined;
    if (!part) throw new InvalidArgumentError(`${name} is none of ${Object.keys(LISTINGS).join(', ')}`);
    return part;
  });
}

const names = (text: string): string[] => text.split(',').filter((name) => name !== '');

const nameOf = ({ model, layers, width, vocabSize, batch, context, accumulate }: Flags): string =>
  `${model}, ${layers} layers of width ${width}, vocabulary ${vocabSize}, batch ${batch} x ${context}${accumulate > 1 ? ` x ${accumulate}` : ''}`;

const configOf = (flags: Flags, layers: number) => configFromFlags({ ...flags, layers, tied: false });

function modelOf(flags: Flags, layers: number): Model {
  const { loraRank: rank, loraTargets, baseDtype, dtype } = flags;
  const targets = loraTargets?.split(',');
  const base = makeModel(configOf(flags, layers));
  if (rank === undefined) {
    const flag = targets ? 'lora-targets' : baseDtype && 'base-dtype';
    if (flag) throw new HoldfastError(`--${flag}: is of a low-rank update; give --lora-rank, too`);
    return computedIn(base, dtype);
  }
  const inFiles = new Map(base.parameters.map(({ name }) => [name, 'f32' as const]));
  return withStored(
    computedIn(withLora(base, { rank, ...(targets && { targets }) }), dtype),
    baseStorage(base, inFiles, baseDtype),
  );
}

/** Low-rank updates are left out of the size: they are a small part of it. */
const scenarioOf = (flags: Flags): Scenario => ({
  ...flags,
  parameters: sizeOf(configOf(flags, flags.layers)).parameters,
  modelOf: (layers) => modelOf(flags, layers),
});

function planOne(host: Host, highs: Highs, flags: Flags): void {
  const { write } = host.terminal;
  const { recovery } = flags;
  const workloadOf = (changes: Partial<Flags> = {}) => {
    const { batch, context, accumulate } = { ...flags, ...changes };
    return trainingWorkload(model, traceStep(model, batch, context), accumulate, undefined, flags);
  };
  const model = modelOf(flags, flags.layers);
  const parameters = parameterCount(model);
  const workload = workloadOf();
  const smallest = smallestBudget(workload, DEFAULT_LIMITS, { recovery });
  const resident = fitMemory(workload, DEFAULT_LIMITS, undefined);
  const budget =
    flags.gpuMemory ?? Math.max(smallest, resident.peak - (resident.residents * resident.map.chunkBytes) / 2);
  if (budget < smallest) {
    const half = (changes: Partial<Flags>) =>
      formatBytes(smallestBudget(workloadOf(changes), DEFAULT_LIMITS, { recovery }));
    const knobs = [
      ...(flags.batch > 1 ? [`--batch ${flags.batch >> 1} needs ${half({ batch: flags.batch >> 1 })}`] : []),
      ...(flags.context > 1 ? [`--context ${flags.context >> 1} needs ${half({ context: flags.context >> 1 })}`] : []),
      ...(recovery === 'step'
        ? [
            `--recovery checkpoint needs ${formatBytes(smallestBudget(workload, DEFAULT_LIMITS, { recovery: 'checkpoint' }))}`,
          ]
        : []),
    ];
    throw new HoldfastError(
      `--gpu-memory ${formatBytes(budget)} is too little: ${smallest} bytes (${formatBytes(smallest)}) is the smallest ` +
        `budget that works, ${formatBytes(resident.nonModel.arenas)} of it for activations; ${knobs.join(', ')}`,
    );
  }

  const found = fitMemory(workload, DEFAULT_LIMITS, budget, { recovery });
  const { map, passes, nonModel, slots, staging, peak } = found;
  const { trace } = passes.step;
  const start = performance.now();
  const { plan, moved } = schedule(trace, slots, 'planned');
  const milliseconds = performance.now() - start;
  const room = trace.moments.map(() => slots);
  const cost = checkPlan(trace, plan, room);
  const linear = linearBound(highs, findGaps(trace, room)).chunks;
  const ratio = ratioTo(linear, cost);
  const { trainable, frozen } = map;
  const [padding, held] = [trainable.padding + frozen.padding, trainable.held + frozen.held];
  const tiled = trainable.tiled + frozen.tiled;
  const { chunks } = trainable;
  const flops = flopsOf(passes.step);
  const full = frozen.chunks > 0 ? fullStepFlops(makeModel(configOf(flags, flags.layers)), flags) : undefined;
  const again = recomputedFlops(passes.step);
  const { order, activations } = found.workload;
  const modes = activations?.modes ?? [];
  const offloaded = offloadedBytes(passes.step);

  if (flags.json) {
    write(
      `${JSON.stringify({
        parameters,
        trained: trainedCount(model),
        flops: { step: flops, ...(full !== undefined && { fullStep: full }) },
        modelDataBytes: found.residents * map.chunkBytes,
        bytesPerParameter: { all: trainedElementBytes(map.dtype), kept: keptBytes(map.dtype) },
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
        staging,
        moments: trace.moments.length,
        accumulateOrder: order?.order ?? 'batch',
        activations: { modes, recomputedFlops: again.flops, share: again.share, offloadedBytes: offloaded },
        bytesPerStep: moved,
        bound: { lp: linear * trace.chunkBytes, ratio },
        planMilliseconds: milliseconds,
      })}\n`,
    );
    return;
  }
  const shown = (bytes: number) => formatBytes(bytes).padStart(8);
  write(
    [
      `${flags.model}, ${flags.layers} layers of width ${flags.width}, vocabulary ${flags.vocabSize}: ${parameters.toLocaleString('en')} parameters`,
      `  ${shown(found.residents * map.chunkBytes)}  model data: ${frozen.chunks > 0 ? `${trainedCount(model).toLocaleString('en')} parameters that train, their` : 'parameters,'}${map.dtype === 'f32' ? ' gradients and two moments in f32' : ' in halves of f32 of which kernels read the upper one (bf16), gradients in bf16 once they are complete, two moments in f32'}`,
      `  ${`${trainedElementBytes(map.dtype)} bytes`.padStart(8)}  of it a parameter that trains, ${keptBytes(map.dtype)} of them from step to step`,
      ...(frozen.chunks > 0
        ? [
            `  ${shown(frozen.chunks * trace.chunkBytes)}  of it frozen${flags.baseDtype ? `, in ${flags.baseDtype}` : ''}: ${frozen.chunks} chunks that are only read`,
          ]
        : []),
      `            ${chunks} chunks of ${formatBytes(trace.chunkBytes)} a kind, ${tiled} tensors tiled by rows, ${((100 * padding) / held).toFixed(3)} % padding`,
      `  ${shown(nonModel.arenas)}  activations, batch ${flags.batch} x ${flags.context} (${formatBytes(nonModel.alive)} alive at once): ${describeModes(modes)}${again.flops > 0 ? `, ${(100 * again.share).toFixed(1)} % more arithmetic` : ''}`,
      `  ${shown(nonModel.persistent)}  inputs, scalars, masks, uniforms`,
      `  ${shown(smallest)}  is the smallest budget that works`,
      `  ${shown(budget)}  budget, ${formatBytes(peak)} of it used: ${slots} slots for ${chunkCount(trace)} chunks, ${staging.down} of staging down, ${staging.up} up`,
      `a step of ${flags.accumulate} micro-batch${flags.accumulate === 1 ? '' : 'es'} moves`,
      ...(order ? [`            ${describeOrder(order.order, found.orderSeconds)}`] : []),
      ...(offloaded > 0 ? [`  ${shown(offloaded)}  of activations down, and up again`] : []),
      `  ${shown(cost.h2dBytes)}  of chunks up, ${formatBytes(cost.d2hBytes)} down: ${ratio.toFixed(3)} x the least of any schedule (linear bound ${formatBytes(linear * trace.chunkBytes)})`,
      `  ${(flops / 1e9).toPrecision(4)} GFLOP a step${full === undefined ? '' : `, ${(flops / full).toFixed(3)} x those of a step that trains all of it`}`,
      `planned in ${milliseconds.toFixed(0)} ms: ${trace.moments.length} moments, ${cost.loads} loads, ${cost.stores} stores`,
      ...(flags.print ?? []).flatMap((part) => ['', LISTINGS[part](found, plan)]),
      '',
    ].join('\n'),
  );
}

/** Of a parameter that trains: bytes of what lives on from step to step. */
const keptBytes = (dtype: TrainingDtype): number =>
  lastingKinds(dtype).reduce((sum, kind) => sum + elementBytesOf(kind), 0);

/** Operations of a step that trains the whole model, with the activations kept. */
function fullStepFlops(model: Model, { batch, context, accumulate }: Flags): number {
  const step = traceStep(model, batch, context);
  const map = mapChunks(model.parameters, true, { minBytes: 0, maxBytes: DEFAULT_LIMITS.binding });
  return flopsOf(stepPass(step, map, accumulate));
}
