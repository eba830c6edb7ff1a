// `holdfast plan`: what training a model under a GPU budget would move and need, worked out with no GPU.

import { Command, Option } from 'commander';
import type { Highs } from 'highs';
import { dryRun, nonModelMemory } from '../engine/dry-run.ts';
import { linearBound, loadSolver } from '../memory/bound.ts';
import { PLANNER, ratioTo } from '../memory/compare.ts';
import { findGaps } from '../memory/gaps.ts';
import { chunkRange, ELEMENT_BYTES, searchLayout, type TiledLayout } from '../memory/layout.ts';
import { checkPlan, makePlan, printPlan } from '../memory/plan.ts';
import { planStep } from '../memory/planner.ts';
import { chunkCount, leastBudget, modelDataBytes, slotsUnder } from '../memory/trace.ts';
import { makeModel } from '../nn/index.ts';
import { type Model, parameterCount } from '../nn/model.ts';
import type { Host } from '../runtime/host.ts';
import { type StepPrograms, traceStep } from '../train/step-programs.ts';
import { formatBytes, parseBytes } from '../util/bytes.ts';
import { HoldfastError } from '../util/errors.ts';
import { configFromFlags } from './model-flags.ts';
import { checked, whole } from './options.ts';
import { comparePolicies } from './plan-compare.ts';

/** What every WebGPU adapter allows: a binding, and a buffer. */
const BINDING_BYTES = 128 * 2 ** 20;
const BUFFER_BYTES = 256 * 2 ** 20;

interface Flags {
  model: 'gpt2' | 'llama';
  layers: number;
  width: number;
  heads: number;
  kvHeads?: number;
  context: number;
  batch: number;
  accumulate: number;
  vocabSize: number;
  gpuMemory?: number;
  compare?: boolean;
  moments?: boolean;
  json?: boolean;
}

export function planCommand(host: Host): Command {
  return new Command('plan')
    .description('what training within a GPU budget would need and move, with no GPU')
    .addOption(new Option('--model <family>').choices(['gpt2', 'llama']).default('gpt2'))
    .option('--layers <n>', 'blocks', whole(1), 12)
    .option('--width <n>', 'embedding width', whole(1), 768)
    .option('--heads <n>', 'attention heads', whole(1), 12)
    .option('--kv-heads <n>', 'key and value heads, llama only (default: as many as heads)', whole(1))
    .option('--context <n>', 'tokens in a sequence', whole(1), 256)
    .option('--batch <n>', 'sequences in a micro-batch', whole(1), 1)
    .option('--accumulate <n>', 'micro-batches in a step', whole(1), 1)
    .option('--vocab-size <n>', 'tokens in the vocabulary', whole(2), 50257)
    .option(
      '--gpu-memory <bytes>',
      'the budget, as 64MB or 1.5GiB (default: half of what all would need)',
      checked(parseBytes),
    )
    .option('--moments', 'print what to do at each moment of a step')
    .option('--compare', 'eviction policies against the bound, on models and budgets of all sizes')
    .option('--json', 'one JSON object (with --compare, one a line)')
    .action(async (flags: Flags) => {
      const highs = await loadSolver();
      if (flags.compare) comparePolicies(host, highs, flags.json ?? false);
      else planOne(host, highs, flags);
    });
}

function planOne(host: Host, highs: Highs, flags: Flags): void {
  const { write } = host.terminal;
  const model = makeModel(configFromFlags({ ...flags, tied: false }));
  const programs = traceStep(model, flags.batch, flags.context);
  const parameters = parameterCount(model);
  const smallest = smallestBudget(model, programs, flags.accumulate);
  const rough = nonModelMemory(programs, smallestLayout(model), BUFFER_BYTES);
  const other = rough.arenas + rough.persistent;
  const budget = flags.gpuMemory ?? other + 4 * ELEMENT_BYTES * (parameters / 2);
  if (budget < smallest) {
    const half = (change: Partial<Flags>) => {
      const changed = { ...flags, ...change };
      const smaller = makeModel(configFromFlags({ ...changed, context: flags.context, tied: false }));
      return formatBytes(smallestBudget(smaller, traceStep(smaller, changed.batch, changed.context), flags.accumulate));
    };
    const knobs = [
      ...(flags.batch > 1 ? [`--batch ${flags.batch >> 1} needs ${half({ batch: flags.batch >> 1 })}`] : []),
      ...(flags.context > 1 ? [`--context ${flags.context >> 1} needs ${half({ context: flags.context >> 1 })}`] : []),
    ];
    throw new HoldfastError(
      `--gpu-memory ${formatBytes(budget)} is too little: ${smallest} bytes (${formatBytes(smallest)}) is the smallest ` +
        `budget that would do, ${formatBytes(other)} of it for activations and inputs; ${knobs.join(', ')}`,
    );
  }

  // Down to the smallest budget, whose own layout this is then.
  const layout = searchLayout(
    model.parameters,
    chunkRange(model.parameters, Math.max(0, budget - other), BINDING_BYTES),
  );
  const memory = nonModelMemory(programs, layout, BUFFER_BYTES);
  const nonModelBytes = memory.arenas + memory.persistent;
  const trace = dryRun(programs, { trainable: layout }, { accumulate: flags.accumulate, nonModelBytes });
  const slots = slotsUnder(trace, budget);
  const start = performance.now();
  const plan = makePlan(PLANNER, planStep(trace, slots));
  const milliseconds = performance.now() - start;
  const cost = checkPlan(trace, plan, slots);
  const linear = linearBound(highs, findGaps(trace, slots)).chunks;
  const bound = linear * trace.chunkBytes;
  const ratio = ratioTo(linear, cost);
  const waste = layout.padding / layout.held;

  if (flags.json) {
    const chunks = { bytes: trace.chunkBytes, perKind: layout.chunks, tiledTensors: layout.tiled, waste };
    const bytesPerStep = { h2d: cost.h2dBytes, d2h: cost.d2hBytes };
    write(
      `${JSON.stringify({
        parameters,
        modelDataBytes: modelDataBytes(trace),
        chunks,
        nonModelBytes: { ...memory, total: nonModelBytes },
        smallestBudget: smallest,
        budget,
        slots: Math.min(...slots),
        moments: trace.moments.length,
        bytesPerStep,
        bound: { lp: bound, ratio },
        planMilliseconds: milliseconds,
      })}\n`,
    );
    return;
  }
  const shown = (bytes: number) => formatBytes(bytes).padStart(8);
  write(
    [
      `${flags.model}, ${flags.layers} layers of width ${flags.width}, vocabulary ${flags.vocabSize}: ${parameters.toLocaleString('en')} parameters`,
      `  ${shown(modelDataBytes(trace))}  model data: parameters, gradients and two moments in f32`,
      `            ${layout.chunks} chunks of ${formatBytes(trace.chunkBytes)} a kind, ${layout.tiled} tensors tiled by rows, ${(100 * waste).toFixed(3)} % padding`,
      `  ${shown(memory.arenas)}  activations, batch ${flags.batch} x ${flags.context} (${formatBytes(memory.alive)} alive at once)`,
      `  ${shown(memory.persistent)}  inputs, scalars, masks, uniforms`,
      `  ${shown(smallest)}  is the smallest budget that would do`,
      `  ${shown(budget)}  budget: ${Math.min(...slots)} slots for ${chunkCount(trace)} chunks`,
      `a step of ${flags.accumulate} micro-batch${flags.accumulate === 1 ? '' : 'es'} moves`,
      `  ${shown(cost.h2dBytes)}  up, ${formatBytes(cost.d2hBytes)} down: ${ratio.toFixed(3)} x the least of any schedule (linear bound ${formatBytes(bound)})`,
      `planned in ${milliseconds.toFixed(0)} ms: ${trace.moments.length} moments, ${cost.loads} loads, ${cost.stores} stores`,
      ...(flags.moments ? [printPlan(trace, plan)] : []),
      '',
    ].join('\n'),
  );
}

/** The least GPU memory under which a step runs, staging apart: with the smallest chunks that make sense. */
function smallestBudget(model: Model, programs: StepPrograms, accumulate: number): number {
  const layout = smallestLayout(model);
  const { arenas, persistent } = nonModelMemory(programs, layout, BUFFER_BYTES);
  return leastBudget(dryRun(programs, { trainable: layout }, { accumulate, nonModelBytes: arenas + persistent }));
}

function smallestLayout(model: Model): TiledLayout {
  return searchLayout(model.parameters, chunkRange(model.parameters, 0, BINDING_BYTES));
}
